/* Where texts end inside the text of tokens, wherever those begin (row.h). Pure; any thread. */
#include <string.h>

#include "sample/row.h"

void breakers_tail(const struct sample_row *r, uint32_t position, struct breakers_tail *out) {
    size_t most = r->breaker_max ? r->breaker_max - 1 : 0;
    uint32_t first = position > BREAKERS_TOKENS ? position - BREAKERS_TOKENS : 0;
    out->n = 0;
    if (r->breakers_n == 0) return;
    while (position-- > first && out->n < most) {
        const char *bytes;
        size_t len;
        tokenizer_piece(r->tokenizer, r->tokens[position], 0, &bytes, &len);
        size_t take = len < most - out->n ? len : most - out->n;
        if (take) memcpy(out->bytes + sizeof out->bytes - out->n - take, bytes + len - take, take);
        out->n += take;
    }
}

/* 1 if `text` ends inside [bytes, bytes + len), which `tail_n` bytes before `tail_end` precede. */
static int ends_in(const cohort_span *text, const char *tail_end, size_t tail_n, const char *bytes, size_t len) {
    if (memmem(bytes, len, text->bytes, text->len)) return 1;
    for (size_t before = text->len > len ? text->len - len : 1; before < text->len && before <= tail_n; before++) {
        size_t rest = text->len - before;
        if (memcmp(tail_end - before, text->bytes, before) == 0 && memcmp(bytes, text->bytes + before, rest) == 0)
            return 1;
    }
    return 0;
}

int breakers_end_behind(const struct sample_row *r, const struct breakers_tail *tail, int32_t token) {
    const char *bytes;
    size_t len;
    if (r->breakers_n == 0) return 0;
    tokenizer_piece(r->tokenizer, token, 0, &bytes, &len);
    for (uint32_t i = 0; i < r->breakers_n && len; i++)
        if (ends_in(&r->breakers[i], tail->bytes + sizeof tail->bytes, tail->n, bytes, len)) return 1;
    return 0;
}

int breakers_end(const struct sample_row *r, uint32_t position, int32_t token) {
    struct breakers_tail tail;
    breakers_tail(r, position, &tail);
    return breakers_end_behind(r, &tail, token);
}
