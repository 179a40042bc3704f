/* How /v1/messages tells an answer, streamed and whole (anthropic.h). Loop thread.
 *
 * Content blocks come in the order in which the model said what is in them. An answer without any has one text block,
 * which is empty. A block's index and the ids of calls follow from the call, so that they are the same when a stored
 * one is made again; so does the signature of thinking, which proves nothing: whatever comes back as one is taken. */
#include <string.h>

#include "api/anthropic.h"
#include "api/json_text.h"
#include "base/utf8.h"

static int add_usage(const struct choice *choice, struct buf *out) {
    const cohort_stats *s = &choice->stats;
    return buf_addf(out,
                    "\"usage\":{\"input_tokens\":%u,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":%u,"
                    "\"output_tokens\":%u,\"output_tokens_details\":{\"thinking_tokens\":%u}}",
                    s->prompt_tokens - s->cached_tokens, s->cached_tokens, s->generated_tokens,
                    choice->said.reasoned ? s->reasoning_tokens : 0);
}

/* "stop_reason":...,"stop_sequence":... */
static int add_stop(const struct choice *choice, struct buf *out) {
    const struct message *own = choice->call->own;
    int which = choice->stop_index, stopped = choice->finish == COHORT_FINISH_STOP;
    if (!stopped || which < 0 || which >= COHORT_STOPS_MAX)
        return buf_addf(out, "\"stop_reason\":\"%s\",\"stop_sequence\":null",
                        choice->finish == COHORT_FINISH_LENGTH ? "max_tokens"
                        : stopped && choice->said.calls        ? "tool_use"
                                                               : "end_turn");
    int rc = buf_adds(out, "\"stop_reason\":\"stop_sequence\",\"stop_sequence\":");
    return rc ? rc
              : buf_json_string(out, own->texts.data + own->begin[which], own->begin[which + 1] - own->begin[which]);
}

static int add_head(const struct call *call, struct buf *out) {
    int rc = buf_addf(out, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", call->id);
    return rc ? rc : buf_json_string(out, call->model_name, strlen(call->model_name));
}

static int add_signature(const struct choice *choice, uint32_t block, struct buf *out) {
    char id[PARTS_ID_SIZE];
    parts_call_id(choice, "thinking_", block, id);
    return buf_addf(out, "\"signature\":\"%s\"", id);
}

/* {"type":"tool_use","id":...,"name":...,"input": without the end. */
static int begin_call(const struct choice *choice, uint32_t number, const char *name, size_t len, struct buf *out) {
    char id[PARTS_ID_SIZE];
    parts_call_id(choice, "toolu_", number, id);
    int rc = buf_addf(out, "{\"type\":\"tool_use\",\"id\":\"%s\",\"name\":", id);
    if (!rc) rc = buf_json_string(out, name, len);
    return rc ? rc : buf_adds(out, ",\"input\":");
}

/* ---- streams ---- */

/* {"type":"content_block_start",... with the block's own JSON between both. */
static int begin_start(struct message *own, cohort_part_type kind, struct buf *out) {
    own->open = kind;
    return buf_addf(out, "{\"type\":\"content_block_start\",\"index\":%u,\"content_block\":", own->blocks++);
}

static int start_text(struct message *own, struct buf *out) {
    int rc = begin_start(own, COHORT_PART_TEXT, out);
    return rc ? rc : buf_adds(out, "{\"type\":\"text\",\"text\":\"\"}}\n");
}

static int begin_delta(const struct message *own, struct buf *out) {
    return buf_addf(out, "{\"type\":\"content_block_delta\",\"index\":%u,\"delta\":{\"type\":", own->blocks - 1);
}

static int end_block(struct choice *choice, struct buf *out) {
    struct message *own = choice->call->own;
    int rc = 0;
    if (!own->open) return 0;
    if (own->open == COHORT_PART_REASONING) {
        rc = begin_delta(own, out);
        if (!rc) rc = buf_adds(out, "\"signature_delta\",");
        if (!rc) rc = add_signature(choice, own->blocks - 1, out);
        if (!rc) rc = buf_adds(out, "}}\n");
    }
    own->open = 0;
    return rc ? rc : buf_addf(out, "{\"type\":\"content_block_stop\",\"index\":%u}\n", own->blocks - 1);
}

/* The block that this part belongs to is open. */
static int reach_block(struct choice *choice, const cohort_part *part, struct buf *out) {
    struct message *own = choice->call->own;
    if (own->open == part->type) return 0;
    int rc = end_block(choice, out);
    if (rc || part->type == COHORT_PART_TEXT) return rc ? rc : start_text(own, out);
    rc = begin_start(own, part->type, out);
    return rc ? rc : buf_adds(out, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}\n");
}

static int start_call(struct choice *choice, const cohort_part *part, struct buf *out) {
    int rc = end_block(choice, out);
    if (!rc) rc = begin_start(choice->call->own, COHORT_PART_CALL, out);
    if (!rc) rc = begin_call(choice, part->call, part->bytes, part->len, out);
    return rc ? rc : buf_adds(out, "{}}}\n");
}

static int add_delta(struct choice *choice, const char *type, const char *member, const cohort_part *part,
                     struct buf *out) {
    int rc = begin_delta(choice->call->own, out);
    if (!rc) rc = buf_addf(out, "\"%s\",\"%s\":", type, member);
    if (!rc) rc = buf_json_string(out, part->bytes, part->len);
    return rc ? rc : buf_adds(out, "}}\n");
}

static int add_part(struct choice *choice, const cohort_part *part, struct buf *out) {
    const struct message *own = choice->call->own;
    int rc = 0;
    switch (part->type) {
    case COHORT_PART_TEXT:
        rc = reach_block(choice, part, out);
        return rc ? rc : add_delta(choice, "text_delta", "text", part, out);
    case COHORT_PART_REASONING:
        rc = reach_block(choice, part, out);
        return rc || own->hides_thinking ? rc : add_delta(choice, "thinking_delta", "thinking", part, out);
    case COHORT_PART_CALL:
        return start_call(choice, part, out);
    case COHORT_PART_ARGUMENTS:
        return add_delta(choice, "input_json_delta", "partial_json", part, out);
    default:
        return end_block(choice, out);
    }
}

int messages_open(struct call *call, struct buf *out) {
    int rc = buf_adds(out, "{\"type\":\"message_start\",\"message\":");
    if (!rc) rc = add_head(call, out);
    if (!rc)
        rc = buf_addf(out,
                      ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":%zu,"
                      "\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":0,\"output_tokens\":0}}}\n",
                      call->prompts[0].ids_n);
    /* what cannot but be text */
    if (!rc && !call->choices[0].reader) rc = start_text(call->own, out);
    return rc ? rc : buf_adds(out, "{\"type\":\"ping\"}\n");
}

int messages_piece(struct choice *choice, const cohort_event *event, struct buf *out) {
    struct message *own = choice->call->own;
    const struct parts *parts = &choice->call->parts;
    int rc = 0;
    if (!event) return 0;
    for (size_t i = 0; i < parts->n && !rc; i++) rc = add_part(choice, &parts->list[i], out);
    if (rc || event->type != COHORT_EVENT_FINISH) return rc;
    if (own->blocks == 0) rc = start_text(own, out);
    if (!rc) rc = end_block(choice, out);
    if (!rc) rc = buf_adds(out, "{\"type\":\"message_delta\",\"delta\":{");
    if (!rc) rc = add_stop(choice, out);
    if (!rc) rc = buf_adds(out, "},");
    if (!rc) rc = add_usage(choice, out);
    return rc ? rc : buf_adds(out, "}\n");
}

int messages_close(struct call *call, struct buf *out) {
    (void)call;
    return buf_adds(out, "{\"type\":\"message_stop\"}\n");
}

/* ---- whole ---- */

/* A call's input: its arguments as they came. Of one that was cut off what is whole; nothing of what is no text. */
static int add_input(const struct block *block, struct buf *out) {
    const char *bytes = block->bytes.data ? block->bytes.data : "";
    size_t n = block->bytes.len - utf8_tail(bytes, block->bytes.len);
    return json_text_closed(out, bytes, utf8_valid(bytes, n) ? n : 0);
}

static int whole_block(const struct choice *choice, uint32_t i, struct buf *out) {
    const struct message *own = choice->call->own;
    const struct block *block = &choice->blocks[i];
    const char *bytes = block->bytes.data ? block->bytes.data : "";
    int rc, thinks = block->type == COHORT_PART_REASONING;
    if (block->type == COHORT_PART_CALL) {
        rc = begin_call(choice, block->call, block->name.data ? block->name.data : "", block->name.len, out);
        if (!rc) rc = add_input(block, out);
        return rc ? rc : buf_adds(out, "}");
    }
    rc = buf_adds(out, thinks ? "{\"type\":\"thinking\",\"thinking\":" : "{\"type\":\"text\",\"text\":");
    if (!rc) rc = buf_json_string(out, bytes, thinks && own->hides_thinking ? 0 : block->bytes.len);
    if (!rc && thinks) rc = buf_adds(out, ",");
    if (!rc && thinks) rc = add_signature(choice, i, out);
    return rc ? rc : buf_adds(out, "}");
}

int messages_whole(struct call *call, struct buf *out) {
    const struct choice *choice = &call->choices[0];
    int rc = add_head(call, out);
    if (!rc) rc = buf_adds(out, ",\"content\":[");
    for (uint32_t i = 0; i < choice->blocks_n && !rc; i++) {
        if (i) rc = buf_adds(out, ",");
        if (!rc) rc = whole_block(choice, i, out);
    }
    if (!rc && choice->blocks_n == 0) rc = buf_adds(out, "{\"type\":\"text\",\"text\":\"\"}");
    if (!rc) rc = buf_adds(out, "],");
    if (!rc) rc = add_stop(choice, out);
    if (!rc) rc = buf_adds(out, ",");
    if (!rc) rc = add_usage(choice, out);
    return rc ? rc : buf_adds(out, "}");
}
