/* Making templates: parsing, and rendering small chats to see what they do with messages. What is learned is about how
 * messages must be handed over and where their turns end; whether answers hold calls or reasoning is format.c's. */
#include "chat/template.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "chat/internal.h"

static int no_memory(cohort_error *err) {
    return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the chat template");
}

/* ---- rendering ---- */

static const char *const reserved[] = {"messages",  "tools",    "add_generation_prompt", "continue_final_message",
                                       "bos_token", "eos_token"};

int chat_template_reserves(const char *name) {
    for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++)
        if (strcmp(reserved[i], name) == 0) return 1;
    return 0;
}

static struct jinja_variable variable(const char *name, const char *json, size_t len, uint16_t mark) {
    return (struct jinja_variable){.name = name, .json = json, .len = len, .mark = mark};
}

/* The client's variables behind the first `n`; their JSON is to be freed. */
static int add_variables(const json_t *object, struct jinja_variable *out, size_t *n, cohort_error *err) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value) {
        char *json = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
        if (!json) return no_memory(err);
        out[(*n)++] = variable(name, json, strlen(json), CHAT_MARK_OTHER);
    }
    return 0;
}

int chat_template_write(const struct chat_template *t, const struct chat_variant *v, const struct chat_told *values,
                        struct jinja_text *out, cohort_error *err) {
    struct jinja_variable variables[CHAT_VARIABLES_MAX + 8];
    size_t n = 0;
    memset(out, 0, sizeof(*out));
    variables[n++] = (struct jinja_variable){.name = "messages",
                                             .json = values->messages,
                                             .len = values->messages_n,
                                             .mark = 1,
                                             .by_element = 1,
                                             .trusted = "role"};
    variables[n++] = values->tools ? variable("tools", values->tools, values->tools_n, CHAT_MARK_OTHER)
                                   : variable("tools", "null", 4, 0);
    const char *truth = values->generation ? "true" : "false";
    variables[n++] = variable("add_generation_prompt", truth, strlen(truth), 0);
    truth = values->go_on ? "true" : "false";
    variables[n++] = variable("continue_final_message", truth, strlen(truth), 0);
    variables[n++] = variable("bos_token", t->bos.data, t->bos.len, 0);
    variables[n++] = variable("eos_token", t->eos.data, t->eos.len, 0);
    size_t own = n;
    int code = values->variables ? add_variables(values->variables, variables, &n, err) : 0;
    if (!code) code = jinja_render(v->jinja, variables, n, values->now_s, out, err);
    for (size_t i = own; i < n; i++) free((char *)variables[i].json); /* jansson's */
    return code;
}

/* ---- trying ---- */

struct trial {
    const struct chat_template *t;
    const struct chat_variant *v;
    int spent; /* a limit was reached: no more of it */
};

static int try_raw(struct trial *trial, const char *messages, const char *tools, const json_t *variables,
                   int generation, struct jinja_text *out) {
    cohort_error ignored;
    memset(out, 0, sizeof(*out));
    if (trial->spent) return COHORT_E_LIMIT;
    struct chat_told values = {.messages = messages,
                               .messages_n = strlen(messages),
                               .tools = tools,
                               .tools_n = tools ? strlen(tools) : 0,
                               .variables = variables,
                               .generation = generation};
    int code = chat_template_write(trial->t, trial->v, &values, out, &ignored);
    if (code == COHORT_E_LIMIT || code == COHORT_E_MEMORY) trial->spent = 1;
    return code;
}

static int probe(void *user, const char *messages, const char *tools, const char *variables, int generation,
                 char **text, size_t *len) {
    struct jinja_text out;
    json_t *object = variables ? json_loads(variables, 0, NULL) : NULL;
    int code = variables && !json_is_object(object) ? COHORT_E_ARGUMENT
                                                    : try_raw(user, messages, tools, object, generation, &out);
    json_decref(object);
    *text = NULL;
    *len = 0;
    if (code) return code;
    *text = out.bytes;
    *len = out.len;
    out.bytes = NULL;
    jinja_text_free(&out);
    if (!*text) *text = mem_zalloc(1, 1);
    return *text ? 0 : COHORT_E_MEMORY;
}

/* Contents as the template wants them. */
static int try_write(struct trial *trial, const char *messages, const char *tools, struct jinja_text *out) {
    if (!trial->v->can.typed_content) return try_raw(trial, messages, tools, NULL, 0, out);
    json_t *array = json_loads(messages, 0, NULL);
    chat_type_contents(array);
    char *typed = json_dumps(array, JSON_COMPACT);
    memset(out, 0, sizeof(*out));
    int code = typed ? try_raw(trial, typed, tools, NULL, 0, out) : COHORT_E_MEMORY;
    free(typed); /* jansson's */
    json_decref(array);
    return code;
}

static int holds(const struct jinja_text *text, const char *what) {
    return text->len && memmem(text->bytes, text->len, what, strlen(what)) != NULL;
}

static int mentions(const struct chat_variant *v, const char *what) {
    return memmem(v->text, v->len, what, strlen(what)) != NULL;
}

/* An id that every template takes, and one like those that we give. */
#define SHORT_ID "call12345"
#define LONG_ID  "call_0123456789abcdef"
#define CALLER(content, arguments)                                                                                     \
    "[{\"role\":\"user\",\"content\":\"qqq\"},{\"role\":\"assistant\",\"content\":" content                            \
    ",\"tool_calls\":[{\"id\":\"" SHORT_ID                                                                             \
    "\",\"type\":\"function\",\"function\":{\"name\":\"find_it\",\"arguments\":"                                       \
    "" arguments "}}]}"
#define TOOLS                                                                                                          \
    "[{\"type\":\"function\",\"function\":{\"name\":\"find_it\",\"description\":\"\",\"parameters\":{\"type\":"        \
    "\"object\",\"properties\":{\"key\":{\"type\":\"string\",\"description\":\"\"}},\"required\":[\"key\"]}}}]"
#define OBJECT "{\"key\":\"vvv\"}"
#define STRING "\"{\\\"key\\\": \\\"vvv\\\"}\""

/* Whether a chat that can be written cannot be with an id of another length. */
static int wants_short_ids(struct trial *trial, const char *chat, const char *tools) {
    struct buf longer = {0};
    struct jinja_text text = {0};
    const char *id = strstr(chat, SHORT_ID);
    int code = buf_add(&longer, chat, (size_t)(id - chat));
    if (!code) code = buf_addf(&longer, "%s%s", LONG_ID, id + strlen(SHORT_ID));
    int refused = !code && try_write(trial, longer.data, tools, &text) == COHORT_E_ARGUMENT;
    buf_free(&longer);
    jinja_text_free(&text);
    return refused;
}

/* Beside calls a content is null, as the makers of models have it, where the template takes that, or else empty. */
static void find_calls(struct trial *trial, struct chat_variant *v) {
    static const char *const chats[2][2] = {{CALLER("\"\"", STRING) "]", CALLER("\"\"", OBJECT) "]"},
                                            {CALLER("null", STRING) "]", CALLER("null", OBJECT) "]"}};
    const char *tools = v->can.tools ? TOOLS : NULL;
    struct jinja_text text;
    for (int null = 1; null >= 0 && !v->writes_calls; null--) {
        int code = try_write(trial, chats[null][v->can.object_arguments], tools, &text);
        if (!code && holds(&text, "find_it") && holds(&text, "vvv") && !holds(&text, "None")) {
            /* the name may stand in the tools, too: it must come behind the question */
            const char *asked = memmem(text.bytes, text.len, "qqq", 3);
            if (asked && memmem(asked, text.len - (size_t)(asked - text.bytes), "vvv", 3)) v->writes_calls = 1;
        }
        v->null_content = (uint8_t)(v->writes_calls && null);
        jinja_text_free(&text);
        if (v->writes_calls)
            v->short_ids = (uint8_t)wants_short_ids(trial, chats[null][v->can.object_arguments], tools);
    }
}

/* The place behind the last byte of message `i`, or of its first; len if it has none. */
static size_t last_of(const struct jinja_text *text, size_t i) {
    size_t at = text->len;
    while (at > 0 && text->marks[at - 1] != i + 1) at--;
    return at ? at : text->len;
}

static size_t first_of(const struct jinja_text *text, size_t i) {
    size_t at = 0;
    while (at < text->len && text->marks[at] != i + 1) at++;
    return at;
}

static int learn_close(struct trial *trial, struct chat_variant *v, int role, const char *messages, size_t last,
                       const char *tools) {
    struct jinja_text text;
    int code = 0;
    if (try_write(trial, messages, tools, &text) == 0) {
        size_t at = last_of(&text, last);
        code = buf_add(&v->close[role], text.len ? text.bytes + at : "", text.len - at);
    }
    jinja_text_free(&text);
    return code;
}

/* What a system text is closed with is what stands between it and a user's, without the opening of the user's turn;
 * where that does not stand there, the system text is inside that turn, and all of it closes it. */
static int learn_system(struct trial *trial, struct chat_variant *v) {
    struct jinja_text with, without;
    int code = 0;
    if (try_write(trial, "[{\"role\":\"system\",\"content\":\"sss\"},{\"role\":\"user\",\"content\":\"qqq\"}]", NULL,
                  &with)) {
        jinja_text_free(&with);
        return 0;
    }
    int known = try_write(trial,
                          "[{\"role\":\"user\",\"content\":\"qqq\"},{\"role\":\"assistant\",\"content\":\"aaa\"},"
                          "{\"role\":\"user\",\"content\":\"ppp\"}]",
                          NULL, &without) == 0;
    size_t from = last_of(&with, 0), to = first_of(&with, 1);
    if (known && from < to && to < with.len) {
        const struct buf *answer = &v->close[COHORT_ROLE_ASSISTANT];
        size_t open = last_of(&without, 1), user = first_of(&without, 2), same = 0;
        while (open + same < user && same < answer->len && without.bytes[open + same] == answer->data[same]) same++;
        size_t n = user > open + same ? user - open - same : 0;
        if (n && n <= to - from && memcmp(with.bytes + to - n, without.bytes + user - n, n) == 0) to -= n;
        code = buf_add(&v->close[COHORT_ROLE_SYSTEM], with.bytes + from, to - from);
    }
    jinja_text_free(&with);
    jinja_text_free(&without);
    return code;
}

static int learn_closes(struct trial *trial, struct chat_variant *v) {
    static const char *const tool[2][2] = {
        {CALLER("\"\"", STRING) ",{\"role\":\"tool\",\"tool_call_id\":\"" SHORT_ID "\",\"content\":\"ttt\"}]",
         CALLER("\"\"", OBJECT) ",{\"role\":\"tool\",\"tool_call_id\":\"" SHORT_ID "\",\"content\":\"ttt\"}]"},
        {CALLER("null", STRING) ",{\"role\":\"tool\",\"tool_call_id\":\"" SHORT_ID "\",\"content\":\"ttt\"}]",
         CALLER("null", OBJECT) ",{\"role\":\"tool\",\"tool_call_id\":\"" SHORT_ID "\",\"content\":\"ttt\"}]"}};
    int code = learn_close(trial, v, COHORT_ROLE_USER, "[{\"role\":\"user\",\"content\":\"qqq\"}]", 0, NULL);
    if (!code)
        code = learn_close(trial, v, COHORT_ROLE_ASSISTANT,
                           "[{\"role\":\"user\",\"content\":\"qqq\"},{\"role\":\"assistant\",\"content\":\"aaa\"}]", 1,
                           NULL);
    if (!code && v->can.tool_turns && v->writes_calls)
        code = learn_close(trial, v, COHORT_ROLE_TOOL, tool[v->null_content][v->can.object_arguments], 2,
                           v->can.tools ? TOOLS : NULL);
    return code ? code : learn_system(trial, v);
}

/* Whether a chat's rendering goes on from that of its first messages: some templates write a system text or tools only
 * beside the last question, or reasoning only in the last answer. */
static int stays(struct trial *trial, const char *const *messages, size_t n, const char *tools) {
    struct jinja_text all = {0}, some;
    int steady = 1;
    for (size_t k = n; k > 0 && steady; k--) {
        struct buf json = {0};
        int code = buf_adds(&json, "[");
        for (size_t i = 0; i < k && !code; i++) code = buf_addf(&json, "%s%s", i ? "," : "", messages[i]);
        if (!code) code = buf_adds(&json, "]");
        if (!code) code = try_write(trial, json.data, tools, k == n ? &all : &some);
        buf_free(&json);
        if (code && k == n) break;
        if (code || k == n) continue;
        size_t last = last_of(&some, k - 1);
        steady = last <= all.len && last <= some.len && (!last || memcmp(all.bytes, some.bytes, last) == 0);
        jinja_text_free(&some);
    }
    jinja_text_free(&all);
    return steady && !trial->spent;
}

static int is_steady(struct trial *trial, const struct chat_variant *v) {
#define THOUGHT                                                                                                        \
    "{\"role\":\"assistant\",\"content\":\"aaa\",\"reasoning_content\":\"rrr\",\"reasoning\":\"rrr\",\"thinking\":"    \
    "\"rrr\"}"
    static const char *const talk[] = {"{\"role\":\"system\",\"content\":\"sss\"}",
                                       "{\"role\":\"user\",\"content\":\"qqq\"}",
                                       THOUGHT,
                                       "{\"role\":\"user\",\"content\":\"ppp\"}",
                                       "{\"role\":\"assistant\",\"content\":\"bbb\"}",
                                       "{\"role\":\"user\",\"content\":\"ooo\"}"};
    const char *tools = v->can.tools ? TOOLS : NULL;
    return stays(trial, talk, 6, NULL) && stays(trial, talk + 1, 5, NULL) && (!tools || stays(trial, talk, 6, tools));
}

/* ---- making ---- */

static const char *reasoning_name(const struct chat_variant *v) {
    static const char *const others[][2] = {{"\"thinking\" in message", "thinking"},
                                            {"message.thinking", "thinking"},
                                            {"message['thinking']", "thinking"},
                                            {"message.reasoning", "reasoning"},
                                            {"message['reasoning']", "reasoning"}};
    if (mentions(v, "reasoning_content")) return "reasoning_content";
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (mentions(v, others[i][0])) return others[i][1];
    return "reasoning_content";
}

static int make_variant(const struct chat_template *t, struct chat_variant *v, const char *text, size_t len,
                        cohort_error *err) {
    struct trial trial = {.t = t, .v = v};
    int code = jinja_parse(text, len, &v->jinja, err);
    if (code) return code;
    v->text = mem_text(text, len);
    if (!v->text) return no_memory(err);
    v->len = len;
    code = chat_format_find(text, len, probe, &trial, &v->can, err);
    if (code) return code;
    v->knows_developer = (uint8_t)mentions(v, "developer");
    v->reasoning = reasoning_name(v);
    find_calls(&trial, v);
    v->steady = (uint8_t)is_steady(&trial, v);
    return learn_closes(&trial, v) ? no_memory(err) : 0;
}

static int token_json(const struct tokenizer *t, int32_t id, struct buf *out) {
    const char *bytes;
    size_t len;
    tokenizer_spelling(t, id, &bytes, &len);
    return buf_json_string(out, bytes, len);
}

int chat_template_make(const struct tokenizer *tokenizer, const char *text, size_t len, const char *tools_text,
                       size_t tools_len, struct chat_template **out, cohort_error *err) {
    *out = NULL;
    struct chat_template *t = mem_zalloc(1, sizeof(*t));
    if (!t) return no_memory(err);
    t->tokenizer = tokenizer;
    int code = token_json(tokenizer, tokenizer_bos(tokenizer), &t->bos);
    if (!code) code = token_json(tokenizer, tokenizer_eos(tokenizer), &t->eos);
    if (code) code = no_memory(err);
    if (!code) code = make_variant(t, &t->plain, text, len, err);
    if (!code && tools_text) code = make_variant(t, &t->tools, tools_text, tools_len, err);
    if (code) {
        chat_template_free(t);
        return code;
    }
    *out = t;
    return 0;
}

static void free_variant(struct chat_variant *v) {
    jinja_free(v->jinja);
    chat_format_unref(v->can.format);
    mem_free(v->text);
    for (size_t i = 0; i < sizeof(v->close) / sizeof(v->close[0]); i++) buf_free(&v->close[i]);
}

void chat_template_free(struct chat_template *t) {
    if (!t) return;
    free_variant(&t->plain);
    free_variant(&t->tools);
    buf_free(&t->bos);
    buf_free(&t->eos);
    mem_free(t);
}

static const struct chat_abilities *abilities(const struct chat_template *t) {
    return t->tools.jinja ? &t->tools.can : &t->plain.can;
}

const char *chat_template_format(const struct chat_template *t) { return chat_format_name(abilities(t)->format); }
int chat_template_tools(const struct chat_template *t) { return abilities(t)->tools; }
int chat_template_reasons(const struct chat_template *t) { return abilities(t)->reasoning; }
