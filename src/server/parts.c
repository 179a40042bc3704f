/* Answers in parts (parts.h). */
#include "server/parts.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "server/call.h"
#include "server/server.h"

int parts_open(struct choice *choice, const cohort_prompt *prompt, cohort_error *err) {
    return cohort_reader_open(prompt, &choice->reader, err);
}

void parts_free(struct parts *parts) {
    mem_free(parts->list);
    buf_free(&parts->bytes);
    *parts = (struct parts){0};
}

void parts_close(struct choice *choice) {
    cohort_reader_close(choice->reader);
    for (size_t i = 0; i < choice->blocks_n; i++) {
        buf_free(&choice->blocks[i].name);
        buf_free(&choice->blocks[i].bytes);
    }
    mem_free(choice->blocks);
    choice->reader = NULL;
    choice->blocks = NULL;
    choice->blocks_n = 0;
}

/* ---- an event's parts ---- */

static int joins(const cohort_part *last, const cohort_part *part) {
    return last->type == part->type && last->call == part->call && part->type != COHORT_PART_CALL &&
           part->type != COHORT_PART_CALL_END;
}

static int add_part(struct parts *parts, const cohort_part *part) {
    int rc = part->len ? buf_add(&parts->bytes, part->bytes, part->len) : 0;
    if (rc) return rc;
    if (parts->n && joins(&parts->list[parts->n - 1], part)) {
        parts->list[parts->n - 1].len += part->len;
        return 0;
    }
    if (parts->n == parts->cap) {
        size_t cap = parts->cap ? 2 * parts->cap : 8;
        cohort_part *list = mem_realloc(parts->list, cap, sizeof *list);
        if (!list) return COHORT_E_MEMORY;
        parts->list = list;
        parts->cap = cap;
    }
    parts->list[parts->n++] = *part;
    return 0;
}

static void note_part(struct said *said, const cohort_part *part) {
    said->last = part->type;
    said->calls += part->type == COHORT_PART_CALL;
    said->whole += part->type == COHORT_PART_CALL_END;
    said->reasoned |= part->type == COHORT_PART_REASONING;
}

static int read_text(struct choice *choice, const cohort_event *event, struct parts *parts) {
    cohort_part part = {.type = COHORT_PART_TEXT, .bytes = event->text, .len = event->text_len};
    if (!choice->reader) return part.len ? add_part(parts, &part) : 0;
    int last = event->type == COHORT_EVENT_FINISH;
    int rc = cohort_reader_feed(choice->reader, event->text_len ? event->text : "", event->text_len, last, NULL);
    while (!rc && (rc = cohort_reader_next(choice->reader, &part)) == 0) rc = add_part(parts, &part);
    return rc == COHORT_E_AGAIN ? 0 : rc;
}

int parts_read(struct choice *choice, const cohort_event *event) {
    struct parts *parts = &choice->call->parts;
    parts->n = 0;
    buf_clear(&parts->bytes);
    if (event->type != COHORT_EVENT_TOKEN && event->type != COHORT_EVENT_FINISH) return 0;
    int rc = read_text(choice, event, parts);
    size_t at = 0; /* only now: the bytes may have moved while they grew */
    for (size_t i = 0; i < parts->n && !rc; i++) {
        parts->list[i].bytes = parts->bytes.data ? parts->bytes.data + at : "";
        at += parts->list[i].len;
        note_part(&choice->said, &parts->list[i]);
    }
    return rc;
}

/* ---- blocks ---- */

static int add_block(struct choice *choice, const cohort_part *part, struct block **out) {
    struct block *list = mem_realloc(choice->blocks, choice->blocks_n + 1, sizeof *list);
    if (!list) return COHORT_E_MEMORY;
    choice->blocks = list;
    choice->blocks_bytes += sizeof *list;
    *out = &list[choice->blocks_n++];
    **out = (struct block){.type = part->type, .call = part->call};
    (*out)->name.max = (*out)->bytes.max = SERVER_RESULT_BYTES_MAX;
    return 0;
}

static struct block *find_call(struct choice *choice, uint32_t call) {
    for (size_t i = choice->blocks_n; i-- > 0;)
        if (choice->blocks[i].type == COHORT_PART_CALL && choice->blocks[i].call == call) return &choice->blocks[i];
    return NULL;
}

static int collect_part(struct choice *choice, const cohort_part *part) {
    struct block *last = choice->blocks_n ? &choice->blocks[choice->blocks_n - 1] : NULL, *block = NULL;
    int rc = 0;
    switch (part->type) {
    case COHORT_PART_CALL:
        rc = add_block(choice, part, &block);
        return rc ? rc : buf_add(&block->name, part->bytes, part->len);
    case COHORT_PART_ARGUMENTS:
        block = find_call(choice, part->call);
        return block ? buf_add(&block->bytes, part->bytes, part->len) : 0;
    case COHORT_PART_CALL_END:
        block = find_call(choice, part->call);
        if (block) block->whole = 1;
        return 0;
    default:
        if (last && last->type == part->type)
            block = last;
        else
            rc = add_block(choice, part, &block);
        return rc ? rc : buf_add(&block->bytes, part->bytes, part->len);
    }
}

int parts_collect(struct choice *choice) {
    const struct parts *parts = &choice->call->parts;
    int rc = 0;
    for (size_t i = 0; i < parts->n && !rc; i++) {
        choice->blocks_bytes += parts->list[i].len;
        rc = choice->blocks_bytes > SERVER_RESULT_BYTES_MAX ? COHORT_E_LIMIT : collect_part(choice, &parts->list[i]);
    }
    return rc;
}

void parts_call_id(const struct choice *choice, const char *prefix, uint32_t number, char out[PARTS_ID_SIZE]) {
    const char *own = choice->call->id + strlen(choice->call->dialect->id_prefix);
    snprintf(out, PARTS_ID_SIZE, "%s%.24s%02x%02x", prefix, own, choice->index, number);
}
