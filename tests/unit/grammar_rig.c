#include "grammar_rig.h"

#include <string.h>

static const char *const words[] = {"{\"",      "\": ",     "\", \"", "true", "false", "null", "ab", "abc",
                                    "the",      " the",     "\"}",    "], ",  "123",   "1.5",  "  ", "\n\n",
                                    "\xc3\xa9", "\xe2\x82", "a\"",    "<e",   "nd>",   "{}",   "[1", "x\": \""};
static const char *const controls[] = {"<end>", "<call>", "</call>", "<think>", "</think>"};
_Static_assert(RIG_WORDS_AT + sizeof words / sizeof *words == RIG_END,
               "words fill the places before the control tokens");

const struct grammar_limits rig_limits = {20000, 1u << 30};

struct grammar_vocab *rig_vocab(void) {
    static char bytes[256];
    struct grammar_piece pieces[RIG_VOCAB];
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        pieces[i] = (struct grammar_piece){bytes + i, 1, 0};
    }
    for (int i = RIG_WORDS_AT; i < RIG_END; i++)
        pieces[i] = (struct grammar_piece){words[i - RIG_WORDS_AT], (uint32_t)strlen(words[i - RIG_WORDS_AT]), 0};
    for (int i = RIG_END; i < RIG_VOCAB; i++)
        pieces[i] = (struct grammar_piece){controls[i - RIG_END], (uint32_t)strlen(controls[i - RIG_END]), 1};
    struct grammar_vocab *v = NULL;
    int32_t end = RIG_END;
    return grammar_vocab_make(&v, pieces, RIG_VOCAB, &end, 1, NULL) == 0 ? v : NULL;
}

int rig_compile(const struct grammar_vocab *v, cohort_grammar_kind kind, const char *text, int32_t space,
                struct grammar **out, cohort_error *err) {
    cohort_grammar_source source = {kind, text, text ? strlen(text) : 0, space};
    return grammar_compile(v, &source, &rig_limits, out, err);
}

const char *rig_text(int32_t token) {
    static char byte[2];
    if (token >= RIG_WORDS_AT) return words[token - RIG_WORDS_AT];
    byte[0] = (char)token;
    return byte;
}

int rig_allows(struct grammar_state *s, int32_t token) {
    uint32_t mask[RIG_MASK_WORDS];
    int rc = grammar_state_mask(s, mask);
    return rc < 0 ? -1 : (int)(mask[token / 32] >> token % 32 & 1);
}

static int32_t next_token(const char *text, size_t n, int longest) {
    int32_t token = (unsigned char)text[0];
    size_t best = 1;
    for (int i = RIG_WORDS_AT; longest && i < RIG_END; i++) {
        size_t len = strlen(words[i - RIG_WORDS_AT]);
        if (len > best && len <= n && !memcmp(words[i - RIG_WORDS_AT], text, len)) {
            token = i;
            best = len;
        }
    }
    return token;
}

int rig_takes(const struct grammar *g, const char *text, size_t n, int longest) {
    struct grammar_state *s;
    if (grammar_state_make(g, &s)) return -1;
    int takes = 1;
    for (size_t at = 0; takes == 1 && at < n;) {
        int32_t token = next_token(text + at, n - at, longest);
        int allowed = rig_allows(s, token), rc = grammar_state_accept(s, token);
        takes = (rc == 0) != allowed ? -1 : rc == 0;
        at += token < RIG_WORDS_AT ? 1 : strlen(words[token - RIG_WORDS_AT]);
    }
    if (takes == 1) {
        takes = grammar_state_complete(s);
        if (takes != rig_allows(s, RIG_END)) takes = -1;
    }
    grammar_state_free(s);
    return takes;
}
