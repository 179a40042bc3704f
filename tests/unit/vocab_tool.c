/* Tokenizes texts with a model file's vocabulary, for comparisons with other tokenizers (scripts/check_vocabs.py).
 *
 * usage: vocab_tool MODEL [special] [bos]
 * Standard input: records of a 4-byte little-endian length and that many bytes of text. For each, one line: the ids, a
 * tab and the bytes they decode to in hexadecimal; or "error" and a message. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "format/gguf.h"
#include "text/tokenizer.h"

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void print_line(const struct tokenizer *t, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++) printf("%s%d", i ? " " : "", ids[i]);
    putchar('\t');
    int strip = tokenizer_strips_first_space(t);
    for (size_t i = 0; i < n; i++) {
        const char *bytes;
        size_t len;
        tokenizer_piece(t, ids[i], 1, &bytes, &len);
        for (size_t k = i == 0 && strip && len && bytes[0] == ' '; k < len; k++) printf("%02x", (uint8_t)bytes[k]);
    }
    putchar('\n');
}

static void answer(const struct tokenizer *t, int flags) {
    unsigned char head[4];
    while (fread(head, 1, 4, stdin) == 4) {
        size_t len = head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 | (size_t)head[3] << 24, n;
        char *text = mem_alloc(len + 1, 1);
        if (!text || fread(text, 1, len, stdin) != len) exit(1);
        cohort_error err;
        int32_t *ids;
        double start = now_ms();
        if (tokenizer_encode(t, text, len, flags, &ids, &n, &err)) {
            printf("error %s\n", err.text);
        } else {
            if (len > 100000) fprintf(stderr, "%zu bytes, %zu ids: %.1f ms\n", len, n, now_ms() - start);
            print_line(t, ids, n);
            mem_free(ids);
        }
        mem_free(text);
    }
}

int main(int argc, char **argv) {
    struct model_file *file;
    struct tokenizer *t;
    cohort_error err;
    int flags = 0;
    for (int i = 2; i < argc; i++)
        flags |= strcmp(argv[i], "special") == 0 ? TOKENIZER_SPECIAL : strcmp(argv[i], "bos") == 0 ? TOKENIZER_BOS : 0;
    if (argc < 2) return 2;
    double start = now_ms();
    if (model_file_open(argv[1], &file, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    double opened = now_ms();
    if (tokenizer_open(model_file_meta(file), &t, &err)) {
        fprintf(stderr, "%s: %s\n", cohort_error_name(err.code), err.text);
        model_file_close(file);
        return 3;
    }
    fprintf(stderr, "file %.1f ms, tokenizer %.1f ms, %u tokens\n", opened - start, now_ms() - opened,
            tokenizer_size(t));
    model_file_close(file);
    answer(t, flags);
    tokenizer_close(t);
    return 0;
}
