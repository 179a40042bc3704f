/* What there is of a stored call, for those who tell of it, or go on from it: its request, when and by which model, and
 * its one body. */
#ifndef SERVER_RECORD_H
#define SERVER_RECORD_H

#include <jansson.h>
#include <stdint.h>

#include "base/buf.h"
#include "cohort/cohort.h"

struct server;

enum { RECORD_ID_MAX = 63 }; /* bytes */

enum record_state {
    RECORD_GONE,    /* deleted a moment ago; or its end could not be written, and the next start makes it again */
    RECORD_CHANGED, /* it ended after it was read: read it again */
    RECORD_QUEUED,  /* waits to be taken up after a start */
    RECORD_RUNNING,
    RECORD_ENDED
};

struct record { /* zero-initialise */
    char owner[RECORD_ID_MAX + 1];
    int was_here; /* in memory before it was read */
    int ended, status;
    int64_t created;
    json_t *body;
    struct buf model, result; /* result: of an ended one */
};

/* Loop thread, before record_read: whose it must be. 0: nothing is stored here, or that is no id. */
int record_ask(struct server *server, const char *id, uint32_t tenant, struct record *out);
/* The thread that reads the journal. E_NOT_FOUND: nobody's who asks. The result only if `result`. */
int record_read(struct server *server, const char *id, int result, struct record *out, cohort_error *err);
/* Loop thread, afterwards: how it is now. An ended one has its result, unless it was not asked for. */
enum record_state record_state(struct server *server, const char *id, struct record *record, cohort_error *err);
/* Loop thread: it runs, or will, or its end as a cancelled one is not on the disk yet. */
int record_is_running(struct server *server, const char *id, uint32_t tenant);
void record_free(struct record *record);

#endif
