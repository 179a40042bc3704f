/* The table of all endpoints (api.h). Loop thread. */
#include "api/api.h"

#include "api/anthropic.h"
#include "api/routes.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

#define GENERATES(name)                                                                                                \
    static void generate_##name(struct server *server, struct evhttp_request *http, const char *segment) {             \
        (void)segment;                                                                                                 \
        server_generate(server, http, &dialect_##name);                                                                \
    }
GENERATES(completions)
GENERATES(chat)
GENERATES(messages)

static const struct route routes[] = {
    {"/v1/models", EVHTTP_REQ_GET, 0, 0, 1, models_list, NULL, 0},
    {"/v1/models/*", EVHTTP_REQ_GET, 0, 0, 1, models_one, NULL, 0},
    {"/v1/completions", EVHTTP_REQ_POST, 0, 0, 0, generate_completions, NULL, 0},
    {"/v1/chat/completions", EVHTTP_REQ_POST, 0, 0, 0, generate_chat, NULL, 0},
    {"/v1/responses", EVHTTP_REQ_POST, 0, 0, 0, responses_create, NULL, 0},
    {"/v1/responses/input_tokens", EVHTTP_REQ_POST, 0, 0, 0, responses_count, NULL, 0},
    {"/v1/responses/*", EVHTTP_REQ_GET, 0, 0, 1, responses_get, NULL, 1},
    {"/v1/responses/*", EVHTTP_REQ_DELETE, 0, 0, 1, responses_delete, NULL, 0},
    {"/v1/responses/*/cancel", EVHTTP_REQ_POST, 0, 0, 0, responses_cancel, NULL, 0},
    {"/v1/responses/*/input_items", EVHTTP_REQ_GET, 0, 0, 1, responses_items, NULL, 0},
    {"/v1/messages", EVHTTP_REQ_POST, 0, 0, 0, generate_messages, &error_shape_anthropic, 0},
    {"/v1/messages/count_tokens", EVHTTP_REQ_POST, 0, 0, 0, messages_count_tokens, &error_shape_anthropic, 0},
};

static const struct dialect *const dialects[] = {&dialect_completions, &dialect_chat, &dialect_messages,
                                                 &dialect_responses};

const struct server_api api = {
    .routes = routes, .routes_n = COUNT(routes), .dialects = dialects, .dialects_n = COUNT(dialects)};
