/* /tokenize, /detokenize, /tokenizer_info and /apply-template: the tokenizer for clients, in llama-server's fields and
 * vLLM's; a reply has both shapes. Loop thread, but for the work, which helpers do.
 *
 * POST /tokenize, one of
 *   content   llama-server: a string, or an array of strings and ids. add_special (false): the begin token in front,
 *             parse_special (true): the text of special tokens means those tokens, with_pieces (false): tokens are
 *             {"id","piece"}, a piece that is no UTF-8 being an array of its bytes
 *   prompt    vLLM: a string. add_special_tokens (true), return_token_strs (false): "token_strs" has their texts
 *   messages  vLLM: a chat, as /v1/chat/completions reads it, with tools, add_generation_prompt (true),
 *             continue_final_message, chat_template, chat_template_kwargs; it has the begin token as the model's turns
 *             have it, so add_special_tokens true is refused
 * -> {"tokens","count","max_model_len","token_strs"}. Here, where nothing is generated, the text of special tokens is
 * read as them unless parse_special says otherwise; generating endpoints do that only if they are told to.
 *
 * POST /detokenize {"tokens": ids} -> {"content","prompt"}: the joined text, of special tokens too; bytes that are no
 * UTF-8 become U+FFFD.
 *
 * POST /apply-template {"messages", ... as above, "tool_choice"} -> {"prompt"}: the chat as the model's turns have it,
 * without the begin token that a prompt gets anyhow. Read with parse_special it gives the same ids, unless a message
 * has the text of a marker.
 *
 * GET /tokenizer_info, as lm-evaluation-harness asks for it: texts of the begin and the end token, the file's template.
 *
 * Texts have at most TOKENS_TEXT_MAX bytes, arrays of ids TOKENS_IDS_MAX. */
#include <event2/buffer.h>
#include <string.h>
#include <time.h>

#include "api/chat_fields.h"
#include "api/chat_messages.h"
#include "api/llama.h"
#include "api/params.h"
#include "api/routes.h"
#include "api/tokens.h"
#include "api/tools.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "server/server.h"
#include "server/task.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

struct tokens;
struct kind { /* what is read from a body, and what is done with it */
    struct known_list known;
    int (*read)(struct tokens *t, cohort_error *err);
    int (*run)(struct tokens *t, cohort_error *err);
};

struct tokens {
    struct task task; /* first member */
    const struct kind *kind;
    cohort_model *model;
    struct evbuffer *input; /* the body's bytes: reading megabytes of JSON is a helper's work, too */
    json_t *body;
    char unknown[512];
    uint32_t context;
    const struct server_options *options;
    int flags, pieces, strings;
    const json_t *text;      /* in the body: a string, or an array of strings and ids */
    struct chat_params chat; /* texts of it are in the body, too */
    int32_t *ids;            /* to detokenise */
    size_t ids_n;
    struct buf out;
};

/* ---- the helper's part ---- */

/* Schemas are nobody's concern here: nothing is generated. */
static int render(struct tokens *t, cohort_prompt **prompt, cohort_prompt_info *info, cohort_error *err) {
    t->chat.chat.now_s = (int64_t)time(NULL);
    int rc = cohort_prompt_render(t->model, &t->chat.chat, prompt, err);
    if (!rc) cohort_prompt_get(*prompt, info);
    return rc;
}

static int make_ids(struct tokens *t, struct buf *ids, cohort_error *err) {
    if (t->chat.chat.messages) {
        cohort_prompt *prompt = NULL;
        cohort_prompt_info info;
        int rc = render(t, &prompt, &info, err);
        if (!rc) rc = buf_add(ids, info.ids, info.n * sizeof *info.ids);
        cohort_prompt_free(prompt);
        return rc;
    }
    if (json_is_string(t->text))
        return llama_add_text(t->model, json_string_value(t->text), json_string_length(t->text), t->flags, ids, err);
    return llama_add_parts(t->model, t->text, t->flags, ids, err);
}

static int add_piece(const struct tokens *t, int32_t id, int as_bytes, struct buf *out) {
    const char *bytes = "";
    size_t len = 0;
    int rc = cohort_token_piece(t->model, id, &bytes, &len);
    if (rc || !as_bytes || utf8_valid(bytes, len)) return rc ? rc : buf_json_string(out, bytes, len);
    rc = buf_adds(out, "[");
    for (size_t i = 0; i < len && !rc; i++) rc = buf_addf(out, "%s%u", i ? "," : "", (unsigned)(unsigned char)bytes[i]);
    return rc ? rc : buf_adds(out, "]");
}

static int add_tokens(const struct tokens *t, const int32_t *ids, size_t n, struct buf *out) {
    int rc = buf_adds(out, "{\"tokens\":[");
    for (size_t i = 0; i < n && !rc; i++) {
        rc = buf_addf(out, t->pieces ? "%s{\"id\":%d,\"piece\":" : "%s%d", i ? "," : "", ids[i]);
        if (!rc && t->pieces) rc = add_piece(t, ids[i], 1, out);
        if (!rc && t->pieces) rc = buf_adds(out, "}");
    }
    if (!rc) rc = buf_addf(out, "],\"count\":%zu,\"max_model_len\":%u,\"token_strs\":", n, t->context);
    if (!rc) rc = buf_adds(out, t->strings ? "[" : "null}");
    for (size_t i = 0; t->strings && i < n && !rc; i++) {
        if (i) rc = buf_adds(out, ",");
        if (!rc) rc = add_piece(t, ids[i], 0, out);
    }
    return rc || !t->strings ? rc : buf_adds(out, "]}");
}

static int tokenize(struct tokens *t, cohort_error *err) {
    struct buf ids = {0};
    int rc = make_ids(t, &ids, err);
    const int32_t *list = (const int32_t *)(const void *)ids.data;
    if (!rc) rc = add_tokens(t, list, ids.len / sizeof *list, &t->out);
    buf_free(&ids);
    return rc;
}

static int detokenize(struct tokens *t, cohort_error *err) {
    char *text;
    size_t len;
    int rc = cohort_detokenize(t->model, t->ids, t->ids_n, 1, &text, &len, err);
    if (!rc) rc = buf_adds(&t->out, "{\"content\":");
    if (!rc) rc = buf_json_string(&t->out, text, len);
    if (!rc) rc = buf_adds(&t->out, ",\"prompt\":");
    if (!rc) rc = buf_json_string(&t->out, text, len);
    if (!rc) rc = buf_adds(&t->out, "}");
    cohort_free(text);
    return rc;
}

/* Bytes of the begin token in front, which a prompt gets anyhow. */
static size_t begin_bytes(const struct tokens *t, const cohort_prompt_info *prompt) {
    cohort_model_info info;
    const char *bytes;
    size_t len;
    cohort_model_get_info(t->model, &info);
    if (!info.add_bos || prompt->n == 0 || prompt->ids[0] != info.bos) return 0;
    if (cohort_token_piece(t->model, info.bos, &bytes, &len) != 0 || len > prompt->text_n) return 0;
    return memcmp(prompt->text, bytes, len) == 0 ? len : 0;
}

static int apply_template(struct tokens *t, cohort_error *err) {
    cohort_prompt *prompt = NULL;
    cohort_prompt_info info;
    int rc = render(t, &prompt, &info, err);
    if (rc) return rc;
    size_t skip = begin_bytes(t, &info);
    rc = buf_adds(&t->out, "{\"prompt\":");
    if (!rc) rc = buf_json_string(&t->out, info.text + skip, info.text_n - skip);
    if (!rc) rc = buf_adds(&t->out, "}");
    cohort_prompt_free(prompt);
    return rc;
}

static void work(struct task *task) {
    struct tokens *t = (struct tokens *)task;
    cohort_error *err = &task->error;
    int rc = fields_body(t->input, &t->body, err);
    if (!rc) rc = fields_known(t->body, &t->kind->known, 1, t->unknown, sizeof t->unknown, err);
    if (!rc) rc = t->kind->read(t, err);
    if (!rc) rc = t->kind->run(t, err);
    if (rc && !err->code)
        err_set(err, rc, NULL, rc == COHORT_E_LIMIT ? "the reply would be too long" : "no memory for the reply");
    chat_params_deinit(&t->chat);
    json_decref(t->body); /* here: it may be large */
    t->body = NULL;
}

static void answer(struct task *task) {
    const struct tokens *t = (const struct tokens *)task;
    reply_unknown(task->sink.http, t->unknown);
    sink_json(&task->sink, 200, t->out.data, t->out.len);
}

static void forget(struct task *task) {
    struct tokens *t = (struct tokens *)task;
    if (t->input) evbuffer_free(t->input);
    mem_free(t->ids);
    buf_free(&t->out);
}

/* ---- what is asked (the helper's part, too) ---- */

static const struct known_field tokenize_fields[] = {
    {"model", FIELD_NEUTRAL, NULL},
    {"content", FIELD_READ, NULL},
    {"prompt", FIELD_READ, NULL},
    {"messages", FIELD_READ, NULL},
    {"add_special", FIELD_READ, NULL},
    {"add_special_tokens", FIELD_READ, NULL},
    {"parse_special", FIELD_READ, NULL},
    {"with_pieces", FIELD_READ, NULL},
    {"return_token_strs", FIELD_READ, NULL},
    {"add_generation_prompt", FIELD_READ, NULL},
    {"continue_final_message", FIELD_READ, NULL},
    {"chat_template", FIELD_READ, NULL},
    {"chat_template_kwargs", FIELD_READ, NULL},
    {"mm_processor_kwargs", FIELD_REFUSED, "{}"},
    {"tools", FIELD_READ, NULL},
};
static const struct known_field detokenize_fields[] = {{"model", FIELD_NEUTRAL, NULL}, {"tokens", FIELD_READ, NULL}};
static const struct known_field template_fields[] = {
    {"model", FIELD_NEUTRAL, NULL},
    {"messages", FIELD_READ, NULL},
    {"add_generation_prompt", FIELD_READ, NULL},
    {"continue_final_message", FIELD_READ, NULL},
    {"chat_template", FIELD_READ, NULL},
    {"chat_template_kwargs", FIELD_READ, NULL},
    {"tools", FIELD_READ, NULL},
    {"tool_choice", FIELD_READ, NULL},
};

/* Bytes of all strings in it, at any depth that a body may have. */
static size_t strings_bytes(const json_t *value) {
    size_t sum = json_string_length(value);
    const char *name;
    json_t *member;
    for (size_t i = 0; i < json_array_size(value); i++) sum += strings_bytes(json_array_get(value, i));
    if (json_is_object(value)) json_object_foreach((json_t *)value, name, member) sum += strings_bytes(member);
    return sum;
}

static int check_size(const json_t *value, const char *field, cohort_error *err) {
    size_t bytes = strings_bytes(value);
    if (bytes > TOKENS_TEXT_MAX || json_array_size(value) > TOKENS_IDS_MAX)
        return err_set(err, COHORT_E_LIMIT, field, "%s is too long: %d bytes of text and %d items are allowed", field,
                       TOKENS_TEXT_MAX, TOKENS_IDS_MAX);
    return 0;
}

static int read_messages(struct tokens *t, cohort_error *err) {
    const json_t *tools = field_present(t->body, "tools");
    json_t *messages = NULL;
    chat_params_init(&t->chat);
    int rc = check_size(field_present(t->body, "messages"), "messages", err);
    if (!rc && tools) rc = check_size(tools, "tools", err);
    if (!rc) rc = chat_messages(field_present(t->body, "messages"), &messages, err);
    if (!rc) rc = chat_fields_ending(&t->chat.chat, t->body, messages, err);
    if (!rc) rc = chat_params_messages(&t->chat, messages, err);
    json_decref(messages);
    if (!rc) rc = chat_fields_template(&t->chat, t->options, t->body, err);
    if (!rc) rc = tools_read(&t->chat, tools, err);
    return rc ? rc : tools_read_choice(&t->chat, field_present(t->body, "tool_choice"), tools, err);
}

/* Strings and ids, as llama-server takes them. */
static int check_content(const struct tokens *t, cohort_error *err) {
    cohort_model_info info;
    cohort_model_get_info(t->model, &info);
    if (json_is_string(t->text)) return 0;
    if (!json_is_array(t->text))
        return err_set(err, COHORT_E_ARGUMENT, "content", "content must be a string, or an array of strings and ids");
    return llama_check_parts(&info, t->text, "content", NULL, err);
}

/* What only a chat has a place for. */
static int check_no_chat(const json_t *body, cohort_error *err) {
    static const char *const names[] = {"chat_template", "chat_template_kwargs", "tools", "continue_final_message"};
    for (size_t i = 0; i < COUNT(names); i++) {
        const json_t *value = field_present(body, names[i]);
        if (!value || json_is_false(value) ||
            (!json_is_string(value) && json_array_size(value) + json_object_size(value) == 0))
            continue;
        return err_set(err, COHORT_E_ARGUMENT, names[i], "%s is for messages", names[i]);
    }
    return 0;
}

static int read_tokenize(struct tokens *t, cohort_error *err) {
    const json_t *content = field_present(t->body, "content"), *prompt = field_present(t->body, "prompt");
    int chat = field_present(t->body, "messages") != NULL, begin = content || chat ? 0 : 1, special = 1;
    if ((content != NULL) + (prompt != NULL) + chat != 1)
        return err_set(err, COHORT_E_ARGUMENT, "content", "one of content, prompt and messages must be there");
    int rc = field_bool(t->body, "add_special", &begin, err);
    if (!rc) rc = field_bool(t->body, "add_special_tokens", &begin, err);
    if (!rc) rc = field_bool(t->body, "parse_special", &special, err);
    if (!rc) rc = field_bool(t->body, "with_pieces", &t->pieces, err);
    if (!rc) rc = field_bool(t->body, "return_token_strs", &t->strings, err);
    if (rc) return rc;
    t->flags = (begin ? COHORT_TOKENIZE_BOS : 0) | (special ? COHORT_TOKENIZE_SPECIAL : 0);
    if (chat && begin)
        return err_set(err, COHORT_E_UNSUPPORTED, "add_special_tokens",
                       "a chat has the begin token as the model's turns have it; add_special_tokens adds none");
    if (chat) return read_messages(t, err);
    if ((rc = check_no_chat(t->body, err)) != 0) return rc;
    t->text = content ? content : prompt;
    if (prompt && !json_is_string(prompt))
        return err_set(err, COHORT_E_ARGUMENT, "prompt", "prompt must be a string, not %s", field_type(prompt));
    rc = check_content(t, err);
    return rc ? rc : check_size(t->text, content ? "content" : "prompt", err);
}

static int read_detokenize(struct tokens *t, cohort_error *err) {
    const json_t *ids = field_present(t->body, "tokens");
    if (!json_is_array(ids)) return err_set(err, COHORT_E_ARGUMENT, "tokens", "tokens must be an array of token ids");
    int rc = check_size(ids, "tokens", err);
    return rc ? rc : params_ids_for(t->task.server, ids, "tokens", &t->ids, &t->ids_n, err);
}

static void begin(struct server *server, struct evhttp_request *http, const struct kind *kind) {
    cohort_error error = {0};
    cohort_engine_options engine;
    struct tokens *t = task_new(server, http, sizeof *t);
    if (!t) return;
    cohort_engine_get_options(server_engine(server), &engine);
    t->task.work = work;
    t->task.answer = answer;
    t->task.forget = forget;
    t->kind = kind;
    t->model = server_model(server);
    t->options = server_get_options(server);
    t->context = engine.context;
    t->out.max = SERVER_RESULT_BYTES_MAX;
    t->input = evbuffer_new();
    if (t->input && evbuffer_add_buffer(t->input, evhttp_request_get_input_buffer(http)) == 0) {
        task_start(&t->task, TASK_TOKENS);
        return;
    }
    err_set(&error, COHORT_E_MEMORY, NULL, "no memory for the request");
    task_refuse(&t->task, &error);
}

void tokens_tokenize(struct server *server, struct evhttp_request *http, const char *name) {
    static const struct kind kind = {{tokenize_fields, COUNT(tokenize_fields)}, read_tokenize, tokenize};
    (void)name;
    begin(server, http, &kind);
}

void tokens_detokenize(struct server *server, struct evhttp_request *http, const char *name) {
    static const struct kind kind = {{detokenize_fields, COUNT(detokenize_fields)}, read_detokenize, detokenize};
    (void)name;
    begin(server, http, &kind);
}

void tokens_template(struct server *server, struct evhttp_request *http, const char *name) {
    static const struct kind kind = {{template_fields, COUNT(template_fields)}, read_messages, apply_template};
    (void)name;
    begin(server, http, &kind);
}

/* ---- what the tokenizer is ---- */

int tokens_add_text(const cohort_model *model, int32_t id, struct buf *out) {
    const char *bytes;
    size_t len;
    if (id < 0 || cohort_token_piece(model, id, &bytes, &len) != 0) return buf_adds(out, "null");
    return buf_json_string(out, bytes, len);
}

void tokens_info(struct server *server, struct evhttp_request *http, const char *name) {
    const cohort_model *model = server_model(server);
    struct buf body = {0};
    cohort_model_info info;
    cohort_engine_options engine;
    (void)name;
    cohort_model_get_info(model, &info);
    cohort_engine_get_options(server_engine(server), &engine);
    int rc = buf_addf(&body, "{\"tokenizer_class\":\"cohort\",\"vocab_size\":%u,\"model_max_length\":%u,",
                      info.vocab_size, engine.context);
    if (!rc) rc = buf_addf(&body, "\"add_bos_token\":%s,\"bos_token\":", info.add_bos ? "true" : "false");
    if (!rc) rc = tokens_add_text(model, info.bos, &body);
    if (!rc) rc = buf_adds(&body, ",\"eos_token\":");
    if (!rc) rc = tokens_add_text(model, info.eos, &body);
    if (!rc) rc = buf_adds(&body, ",\"pad_token\":null,\"chat_template\":");
    if (!rc)
        rc = *info.chat_template ? buf_json_string(&body, info.chat_template, strlen(info.chat_template))
                                 : buf_adds(&body, "null");
    if (!rc) rc = buf_adds(&body, "}");
    reply_buf(server, http, &body, rc);
}
