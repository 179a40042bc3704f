/* /v1/models. Loop thread. */
#include <stdlib.h>
#include <string.h>

#include "api/routes.h"
#include "server/http.h"
#include "server/server.h"

static int add_model(struct server *server, struct buf *out) {
    const char *model_name = server_get_options(server)->model_name;
    cohort_model_info info;
    cohort_engine_options engine;
    cohort_model_get_info(server_model(server), &info);
    cohort_engine_get_options(server_engine(server), &engine);
    int rc = buf_adds(out, "{\"id\":");
    if (!rc) rc = buf_json_string(out, model_name, strlen(model_name));
    if (!rc)
        rc = buf_addf(out,
                      ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"cohort\",\"max_model_len\":%u,"
                      "\"meta\":{\"architecture\":\"%s\",\"n_vocab\":%u,\"n_ctx\":%u,\"n_ctx_train\":%u,\"n_embd\":%u,"
                      "\"n_params\":%llu,"
                      "\"size\":%llu,\"numerics_version\":%d}}",
                      (long long)server_started(server), engine.context, info.architecture, info.vocab_size,
                      engine.context, info.context_trained, info.embedding_width, (unsigned long long)info.parameters,
                      (unsigned long long)info.file_bytes, info.numerics_version);
    return rc;
}

void models_list(struct server *server, struct evhttp_request *http, const char *name) {
    (void)name;
    struct buf body = {0};
    int rc = buf_adds(&body, "{\"object\":\"list\",\"data\":[");
    if (!rc) rc = add_model(server, &body);
    if (!rc) rc = buf_adds(&body, "]}");
    reply_buf(server, http, &body, rc);
}

void models_one(struct server *server, struct evhttp_request *http, const char *name) {
    char *decoded = evhttp_uridecode(name, 0, NULL);
    int same = decoded && strcmp(decoded, server_get_options(server)->model_name) == 0;
    free(decoded);
    if (!same) {
        reply_status(server, http, 404, "invalid_request_error", "no such model");
        return;
    }
    struct buf body = {0};
    reply_buf(server, http, &body, add_model(server, &body));
}
