/* Request bodies from outside: the first byte says for which endpoint, the rest is the body. It is glanced over in
 * pieces, read as JSON, taken by the endpoint's dialect with places in a real engine, and its prompts are rendered and
 * made ids, as far as a call gets before the engine has it. Checked: every refusal has a code of its own and words, the
 * glance never promises more text than there is, and all places come back. */
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "api/api.h"
#include "api/routes.h"
#include "server/fields.h"
#include "server/internal.h"
#include "tiny_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct dialect *const dialects[] = {&dialect_chat,        &dialect_messages, &dialect_responses,
                                                 &dialect_completions, &dialect_llama,    &dialect_infill,
                                                 &dialect_embeddings,  &dialect_embedding};
static const char template[] =
    "{% for m in messages %}<|{{ m.role }}|>{% if m.content is string %}{{ m.content }}{% elif m.content %}"
    "{% for part in m.content %}{{ part.text }}{% endfor %}{% endif %}{% for c in m.tool_calls or [] %}"
    "<tool_call>{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}</tool_call>{% endfor %}</s>"
    "{% endfor %}{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% if add_generation_prompt %}<|assistant|>"
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}{% endif %}";

enum { ROWS = 2, QUEUE = 6 };

static void require(int holds) {
    if (!holds) abort();
}

/* ---- a server that nobody can reach, with a model of two hundred numbers ---- */

static void put(char **at, const void *bytes, size_t n) {
    memcpy(*at, bytes, n);
    *at += n;
}

static void add_vocabulary(struct gguf_writer *w) {
    static const char *const special[] = {"<unk>", "<s>", "</s>"};
    static char list[TINY_VOCAB * 16];
    char *at = list;
    int32_t types[TINY_VOCAB];
    float scores[TINY_VOCAB];
    const uint32_t of_strings = 8;
    const uint64_t n = TINY_VOCAB;
    put(&at, &of_strings, sizeof of_strings);
    put(&at, &n, sizeof n);
    for (uint32_t i = 0; i < TINY_VOCAB; i++) {
        const char letter[] = {(char)('a' + (i - 3) % 36), 0};
        const char *text = i < 3 ? special[i] : letter;
        const uint64_t len = strlen(text);
        types[i] = i == 0 ? 2 : i < 3 ? 3 : 1;
        scores[i] = -(float)i;
        put(&at, &len, sizeof len);
        put(&at, text, len);
    }
    gw_string(w, "tokenizer.ggml.model", "llama");
    gw_raw(w, "tokenizer.ggml.tokens", 9, list, (size_t)(at - list));
    gw_array(w, "tokenizer.ggml.token_type", 5, TINY_VOCAB, sizeof *types, types);
    gw_array(w, "tokenizer.ggml.scores", 6, TINY_VOCAB, sizeof *scores, scores);
    gw_u32(w, "tokenizer.ggml.bos_token_id", 1);
    gw_u32(w, "tokenizer.ggml.eos_token_id", 2);
    gw_string(w, "tokenizer.chat_template", template);
}

static cohort_model *open_model(void) {
    static struct gguf_writer w;
    void *bytes;
    char path[32];
    cohort_model *model;
    cohort_model_options options;
    cohort_error err = {0};
    tiny_make(&w, "llama", 1);
    add_vocabulary(&w);
    size_t n = gw_finish(&w, &bytes);
    int fd = memfd_create("model", 0);
    require(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    free(bytes);
    gw_deinit(&w);
    cohort_model_options_defaults(&options);
    options.threads = 1;
    if (cohort_model_open(path, &options, &model, &err)) fprintf(stderr, "%s: %s\n", err.field, err.text);
    require(model != NULL);
    return model;
}

static struct server *open_server(void) {
    struct server_options options = {
        .api = &api, .host = "127.0.0.1", .model_name = "tiny", .store = SERVER_STORE_NONE, .request_templates = 1};
    struct server *server;
    cohort_engine_options engine;
    require(server_open(&options, &server, NULL) == 0);
    server->model = open_model();
    cohort_engine_options_defaults(&engine);
    engine.rows = ROWS;
    engine.queue = QUEUE;
    require(cohort_engine_open(server->model, &engine, &server->engine, NULL) == 0);
    return server;
}

/* ---- one body ---- */

static void check_error(int rc, const cohort_error *err) {
    require(rc == err->code && err->text[0]);
    require(rc == COHORT_E_ARGUMENT || rc == COHORT_E_LIMIT || rc == COHORT_E_UNSUPPORTED || rc == COHORT_E_CAPACITY ||
            rc == COHORT_E_CONTEXT);
}

static void read_in_pieces(struct glance *glance, const char *bytes, size_t n) {
    for (size_t at = 0, piece = 1; at < n; at += piece, piece = piece * 2 % 61) {
        if (piece > n - at) piece = n - at;
        glance_feed(glance, bytes + at, piece);
    }
}

static int names_are_single(const char *bytes, size_t n) {
    json_t *again = json_loadb(bytes, n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
    json_decref(again);
    return again != NULL;
}

static size_t longest_text(const struct call *call) {
    size_t longest = 0;
    for (size_t i = 0; i < call->prompts_n; i++)
        if (call->prompts[i].text_len > longest) longest = call->prompts[i].text_len;
    return longest;
}

/* As call_tokenise does, without the submit. */
static void make_prompts(struct call *call) {
    cohort_error err = {0};
    int rc = call->dialect->prepare ? call->dialect->prepare(call, &err) : 0;
    if (!rc && call->params.chat.chat.messages) {
        call->params.chat.chat.now_s = 1700000000;
        rc = cohort_prompt_render(call->server->model, &call->params.chat.chat, &call->chat, &err);
    }
    for (size_t i = 0; i < call->prompts_n && !rc; i++) {
        struct prompt *p = &call->prompts[i];
        if (!p->text || call->chat) continue;
        rc = cohort_tokenize(call->server->model, p->text, p->text_len, p->special ? COHORT_TOKENIZE_SPECIAL : 0,
                             &p->ids, &p->ids_n, &err);
    }
    if (rc) check_error(rc, &err);
}

static void take_body(struct server *server, const struct dialect *dialect, const char *bytes, size_t n) {
    struct glance glance = {0};
    struct arrival arrival = {0};
    cohort_error err = {0};
    json_t *body;
    read_in_pieces(&glance, bytes, n);
    int rc = fields_json(bytes, n, &body, &err);
    require((rc == 0) == (body != NULL));
    if (rc) {
        check_error(rc, &err);
        return;
    }
    struct call *call = call_new(server, dialect, &arrival, body);
    require(call != NULL);
    rc = call_prepare(call, NULL, 0, &err);
    if (rc) check_error(rc, &err);
    if (!rc && dialect->text_bytes && names_are_single(bytes, n))
        require(dialect->text_bytes(&glance) <= longest_text(call));
    if (!rc) make_prompts(call);
    call_free(call);
}

static void all_places_are_free(cohort_engine *engine) {
    cohort_ticket tickets[ROWS + QUEUE];
    for (int i = 0; i < ROWS + QUEUE; i++) require(cohort_reserve(engine, &tickets[i], NULL) == 0);
    for (int i = 0; i < ROWS + QUEUE; i++) cohort_unreserve(engine, tickets[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct server *server;
    if (!server) server = open_server();
    if (!size) return 0;
    take_body(server, dialects[data[0] % (sizeof dialects / sizeof *dialects)], (const char *)data + 1, size - 1);
    all_places_are_free(server->engine);
    return 0;
}
