/* Asks a server for its /metrics, one question at a time, each on a connection of its own, with a time limit and a
 * bound on what is read. One thread: the event loop's. */
#ifndef CLI_TOP_CLIENT_H
#define CLI_TOP_CLIENT_H

#include <stddef.h>
#include <stdint.h>

struct event_base;
struct top_client;

enum { TOP_ANSWER_MAX = 4 << 20 /* bytes */, TOP_TIMEOUT_S = 5 };

enum top_outcome {
    TOP_ANSWERED, /* text: the body */
    TOP_LATER,    /* text: why; it is likely to pass: the server loads or has no memory */
    TOP_FAILED    /* text: why */
};

typedef void (*top_answer_fn)(void *user, enum top_outcome outcome, const char *text, size_t len);

/* Strings are borrowed. NULL: no memory. */
struct top_client *top_client_new(struct event_base *base, const char *host, uint16_t port, const char *api_key,
                                  top_answer_fn answer, void *user);
void top_client_free(struct top_client *client);
const char *top_client_url(const struct top_client *client);
/* `answer` is called once for it, maybe already before this returns. Does nothing while the last one is open. */
void top_client_ask(struct top_client *client);

#endif
