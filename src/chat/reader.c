/* Reads answers: text around markers here, calls in heads.c and values.c. What came stays in `in` until it is decided,
 * so that every decision is made on the same bytes however they were cut. One thread. */
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "chat/reader_internal.h"

enum { OUT_MAX = 1 << 26, PARTS_MAX = 1 << 22 };

int chat_reader_put(struct chat_reader *r, cohort_part_type type, const char *bytes, size_t n) {
    int streamed = type == COHORT_PART_TEXT || type == COHORT_PART_REASONING || type == COHORT_PART_ARGUMENTS;
    if (streamed && !n) return 0;
    uint32_t call = type >= COHORT_PART_CALL ? r->calls - 1 : 0;
    struct chat_reader_part *old = r->parts_n > r->next ? &r->parts[r->parts_n - 1] : NULL;
    if (!old || !streamed || old->type != type || old->call != call) {
        if (r->parts_n == r->parts_cap) {
            size_t cap = r->parts_cap ? r->parts_cap * 2 : 16;
            struct chat_reader_part *parts = cap > PARTS_MAX ? NULL : mem_realloc(r->parts, cap, sizeof *parts);
            if (!parts) return COHORT_E_MEMORY;
            r->parts = parts;
            r->parts_cap = cap;
        }
        old = &r->parts[r->parts_n++];
        *old = (struct chat_reader_part){.type = type, .call = call, .at = r->out.len};
    }
    int e = buf_add(&r->out, bytes, n);
    if (!e) old->len += n;
    return e;
}

/* ---- Markers in text ---- */

enum found { FOUND_NONE, FOUND_MORE, FOUND_REASONING, FOUND_SKIP, FOUND_CALL };

/* A marker that may still become one hides those behind it in the order, so that what is found does not depend on how
 * much of the text is there. */
static enum found first_of(struct chat_reader *r, const char *const *literals, size_t count, enum found what,
                           const char *s, size_t n, size_t *used) {
    for (size_t i = 0; i < count; i++) {
        if (!literals[i]) continue;
        enum chat_match m = chat_literal_match(literals[i], s, n, used);
        if (m == CHAT_MATCH_YES) return what;
        if (m == CHAT_MATCH_MORE && !r->last) return FOUND_MORE;
    }
    return FOUND_NONE;
}

static enum found found_reasoning(struct chat_reader *r, int fresh, const char *s, size_t n, size_t *used) {
    const struct chat_reasoning *w = &r->f->reasoning;
    if (!w->open) return FOUND_NONE;
    const char *opens[] = {w->open, w->open_too};
    enum found found = fresh || r->anywhere ? first_of(r, opens, 2, FOUND_REASONING, s, n, used) : FOUND_NONE;
    /* Reasoning that was closed before it began. */
    if (found == FOUND_NONE && fresh && !r->anywhere) found = first_of(r, &w->close, 1, FOUND_SKIP, s, n, used);
    if (found == FOUND_NONE) found = first_of(r, w->skip, sizeof w->skip / sizeof *w->skip, FOUND_SKIP, s, n, used);
    return found;
}

/* What begins at s. `fresh`: nothing but white space lies between it and the last marker, or the beginning. */
static enum found found_at(struct chat_reader *r, int fresh, const char *s, size_t n, size_t *used,
                           struct chat_head *h) {
    unsigned char first = (unsigned char)*s;
    if (!(r->starts[first >> 3] >> (first & 7) & 1)) return FOUND_NONE;
    enum found found = found_reasoning(r, fresh, s, n, used);
    if (found != FOUND_NONE) return found;
    const struct chat_calls *c = &r->f->calls;
    if (r->tools && (!c->bare || *s != '{' || r->anywhere || (fresh && r->beginning))) {
        enum chat_match call = chat_call_head(r, s, n, 0, h);
        if (call == CHAT_MATCH_YES) return *used = h->used, FOUND_CALL;
        if (call == CHAT_MATCH_MORE) return FOUND_MORE;
    }
    return first_of(r, c->skip, sizeof c->skip / sizeof *c->skip, FOUND_SKIP, s, n, used);
}

static int take_call(struct chat_reader *r, const struct chat_head *h) {
    r->section |= h->section;
    r->schema = json_object_get(r->tools, h->name);
    r->calls++;
    r->state = READER_VALUES;
    int e = chat_reader_put(r, COHORT_PART_CALL, h->name, strlen(h->name));
    return e ? e : chat_values_begin(r, h->whole);
}

static int take_found(struct chat_reader *r, enum found found, const struct chat_head *h, size_t at, size_t used) {
    r->at += at + used;
    r->fresh = 1;
    r->beginning = 0;
    if (found == FOUND_REASONING) r->state = READER_REASONING;
    if (found != FOUND_CALL) return 0;
    return take_call(r, h);
}

static int put_text(struct chat_reader *r, const char *s, size_t n) {
    for (size_t i = 0; i < n && r->fresh; i++)
        if (!chat_is_space(s[i])) r->fresh = r->beginning = 0;
    return chat_reader_put(r, COHORT_PART_TEXT, s, n);
}

/* Text up to where something begins that may be a marker. White space before that is held with it; of a long run only
 * the last bytes, so that what is held has a bound. */
static int step_text(struct chat_reader *r) {
    if (r->fresh && !r->beginning)
        while (chat_reader_left(r) && chat_is_space(*chat_reader_text(r))) r->at++;
    const char *s = chat_reader_text(r);
    size_t n = chat_reader_left(r), used = 0;
    struct chat_head head = {0};
    for (size_t i = 0, space = 0; i < n; i++) { /* `space`: bytes of white space right before i */
        if (chat_is_space(s[i])) {
            space++;
            continue;
        }
        enum found found = found_at(r, r->fresh && space == i, s + i, n - i, &used, &head);
        if (found == FOUND_NONE) {
            space = 0;
            continue;
        }
        size_t drop = space < CHAT_SPACE_MAX ? space : CHAT_SPACE_MAX;
        int e = put_text(r, s, i - drop);
        if (found == FOUND_MORE) r->at += i - drop;
        if (e || found == FOUND_MORE) return e;
        e = take_found(r, found, &head, i, used);
        return e ? e : 1;
    }
    size_t keep = 0;
    if (!r->last) {
        while (keep < n && keep < CHAT_SPACE_MAX && chat_is_space(s[n - 1 - keep])) keep++;
        if (!keep) keep = utf8_tail(s, n);
    }
    r->at += n - keep;
    return put_text(r, s, n - keep);
}

static int step_reasoning(struct chat_reader *r) {
    const char *s = chat_reader_text(r), *close = r->f->reasoning.close;
    size_t n = chat_reader_left(r), i = 0, space = 0, used;
    if (r->fresh) {
        while (i < n && chat_is_space(s[i])) i++;
        r->at += i;
        s += i;
        n -= i;
    }
    for (i = 0; i < n; i++) {
        if (chat_is_space(s[i])) {
            space++;
            continue;
        }
        enum chat_match m = s[i] == *close ? chat_literal_match(close, s + i, n - i, &used) : CHAT_MATCH_NO;
        if (m == CHAT_MATCH_NO || (m == CHAT_MATCH_MORE && r->last)) {
            space = 0;
            continue;
        }
        size_t drop = space < CHAT_SPACE_MAX ? space : CHAT_SPACE_MAX;
        if (i - drop) r->fresh = 0;
        int e = chat_reader_put(r, COHORT_PART_REASONING, s, i - drop);
        r->at += i - drop;
        if (e || m == CHAT_MATCH_MORE) return e;
        r->at += drop + used;
        r->fresh = 1;
        r->beginning = 0;
        r->state = READER_TEXT;
        return 1;
    }
    size_t keep = 0;
    if (!r->last) {
        while (keep < n && keep < CHAT_SPACE_MAX && chat_is_space(s[n - 1 - keep])) keep++;
        if (!keep) keep = utf8_tail(s, n);
    }
    if (n - keep) r->fresh = 0;
    r->at += n - keep;
    return chat_reader_put(r, COHORT_PART_REASONING, s, n - keep);
}

/* ---- Between calls ---- */

static int leave_call(struct chat_reader *r) {
    r->state = READER_TEXT;
    r->fresh = 1;
    r->section = 0;
    return 1;
}

/* What is left of the call's end: all of it, or where one of its words begins (models leave some out). */
static enum chat_match match_end(struct chat_reader *r, const char *s, size_t n, size_t *used) {
    int more = 0;
    for (const char *l = r->end_left; *l;) {
        enum chat_match m = chat_literal_match(l, s, n, used);
        if (m == CHAT_MATCH_YES) return m;
        more |= m == CHAT_MATCH_MORE;
        const char *first;
        size_t len = chat_literal_first(l, &first);
        l = first + len;
        while (chat_is_space(*l)) l++;
    }
    return more ? CHAT_MATCH_MORE : CHAT_MATCH_NO;
}

static enum chat_match match_section_end(struct chat_reader *r, const char *s, size_t n, size_t *used) {
    const char *first;
    if (!r->section || !chat_literal_first(r->f->calls.section_end, &first)) return CHAT_MATCH_NO;
    return chat_literal_match(first, s, n, used);
}

static int step_after_call(struct chat_reader *r) {
    const struct chat_calls *c = &r->f->calls;
    size_t space = 0;
    while (space < chat_reader_left(r) && chat_is_space(chat_reader_text(r)[space])) space++;
    r->at += space;
    const char *s = chat_reader_text(r);
    size_t n = chat_reader_left(r), used = 0;
    if (!n) return 0;
    enum chat_match end = match_end(r, s, n, &used);
    if (end == CHAT_MATCH_YES) return r->end_left = "", r->at += used, 1;
    if (end == CHAT_MATCH_MORE && !r->last) return 0;
    enum chat_match section = match_section_end(r, s, n, &used);
    if (section == CHAT_MATCH_YES) return r->at += used, leave_call(r);
    if (section == CHAT_MATCH_MORE && !r->last) return 0;
    enum chat_match next = CHAT_MATCH_NO;
    struct chat_head head = {0};
    const char *first;
    size_t between = chat_literal_first(c->between, &first), skip = 0;
    if (between && n >= between && !memcmp(s, first, between)) skip = between;
    int listed = skip > 0;
    while (listed && skip < n && chat_is_space(s[skip])) skip++;
    if (r->section || listed) next = n > skip ? chat_call_head(r, s + skip, n - skip, 1, &head) : CHAT_MATCH_MORE;
    if (next == CHAT_MATCH_YES) {
        r->at += skip + head.used;
        int e = take_call(r, &head);
        return e ? e : 1;
    }
    if (next == CHAT_MATCH_MORE && !r->last) return 0;
    return leave_call(r);
}

static int step_object_tail(struct chat_reader *r) {
    size_t used;
    enum chat_match m = chat_object_tail(chat_reader_text(r), chat_reader_left(r), &used);
    if (m == CHAT_MATCH_MORE && !r->last && chat_reader_left(r) <= CHAT_HELD_MAX) return 0;
    if (m == CHAT_MATCH_YES) r->at += used;
    r->state = READER_AFTER_CALL;
    return 1;
}

/* ---- A reader's life ---- */

static void mark_start(struct chat_reader *r, const char *literal) {
    const char *first;
    if (!literal || !chat_literal_first(literal, &first)) return;
    r->starts[(unsigned char)*first >> 3] |= (uint8_t)(1 << (*first & 7));
}

static void mark_starts(struct chat_reader *r) {
    const struct chat_calls *c = &r->f->calls;
    const struct chat_reasoning *w = &r->f->reasoning;
    if (r->tools && c->shape) {
        mark_start(r, c->section);
        mark_start(r, c->call);
        if (c->bare) mark_start(r, "{");
        for (size_t i = 0; i < sizeof c->also / sizeof *c->also; i++) mark_start(r, c->also[i]);
    }
    for (size_t i = 0; i < sizeof c->skip / sizeof *c->skip; i++) mark_start(r, c->skip[i]);
    for (size_t i = 0; i < sizeof w->skip / sizeof *w->skip; i++) mark_start(r, w->skip[i]);
    if (!w->open) return;
    mark_start(r, w->open);
    mark_start(r, w->open_too);
    mark_start(r, w->close);
}

static int take_tools(struct chat_reader *r, const char *text, size_t len, const cohort_chat *chat) {
    json_t *tools = json_loadb(text, len, 0, NULL);
    r->tools = json_object();
    for (size_t i = 0; r->tools && i < json_array_size(tools); i++) {
        json_t *f = json_object_get(json_array_get(tools, i), "function");
        const char *name = json_string_value(json_object_get(f, "name"));
        int allowed = name && (!chat || !chat->tool_names_allowed);
        for (size_t k = 0; name && !allowed && k < chat->tool_names_allowed_n; k++)
            allowed = !strcmp(chat->tool_names_allowed[k], name);
        if (!allowed || (chat && chat->tool_choice == COHORT_TOOLS_NAMED && strcmp(chat->tool_name, name))) continue;
        json_t *schema = json_object_get(f, "parameters");
        if (json_object_set(r->tools, name, schema ? schema : json_null())) r->failed = COHORT_E_MEMORY;
    }
    json_decref(tools);
    return r->tools && !r->failed ? 0 : COHORT_E_MEMORY;
}

static int make(const struct chat_format *f, const char *tools, size_t len, const cohort_chat *chat,
                struct chat_reader **out, cohort_error *err) {
    *out = NULL;
    struct chat_reader *r = mem_zalloc(1, sizeof *r);
    if (!r) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for a reader");
    chat_format_ref(f);
    r->f = f;
    r->out.max = OUT_MAX;
    r->beginning = r->fresh = 1;
    r->end_left = "";
    if (tools && f->calls.shape && take_tools(r, tools, len, chat)) {
        chat_reader_free(r);
        return err_set(err, COHORT_E_MEMORY, NULL, "no memory for a reader");
    }
    mark_starts(r);
    *out = r;
    return 0;
}

int chat_reader_make(const struct chat_format *f, const struct chat_wants *w, struct chat_reader **out,
                     cohort_error *err) {
    const cohort_chat *chat = w->chat;
    int calls = chat->tools && chat->tool_choice != COHORT_TOOLS_NONE;
    int e = make(f, calls ? chat->tools : NULL, chat->tools_n, chat, out, err);
    if (e) return e;
    if (chat_format_begins(f, w) == CHAT_BEGINS_REASONING) (*out)->state = READER_REASONING, (*out)->beginning = 0;
    /* The prompt ends with what calls begin with: as if it had been answered. */
    const char *mark = f->calls.call;
    size_t n = strlen(mark);
    if (f->calls.prompted && w->prompt_n >= n && !memcmp(w->prompt + w->prompt_n - n, mark, n))
        e = chat_reader_feed(*out, mark, n, 0);
    if (e) {
        chat_reader_free(*out);
        *out = NULL;
    }
    return e;
}

int chat_reader_make_probe(const struct chat_format *f, const char *tools, size_t len, int strict,
                           struct chat_reader **out, cohort_error *err) {
    int e = make(f, tools, len, NULL, out, err);
    if (!e) (*out)->anywhere = 1, (*out)->strict = strict;
    return e;
}

void chat_reader_free(struct chat_reader *r) {
    if (!r) return;
    chat_format_unref(r->f);
    json_decref(r->tools);
    buf_free(&r->in);
    buf_free(&r->out);
    buf_free(&r->scratch);
    mem_free(r->parts);
    mem_free(r);
}

static int step(struct chat_reader *r) {
    switch (r->state) {
    case READER_TEXT:
        return step_text(r);
    case READER_REASONING:
        return step_reasoning(r);
    case READER_VALUES:
        return chat_values_step(r);
    case READER_OBJECT_TAIL:
        return step_object_tail(r);
    default:
        return step_after_call(r);
    }
}

int chat_reader_feed(struct chat_reader *r, const char *text, size_t len, int last) {
    if (r->failed) return r->failed;
    if (r->next == r->parts_n) {
        r->next = r->parts_n = 0;
        buf_clear(&r->out);
    }
    int e = buf_add(&r->in, text, len);
    r->last |= last;
    while (!e && chat_reader_left(r)) {
        e = step(r);
        if (e == 0) break;
        if (e > 0) e = 0;
    }
    if (r->at) {
        memmove(r->in.data, r->in.data + r->at, chat_reader_left(r));
        r->in.len -= r->at;
        r->at = 0;
    }
    if (e) r->failed = e;
    return e;
}

int chat_reader_next(struct chat_reader *r, cohort_part *out) {
    if (r->next == r->parts_n) return COHORT_E_AGAIN;
    const struct chat_reader_part *p = &r->parts[r->next++];
    *out = (cohort_part){.type = p->type, .call = p->call, .bytes = r->out.data + p->at, .len = p->len};
    return 0;
}
