/* Which description a template's answers are read by: the one whose reader gets back, from what the template itself
 * writes of a call, that call. Formats found are counted; any thread. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/real.h"
#include "chat/notation.h"

void chat_format_ref(const struct chat_format *f) {
    if (!f->fixed) atomic_fetch_add(&((struct chat_format *)f)->refs, 1);
}

void chat_format_unref(const struct chat_format *f) {
    if (f && !f->fixed && atomic_fetch_sub(&((struct chat_format *)f)->refs, 1) == 1) mem_free((void *)f);
}

const char *chat_format_name(const struct chat_format *f) { return f->name; }
const char *chat_format_reasoning_end(const struct chat_format *f) {
    return f->reasoning.open ? f->reasoning.close : "";
}

static void fill_literal(const char **literal) {
    if (!*literal) *literal = "";
}

static struct chat_format *make(const struct chat_calls *calls, const struct chat_reasoning *reasoning) {
    struct chat_format *f = mem_zalloc(1, sizeof *f);
    if (!f) return NULL;
    atomic_init(&f->refs, 1);
    f->calls = calls ? *calls : chat_format_house.calls;
    if (reasoning) f->reasoning = *reasoning;
    const char **literals[] = {&f->calls.section,  &f->calls.section_end, &f->calls.call,
                               &f->calls.call_end, &f->calls.between,     &f->calls.name_end};
    for (size_t i = 0; i < sizeof literals / sizeof *literals; i++) fill_literal(literals[i]);
    const char *name = calls ? calls->name : "house", *plus = reasoning ? reasoning->name : "";
    if ((size_t)snprintf(f->name, sizeof f->name, "%s%s%s", name, *plus ? "+" : "", plus) >= sizeof f->name)
        f->name[0] = 0;
    return f;
}

const struct chat_format *chat_format_make(const struct chat_calls *calls, const struct chat_reasoning *reasoning) {
    return make(calls, reasoning);
}

/* ---- What templates write for probes ---- */

#define PROBE_TOOLS                                                                                                    \
    "[{\"type\":\"function\",\"function\":{\"name\":\"probe_tool\",\"description\":\"Probes.\",\"parameters\":{"       \
    "\"type\":\"object\",\"properties\":{\"prb_s\":{\"type\":\"string\",\"description\":\"s\"},\"prb_n\":{\"type\":"   \
    "\"integer\",\"description\":\"n\"}},\"required\":[\"prb_s\",\"prb_n\"]}}}]"
#define PROBE_USER "{\"role\":\"user\",\"content\":\"PROBEUSER\"}"
#define PROBE_CALL(content, arguments, more)                                                                           \
    "{\"role\":\"assistant\",\"content\":" content ",\"tool_calls\":[{\"id\":\"probeid01\",\"type\":\"function\","     \
    "\"function\":{\"name\":\"probe_tool\",\"arguments\":" arguments "}}]" more "}"
#define PROBE_ONE(arguments, id)                                                                                       \
    "{\"id\":\"probeid" id "\",\"type\":\"function\",\"function\":{\"name\":\"probe_tool\",\"arguments\":" arguments   \
    "}}"
#define PROBE_CALLS(arguments)                                                                                         \
    "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[" PROBE_ONE(arguments, "01") "," PROBE_ONE(arguments,    \
                                                                                                         "02") "]}"
#define PROBE_OBJECT "{\"prb_s\":\"PROBEVALUE\",\"prb_n\":4711}"
#define PROBE_STRING "\"{\\\"prb_s\\\": \\\"PROBEVALUE\\\", \\\"prb_n\\\": 4711}\""
#define PROBE_REASONS                                                                                                  \
    ",\"reasoning_content\":\"PROBETHOUGHT\",\"reasoning\":\"PROBETHOUGHT\",\"thinking\":\"PROBETHOUGHT\""

struct probe {
    chat_probe_fn fn;
    void *user;
};

/* Text that the template writes, NUL-terminated; NULL: it refuses. */
static char *written(const struct probe *p, const char *messages, const char *tools, const char *variables,
                     int generation) {
    char *text = NULL;
    size_t n = 0;
    if (p->fn(p->user, messages, tools, variables, generation, &text, &n) || !text) return NULL;
    char *ended = mem_realloc(text, n + 1, 1);
    if (!ended) {
        mem_free(text);
        return NULL;
    }
    ended[n] = 0;
    return ended;
}

static int contains(const char *text, const char *what) { return text && what && strstr(text, what) != NULL; }

static const char *answer_in(const char *text) {
    const char *at = NULL;
    for (const char *p = text; (p = strstr(p, "PROBEUSER")); p++) at = p + 9;
    return at ? at : text;
}

struct read_back {
    int calls, right_name, ended;
    struct buf arguments, reasoning;
};

static int read_all(const struct chat_format *f, const char *text, int strict, struct read_back *b) {
    struct chat_reader *r;
    memset(b, 0, sizeof *b);
    if (chat_reader_make_probe(f, PROBE_TOOLS, strlen(PROBE_TOOLS), strict, &r, NULL)) return COHORT_E_MEMORY;
    int e = chat_reader_feed(r, text, strlen(text), 1);
    cohort_part part;
    while (!e && !chat_reader_next(r, &part)) {
        if (part.type == COHORT_PART_CALL) {
            b->calls++;
            b->right_name = part.len == 10 && !memcmp(part.bytes, "probe_tool", 10);
        }
        if (part.type == COHORT_PART_CALL_END) b->ended++;
        if (part.type == COHORT_PART_ARGUMENTS) e = buf_add(&b->arguments, part.bytes, part.len);
        if (part.type == COHORT_PART_REASONING) e = buf_add(&b->reasoning, part.bytes, part.len);
    }
    chat_reader_free(r);
    return e;
}

static void read_free(struct read_back *b) {
    buf_free(&b->arguments);
    buf_free(&b->reasoning);
}

/* 1: the call in the text is read as the probe's. */
static int reads_call(const struct chat_calls *calls, const char *text, int strict) {
    const struct chat_format *f = chat_format_make(calls, NULL);
    if (!f) return 0;
    struct read_back b;
    int right = 0;
    if (!read_all(f, text, strict, &b) && b.calls == 1 && b.right_name && b.ended == 1) {
        json_t *got = json_loadb(b.arguments.data, b.arguments.len, 0, NULL);
        json_t *want = json_loads(PROBE_OBJECT, 0, NULL);
        right = got && want && json_equal(got, want);
        json_decref(got);
        json_decref(want);
    }
    read_free(&b);
    chat_format_unref(f);
    return right;
}

static int reads_reasoning(const struct chat_reasoning *reasoning, const char *text) {
    const struct chat_format *f = chat_format_make(NULL, reasoning);
    if (!f) return 0;
    struct read_back b;
    int right = !read_all(f, text, 0, &b) && b.reasoning.len == 12 && !memcmp(b.reasoning.data, "PROBETHOUGHT", 12);
    read_free(&b);
    chat_format_unref(f);
    return right;
}

/* ---- Calls ---- */

static const struct chat_calls *find_calls_in(const char *text) {
    const char *answer = text ? answer_in(text) : NULL;
    for (int strict = 1; answer && strict >= 0; strict--)
        for (size_t i = 0; i < chat_calls_n; i++)
            if (reads_call(&chat_calls_table[i], answer, strict)) return &chat_calls_table[i];
    return NULL;
}

static const struct chat_calls *find_hinted(const char *text, const char *prompt) {
    for (size_t i = 0; i < chat_calls_n; i++) {
        const struct chat_calls *c = &chat_calls_table[i];
        for (size_t k = 0; k < sizeof c->hints / sizeof *c->hints; k++)
            if (contains(prompt, c->hints[k]) || contains(text, c->hints[k])) return c;
    }
    return NULL;
}

/* By what the template writes of a call whose arguments are an object, or a string of JSON; else by what it says. */
static const struct chat_calls *find_calls(const struct probe *p, const char *template_text,
                                           struct chat_abilities *out) {
    static const char *const objects[] = {
        "[" PROBE_USER "," PROBE_CALL("\"\"", PROBE_OBJECT, "") "]",
        "[" PROBE_USER "," PROBE_CALL("null", PROBE_OBJECT, "") "]",
        "[" PROBE_USER "," PROBE_CALL("\"PROBETEXT\"", PROBE_OBJECT, PROBE_REASONS) "]",
    };
    static const char *const strings[] = {
        "[" PROBE_USER "," PROBE_CALL("\"\"", PROBE_STRING, "") "]",
        "[" PROBE_USER "," PROBE_CALL("null", PROBE_STRING, "") "]",
    };
    const struct chat_calls *found = NULL, *quoted = NULL;
    for (size_t i = 0; i < 2 && !found; i++) {
        char *text = written(p, strings[i], PROBE_TOOLS, NULL, 0);
        found = find_calls_in(text);
        if (found && contains(answer_in(text), "\\\"prb_s")) { /* a string within JSON: the model was taught objects */
            quoted = quoted ? quoted : found;
            found = NULL;
        }
        mem_free(text);
    }
    for (size_t i = 0; i < 3 && !found; i++) {
        char *text = written(p, objects[i], PROBE_TOOLS, NULL, 0);
        found = find_calls_in(text);
        out->object_arguments = found != NULL;
        mem_free(text);
    }
    if (!found) found = quoted;
    out->call_turns = found != NULL;
    if (found) return found;
    char *prompt = written(p, "[" PROBE_USER "]", PROBE_TOOLS, NULL, 1);
    found = find_hinted(template_text, prompt);
    mem_free(prompt);
    return found;
}

/* The template's own white space around what it writes. */
static void derive(const struct probe *p, struct chat_format *f, int objects) {
    static const char *const messages[] = {"[" PROBE_USER "," PROBE_CALLS(PROBE_STRING) "]",
                                           "[" PROBE_USER "," PROBE_CALLS(PROBE_OBJECT) "]"};
    char *text = written(p, messages[objects], PROBE_TOOLS, NULL, 0);
    if (text) chat_derive(f, answer_in(text));
    mem_free(text);
}

/* ---- Reasoning ---- */

static size_t trimmed(const char *s, size_t n) {
    while (n && chat_is_space(s[n - 1])) n--;
    return n;
}

static int ends_with(const char *s, size_t n, const char *end) {
    size_t len = end ? trimmed(end, strlen(end)) : 0;
    n = trimmed(s, n);
    return len && n >= len && !memcmp(s + n - len, end, len);
}

static const struct chat_reasoning *find_written_reasoning(const struct probe *p) {
    static const char *const messages[] = {
        "[" PROBE_USER ",{\"role\":\"assistant\",\"content\":\"PROBETEXT\"" PROBE_REASONS "}]",
        "[" PROBE_USER "," PROBE_CALL("\"\"", PROBE_STRING, PROBE_REASONS) "]",
        "[" PROBE_USER "," PROBE_CALL("\"\"", PROBE_OBJECT, PROBE_REASONS) "]",
        "[" PROBE_USER "," PROBE_CALL("\"\"", PROBE_OBJECT, ",\"reasoning_content\":\"PROBETHOUGHT\"") "]",
        "[" PROBE_USER "," PROBE_CALL("\"\"", PROBE_OBJECT, ",\"thinking\":\"PROBETHOUGHT\"") "]",
    };
    const struct chat_reasoning *found = NULL;
    for (size_t k = 0; k < sizeof messages / sizeof *messages && !found; k++) {
        char *text = written(p, messages[k], k ? PROBE_TOOLS : NULL, NULL, 0);
        const char *answer = text ? answer_in(text) : NULL;
        for (size_t i = 0; contains(answer, "PROBETHOUGHT") && i < chat_reasoning_n && !found; i++)
            if (reads_reasoning(&chat_reasoning_table[i], answer)) found = &chat_reasoning_table[i];
        mem_free(text);
    }
    return found;
}

static const struct chat_reasoning *find_reasoning(const struct probe *p, const char *template_text) {
    static const char *const variables[] = {NULL, "{\"enable_thinking\":true,\"thinking\":true,\"reasoning\":true}",
                                            "{\"enable_thinking\":false,\"thinking\":false,\"reasoning\":false}"};
    const struct chat_reasoning *found = find_written_reasoning(p);
    for (size_t k = 0; k < 3 && !found; k++) {
        char *text = written(p, "[" PROBE_USER "]", NULL, variables[k], 1);
        for (size_t i = 0; text && i < chat_reasoning_n && !found; i++) {
            const struct chat_reasoning *w = &chat_reasoning_table[i];
            if (ends_with(text, strlen(text), w->open) || ends_with(text, strlen(text), w->close)) found = w;
        }
        mem_free(text);
    }
    for (size_t i = chat_reasoning_n; i-- && !found;)
        if (contains(template_text, chat_reasoning_table[i].hint)) found = &chat_reasoning_table[i];
    return found;
}

/* ---- Abilities ---- */

static int writes(const struct probe *p, const char *messages, const char *tools, const char *what) {
    char *text = written(p, messages, tools, NULL, 1);
    int yes = contains(text, what);
    mem_free(text);
    return yes;
}

#define PROBE_RESULT                                                                                                   \
    ",{\"role\":\"tool\",\"tool_call_id\":\"probeid01\",\"name\":\"probe_tool\",\"content\":\"PROBERESULT\"}]"

static void find_abilities(const struct probe *p, struct chat_abilities *out) {
    static const char typed[] = "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"PROBEUSER\"}]}]";
    out->typed_content = !writes(p, "[" PROBE_USER "]", NULL, "PROBEUSER") && writes(p, typed, NULL, "PROBEUSER");
    out->system = writes(p, "[{\"role\":\"system\",\"content\":\"PROBESYSTEM\"}," PROBE_USER "]", NULL, "PROBESYSTEM");
    out->tools = (uint8_t)(writes(p, "[" PROBE_USER "]", PROBE_TOOLS, "probe_tool") ||
                           (out->typed_content && writes(p, typed, PROBE_TOOLS, "probe_tool")));
    out->tool_turns = (uint8_t)(writes(p, "[" PROBE_USER "," PROBE_CALL("\"\"", PROBE_STRING, "") PROBE_RESULT,
                                       PROBE_TOOLS, "PROBERESULT") ||
                                writes(p, "[" PROBE_USER "," PROBE_CALL("\"\"", PROBE_OBJECT, "") PROBE_RESULT,
                                       PROBE_TOOLS, "PROBERESULT"));
}

int chat_format_find(const char *template_text, size_t len, chat_probe_fn probe, void *user, struct chat_abilities *out,
                     cohort_error *err) {
    struct probe p = {probe, user};
    memset(out, 0, sizeof *out);
    out->format = &chat_format_house;
    char *text = mem_alloc(len + 1, 1);
    if (!text) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for a template's text");
    memcpy(text, template_text, len);
    text[len] = 0;
    find_abilities(&p, out);
    const struct chat_calls *calls = find_calls(&p, text, out);
    const struct chat_reasoning *reasoning = find_reasoning(&p, text);
    mem_free(text);
    out->tools = out->tools && calls;
    out->reasoning = reasoning != NULL;
    if (!calls && !reasoning) return 0;
    struct chat_format *f = make(calls, reasoning);
    if (!f) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for a format");
    if (out->call_turns) derive(&p, f, out->object_arguments);
    out->format = f;
    return 0;
}

/* ---- What a prompt's end says ---- */

static const char *find_last(const char *s, size_t n, const char *what) {
    size_t len = trimmed(what, strlen(what));
    for (size_t i = n; len && i-- > 0;)
        if (n - i >= len && !memcmp(s + i, what, len)) return s + i;
    return NULL;
}

/* An answer that goes on: by the text that it has. */
static enum chat_begins continued(const struct chat_reasoning *w, const cohort_chat *chat) {
    json_t *messages = json_loadb(chat->messages, chat->messages_n, 0, NULL);
    json_t *content = json_object_get(json_array_get(messages, json_array_size(messages) - 1), "content");
    enum chat_begins begins = CHAT_BEGINS_TEXT;
    if (json_is_string(content)) {
        const char *s = json_string_value(content);
        size_t n = json_string_length(content);
        const char *open = find_last(s, n, w->open), *close = find_last(s, n, w->close);
        if (open && (!close || close < open)) begins = CHAT_BEGINS_REASONING;
    }
    json_decref(messages);
    return begins;
}

enum chat_begins chat_format_begins(const struct chat_format *f, const struct chat_wants *w) {
    const struct chat_reasoning *reasoning = &f->reasoning;
    if (!reasoning->open) return CHAT_BEGINS_TEXT;
    if (w->chat->ending == COHORT_CHAT_CONTINUE) return continued(reasoning, w->chat);
    if (ends_with(w->prompt, w->prompt_n, reasoning->open) || ends_with(w->prompt, w->prompt_n, reasoning->open_too))
        return CHAT_BEGINS_REASONING;
    if (ends_with(w->prompt, w->prompt_n, reasoning->close)) return CHAT_BEGINS_TEXT;
    return CHAT_BEGINS_MAYBE;
}

int chat_format_reasons(const struct chat_format *f, const struct chat_wants *w) {
    return chat_format_begins(f, w) != CHAT_BEGINS_TEXT;
}

const char *chat_format_reasoning_begin(const struct chat_format *f, const struct chat_wants *w) {
    return chat_format_begins(f, w) == CHAT_BEGINS_MAYBE ? f->reasoning.open : "";
}

int chat_format_reads(const struct chat_format *f, const struct chat_wants *w) {
    int calls = w->chat->tools && w->chat->tool_choice != COHORT_TOOLS_NONE;
    return calls || f->reasoning.open || f->calls.skip[0];
}

/* ---- For models that their templates do not tell of tools ---- */

/* A call as it is to be written, with capitals for what varies. */
static int write_example(const struct chat_calls *c, struct buf *b) {
    int e = buf_adds(b, c->section);
    if (!e) e = buf_adds(b, c->call);
    if (!e && c->shape == CHAT_SHAPE_OBJECT)
        e = buf_addf(b, "{\"%s\": \"NAME\", \"%s\": {\"PARAMETER\": \"VALUE\"}}", c->name_key, c->values_key);
    if (!e && c->shape == CHAT_SHAPE_NAMED)
        e = buf_addf(b, "%s%sNAME%s%s%s", c->id_lead ? "ID" : "", c->id_lead ? c->id_lead : "", c->tail ? c->tail : "",
                     c->tail_pattern ? "0" : "", c->name_end);
    if (!e && c->shape == CHAT_SHAPE_NAMED && c->values == CHAT_VALUES_JSON)
        e = buf_adds(b, "{\"PARAMETER\": \"VALUE\"}");
    if (!e && c->values == CHAT_VALUES_TAGGED)
        e = buf_addf(b, "%sPARAMETER%s%s%sVALUE%s", c->key, c->key_end, c->kind_end ? c->kind_raw : "",
                     c->kind_end ? c->kind_end : "", c->value_end);
    if (!e && c->values == CHAT_VALUES_PYTHON) e = buf_adds(b, "PARAMETER=\"VALUE\"");
    if (!e && c->values == CHAT_VALUES_BRACED) e = buf_addf(b, "{PARAMETER:%sVALUE%s}", c->quote, c->quote);
    if (!e) e = buf_adds(b, c->call_end);
    return e ? e : buf_adds(b, c->section_end);
}

int chat_format_explain(const struct chat_format *f, const char *tools_json, size_t len, char **text, size_t *n,
                        cohort_error *err) {
    struct buf b = {0};
    json_t *tools = json_loadb(tools_json, len, 0, NULL);
    int e = buf_adds(&b, "You can call functions. They are described here, one in each line, with JSON schemas of "
                         "their parameters:\n<tools>\n");
    for (size_t i = 0; !e && i < json_array_size(tools); i++) {
        char *line = real_shorten_json(json_dumps(json_object_get(json_array_get(tools, i), "function"), 0));
        e = line ? buf_addf(&b, "%s\n", line) : COHORT_E_MEMORY;
        free(line);
    }
    json_decref(tools);
    if (!e) e = buf_adds(&b, "</tools>\n\nTo call a function, write exactly in this form, and nothing behind it:\n");
    if (!e) e = write_example(&f->calls, &b);
    if (!e) e = buf_adds(&b, "\nWhat the function returns comes in the next message. Call none where none is needed.");
    if (e) {
        buf_free(&b);
        return err_set(err, e, "tools", "no memory for the tools' descriptions");
    }
    *text = b.data;
    *n = b.len;
    return 0;
}
