/* After a start: calls that the journal has unfinished are taken up again, oldest first, as places come free. Loop
 * thread, with jobs on the thread that reads the journal. */
#ifndef SERVER_RECOVER_H
#define SERVER_RECOVER_H

#include "server/server.h"

struct stored;

/* The engine is there: what is unfinished is looked for, and waits for places from then on. */
void recover_start(struct server *server);
/* A call ended, or time has passed: takes up calls that wait, as far as there are places. */
void recover_look(struct server *server);
/* A helper has submitted the call, or there was an error before it ran, which ends it or is waited out. */
void recover_submitted(struct stored *s, const cohort_error *error);
void recover_unlink(struct stored *s); /* it waits no more */
/* Ends: what still waits is forgotten here, and stays in the journal. */
void recover_close(struct server *server);

#endif
