/* The HTTP server: one event loop thread (the caller of server_run) that parses, validates and formats; a small helper
 * pool that tokenises; the engine behind cohort.h that does the rest. Knows nothing of the engine but cohort.h. */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include <stdint.h>

#include "cohort/cohort.h"

enum {
    SERVER_BODY_MAX = 32 << 20,         /* bytes of a request body: 413 above */
    SERVER_HEADERS_MAX = 64 << 10,      /* bytes of a request's headers */
    SERVER_OUTPUT_MAX = 64 << 10,       /* unsent bytes of a stream before its request waits */
    SERVER_CHOICES_MAX = 128,           /* prompts * n of one request */
    SERVER_HELPERS = 2,                 /* tokenising threads, */
    SERVER_GRAMMAR_HELPERS = 1,         /* and those that compile grammars */
    SERVER_IDLE_S = 120,                /* idle connections and clients that do not read are closed after this */
    SERVER_STALL_S = 120,               /* a stream whose unsent bytes were never all gone for this long is ended */
    SERVER_COMMENT_S = 5,               /* silence in a stream before a comment line */
    SERVER_FAILED_S = 2,                /* with an engine that cannot go on, time to say so before the end, */
    SERVER_FAILED_MAX_S = 5,            /* and time at most for replies that are on their way */
    SERVER_RESULT_BYTES_MAX = 64 << 20, /* text collected for a reply that is not streamed, and kept of a stored call */
    SERVER_STORE_HOURS = 24             /* that ended stored calls are kept, if nothing else is said */
};

/* Which calls are stored (stored.h): those that say `store: true`, all but those that say false, or none. */
enum server_store { SERVER_STORE_MARKED, SERVER_STORE_ALL, SERVER_STORE_NONE };

struct server;
struct server_api;

struct server_options {
    const struct server_api *api; /* what is spoken (http.h) */
    const char *host;             /* address to bind */
    uint16_t port;                /* 0: any free one */
    const char *api_key;          /* the key of tenant "default"; NULL: none */
    const char *keys_path;        /* a file with keys (keys.h); NULL: none. With neither, no key is asked for */
    const char *model_name;
    uint32_t drain_s;           /* time that running requests get after SIGTERM */
    int verbose;                /* a line a second on stderr while anything runs */
    uint32_t request_timeout_s; /* of every request, or its own if that is shorter; 0: none */
    const char *state_dir;      /* where stored calls are kept; NULL: there are none */
    enum server_store store;
    uint32_t store_hours;
    int request_templates; /* 1: requests may bring their own chat template */
};

/* Binds and listens (so that a port in use is known before gigabytes are loaded). Strings are borrowed until
 * server_close. */
int server_open(const struct server_options *options, struct server **out, cohort_error *err);
uint16_t server_port(const struct server *server);
/* The tenants that the keys belong to, for the options of the engine that is attached. NULL and 0 without keys. */
const cohort_tenant *server_tenants(const struct server *server, size_t *n);
/* Hands over the loaded model and its engine; from any thread, once, while server_run runs or before. Until then every
 * route but /health answers 503 "loading". Both stay the caller's and outlive server_run. */
void server_attach(struct server *server, cohort_model *model, cohort_engine *engine);
/* Ends server_run with an error (loading failed). Any thread. */
void server_abort(struct server *server);
/* Serves until SIGTERM or SIGINT (refuses new work, lets requests end for drain_s, then cancels them; a second signal
 * ends at once) or server_abort, or until the engine cannot go on: then what is pending is answered with errors,
 * /health says 503 and some seconds later it ends, with a line on stderr. Returns 0, or -1 after an abort or a failure.
 */
int server_run(struct server *server);
void server_close(struct server *server);

#endif
