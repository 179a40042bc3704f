/* llama-server's GET /props and /slots. Loop thread.
 *
 * /props tells the model, the template and what a request without fields gets; POST is refused: nothing can be changed
 * while the server runs. /slots has one object for each row; rows are no places of requests' own here, so those that
 * run are told first, and nothing of anybody's request is. ?fail_on_no_slot=1 makes it a 503 when all are taken. */
#include <string.h>

#include "api/llama.h"
#include "api/routes.h"
#include "api/tokens.h"
#include "base/err.h"
#include "server/server.h"

static int add_defaults(uint32_t context, struct buf *out) {
    cohort_request request;
    cohort_request_defaults(&request);
    struct params params = {.n = 1, .logprobs = -1, .sampling = request.sampling};
    llama_sampling_defaults(&params.sampling);
    int rc = buf_addf(
        out,
        "{\"id\":0,\"id_task\":-1,\"n_ctx\":%u,\"speculative\":false,\"is_processing\":false,\"params\":", context);
    if (!rc) rc = llama_add_settings(&params, NULL, out);
    return rc ? rc : buf_adds(out, "}");
}

static int add_model(struct server *server, const cohort_model_info *info, struct buf *out) {
    const char *name = server_get_options(server)->model_name;
    const cohort_model *model = server_model(server);
    int rc = buf_adds(out, ",\"model_alias\":");
    if (!rc) rc = buf_json_string(out, name, strlen(name));
    if (!rc) rc = buf_adds(out, ",\"model_path\":"); /* where it lies is nobody's business: its name */
    if (!rc) rc = buf_json_string(out, name, strlen(name));
    if (!rc) rc = buf_adds(out, ",\"model_name\":");
    if (!rc) rc = buf_json_string(out, info->name, strlen(info->name));
    if (!rc)
        rc = buf_addf(out, ",\"architecture\":\"%s\",\"n_vocab\":%u,\"n_ctx_train\":%u,\"n_embd\":%u,\"n_params\":%llu",
                      info->architecture, info->vocab_size, info->context_trained, info->embedding_width,
                      (unsigned long long)info->parameters);
    if (!rc) rc = buf_adds(out, ",\"chat_template\":");
    if (!rc) rc = buf_json_string(out, info->chat_template, strlen(info->chat_template));
    if (!rc)
        rc = buf_addf(out, ",\"chat_template_caps\":{\"supports_tools\":%s,\"supports_tool_calls\":%s}",
                      info->chat_tools ? "true" : "false", info->chat_tools ? "true" : "false");
    if (!rc) rc = buf_adds(out, ",\"bos_token\":");
    if (!rc) rc = tokens_add_text(model, info->bos, out);
    if (!rc) rc = buf_adds(out, ",\"eos_token\":");
    return rc ? rc : tokens_add_text(model, info->eos, out);
}

void llama_props(struct server *server, struct evhttp_request *http, const char *name) {
    struct buf body = {0};
    cohort_model_info info;
    cohort_engine_options engine;
    (void)name;
    cohort_model_get_info(server_model(server), &info);
    cohort_engine_get_options(server_engine(server), &engine);
    int rc = buf_adds(&body, "{\"default_generation_settings\":");
    if (!rc) rc = add_defaults(engine.context, &body);
    if (!rc) rc = buf_addf(&body, ",\"total_slots\":%u,\"n_ctx\":%u", engine.rows, engine.context);
    if (!rc) rc = add_model(server, &info, &body);
    if (!rc)
        rc = buf_addf(&body,
                      ",\"modalities\":{\"vision\":false,\"audio\":false},\"endpoint_slots\":true,"
                      "\"endpoint_props\":false,\"endpoint_metrics\":true,\"build_info\":\"cohort-%s-numerics-%d\","
                      "\"is_sleeping\":false}",
                      COHORT_VERSION, info.numerics_version);
    reply_buf(server, http, &body, rc);
}

void llama_props_set(struct server *server, struct evhttp_request *http, const char *name) {
    cohort_error error = {0};
    (void)name;
    err_set(&error, COHORT_E_UNSUPPORTED, NULL, "the server's properties are set when it starts");
    reply_error(server, http, &error);
}

void llama_slots(struct server *server, struct evhttp_request *http, const char *name) {
    char wanted[16] = "";
    struct buf body = {0};
    cohort_error error = {0};
    cohort_metrics metrics;
    cohort_engine_options engine;
    (void)name;
    if (query_field(http, "fail_on_no_slot", wanted, sizeof wanted, &error) < 0) {
        reply_error(server, http, &error);
        return;
    }
    cohort_metrics_get(server_engine(server), &metrics);
    cohort_engine_get_options(server_engine(server), &engine);
    uint32_t taken = metrics.rows_running + metrics.rows_preparing;
    if (wanted[0] && strcmp(wanted, "0") != 0 && taken >= engine.rows) {
        reply_status(server, http, 503, "server_error", "no slot available");
        return;
    }
    int rc = buf_adds(&body, "[");
    for (uint32_t i = 0; i < engine.rows && !rc; i++)
        rc = buf_addf(&body, "%s{\"id\":%u,\"id_task\":-1,\"n_ctx\":%u,\"speculative\":false,\"is_processing\":%s}",
                      i ? "," : "", i, engine.context, i < taken ? "true" : "false");
    if (!rc) rc = buf_adds(&body, "]");
    reply_buf(server, http, &body, rc);
}
