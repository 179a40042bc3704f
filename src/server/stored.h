/* Stored calls: what `store: true` asks for. Loop thread, but for what a helper does with a call that it has.
 *
 * A stored call's answer is a stream of numbered events, which is a function of the request alone: choices take turns,
 * one token each. What its choices say (notes) and what follows from it (events) goes to the journal (journal.h) while
 * readers are fed from memory; nobody waits for the disk, save that
 *   - a call is acknowledged when its request is on the disk,
 *   - the end of a choice is told when that end is: when it came (time limits) and what was cached is no function of
 * the request. After a crash the same events come again, under the same numbers: notes that are there are read instead
 * of computed, events that are there are counted and compared, not written twice.
 *
 *             +--> WAITING -> LOADING --+       recovered: recover.c
 *   journal --+                         v
 *   request -----------------------> STARTING -> RUNNING -> ENDED -> (the journal has all of it, no readers) gone
 *                                    helper,     log,       log
 *                                    first       readers
 *                                    commit
 *
 * What a failing disk costs: a new stored call is refused; one that runs goes on, is told to its readers, and begins
 * anew after a restart (`lost`). */
#ifndef SERVER_STORED_H
#define SERVER_STORED_H

#include "server/call.h"
#include "server/journal.h"

/* The owner of calls of a server without keys: no key's name may have such bytes. Earlier it was one that a key can
 * have; what is still under that name belongs to a server without keys, too. */
#define STORED_NO_KEYS        "(no keys)"
#define STORED_NO_KEYS_BEFORE "default"

enum {
    STORED_LOG_KEEP = 256 << 10, /* bytes of written events that stay in memory for readers */
    STORED_AHEAD = 64 << 10, /* bytes of notes of a choice whose turn has not come: no more are taken, so it pauses */
    STORED_READERS_MAX = 16, /* of one stream */
    STORED_ALL_READERS_MAX = 4096,        /* of these each tenant has an equal share, at least one stream's */
    STORED_LOADING_MAX = 4,               /* recovered calls that are read from the journal at one time */
    STORED_TRIES_MAX = JOURNAL_TRIES_MAX, /* starts that a call is taken up again in, without a step ahead */
    STORED_COMMIT_S = 20,                 /* a disk that takes longer for a commit counts as failed */
    STORED_BUCKETS = 1024,
    STORED_TOLD = 256, /* ends of broken streams of which is known that they were told */
    /* A bit beside the status of a call that failed after it was taken up again: nobody knows how many events its
     * clients were told before the crash, so the error has no number, and whoever asks is told it. */
    STORED_BROKEN = 1 << 12,
    STORED_STATUS = STORED_BROKEN - 1
};

struct told {
    uint64_t number, at; /* of the stream; behind which event */
};

/* What one choice has said and its turn has not come for. */
struct lane {
    struct buf queue; /* notes; read up to `at` */
    size_t at;
    int waits;                  /* it is far ahead: what it says stays with the engine */
    uint64_t end_note;          /* the number of the note of its end; 0: not there yet */
    struct buf known;           /* recovered: ids (int32_t) of the tokens that notes were there for */
    cohort_saved_token *resume; /* the same for the engine, while a helper submits */
};

struct stored_head { /* what the journal says of the request beside its body */
    const struct dialect *dialect;
    int64_t created;
    uint64_t seed;
    uint32_t choices;
    uint32_t context; /* what "as many tokens as fit" meant */
    uint64_t kv_tokens;
    char identity[COHORT_IDENTITY_SIZE];
};

struct stored {
    struct server *server;
    struct stored *id_next, *number_next, *wait_prev, *wait_next;
    enum { STORED_WAITING, STORED_LOADING, STORED_STARTING, STORED_RUNNING, STORED_ENDED } state;
    char id[JOURNAL_ID_MAX + 1], owner[JOURNAL_OWNER_MAX + 1];
    uint64_t number; /* in the journal; 0: not begun */
    int listed;      /* in the tables */
    struct call *call;
    struct buf body;       /* until it is in the journal */
    struct buf model_name; /* recovered */
    int recovered, forgotten, lost;
    int cancelled; /* it ends with what has been said; told once that is on the disk */
    uint32_t tries;
    int64_t again_s;       /* recovered: not taken up before; 0: at any time */
    int64_t waits_since_s; /* for a commit; 0: for none */

    struct lane *lanes; /* of each choice */
    size_t lanes_n;
    size_t turn, ended_n;
    size_t held;          /* bytes in the lanes and in `whole`; with the log at most SERVER_RESULT_BYTES_MAX */
    struct choice *whole; /* collect the one body of a call that is not streamed; NULL */

    struct buf log;                       /* events base + 1 to events_n */
    struct buf ends;                      /* size_t: where each ends in it */
    uint64_t base, events_n, events_safe; /* safe: on the disk */
    uint64_t notes_n, notes_safe;
    uint64_t before_n;       /* recovered: events that are there already, */
    int64_t before_sum, sum; /* and what they and those made again add up to */
    int status;              /* of an ended one */
    struct buf result;       /* the one body, or the error */
    int settled;             /* ended, and nothing more comes from the journal */
    struct reader *readers;
    unsigned readers_n;
    int feeding;

    struct stored_head head; /* recovered */
    cohort_error verdict;    /* recovered: why it cannot go on */
    cohort_ticket *tickets;
};

/* Whether the call is to be stored, by its `store` and the server's options; then call->stored is set. E_UNSUPPORTED,
 * "store", if it cannot. */
int stored_wish(struct call *call, struct evbuffer *body, cohort_error *err);
/* It is in the journal and with the engine: opens the stream and goes on. May free it. */
void stored_run(struct stored *s);
/* A helper has submitted the call, or met an error. */
void stored_submitted(struct stored *s, const cohort_error *error);
/* Reads what the choices have to say. May free the call, and s. */
void stored_pump(struct stored *s);
/* Ends with the error as its last event; a recovered call's has no number. */
void stored_fail(struct stored *s, const cohort_error *error);
/* Ends here, unfinished, for the next start to go on with. Its readers' streams end without [DONE]. */
void stored_suspend(struct stored *s);
/* Ends with what it has said so far; a recovered one when that is known again. May free it if nobody reads it. */
void stored_cancel(struct stored *s);
/* Why one that the journal has, not ended, is not in memory: its owner is deleting it, or its end could not be written.
 * The second cannot be while nothing was lost. */
int stored_is_away(const struct server *server, const char *what, cohort_error *err);
/* Its owner deleted it. Nothing of it is left but in the journal. */
void stored_forget(struct stored *s);
/* The call is being freed by somebody else: its client left before it was acknowledged, or the server ends. */
void stored_call_gone(struct stored *s);

/* Helper: the tokens that the choice was given before, for its request. */
int stored_resume(struct stored *s, const struct choice *choice, cohort_request *request, cohort_error *err);
static inline int stored_has_ended(const struct stored *s, size_t choice) { return s->lanes[choice].end_note != 0; }

/* Event n is in the log; its bytes. */
const char *stored_event(const struct stored *s, uint64_t n, size_t *len);
/* It was cancelled, and that is not on the disk yet. */
static inline int stored_is_held(const struct stored *s) {
    return s->cancelled && s->state == STORED_ENDED && !s->settled;
}
struct stored *stored_find(struct server *server, const char *id, const char *owner);
/* Without readers and with all of it in the journal it goes. */
void stored_maybe_free(struct stored *s);

/* A fault that passes: no memory, a disk or an engine that does not answer. A recovered call is acknowledged, so it is
 * not ended by one. */
static inline int stored_fault_passes(int code) {
    return code == COHORT_E_CLOSED || code == COHORT_E_BUSY || code == COHORT_E_MEMORY || code == COHORT_E_IO;
}

/* Parts that recovery uses. */
void stored_reset(struct stored *s); /* drops the call and what was made of it: it begins anew */
struct stored *stored_new(struct server *server, const char *id, const char *owner);
void stored_free(struct stored *s);
void stored_list(struct stored *s); /* into the tables: it has its number */
void stored_lose(struct stored *s); /* the journal does not have what follows */
int stored_make_lanes(struct stored *s, size_t n, cohort_error *err);
const char *stored_owner(const struct server *server, uint32_t tenant);
int stored_is_owner(const char *who, const char *owner); /* `owner`: the journal's */

/* The journal has results. */
void stored_on_journal(evutil_socket_t fd, short what, void *server);
void stored_tick(struct server *server, int64_t now_s);
void stored_close(struct server *server); /* frees what ended and waited for the journal */

#endif
