/* Writes the fuzzer's first model files: gguf_seeds FOLDER. */
#include <stdio.h>
#include <stdlib.h>

#include "base/dtype.h"
#include "base/meta.h"
#include "gguf_writer.h"

static void save(const char *folder, const char *name, struct buf *b) {
    char path[1024];
    snprintf(path, sizeof(path), "%s/%s.gguf", folder, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(b->data, 1, b->len, f) != b->len || fclose(f)) {
        perror(path);
        exit(1);
    }
    buf_free(b);
}

/* A value, or three, of every type. */
static struct buf metadata(void) {
    struct buf b = {0};
    gguf_head(&b, 2, 0, 26);
    for (uint32_t type = 0; type <= META_F64; type++) {
        char key[16];
        size_t size = type == META_STRING ? 8 : type == META_ARRAY ? 12 : meta_type_size(type);
        snprintf(key, sizeof(key), "k%u", type);
        gguf_key(&b, key, type);
        gguf_zeros(&b, size);
        snprintf(key, sizeof(key), "list%u", type);
        gguf_key_array(&b, key, type, 3);
        gguf_zeros(&b, 3 * size);
    }
    return b;
}

/* A tensor of each element type. */
static struct buf tensors(void) {
    struct buf b = {0};
    uint64_t n = 0, offset = 0;
    for (uint32_t type = 0; type < DTYPE_END; type++) n += dtype_info(type) != NULL;
    gguf_head(&b, 3, n, 0);
    for (uint32_t type = 0; type < DTYPE_END; type++) {
        const struct dtype_info *info = dtype_info(type);
        if (!info) continue;
        gguf_tensor(&b, info->name, 2, (uint64_t[]){info->block_elements, 1}, type, offset);
        offset += (info->block_bytes + 31) / 32 * 32;
    }
    gguf_pad(&b, 32);
    gguf_zeros(&b, offset);
    return b;
}

/* What a real file has. */
static struct buf model(void) {
    static const char *const words[] = {"<s>", "</s>", "\xe2\x96\x81the", "\xff", ""};
    struct buf b = {0};
    gguf_head(&b, 3, 2, 7);
    gguf_key_string(&b, "general.architecture", "llama");
    gguf_key_u32(&b, "general.alignment", 64);
    gguf_key_u32(&b, "split.count", 0);
    gguf_key_array(&b, "tokenizer.ggml.tokens", META_STRING, 5);
    for (int i = 0; i < 5; i++) gguf_string(&b, words[i]);
    gguf_key_array(&b, "tokenizer.ggml.scores", META_F32, 5);
    gguf_zeros(&b, 20);
    gguf_key_array(&b, "nested", META_ARRAY, 1);
    gguf_u32(&b, META_ARRAY);
    gguf_u64(&b, 1);
    gguf_u32(&b, META_STRING);
    gguf_u64(&b, 1);
    gguf_string(&b, "deep");
    gguf_key_string(&b, "k", "value");
    gguf_tensor(&b, "token_embd.weight", 4, (uint64_t[]){32, 5, 1, 1}, DTYPE_Q4_0, 64);
    gguf_tensor(&b, "output_norm.weight", 1, (uint64_t[]){8}, DTYPE_F32, 0);
    gguf_pad(&b, 64);
    gguf_zeros(&b, 64 + 90);
    return b;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: gguf_seeds FOLDER\n");
        return 1;
    }
    struct buf b = metadata();
    save(argv[1], "metadata", &b);
    b = tensors();
    save(argv[1], "tensors", &b);
    b = model();
    save(argv[1], "model", &b);
    gguf_head(&b, 3, 0, 0);
    save(argv[1], "empty", &b);
    return 0;
}
