/* W3C Trace Context (level 1): the request header `traceparent` is read strictly, and the reply carries one with the
 * same trace id and a span id of our own. A caller's header that is not well-formed is as none: a fresh trace begins.
 * `tracestate` goes back as it came, if it is short. Loop thread. */
#ifndef SERVER_TRACEPARENT_H
#define SERVER_TRACEPARENT_H

#include <stddef.h>
#include <stdint.h>

struct evhttp_request;

enum { TRACEPARENT_LEN = 55, TRACESTATE_MAX = 512 /* bytes of all its headers that are passed on */ };

struct trace_context {
    uint8_t trace_id[16];
    uint8_t parent_id[8]; /* the caller's span; all 0: the trace begins here */
    uint8_t flags;
};

/* 1 if it is well-formed: version 00 exactly, or a later one that begins like it. *out is untouched otherwise. */
int traceparent_parse(const char *header, size_t len, struct trace_context *out);
/* Version 00 with `span_id` in the parent's place; NUL-terminated. */
void traceparent_format(const struct trace_context *context, const uint8_t span_id[8], char out[TRACEPARENT_LEN + 1]);

/* Reads the request's headers and adds the reply's. */
void traceparent_accept(struct evhttp_request *http, struct trace_context *out);

#endif
