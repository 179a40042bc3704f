/* Anthropic's errors (anthropic.h). Pure. */
#include <string.h>

#include "api/anthropic.h"
#include "server/fields.h"

static int status(const struct error_view *usual) {
    const char *param = usual->param ? usual->param : "";
    int is_tenants = strcmp(param, "queue") == 0 || strcmp(param, "tokens_per_minute") == 0;
    return usual->status == 429 && !is_tenants ? 529 : usual->status;
}

static const char *type_of(int status) {
    static const struct {
        int status;
        const char *type;
    } types[] = {{400, "invalid_request_error"}, {401, "authentication_error"},  {403, "permission_error"},
                 {404, "not_found_error"},       {405, "invalid_request_error"}, {413, "request_too_large"},
                 {415, "invalid_request_error"}, {429, "rate_limit_error"},      {504, "timeout_error"},
                 {529, "overloaded_error"}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].status == status) return types[i].type;
    return "api_error";
}

static int write_error(struct buf *out, const struct error_view *e) {
    int rc = buf_addf(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", type_of(e->status));
    if (!rc) rc = buf_json_string(out, e->message, strlen(e->message));
    /* What the client goes by: it sends whole conversations instead. */
    if (!rc && e->param && strcmp(e->param, "thread") == 0)
        rc = buf_adds(out, ",\"details\":{\"error_code\":\"thread_unsupported_request\",\"unsupported\":[\"thread\"]}");
    if (!rc) rc = buf_adds(out, "}");
    if (!rc && e->request_id) rc = buf_addf(out, ",\"request_id\":\"%s\"", e->request_id);
    return rc ? rc : buf_adds(out, "}");
}

const struct error_shape error_shape_anthropic = {.status = status, .write = write_error, .request_ids = 1};
