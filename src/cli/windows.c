/* Scoring sequences (windows.h): as many at once as the engine runs rows. */
#include "cli/windows.h"

#include <stdlib.h>

#include "cli/cli.h"

struct slot {
    cohort_id id;
    size_t window;
};

static int submit(cohort_engine *engine, const struct window *window, cohort_id *id) {
    cohort_request request;
    cohort_request_defaults(&request);
    request.prompt = window->ids;
    request.prompt_n = window->n;
    request.max_tokens = 0;
    request.prompt_logprobs = 1;
    cohort_ticket ticket;
    cohort_error error = {0};
    if (cohort_reserve(engine, &ticket, &error) || cohort_submit(engine, ticket, &request, id, &error))
        return cli_fail(&error);
    return 0;
}

/* Takes what a slot has to say; 1 once it ended, -1 after a printed error. */
static int drain(cohort_engine *engine, struct slot *slot, window_fn said, void *user) {
    cohort_event event;
    while (cohort_next(engine, slot->id, &event) == COHORT_OK) {
        if (event.type == COHORT_EVENT_PROMPT) said(user, slot->window, event.index, event.token, event.logprob);
        if (event.type != COHORT_EVENT_FINISH) continue;
        int failed = event.finish == COHORT_FINISH_ERROR;
        if (failed) cli_failf("%s", event.error_text);
        cohort_drop(engine, slot->id);
        slot->id = 0;
        return failed ? -1 : 1;
    }
    return 0;
}

int windows_score(cohort_engine *engine, const struct window *windows, size_t n, window_fn said, void *user) {
    cohort_engine_options options;
    cohort_engine_get_options(engine, &options);
    size_t slots_n = options.rows, next = 0, ended = 0;
    struct slot *slots = calloc(slots_n, sizeof *slots);
    if (!slots) return cli_failf("out of memory");
    int rc = 0;
    while (ended < n && rc == 0) {
        size_t waiting = slots_n;
        for (size_t i = 0; i < slots_n && rc == 0; i++) {
            if (!slots[i].id && next < n) {
                slots[i].window = next++;
                rc = submit(engine, &windows[slots[i].window], &slots[i].id);
            }
            if (rc || !slots[i].id) continue;
            int end = drain(engine, &slots[i], said, user);
            if (end < 0) rc = 1;
            if (end > 0) ended++;
            if (end == 0) waiting = i;
        }
        if (rc == 0 && waiting < slots_n && ended < n) cohort_wait(engine, slots[waiting].id, 50);
        cli_progress(NULL, "scoring", n ? (double)ended / (double)n : 1);
    }
    for (size_t i = 0; i < slots_n; i++)
        if (slots[i].id) cohort_drop(engine, slots[i].id);
    free(slots);
    return rc;
}
