/* After a start: calls that the journal has unfinished are taken up again, oldest first, as places come free. Loop
 * thread, with jobs on the thread that reads the journal. */
#ifndef SERVER_RECOVER_H
#define SERVER_RECOVER_H

#include "server/server.h"

struct stored;

/* The engine is there: what is unfinished is looked for, and waits for places from then on. */
void recover_start(struct server *server);
/* Takes up calls that wait, as far as there are places. */
void recover_kick(struct server *server);
void recover_unlink(struct stored *s); /* it waits no more */
/* Ends: what still waits is forgotten here, and stays in the journal. */
void recover_close(struct server *server);

#endif
