/* Notes (notes.h): a head, then the `top` list, the text, the error's text with its NUL, and zeros up to a multiple
 * of 8. Read back from a file, so every length is checked. */
#include "server/notes.h"

#include <string.h>

enum { NOTE_TEXT_MAX = 1 << 24 };

struct note {
    uint32_t bytes; /* of all of it */
    uint32_t choice, type, index;
    int32_t token;
    float logprob;
    uint32_t top_n, text_len, error_len; /* error_len: with its NUL; 0: no text */
    union {
        int32_t finish;      /* of a finish, as all that follows */
        float sampler_state; /* of a token; 0 in notes that were written before there was one */
    };
    int32_t error, stop_token, stop_index;
    uint32_t prompt_tokens, cached_tokens, generated_tokens;
    uint64_t seed;
};
_Static_assert(sizeof(struct note) == 72, "the journal's format");

static uint64_t whole_bytes(const struct note *note) {
    uint64_t bytes = sizeof *note + (uint64_t)note->top_n * sizeof(cohort_logprob) + note->text_len + note->error_len;
    return (bytes + 7) & ~UINT64_C(7);
}

int note_write(struct buf *out, uint32_t choice, const cohort_event *event) {
    static const char zeros[8];
    struct note note = {
        .choice = choice,
        .type = (uint32_t)event->type,
        .index = event->index,
        .token = event->token,
        .logprob = event->logprob,
        .text_len = (uint32_t)event->text_len,
    };
    if (event->text_len > NOTE_TEXT_MAX) return COHORT_E_LIMIT;
    if (event->type == COHORT_EVENT_TOKEN) {
        note.top_n = event->top_n;
        note.sampler_state = event->sampler_state;
    }
    if (event->type == COHORT_EVENT_FINISH) {
        note.error_len = event->error_text ? (uint32_t)strlen(event->error_text) + 1 : 0;
        note.finish = (int32_t)event->finish;
        note.error = event->error;
        note.stop_token = event->stop_token;
        note.stop_index = event->stop_index;
        note.prompt_tokens = event->stats.prompt_tokens;
        note.cached_tokens = event->stats.cached_tokens;
        note.generated_tokens = event->stats.generated_tokens;
        note.seed = event->stats.seed;
    }
    size_t before = out->len, top = note.top_n * sizeof(cohort_logprob);
    note.bytes = (uint32_t)whole_bytes(&note);
    int rc = buf_add(out, &note, sizeof note);
    if (!rc) rc = buf_add(out, event->top, top);
    if (!rc) rc = buf_add(out, event->text, event->text_len);
    if (!rc) rc = buf_add(out, event->error_text, note.error_len);
    if (!rc) rc = buf_add(out, zeros, note.bytes - sizeof note - top - note.text_len - note.error_len);
    if (rc) out->len = before;
    return rc;
}

static int is_note(const struct note *note, size_t len) {
    if (note->top_n > COHORT_TOP_LOGPROBS_MAX || note->text_len > NOTE_TEXT_MAX || note->error_len > NOTE_TEXT_MAX)
        return 0;
    if (note->type != COHORT_EVENT_TOKEN && note->type != COHORT_EVENT_FINISH) return 0;
    return note->bytes == whole_bytes(note) && note->bytes <= len;
}

size_t note_length(const char *bytes, size_t len) {
    struct note note;
    if (len < sizeof note) return 0;
    memcpy(&note, bytes, sizeof note);
    return is_note(&note, len) ? note.bytes : 0;
}

int note_read(const char *bytes, size_t len, uint32_t *choice, cohort_event *out) {
    struct note note;
    if (!note_length(bytes, len)) return COHORT_E_FILE;
    memcpy(&note, bytes, sizeof note);
    const char *top = bytes + sizeof note, *text = top + note.top_n * sizeof(cohort_logprob),
               *error = text + note.text_len;
    if (note.error_len && error[note.error_len - 1] != 0) return COHORT_E_FILE;
    *choice = note.choice;
    *out = (cohort_event){
        .type = (cohort_event_type)note.type,
        .token = note.token,
        .index = note.index,
        .text = text,
        .text_len = note.text_len,
        .logprob = note.logprob,
        .top = (const cohort_logprob *)(const void *)top,
        .top_n = note.top_n,
        .error = note.error,
        .error_text = note.error_len ? error : NULL,
        .stop_token = note.stop_token,
        .stop_index = note.stop_index,
        .stats = {.prompt_tokens = note.prompt_tokens,
                  .cached_tokens = note.cached_tokens,
                  .generated_tokens = note.generated_tokens,
                  .seed = note.seed},
    };
    if (note.type == COHORT_EVENT_FINISH)
        out->finish = (cohort_finish)note.finish;
    else
        out->sampler_state = note.sampler_state;
    return 0;
}
