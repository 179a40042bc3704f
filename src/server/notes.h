/* A note: one event of a choice, as bytes for the journal and back. With a stored call's body and seed, its notes are
 * all that its answer follows from. Pure; any thread. */
#ifndef SERVER_NOTES_H
#define SERVER_NOTES_H

#include "base/buf.h"
#include "cohort/cohort.h"

/* Appends the note to *out, whose bytes it leaves aligned to 8. Token and finish events only. */
int note_write(struct buf *out, uint32_t choice, const cohort_event *event);
/* Bytes of the note that `bytes` (aligned to 8) begin with; 0 if they are none. */
size_t note_length(const char *bytes, size_t len);
/* Reads it; text and lists point into `bytes`. E_FILE: not a note. */
int note_read(const char *bytes, size_t len, uint32_t *choice, cohort_event *out);

#endif
