/* Readers: the connections that follow stored calls, live or from the journal, and /v1/streams/ID. Loop thread, with
 * jobs on the thread that reads the journal.
 *
 * A reader has its own position and fills its own socket only: what it has not taken yet is in its stream's log, or in
 * the journal. */
#ifndef SERVER_READERS_H
#define SERVER_READERS_H

#include "server/stored.h"

struct reader;

/* GET and DELETE of /v1/streams/ID; `id` as it stands in the path. */
void readers_route(struct server *server, struct evhttp_request *http, uint32_t tenant, const char *id);
/* The same of a request that says it otherwise. */
struct readers_wish {
    uint64_t after; /* events of which it has been sent already */
    int whole;      /* the one body */
    int removing;
    int cancelling;   /* with `whole`: the stream ends first, if it runs */
    const char *kind; /* a literal: what the stream is called; NULL: "stream" */
};
void readers_ask(struct server *server, struct evhttp_request *http, uint32_t tenant, const char *id,
                 const struct readers_wish *wish);
/* The sink's request follows s, behind event `after`; `whole`: it gets the one body when there is one. */
void reader_follow(struct stored *s, struct sink *sink, uint64_t after, int whole);
/* There may be more for those who follow s. It stays, also if it has ended. */
void readers_feed(struct stored *s);
/* Ends them without [DONE]; `error` (NULL: none) for those who have not been sent anything. */
void readers_cut(struct stored *s, const cohort_error *error);
/* Ends them with the error as an event without a number. */
void readers_tell(struct stored *s, const cohort_error *error);
void readers_removed(struct server *server, uint64_t number, int code); /* the journal's answer to a DELETE */
void readers_tick(struct server *server, int64_t now_s);
void readers_end(struct server *server); /* drain ran out */

#endif
