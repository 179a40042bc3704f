/* How /v1/chat/completions tells answers, streamed and whole (chat.h). Loop thread.
 *
 * A chunk tells what one event brought: `content`, `reasoning_content` and `tool_calls`, of which a call's first entry
 * has its id, its name and empty arguments. What the chunks say, joined, is the whole reply's message. A call that was
 * cut off, by its length, say, has the arguments that it came to. The answer's last call may be followed by text.
 *
 * logprobs.content has the tokens of the content: those of reasoning, calls and markers are not in it. A token whose
 * text is still held back to see what it is comes with the next that is content. */
#include <string.h>

#include "api/chat.h"

/* ---- log-probabilities ---- */

static int add_entry(struct buf *to, const struct buf *entry) {
    int rc = to->len ? buf_adds(to, ",") : 0;
    return rc ? rc : buf_add(to, entry->data, entry->len);
}

static int has_text(const struct parts *parts) {
    for (size_t i = 0; i < parts->n; i++)
        if (parts->list[i].type == COHORT_PART_TEXT) return 1;
    return 0;
}

/* Into choice->logprobs, or into choice->tokens, where those wait whose text has not come. */
static int take_logprob(struct choice *choice, const cohort_event *event) {
    const struct parts *parts = &choice->call->parts;
    struct buf entry = {0}, *waiting = &choice->tokens;
    int rc = 0, ends = event->type == COHORT_EVENT_FINISH;
    struct openai_choice *own = openai_choice_of(choice);
    if (openai_of(choice->call)->logprobs < 0) return 0;
    /* what was held back behind reasoning or a call was its end */
    if (parts->n && own->last && own->last != COHORT_PART_TEXT) buf_clear(waiting);
    if (parts->n) own->last = parts->list[parts->n - 1].type;
    if (!ends) rc = openai_add_logprob(choice->call, event, (uint32_t)openai_of(choice->call)->logprobs, &entry);
    if (!rc && !ends) rc = add_entry(choice->reader ? waiting : &choice->logprobs, &entry);
    buf_free(&entry);
    if (rc || !choice->reader || (!parts->n && !ends)) return rc;
    int is_content = parts->n ? has_text(parts) : choice->said.last == COHORT_PART_TEXT;
    if (is_content && waiting->len) rc = add_entry(&choice->logprobs, waiting);
    buf_clear(waiting);
    return rc;
}

static int add_logprobs(const struct choice *choice, struct buf *out) {
    if (openai_of(choice->call)->logprobs < 0) return buf_adds(out, "\"logprobs\":null");
    return buf_addf(out, "\"logprobs\":{\"content\":[%s],\"refusal\":null}",
                    choice->logprobs.len ? choice->logprobs.data : "");
}

/* ---- chunks ---- */

/* "name":"...": all parts of the type, joined. Adds nothing if there are none. */
static int add_joined(const struct parts *parts, cohort_part_type type, const char *name, int *n, struct buf *out) {
    struct buf text = {0};
    int rc = 0, found = 0;
    for (size_t i = 0; i < parts->n && !rc; i++) {
        if (parts->list[i].type != type) continue;
        found = 1;
        rc = buf_add(&text, parts->list[i].bytes, parts->list[i].len);
    }
    if (!rc && found) rc = buf_addf(out, "%s\"%s\":", (*n)++ ? "," : "", name);
    if (!rc && found) rc = buf_json_string(out, text.data ? text.data : "", text.len);
    buf_free(&text);
    return rc;
}

/* {"name":...,"arguments":...} of what the parts from `i` on say of their call; *end: the first one of another. */
static int add_function(const struct parts *parts, size_t i, size_t *end, struct buf *out) {
    const cohort_part *part = &parts->list[i];
    struct buf arguments = {0};
    int rc = buf_adds(out, "{");
    if (!rc && part->type == COHORT_PART_CALL) {
        rc = buf_adds(out, "\"name\":");
        if (!rc) rc = buf_json_string(out, part->bytes, part->len);
        if (!rc) rc = buf_adds(out, ",");
        i++;
    }
    for (; i < parts->n && parts->list[i].type == COHORT_PART_ARGUMENTS && parts->list[i].call == part->call && !rc;
         i++)
        rc = buf_add(&arguments, parts->list[i].bytes, parts->list[i].len);
    if (!rc) rc = buf_adds(out, "\"arguments\":");
    if (!rc) rc = buf_json_string(out, arguments.data ? arguments.data : "", arguments.len);
    buf_free(&arguments);
    *end = i;
    return rc ? rc : buf_adds(out, "}");
}

static int add_call_head(const struct choice *choice, uint32_t number, struct buf *out) {
    char id[PARTS_ID_SIZE];
    parts_call_id(choice, "call_", number, id);
    return buf_addf(out, "\"id\":\"%s\",\"type\":\"function\",", id);
}

/* The calls' parts, neighbours of one call as one entry. */
static int add_calls(const struct choice *choice, int *n, struct buf *out) {
    const struct parts *parts = &choice->call->parts;
    int legacy = openai_of(choice->call)->legacy, rc = 0, entries = 0;
    for (size_t i = 0, next; i < parts->n && !rc; i = next) {
        const cohort_part *part = &parts->list[i];
        next = i + 1;
        if (part->type != COHORT_PART_CALL && part->type != COHORT_PART_ARGUMENTS) continue;
        if (legacy && part->call) continue; /* there is a place for one */
        if (!entries) rc = buf_addf(out, "%s\"%s\":", (*n)++ ? "," : "", legacy ? "function_call" : "tool_calls");
        if (!rc && !legacy) rc = buf_addf(out, "%s{\"index\":%u,", entries ? "," : "[", part->call);
        if (!rc && !legacy && part->type == COHORT_PART_CALL) rc = add_call_head(choice, part->call, out);
        if (!rc && !legacy) rc = buf_adds(out, "\"function\":");
        if (!rc) rc = add_function(parts, i, &next, out);
        if (!rc && !legacy) rc = buf_adds(out, "}");
        entries++;
    }
    return rc || legacy || !entries ? rc : buf_adds(out, "]");
}

/* The event's parts; *n: how many members. */
static int add_delta(const struct choice *choice, int *n, struct buf *out) {
    const struct parts *parts = &choice->call->parts;
    int rc = 0;
    *n = 0;
    if (!openai_of(choice->call)->hide_reasoning)
        rc = add_joined(parts, COHORT_PART_REASONING, "reasoning_content", n, out);
    if (!rc) rc = add_joined(parts, COHORT_PART_TEXT, "content", n, out);
    return rc ? rc : add_calls(choice, n, out);
}

static const char *finish_name(const struct choice *choice) {
    if (choice->finish != COHORT_FINISH_STOP || !choice->said.whole) return openai_finish_name(choice->finish);
    return openai_of(choice->call)->legacy ? "function_call" : "tool_calls";
}

/* `event`: NULL for the opening chunk. */
static int add_chunk(struct choice *choice, const cohort_event *event, const struct buf *delta, struct buf *out) {
    int rc = openai_add_head(choice->call, out, "chat.completion.chunk");
    if (!rc)
        rc = buf_addf(out, ",\"choices\":[{\"index\":%u,\"delta\":{%s},", choice->index, delta->len ? delta->data : "");
    if (!rc) rc = choice->logprobs.len ? add_logprobs(choice, out) : buf_adds(out, "\"logprobs\":null");
    if (!rc && event && event->type == COHORT_EVENT_FINISH)
        rc = buf_addf(out, ",\"finish_reason\":\"%s\"", finish_name(choice));
    else if (!rc)
        rc = buf_adds(out, ",\"finish_reason\":null");
    if (!rc && event) rc = openai_add_ids(choice, event, out);
    if (!rc) rc = buf_adds(out, "}]");
    if (!rc && !event) rc = openai_add_prompt_ids(choice, out);
    if (!rc) rc = openai_add_usage_so_far(choice, event, out);
    return rc ? rc : buf_adds(out, "}\n");
}

int chat_piece(struct choice *choice, const cohort_event *event, struct buf *out) {
    const struct openai *own = openai_of(choice->call);
    struct buf delta = {0};
    int n = 0, rc = 0;
    if (event && event->type == COHORT_EVENT_PROMPT) return 0;
    if (!event)
        rc = buf_addf(&delta, "\"role\":\"assistant\",\"content\":%s", own->tools ? "null" : "\"\"");
    else
        rc = take_logprob(choice, event);
    if (!rc && event) rc = add_delta(choice, &n, &delta);
    if (!rc && (!event || event->type == COHORT_EVENT_FINISH || n || choice->logprobs.len || own->ids))
        rc = add_chunk(choice, event, &delta, out);
    buf_free(&delta);
    buf_clear(&choice->logprobs);
    return rc;
}

int chat_close(struct call *call, struct buf *out) { return openai_usage_event(call, out, "chat.completion.chunk"); }

/* ---- the whole reply ---- */

static int collect(struct choice *choice, const cohort_event *event) {
    if (event->type == COHORT_EVENT_PROMPT) return openai_prompt_logprob(choice, event);
    int rc = openai_count(choice, event);
    if (!rc) rc = take_logprob(choice, event);
    return rc ? rc : parts_collect(choice);
}

int chat_collect(struct choice *choice, const cohort_event *event) { return openai_collect(choice, event, collect); }

/* All blocks of the type, joined; `otherwise` if there are none. */
static int add_blocks(const struct choice *choice, cohort_part_type type, const char *otherwise, struct buf *out) {
    struct buf text = {0};
    int rc = 0, found = 0;
    for (size_t i = 0; i < choice->blocks_n && !rc; i++) {
        const struct block *block = &choice->blocks[i];
        if (block->type != type) continue;
        found = 1;
        if (block->bytes.len) rc = buf_add(&text, block->bytes.data, block->bytes.len);
    }
    if (!rc) rc = found ? buf_json_string(out, text.data ? text.data : "", text.len) : buf_adds(out, otherwise);
    buf_free(&text);
    return rc;
}

static int add_block_function(const struct block *block, struct buf *out) {
    int rc = buf_adds(out, "{\"name\":");
    if (!rc) rc = buf_json_string(out, block->name.data ? block->name.data : "", block->name.len);
    if (!rc) rc = buf_adds(out, ",\"arguments\":");
    if (!rc) rc = buf_json_string(out, block->bytes.data ? block->bytes.data : "", block->bytes.len);
    return rc ? rc : buf_adds(out, "}");
}

static int add_block_calls(const struct choice *choice, struct buf *out) {
    int legacy = openai_of(choice->call)->legacy, rc = 0, n = 0;
    for (size_t i = 0; i < choice->blocks_n && !rc; i++) {
        const struct block *block = &choice->blocks[i];
        if (block->type != COHORT_PART_CALL || (legacy && block->call)) continue;
        if (!n) rc = buf_adds(out, legacy ? ",\"function_call\":" : ",\"tool_calls\":[");
        if (!rc && !legacy) rc = buf_adds(out, n ? ",{" : "{");
        if (!rc && !legacy) rc = add_call_head(choice, block->call, out);
        if (!rc && !legacy) rc = buf_adds(out, "\"function\":");
        if (!rc) rc = add_block_function(block, out);
        if (!rc && !legacy) rc = buf_adds(out, "}");
        n++;
    }
    return rc || legacy || !n ? rc : buf_adds(out, "]");
}

static int whole_choice(const struct choice *choice, struct buf *out) {
    const struct openai *own = openai_of(choice->call);
    int rc = buf_addf(out, "%s{\"index\":%u,\"message\":{\"role\":\"assistant\",\"content\":", choice->index ? "," : "",
                      choice->index);
    if (!rc) rc = add_blocks(choice, COHORT_PART_TEXT, own->tools ? "null" : "\"\"", out);
    if (!rc) rc = buf_adds(out, ",\"refusal\":null");
    if (!rc && choice->said.reasoned && !own->hide_reasoning) {
        rc = buf_adds(out, ",\"reasoning_content\":");
        if (!rc) rc = add_blocks(choice, COHORT_PART_REASONING, "null", out);
    }
    if (!rc) rc = add_block_calls(choice, out);
    if (!rc) rc = buf_adds(out, "},");
    if (!rc) rc = add_logprobs(choice, out);
    if (!rc) rc = buf_addf(out, ",\"finish_reason\":\"%s\"", finish_name(choice));
    if (!rc) rc = openai_add_ids(choice, NULL, out);
    return rc ? rc : buf_adds(out, "}");
}

int chat_whole(struct call *call, struct buf *out) {
    int rc = openai_add_head(call, out, "chat.completion");
    if (!rc) rc = buf_adds(out, ",\"choices\":[");
    for (size_t i = 0; i < call->choices_n && !rc; i++) rc = whole_choice(&call->choices[i], out);
    if (!rc) rc = buf_adds(out, "]");
    /* of the one prompt: every choice was told the same */
    if (!rc) rc = openai_add_prompt_logprobs(&call->choices[0], out);
    if (!rc) rc = openai_add_prompt_ids(&call->choices[0], out);
    if (!rc) rc = buf_adds(out, ",");
    if (!rc) rc = openai_add_usage(call, out);
    return rc ? rc : buf_adds(out, "}");
}
