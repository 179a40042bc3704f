/* Trace Context headers (traceparent.h). Everything but traceparent_accept is pure. */
#include "server/traceparent.h"

#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <string.h>
#include <strings.h>

#include "base/rng.h"

enum { FLAG_SAMPLED = 1 };

/* Lower case only, as the grammar has it. */
static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

static int read_hex(const char *text, size_t n, uint8_t *out) {
    for (size_t i = 0; i < n; i++) {
        int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
        if (high < 0 || low < 0) return 0;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return 1;
}

static void write_hex(const uint8_t *bytes, size_t n, char *out) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
}

static int all_zero(const uint8_t *bytes, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (bytes[i]) return 0;
    return 1;
}

/* Places in "00-trace id-parent id-flags". */
enum { AT_TRACE = 3, AT_PARENT = 36, AT_FLAGS = 53 };

int traceparent_parse(const char *header, size_t len, struct trace_context *out) {
    struct trace_context found;
    uint8_t version;
    if (len < TRACEPARENT_LEN || header[AT_TRACE - 1] != '-' || header[AT_PARENT - 1] != '-' ||
        header[AT_FLAGS - 1] != '-' || !read_hex(header, 1, &version) || version == 0xff)
        return 0;
    if (len > TRACEPARENT_LEN && (version == 0 || header[TRACEPARENT_LEN] != '-')) return 0;
    if (!read_hex(header + AT_TRACE, sizeof found.trace_id, found.trace_id) ||
        !read_hex(header + AT_PARENT, sizeof found.parent_id, found.parent_id) ||
        !read_hex(header + AT_FLAGS, 1, &found.flags))
        return 0;
    if (all_zero(found.trace_id, sizeof found.trace_id) || all_zero(found.parent_id, sizeof found.parent_id)) return 0;
    *out = found;
    return 1;
}

void traceparent_format(const struct trace_context *context, const uint8_t span_id[8], char out[TRACEPARENT_LEN + 1]) {
    uint8_t flags = context->flags & FLAG_SAMPLED; /* the only one that version 00 knows */
    memcpy(out, "00-", 3);
    write_hex(context->trace_id, sizeof context->trace_id, out + AT_TRACE);
    write_hex(span_id, 8, out + AT_PARENT);
    write_hex(&flags, 1, out + AT_FLAGS);
    out[AT_PARENT - 1] = out[AT_FLAGS - 1] = '-';
    out[TRACEPARENT_LEN] = 0;
}

/* Never all zero. */
static void fresh_id(uint8_t *id, size_t n) {
    do {
        for (size_t i = 0; i < n; i += 8) {
            uint64_t bits = rng_entropy();
            memcpy(id + i, &bits, 8);
        }
    } while (all_zero(id, n));
}

static int printable(const char *text) {
    for (; *text; text++)
        if ((*text < ' ' || *text > '~') && *text != '\t') return 0;
    return 1;
}

/* Every tracestate header (a list may come in several) goes back as it came: all of them or none. */
static void pass_state_on(struct evkeyvalq *from, struct evkeyvalq *to) {
    struct evkeyval *header;
    size_t len = 0;
    for (header = from->tqh_first; header; header = header->next.tqe_next) {
        if (strcasecmp(header->key, "tracestate") != 0) continue;
        len += strlen(header->value);
        if (len > TRACESTATE_MAX || !printable(header->value)) return;
    }
    for (header = from->tqh_first; header; header = header->next.tqe_next)
        if (strcasecmp(header->key, "tracestate") == 0) evhttp_add_header(to, "tracestate", header->value);
}

/* The value; NULL if there is none, or several, which have no meaning. */
static const char *find_parent(const struct evkeyvalq *headers) {
    const char *value = NULL;
    for (const struct evkeyval *header = headers->tqh_first; header; header = header->next.tqe_next) {
        if (strcasecmp(header->key, "traceparent") != 0) continue;
        if (value) return NULL;
        value = header->value;
    }
    return value;
}

void traceparent_accept(struct evhttp_request *http, struct trace_context *out) {
    struct evkeyvalq *given = evhttp_request_get_input_headers(http);
    struct evkeyvalq *reply = evhttp_request_get_output_headers(http);
    const char *parent = find_parent(given);
    if (parent && traceparent_parse(parent, strlen(parent), out)) {
        pass_state_on(given, reply);
    } else {
        *out = (struct trace_context){0};
        fresh_id(out->trace_id, sizeof out->trace_id);
    }
    uint8_t span_id[8];
    char header[TRACEPARENT_LEN + 1];
    fresh_id(span_id, sizeof span_id);
    traceparent_format(out, span_id, header);
    evhttp_add_header(reply, "traceparent", header);
}
