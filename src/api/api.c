/* The table of all endpoints (api.h). Loop thread. */
#include "api/api.h"

#include "api/anthropic.h"
#include "api/llama.h"
#include "api/routes.h"
#include "api/tokens.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

#define GENERATES(name)                                                                                                \
    static void generate_##name(struct server *server, struct evhttp_request *http, const char *segment) {             \
        (void)segment;                                                                                                 \
        server_generate(server, http, &dialect_##name);                                                                \
    }
GENERATES(completions)
GENERATES(chat)
GENERATES(llama)
GENERATES(infill)
GENERATES(embeddings)
GENERATES(embedding)
GENERATES(messages)

static const struct route routes[] = {
    {"/v1/models", EVHTTP_REQ_GET, 0, 0, 1, models_list, NULL, 0},
    {"/v1/models/*", EVHTTP_REQ_GET, 0, 0, 1, models_one, NULL, 0},
    {"/v1/completions", EVHTTP_REQ_POST, 0, 0, 0, generate_completions, NULL, 0},
    {"/v1/chat/completions", EVHTTP_REQ_POST, 0, 0, 0, generate_chat, NULL, 0},
    {"/models", EVHTTP_REQ_GET, 0, 0, 1, models_list, &error_shape_llama, 0}, /* as llama-server has it, too */
    {"/completion", EVHTTP_REQ_POST, 0, 0, 0, generate_llama, &error_shape_llama, 0},
    {"/completions", EVHTTP_REQ_POST, 0, 0, 0, generate_llama, &error_shape_llama, 0},
    {"/infill", EVHTTP_REQ_POST, 0, 0, 0, generate_infill, &error_shape_llama, 0},
    {"/v1/embeddings", EVHTTP_REQ_POST, 0, 0, 0, generate_embeddings, NULL, 0},
    {"/embedding", EVHTTP_REQ_POST, 0, 0, 0, generate_embedding, &error_shape_llama, 0},
    {"/embeddings", EVHTTP_REQ_POST, 0, 0, 0, generate_embedding, &error_shape_llama, 0},
    {"/props", EVHTTP_REQ_GET, 0, 0, 1, llama_props, &error_shape_llama, 0},
    {"/props", EVHTTP_REQ_POST, 0, 0, 0, llama_props_set, &error_shape_llama, 0},
    {"/slots", EVHTTP_REQ_GET, 0, 0, 1, llama_slots, &error_shape_llama, 0},
    {"/tokenize", EVHTTP_REQ_POST, 0, 0, 0, tokens_tokenize, &error_shape_llama, 0},
    {"/detokenize", EVHTTP_REQ_POST, 0, 0, 0, tokens_detokenize, &error_shape_llama, 0},
    {"/tokenizer_info", EVHTTP_REQ_GET, 0, 0, 1, tokens_info, &error_shape_llama, 0},
    {"/apply-template", EVHTTP_REQ_POST, 0, 0, 0, tokens_template, &error_shape_llama, 0},
    {"/v1/responses", EVHTTP_REQ_POST, 0, 0, 0, responses_create, NULL, 0},
    {"/v1/responses/input_tokens", EVHTTP_REQ_POST, 0, 0, 0, responses_count, NULL, 0},
    {"/v1/responses/*", EVHTTP_REQ_GET, 0, 0, 1, responses_get, NULL, 1},
    {"/v1/responses/*", EVHTTP_REQ_DELETE, 0, 0, 1, responses_delete, NULL, 0},
    {"/v1/responses/*/cancel", EVHTTP_REQ_POST, 0, 0, 0, responses_cancel, NULL, 0},
    {"/v1/responses/*/input_items", EVHTTP_REQ_GET, 0, 0, 1, responses_items, NULL, 0},
    {"/v1/messages", EVHTTP_REQ_POST, 0, 0, 0, generate_messages, &error_shape_anthropic, 0},
    {"/v1/messages/count_tokens", EVHTTP_REQ_POST, 0, 0, 0, messages_count_tokens, &error_shape_anthropic, 0},
};

static const struct dialect *const dialects[] = {&dialect_completions, &dialect_chat,  &dialect_messages,
                                                 &dialect_responses,   &dialect_llama, &dialect_infill};

const struct server_api api = {
    .routes = routes, .routes_n = COUNT(routes), .dialects = dialects, .dialects_n = COUNT(dialects)};
