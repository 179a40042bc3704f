/* Answers to a reader, whole and cut at random: no crash, the same parts joined, bounded holding, whole characters, and
 * arguments that are JSON where their call has an end. Byte 0: the notation; 1: reasoning; 2: the seed of the cuts and
 * where the prompt ends. */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "chat/notation.h"
#include "chat/walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":"
                            "\"object\",\"properties\":{"
                            "\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},\"more\":{}}}}},"
                            "{\"type\":\"function\",\"function\":{\"name\":\"stop\"}}]";

static void require(int holds) {
    if (!holds) abort();
}

struct joined {
    struct buf all, arguments;
    cohort_part_type last;
    size_t out;
};

static void take(struct chat_reader *r, struct joined *j) {
    cohort_part p;
    while (!chat_reader_next(r, &p)) {
        int streamed = p.type != COHORT_PART_CALL && p.type != COHORT_PART_CALL_END;
        if (p.type != j->last || !streamed) require(!buf_addf(&j->all, "\1%d ", p.type));
        j->last = p.type;
        require(!buf_add(&j->all, p.bytes, p.len));
        j->out += p.len;
        if (p.type == COHORT_PART_CALL) {
            require(p.len && p.len <= CHAT_NAME_MAX);
            buf_clear(&j->arguments);
        }
        if (p.type == COHORT_PART_ARGUMENTS) {
            require(utf8_valid(p.bytes, p.len));
            require(!buf_add(&j->arguments, p.bytes, p.len));
        }
        if (p.type == COHORT_PART_CALL_END) require(chat_walk_valid(j->arguments.data, j->arguments.len));
    }
}

static void read_cut(const struct chat_format *f, const struct chat_wants *w, const char *text, size_t n,
                     uint64_t first, struct joined *j) {
    struct chat_reader *r;
    uint64_t seed = first;
    require(!chat_reader_make(f, w, &r, NULL));
    for (size_t at = 0; at < n;) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        size_t piece = seed >> 63 ? 1 : 1 + (seed >> 33) % 64;
        if (!first || piece > n - at) piece = n - at;
        require(!chat_reader_feed(r, text + at, piece, 0));
        at += piece;
        take(r, j);
    }
    require(!chat_reader_feed(r, "", 0, 1));
    take(r, j);
    chat_reader_free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 3 || size > 100000) return 0;
    const struct chat_calls *c = &chat_calls_table[data[0] % chat_calls_n];
    size_t which = data[1] % (chat_reasoning_n + 1);
    const struct chat_format *f = chat_format_make(c, which < chat_reasoning_n ? &chat_reasoning_table[which] : NULL);
    const char *prompt = data[2] & 1 && f->reasoning.open ? f->reasoning.open : data[2] & 2 ? c->call : "";
    if (!prompt) prompt = "";
    cohort_chat chat = {.messages = "[]", .messages_n = 2, .ending = 1};
    chat.tools = tools;
    chat.tools_n = sizeof tools - 1;
    struct chat_wants w = {.chat = &chat, .prompt = prompt, .prompt_n = strlen(prompt)};
    struct joined whole = {0}, cut = {0};
    const char *text = (const char *)data + 3;
    read_cut(f, &w, text, size - 3, 0, &whole);
    read_cut(f, &w, text, size - 3, data[2] + 1u, &cut);
    require(whole.all.len == cut.all.len && (!whole.all.len || !memcmp(whole.all.data, cut.all.data, cut.all.len)));
    buf_free(&whole.all);
    buf_free(&whole.arguments);
    buf_free(&cut.all);
    buf_free(&cut.arguments);
    chat_format_unref(f);
    return 0;
}
