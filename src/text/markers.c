/* Turn markers: which tokens end generation, and which are markers although the file calls them user-defined. A
 * marker in a user's message must stay text, so it may not be of a type that is found in any text; what else is written
 * like a tag is a marker in chats. */
#include <string.h>

#include "base/mem.h"
#include "text/tokenizer_internal.h"

static const struct {
    const char *text;
    int end; /* 2: only where the file does not call it plain text */
} markers[] = {
    /* ends of turns and of texts */
    {"<|eot_id|>", 1},
    {"<|eom_id|>", 1},
    {"<|end_of_text|>", 1},
    {"<|endoftext|>", 1},
    {"<|im_end|>", 1},
    {"<|end|>", 1},
    {"<|return|>", 1},
    {"<|call|>", 1},
    {"<|calls|>", 1},
    {"<|flush|>", 1},
    {"<end_of_turn>", 1},
    {"<turn|>", 1},
    {"<|tool_response>", 1},
    {"<end_of_utterance>", 1},
    {"<|END_OF_TURN_TOKEN|>", 1},
    {"<\xef\xbd\x9c"
     "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>",
     1},
    {"<|EOT|>", 1},
    {"<EOT>", 1},
    {"[EOT]", 1},
    {"[EOS]", 1},
    {"<|endofturn|>", 1},
    {"[|endofturn|]", 1},
    /* between files and repositories, where a code model's answer ends */
    {"<|fim_pad|>", 2},
    {"<|repo_name|>", 2},
    {"<|file_sep|>", 2},
    /* beginnings and separators */
    {"<start_of_turn>", 0},
    {"<|turn>", 0},
    {"<|im_start|>", 0},
    {"<|im_sep|>", 0},
    {"<|begin_of_text|>", 0},
    {"<|start_header_id|>", 0},
    {"<|end_header_id|>", 0},
    {"<|system|>", 0},
    {"<|user|>", 0},
    {"<|assistant|>", 0},
    {"<|observation|>", 0},
    {"<|start|>", 0},
    {"<|message|>", 0},
    {"<|channel|>", 0},
    {"<|constrain|>", 0},
    {"[INST]", 0},
    {"[/INST]", 0},
    {"[SYSTEM_PROMPT]", 0},
    {"[/SYSTEM_PROMPT]", 0},
    {"[AVAILABLE_TOOLS]", 0},
    {"[/AVAILABLE_TOOLS]", 0},
    {"[TOOL_CALLS]", 0},
    {"[TOOL_RESULTS]", 0},
    {"[/TOOL_RESULTS]", 0},
    {"<|START_OF_TURN_TOKEN|>", 0},
    {"<|SYSTEM_TOKEN|>", 0},
    {"<|USER_TOKEN|>", 0},
    {"<|CHATBOT_TOKEN|>", 0},
    {"<\xef\xbd\x9cUser\xef\xbd\x9c>", 0},
    {"<\xef\xbd\x9c"
     "Assistant\xef\xbd\x9c>",
     0},
};

/* For filling in: what the file says, by its newer key or its older one, or else a text that some family has. */
#define BAR "\xef\xbd\x9c" /* U+FF5C */
#define GAP "\xe2\x96\x81" /* U+2581 */
static const struct {
    const char *keys[2], *texts[8];
} fills[TOKENIZER_FILLS] = {
    [TOKENIZER_FILL_PREFIX] = {{"tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id"},
                               {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<" BAR "fim" GAP "begin" BAR ">",
                                "<PRE>", GAP "<PRE>", "<|code_prefix|>", "<|prefix|>"}},
    [TOKENIZER_FILL_SUFFIX] = {{"tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id"},
                               {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<" BAR "fim" GAP "hole" BAR ">",
                                "<SUF>", GAP "<SUF>", "<|code_suffix|>", "<|suffix|>"}},
    [TOKENIZER_FILL_MIDDLE] = {{"tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id"},
                               {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<" BAR "fim" GAP "end" BAR ">",
                                "<MID>", GAP "<MID>", "<|code_middle|>", "<|middle|>"}},
    [TOKENIZER_FILL_PAD] = {{"tokenizer.ggml.fim_pad_token_id"}, {"<|fim_pad|>", "<fim-pad>", "<fim_pad>"}},
    [TOKENIZER_FILL_REPOSITORY] = {{"tokenizer.ggml.fim_rep_token_id"},
                                   {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}},
    [TOKENIZER_FILL_FILE] = {{"tokenizer.ggml.fim_sep_token_id"}, {"<|file_sep|>"}},
};

static int32_t find(const struct tokenizer *t, const char *text) { return vocab_find(&t->vocab, text, strlen(text)); }

static void mark_texts(struct tokenizer *t) {
    struct vocab *v = &t->vocab;
    for (size_t i = 0; i < sizeof(markers) / sizeof(markers[0]); i++) {
        int32_t id = find(t, markers[i].text);
        if (id < 0) continue;
        /* some files call ends of turns plain text */
        if (v->type[id] != TOKEN_CONTROL && v->type[id] != TOKEN_USER &&
            !(markers[i].end == 1 && v->type[id] == TOKEN_NORMAL))
            continue;
        v->type[id] = TOKEN_CONTROL;
        if (markers[i].end) t->flags[id] |= ID_END;
    }
    /* Where an answer ends with <|return|> or <|call|>, <|end|> closes only one of its messages. */
    int32_t end = find(t, "<|end|>");
    int harmony = find(t, "<|return|>") >= 0 && find(t, "<|call|>") >= 0;
    int solar = find(t, "<|flush|>") >= 0 && find(t, "<|calls|>") >= 0;
    if (end >= 0 && (harmony || solar)) t->flags[end] &= (uint8_t)~ID_END;
}

/* In a text for filling in they are markers, so none of them may come from a user's text either. */
static void mark_fills(struct tokenizer *t, const struct meta *meta) {
    struct vocab *v = &t->vocab;
    for (int i = 0; i < TOKENIZER_FILLS; i++) {
        uint32_t key_id;
        int32_t id = -1;
        for (int k = 0; k < 2 && id < 0 && fills[i].keys[k]; k++) /* in range: checked before */
            if (meta_u32(meta, fills[i].keys[k], &key_id, NULL) == 0) id = (int32_t)key_id;
        for (int k = 0; k < 8 && id < 0 && fills[i].texts[k]; k++) {
            id = find(t, fills[i].texts[k]);
            if (id >= 0 && v->type[id] != TOKEN_CONTROL && v->type[id] != TOKEN_USER) id = -1;
        }
        t->fill[i] = id;
        if (id >= 0 && v->type[id] == TOKEN_USER) v->type[id] = TOKEN_CONTROL;
    }
}

/* Phi-3's tokenizer drops white space behind its turn markers; the file has no key that says so. */
static void mark_phi3(struct tokenizer *t, const struct meta *meta) {
    struct meta_string name = {0};
    meta_string(meta, "general.architecture", &name, NULL);
    if (t->kind != KIND_SCORES || name.len != 4 || memcmp(name.bytes, "phi3", 4) != 0) return;
    for (uint32_t id = 0; id < t->vocab.n; id++)
        if (t->vocab.type[id] == TOKEN_CONTROL || t->vocab.type[id] == TOKEN_USER) t->flags[id] |= ID_EATS_SPACE;
    static const char *const plain[] = {"<unk>", "<s>", "<|endoftext|>"};
    for (int i = 0; i < 3; i++) {
        int32_t id = find(t, plain[i]);
        if (id >= 0) t->flags[id] &= (uint8_t)~ID_EATS_SPACE;
    }
}

/* Tags of HTML that some vocabularies have: they are text. */
static int is_html(const char *name, size_t n) {
    static const char *const names[] = {"a",     "b",      "bbox",   "blockquote", "body", "caption", "code",  "div",
                                        "em",    "footer", "h1",     "h2",         "h3",   "h4",      "h5",    "h6",
                                        "html",  "i",      "iframe", "img",        "li",   "ol",      "p",     "pre",
                                        "s",     "span",   "strong", "sub",        "sup",  "table",   "tbody", "td",
                                        "tfoot", "th",     "thead",  "tr",         "u",    "ul"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strlen(names[i]) == n && memcmp(names[i], name, n) == 0) return 1;
    return 0;
}

static int is_tag(const char *s, size_t n) {
    if (n < 3 || !((s[0] == '<' && s[n - 1] == '>') || (s[0] == '[' && s[n - 1] == ']'))) return 0;
    size_t slash = s[1] == '/';
    return s[0] == '[' || !is_html(s + 1 + slash, n - 2 - slash);
}

static void mark_tags(struct tokenizer *t) {
    for (uint32_t id = 0; id < t->vocab.n; id++) {
        size_t n;
        const char *text = vocab_text(&t->vocab, id, &n);
        if (t->vocab.type[id] == TOKEN_USER && is_tag(text, n)) t->flags[id] |= ID_MARKER;
    }
}

int markers_load(struct tokenizer *t, const struct meta *meta, cohort_error *err) {
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    t->flags = mem_zalloc(t->vocab.n, 1);
    if (!t->flags) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the vocabulary");
    mark_texts(t);
    mark_fills(t, meta);
    for (int i = 0; i < 3; i++) { /* in range: checked before */
        uint32_t id;
        if (meta_u32(meta, keys[i], &id, NULL) == 0) t->flags[id] |= ID_END;
    }
    mark_phi3(t, meta);
    mark_tags(t);
    return 0;
}
