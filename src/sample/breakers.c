/* Where texts end inside the text of tokens, wherever those begin (row.h). Pure; any thread. */
#include <string.h>

#include "sample/row.h"

/* The last bytes of the text before `position`, at most `most`, at the end of `tail`; returns how many. */
static size_t text_before(const struct sample_row *r, uint32_t position, size_t most, char *tail) {
    size_t n = 0;
    while (position-- > 0 && n < most) {
        const char *bytes;
        size_t len;
        tokenizer_piece(r->tokenizer, r->tokens[position], 0, &bytes, &len);
        size_t take = len < most - n ? len : most - n;
        if (take) memcpy(tail + most - n - take, bytes + len - take, take);
        n += take;
    }
    return n;
}

/* 1 if `text` ends inside [bytes, bytes + len), which `tail_n` bytes before `tail_end` precede. */
static int ends_in(const cohort_span *text, const char *tail_end, size_t tail_n, const char *bytes, size_t len) {
    if (memmem(bytes, len, text->bytes, text->len)) return 1;
    for (size_t before = 1; before < text->len && before <= tail_n; before++) {
        size_t rest = text->len - before;
        if (rest <= len && memcmp(tail_end - before, text->bytes, before) == 0 &&
            memcmp(bytes, text->bytes + before, rest) == 0)
            return 1;
    }
    return 0;
}

int breakers_end(const struct sample_row *r, uint32_t position, int32_t token) {
    char tail[COHORT_STOP_BYTES_MAX];
    const char *bytes;
    size_t len, most = r->breaker_max ? r->breaker_max - 1 : 0;
    if (r->breakers_n == 0) return 0;
    tokenizer_piece(r->tokenizer, token, 0, &bytes, &len);
    if (len == 0) return 0;
    size_t before = text_before(r, position, most, tail);
    for (uint32_t i = 0; i < r->breakers_n; i++)
        if (ends_in(&r->breakers[i], tail + most, before, bytes, len)) return 1;
    return 0;
}
