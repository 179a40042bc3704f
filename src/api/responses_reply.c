/* How /v1/responses tells an answer: its items, streamed and whole (responses.h). Loop thread.
 *
 * A block of what was said (server/parts.h) is one item: text a message, reasoning, a call. Item i is block i. An
 * answer of which nothing was said has one message, which is empty. One path makes the events and collects the items,
 * whether somebody is told the events or not. */
#include <string.h>

#include "api/openai.h"
#include "api/responses.h"
#include "base/mem.h"

/* ---- items ---- */

static const char *item_prefix(cohort_part_type type) {
    return type == COHORT_PART_CALL ? "fc_" : type == COHORT_PART_REASONING ? "rs_" : "msg_";
}

/* Without quotation marks. The first item's is the call's own. */
static int add_item_id(const struct call *call, cohort_part_type type, uint32_t i, struct buf *out) {
    int rc = buf_addf(out, "%s%s", item_prefix(type), call->id + strlen(RESPONSES_PREFIX));
    return rc || i == 0 ? rc : buf_addf(out, "_%u", i);
}

static int add_bytes(struct buf *out, const struct buf *text) {
    return buf_json_string(out, text && text->data ? text->data : "", text ? text->len : 0);
}

static const struct block *block_at(const struct choice *choice, uint32_t i) {
    return i < choice->blocks_n ? &choice->blocks[i] : NULL;
}

static const struct buf *text_at(const struct choice *choice, uint32_t i) {
    return i < choice->blocks_n ? &choice->blocks[i].bytes : NULL;
}

/* Where the log-probabilities of an item begin in those of all. */
static size_t logprobs_at(const struct choice *choice, uint32_t i) {
    const struct response *own = choice->call->own;
    const size_t *begins = (const size_t *)own->begins.data;
    return i < own->begins.len / sizeof *begins ? begins[i] : choice->logprobs.len;
}

/* {"type":"output_text",...}: as it is once it is whole, or before it begins. */
static int add_output_text(const struct choice *choice, uint32_t i, int whole, struct buf *out) {
    int rc = buf_adds(out, "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[");
    size_t begin = logprobs_at(choice, i), end = logprobs_at(choice, i + 1);
    if (!rc && whole && end > begin) rc = buf_add(out, choice->logprobs.data + begin, end - begin);
    if (!rc) rc = buf_adds(out, "],\"text\":");
    if (!rc) rc = add_bytes(out, whole ? text_at(choice, i) : NULL);
    return rc ? rc : buf_adds(out, "}");
}

static int add_reasoning_text(const struct choice *choice, uint32_t i, int whole, const char *type, struct buf *out) {
    int rc = buf_addf(out, "{\"type\":\"%s\",\"text\":", type);
    if (!rc) rc = add_bytes(out, whole ? text_at(choice, i) : NULL);
    return rc ? rc : buf_adds(out, "}");
}

static int add_reasoning(const struct choice *choice, uint32_t i, int whole, struct buf *out) {
    const struct response *own = choice->call->own;
    int rc = buf_adds(out, "\"summary\":[");
    if (!rc && whole && own->summarises) rc = add_reasoning_text(choice, i, 1, "summary_text", out);
    if (!rc) rc = buf_adds(out, "],\"content\":[");
    if (!rc && whole) rc = add_reasoning_text(choice, i, 1, "reasoning_text", out);
    return rc ? rc : buf_adds(out, "]}");
}

static int add_call(const struct choice *choice, uint32_t i, int whole, struct buf *out) {
    const struct block *block = block_at(choice, i);
    char id[PARTS_ID_SIZE];
    parts_call_id(choice, "call_", block->call, id);
    int rc = buf_addf(out, "\"call_id\":\"%s\",\"name\":", id);
    if (!rc) rc = add_bytes(out, &block->name);
    if (!rc) rc = buf_adds(out, ",\"arguments\":");
    if (!rc) rc = add_bytes(out, whole ? &block->bytes : NULL);
    return rc ? rc : buf_adds(out, "}");
}

/* `whole`: with what was said. */
static int add_item(const struct choice *choice, cohort_part_type type, uint32_t i, const char *status, int whole,
                    struct buf *out) {
    static const char *const names[] = {
        [COHORT_PART_TEXT] = "message", [COHORT_PART_REASONING] = "reasoning", [COHORT_PART_CALL] = "function_call"};
    int rc = buf_adds(out, "{\"id\":\"");
    if (!rc) rc = add_item_id(choice->call, type, i, out);
    if (!rc) rc = buf_addf(out, "\",\"type\":\"%s\",\"status\":\"%s\",", names[type], status);
    if (rc) return rc;
    if (type == COHORT_PART_REASONING) return add_reasoning(choice, i, whole, out);
    if (type == COHORT_PART_CALL) return add_call(choice, i, whole, out);
    rc = buf_adds(out, "\"role\":\"assistant\",\"content\":[");
    if (!rc && whole) rc = add_output_text(choice, i, 1, out);
    return rc ? rc : buf_adds(out, "]}");
}

/* Of an item that has ended. Behind another one it was whole, but for a call that says otherwise. */
static const char *item_status(const struct choice *choice, uint32_t i) {
    const struct block *block = block_at(choice, i);
    int whole = i + 1 < choice->blocks_n || choice->finish == COHORT_FINISH_STOP;
    if (block && block->type == COHORT_PART_CALL) whole = block->whole;
    return whole ? "completed" : "incomplete";
}

int responses_add_output(const struct choice *choice, struct buf *out) {
    int rc = 0;
    if (choice->blocks_n == 0) return add_item(choice, COHORT_PART_TEXT, 0, item_status(choice, 0), 1, out);
    for (uint32_t i = 0; i < choice->blocks_n && !rc; i++) {
        if (i) rc = buf_adds(out, ",");
        if (!rc) rc = add_item(choice, choice->blocks[i].type, i, item_status(choice, i), 1, out);
    }
    return rc;
}

/* ---- events ---- */

int responses_begin_event(struct call *call, const char *type, struct buf *out) {
    struct response *own = call->own;
    return buf_addf(out, "{\"type\":\"response.%s\",\"sequence_number\":%llu", type, (unsigned long long)own->events++);
}

/* Of the item that is open. */
static int item_event(struct choice *choice, const char *type, const char *status, int whole, struct buf *out) {
    const struct response *own = choice->call->own;
    int rc = responses_begin_event(choice->call, type, out);
    if (!rc) rc = buf_addf(out, ",\"output_index\":%u,\"item\":", own->item);
    if (!rc) rc = add_item(choice, own->open, own->item, status, whole, out);
    return rc ? rc : buf_adds(out, "}\n");
}

/* ,"item_id":...,"output_index":...,`index`:0 behind the beginning; `index` NULL: without. */
static int begin_part(struct choice *choice, const char *type, const char *index, struct buf *out) {
    const struct response *own = choice->call->own;
    int rc = responses_begin_event(choice->call, type, out);
    if (!rc) rc = buf_adds(out, ",\"item_id\":\"");
    if (!rc) rc = add_item_id(choice->call, own->open, own->item, out);
    if (!rc) rc = buf_addf(out, "\",\"output_index\":%u", own->item);
    return rc || !index ? rc : buf_addf(out, ",\"%s\":0", index);
}

static int part_event(struct choice *choice, const char *type, int whole, struct buf *out) {
    const struct response *own = choice->call->own;
    int rc = begin_part(choice, type, "content_index", out);
    if (!rc) rc = buf_adds(out, ",\"part\":");
    if (!rc)
        rc = own->open == COHORT_PART_TEXT ? add_output_text(choice, own->item, whole, out)
                                           : add_reasoning_text(choice, own->item, whole, "reasoning_text", out);
    return rc ? rc : buf_adds(out, "}\n");
}

static int summary_event(struct choice *choice, const char *type, int whole, struct buf *out) {
    const struct response *own = choice->call->own;
    int rc = begin_part(choice, type, "summary_index", out);
    if (!rc) rc = buf_adds(out, ",\"part\":");
    if (!rc) rc = add_reasoning_text(choice, own->item, whole, "summary_text", out);
    return rc ? rc : buf_adds(out, "}\n");
}

/* `member`: the piece, or all of it. */
static int text_event(struct choice *choice, const char *type, const char *index, const char *member, const char *bytes,
                      size_t len, struct buf *out) {
    int rc = begin_part(choice, type, index, out);
    if (!rc) rc = buf_addf(out, ",\"%s\":", member);
    if (!rc) rc = buf_json_string(out, len ? bytes : "", len);
    return rc ? rc : buf_adds(out, "}\n");
}

static int start_item(struct choice *choice, cohort_part_type type, struct buf *out) {
    struct response *own = choice->call->own;
    own->open = type;
    own->item = own->items++;
    int rc = buf_add(&own->begins, &choice->logprobs.len, sizeof choice->logprobs.len);
    if (!rc) rc = item_event(choice, "output_item.added", "in_progress", 0, out);
    if (rc || type == COHORT_PART_CALL) return rc;
    rc = part_event(choice, "content_part.added", 0, out);
    if (!rc && type == COHORT_PART_REASONING && own->summarises)
        rc = summary_event(choice, "reasoning_summary_part.added", 0, out);
    return rc;
}

int responses_start_text(struct choice *choice, struct buf *out) { return start_item(choice, COHORT_PART_TEXT, out); }

static int end_text(struct choice *choice, const struct buf *text, struct buf *out) {
    const struct response *own = choice->call->own;
    size_t begin = logprobs_at(choice, own->item), end = logprobs_at(choice, own->item + 1);
    int rc = begin_part(choice, "output_text.done", "content_index", out);
    if (!rc) rc = buf_adds(out, ",\"text\":");
    if (!rc) rc = add_bytes(out, text);
    if (!rc) rc = buf_adds(out, ",\"logprobs\":[");
    if (!rc && end > begin) rc = buf_add(out, choice->logprobs.data + begin, end - begin);
    if (!rc) rc = buf_adds(out, "]}\n");
    return rc ? rc : part_event(choice, "content_part.done", 1, out);
}

static int end_reasoning(struct choice *choice, const char *bytes, size_t len, struct buf *out) {
    const struct response *own = choice->call->own;
    int rc = text_event(choice, "reasoning_text.done", "content_index", "text", bytes, len, out);
    if (!rc) rc = part_event(choice, "content_part.done", 1, out);
    if (rc || !own->summarises) return rc;
    rc = text_event(choice, "reasoning_summary_text.done", "summary_index", "text", bytes, len, out);
    return rc ? rc : summary_event(choice, "reasoning_summary_part.done", 1, out);
}

static int end_item(struct choice *choice, struct buf *out) {
    struct response *own = choice->call->own;
    const struct buf *text = text_at(choice, own->item);
    const char *bytes = text ? text->data : NULL;
    size_t len = text ? text->len : 0;
    int rc = 0;
    if (!own->open) return 0;
    if (own->open == COHORT_PART_TEXT)
        rc = end_text(choice, text, out);
    else if (own->open == COHORT_PART_REASONING)
        rc = end_reasoning(choice, bytes, len, out);
    else
        rc = text_event(choice, "function_call_arguments.done", NULL, "arguments", bytes, len, out);
    if (!rc) rc = item_event(choice, "output_item.done", item_status(choice, own->item), 1, out);
    own->open = 0;
    return rc;
}

static int reach_item(struct choice *choice, cohort_part_type type, struct buf *out) {
    const struct response *own = choice->call->own;
    if (own->open == type) return 0;
    int rc = end_item(choice, out);
    return rc ? rc : start_item(choice, type, out);
}

/* Adds the event's log-probabilities to the item's. */
static int keep_logprobs(struct choice *choice, const struct buf *logprobs) {
    const struct response *own = choice->call->own;
    int rc = choice->logprobs.len > logprobs_at(choice, own->item) ? buf_adds(&choice->logprobs, ",") : 0;
    return rc ? rc : buf_add(&choice->logprobs, logprobs->data, logprobs->len);
}

static int text_delta(struct choice *choice, const char *bytes, size_t len, struct buf *out) {
    struct response *own = choice->call->own;
    struct buf *logprobs = &own->waiting;
    int rc = reach_item(choice, COHORT_PART_TEXT, out);
    if (!rc && logprobs->len) rc = keep_logprobs(choice, logprobs);
    if (!rc) rc = begin_part(choice, "output_text.delta", "content_index", out);
    if (!rc) rc = buf_adds(out, ",\"delta\":");
    if (!rc) rc = buf_json_string(out, len ? bytes : "", len);
    if (!rc) rc = buf_adds(out, ",\"logprobs\":[");
    if (!rc && logprobs->len) rc = buf_add(out, logprobs->data, logprobs->len);
    buf_clear(logprobs);
    return rc ? rc : buf_adds(out, "]}\n");
}

static int add_part(struct choice *choice, const cohort_part *part, struct buf *out) {
    const struct response *own = choice->call->own;
    int rc;
    switch (part->type) {
    case COHORT_PART_TEXT:
        return text_delta(choice, part->bytes, part->len, out);
    case COHORT_PART_REASONING:
        rc = reach_item(choice, COHORT_PART_REASONING, out);
        if (!rc) rc = text_event(choice, "reasoning_text.delta", "content_index", "delta", part->bytes, part->len, out);
        if (!rc && own->summarises)
            rc = text_event(choice, "reasoning_summary_text.delta", "summary_index", "delta", part->bytes, part->len,
                            out);
        return rc;
    case COHORT_PART_CALL:
        rc = end_item(choice, out);
        return rc ? rc : start_item(choice, COHORT_PART_CALL, out);
    case COHORT_PART_ARGUMENTS:
        return text_event(choice, "function_call_arguments.delta", NULL, "delta", part->bytes, part->len, out);
    default:
        return end_item(choice, out);
    }
}

/* A token's log-probabilities are told with the text that became certain with it, or behind it; those of tokens that
 * made no text are not: what is held back behind reasoning or a call is their end. */
static int take_logprob(struct choice *choice, const cohort_event *event) {
    struct response *own = choice->call->own;
    const struct parts *parts = &choice->call->parts;
    cohort_part_type before = own->last;
    int text = parts->n == 0, rc = 0;
    for (size_t i = 0; i < parts->n; i++) {
        text |= parts->list[i].type == COHORT_PART_TEXT;
        own->last = parts->list[i].type;
    }
    if (parts->n && before && before != COHORT_PART_TEXT) buf_clear(&own->waiting);
    if (event->type != COHORT_EVENT_TOKEN || choice->call->params.logprobs < 0) return 0;
    if (own->waiting.len) rc = buf_adds(&own->waiting, ",");
    if (!rc) rc = openai_add_logprob(choice->call, event, event->top_n, &own->waiting);
    if (!text) buf_clear(&own->waiting);
    return rc;
}

int responses_piece(struct choice *choice, const cohort_event *event, struct buf *out) {
    const struct response *own = choice->call->own;
    const struct parts *parts = &choice->call->parts;
    if (!event) return 0;
    int rc = parts_collect(choice);
    if (!rc) rc = take_logprob(choice, event);
    for (size_t i = 0; i < parts->n && !rc; i++) rc = add_part(choice, &parts->list[i], out);
    /* all is text there: tokens without one are told, too */
    if (!rc && !choice->reader && own->waiting.len) rc = text_delta(choice, "", 0, out);
    if (rc || event->type != COHORT_EVENT_FINISH) return rc;
    if (own->items == 0) rc = start_item(choice, COHORT_PART_TEXT, out);
    return rc ? rc : end_item(choice, out);
}

int responses_collect(struct choice *choice, const cohort_event *event) {
    struct buf unheard = {0};
    int rc = responses_piece(choice, event, &unheard);
    buf_free(&unheard);
    return rc;
}
