/* Saving, restoring and erasing the state of sessions over HTTP: POST /slots/{id}?action=... in llama-server's shapes,
 * POST /v1/sessions/{name}?action=... for sessions by name. They wait for the disk, so a helper of their own does it:
 * prompts are tokenised meanwhile. Loop thread, but for the helper's part. */
#ifndef SERVER_SESSIONS_H
#define SERVER_SESSIONS_H

#include <event2/http.h>

struct server;

enum {
    SESSIONS_JOBS_MAX = 64, /* calls that wait or run; one more is refused */
    SESSIONS_FILE_MAX = 128 /* bytes of the name that a state is saved under */
};

/* The routes' handlers; `name`: a number, or a name as it is written in URLs. */
void sessions_slot(struct server *server, struct evhttp_request *http, const char *name);
void sessions_named(struct server *server, struct evhttp_request *http, const char *name);

#endif
