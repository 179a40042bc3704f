/* A folder of the disk tier from outside: what is in it, whether it holds, and removing. Any thread; each call opens
 * the folder and closes it. Listing and verifying take no lock, so they work beside a server, on what was committed
 * when they began. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "state/disk_internal.h"

/* ---- Listing ---- */
struct sequence {
    uint64_t tokens, bytes, own; /* own: that no other sequence shares */
};

/* A stored sequence ends in a record that nothing follows, or that a session names. */
static int is_sequence(const struct disk_entry *e) { return e->child == DISK_NONE || e->sessions; }

static int is_shared(const struct disk_index *x, uint32_t entry) {
    const struct disk_entry *e = &x->entries[entry];
    return e->sessions || (e->child != DISK_NONE && x->entries[e->child].next != DISK_NONE);
}

static struct sequence measure(const struct disk_index *x, uint32_t entry) {
    struct sequence s = {0};
    int own = x->entries[entry].child == DISK_NONE;
    for (uint32_t at = entry; at != DISK_NONE; at = x->entries[at].parent) {
        uint64_t bytes = disk_index_cost(x, x->entries[at].groups) - DISK_RECORD_BYTES;
        if (at != entry && is_shared(x, at)) own = 0;
        s.tokens += x->entries[at].n;
        s.bytes += bytes;
        if (own) s.own += bytes;
    }
    return s;
}

static int add_hex(struct buf *out, const uint8_t *bytes, size_t n) {
    int code = 0;
    for (size_t i = 0; i < n && !code; i++) code = buf_addf(out, "%02x", bytes[i]);
    return code;
}

static int add_sessions(const struct disk_index *x, uint64_t record, int json, struct buf *out) {
    int code = 0, n = 0;
    for (uint32_t i = 0; i < DISK_SESSIONS_MAX && !code; i++) {
        const struct disk_session *session = &x->sessions[i];
        if (session->record != record) continue;
        if (n++) code = buf_adds(out, json ? "," : ", ");
        if (!code) code = buf_json_string(out, session->name, session->name_n);
    }
    return code;
}

static int add_sequences(const struct disk_index *x, int json, struct buf *out) {
    uint32_t now = disk_now();
    int code = 0, n = 0;
    for (uint32_t i = disk_index_next(x, DISK_NONE); i != DISK_NONE && !code; i = disk_index_next(x, i)) {
        const struct disk_entry *e = &x->entries[i];
        if (!is_sequence(e)) continue;
        struct sequence s = measure(x, i);
        uint32_t age = now > e->used ? now - e->used : 0;
        if (json)
            code = buf_addf(out,
                            "%s{\"id\":%" PRIu64 ",\"tokens\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"own_bytes\":%" PRIu64
                            ",\"unused_s\":%u,\"sessions\":[",
                            n ? "," : "", e->id, s.tokens, s.bytes, s.own, age);
        else
            code = buf_addf(out, "%10" PRIu64 " %9" PRIu64 " %10.1f %10.1f %10u  ", e->id, s.tokens,
                            (double)s.bytes / 1048576, (double)s.own / 1048576, age);
        if (!code && e->sessions) code = add_sessions(x, e->id, json, out);
        if (!code) code = buf_adds(out, json ? "]}" : "\n");
        n++;
    }
    return code;
}

static int add_json_head(const struct disk_store *s, uint64_t sequences, struct buf *out) {
    const struct disk_identity *identity = &s->identity;
    int code = buf_addf(out, "{\"format\":%d,\"model\":\"", DISK_FORMAT);
    if (!code) code = add_hex(out, identity->model, sizeof(identity->model));
    if (!code) code = buf_adds(out, "\",\"tokenizer\":\"");
    if (!code) code = add_hex(out, identity->tokenizer, sizeof(identity->tokenizer));
    if (!code)
        code = buf_addf(out, "\",\"numerics\":%u,\"page_layout\":%u,\"groups\":[", identity->numerics,
                        identity->page_layout);
    for (uint32_t g = 0; g < identity->groups && !code; g++)
        code = buf_addf(out, "%s{\"window\":%u,\"page_bytes\":%" PRIu64 "}", g ? "," : "", identity->window[g],
                        identity->page_bytes[g]);
    if (!code)
        code = buf_addf(out,
                        "],\"blocks\":%u,\"bytes\":%" PRIu64 ",\"sessions\":%u,\"bad\":%" PRIu64
                        ",\"sequences_n\":%" PRIu64 ",\"sequences\":[",
                        s->index.records, s->index.bytes, s->index.sessions_n, s->discarded, sequences);
    return code;
}

static int add_text_head(const struct disk_store *s, uint64_t sequences, struct buf *out) {
    const struct disk_identity *identity = &s->identity;
    int code = buf_addf(out, "format %d, model ", DISK_FORMAT);
    if (!code) code = add_hex(out, identity->model, sizeof(identity->model));
    if (!code) code = buf_addf(out, ", numerics %u\n", identity->numerics);
    for (uint32_t g = 0; g < identity->groups && !code; g++) {
        code = buf_addf(out, "group %u: %" PRIu64 " bytes a page, ", g, identity->page_bytes[g]);
        if (!code && identity->window[g]) code = buf_addf(out, "window %u\n", identity->window[g]);
        if (!code && !identity->window[g]) code = buf_adds(out, "no window\n");
    }
    if (!code)
        code = buf_addf(out, "%u blocks, %.1f MiB, %" PRIu64 " sequences, %u sessions", s->index.records,
                        (double)s->index.bytes / 1048576, sequences, s->index.sessions_n);
    if (!code && s->discarded) code = buf_addf(out, ", %" PRIu64 " blocks that cannot be used", s->discarded);
    if (!code)
        code =
            buf_addf(out, "\n%10s %9s %10s %10s %10s  %s\n", "id", "tokens", "MiB", "own MiB", "unused s", "sessions");
    return code;
}

int disk_list(const char *dir, int json, char **out, size_t *len, cohort_error *err) {
    struct disk_store s;
    struct buf text = {0};
    uint64_t sequences = 0;
    *out = NULL;
    *len = 0;
    int code = disk_store_open(&s, dir, DISK_LOOK, NULL, NULL, NULL, err);
    if (code) return code;
    for (uint32_t i = disk_index_next(&s.index, DISK_NONE); i != DISK_NONE; i = disk_index_next(&s.index, i))
        sequences += (uint64_t)is_sequence(&s.index.entries[i]);
    code = json ? add_json_head(&s, sequences, &text) : add_text_head(&s, sequences, &text);
    if (!code) code = add_sequences(&s.index, json, &text);
    if (!code && json) code = buf_adds(&text, "]}\n");
    disk_store_close(&s);
    if (code) {
        buf_free(&text);
        return err_set(err, code, "state-dir", "state-dir %s: no memory for a list of it", dir);
    }
    *out = text.data;
    *len = text.len;
    return 0;
}

/* ---- Verifying ---- */
static void name_bad(void *user, uint64_t id, const char *why) {
    ++*(uint64_t *)user;
    fprintf(stderr, "cohort: stored block %" PRIu64 " is bad: %s\n", id, why);
}

/* NULL, or why the record is bad. `page` has room for the largest. */
static const char *check_entry(struct disk_store *s, const struct disk_entry *e, void *page) {
    const char *why = NULL;
    for (uint32_t g = 0; g < s->identity.groups && !why; g++)
        if (e->written >> g & 1) why = disk_store_read(s, e, g, page);
    /* Beside a server it may have been removed meanwhile, and its slot used again. */
    return why && disk_db_same(&s->db, e) ? why : NULL;
}

static int commit_removals(struct disk_store *s, cohort_error *err) {
    uint32_t list = s->index.removing;
    s->index.removing = DISK_NONE;
    int code = disk_db_begin(&s->db);
    if (!code) code = disk_store_delete(s, list);
    for (uint32_t i = 0; i < DISK_SESSIONS_MAX && !code; i++)
        if (s->index.sessions[i].dirty) code = disk_db_session(&s->db, i, &s->index.sessions[i], 0);
    if (!code) code = disk_db_commit(&s->db);
    if (!code) {
        disk_store_release(s, list);
        return 0;
    }
    disk_db_rollback(&s->db);
    return err_set(err, COHORT_E_IO, "state-dir", "state-dir %s: its index cannot be written: %s", s->path,
                   disk_db_text(code));
}

int disk_verify(const char *dir, int repair, uint64_t *all, uint64_t *bad, cohort_error *err) {
    struct disk_store s;
    uint64_t bytes = 1, left_out = 0, behind = 0;
    *all = *bad = 0;
    int code = disk_store_open(&s, dir, repair ? DISK_CHANGE : DISK_LOOK, NULL, name_bad, &left_out, err);
    if (code) return code;
    *all = s.index.records + left_out;
    *bad = left_out;
    for (uint32_t g = 0; g < s.identity.groups; g++)
        if (s.identity.page_bytes[g] > bytes) bytes = s.identity.page_bytes[g];
    void *page = mem_alloc(bytes, 1);
    if (!page) code = err_set(err, COHORT_E_MEMORY, "state-dir", "state-dir %s: no memory for a page", dir);
    for (uint32_t i = page ? disk_index_next(&s.index, DISK_NONE) : DISK_NONE; i != DISK_NONE;) {
        const struct disk_entry e = s.index.entries[i];
        uint32_t next = disk_index_next(&s.index, i);
        const char *why = check_entry(&s, &e, page);
        if (why) name_bad(bad, e.id, why);
        if (why && repair) { /* with all behind it, which are not looked at any more */
            next = i;
            while (next != DISK_NONE && s.index.entries[next].next == DISK_NONE) next = s.index.entries[next].parent;
            if (next != DISK_NONE) next = s.index.entries[next].next;
            behind += disk_index_remove(&s.index, i) - 1;
        }
        i = next;
    }
    mem_free(page);
    if (!code && repair) code = commit_removals(&s, err);
    if (!code && behind) disk_store_say(&s, "%" PRIu64 " blocks behind bad ones were removed, too", behind);
    disk_store_close(&s);
    return code;
}

/* ---- Removing ---- */
/* The sequence that ends in the entry, as far as nobody else has it. */
static uint64_t remove_sequence(struct disk_index *x, uint32_t entry) {
    uint64_t removed = 0;
    for (uint32_t i = 0; i < DISK_SESSIONS_MAX && x->entries[entry].sessions; i++)
        if (x->sessions[i].record == x->entries[entry].id) disk_index_session_drop(x, &x->sessions[i]);
    while (entry != DISK_NONE && !is_shared(x, entry) && x->entries[entry].child == DISK_NONE) {
        uint32_t parent = x->entries[entry].parent;
        removed += disk_index_remove(x, entry);
        entry = parent;
    }
    return removed;
}

/* Ends of sequences that were not used since `before`, then what they leave bare. */
static uint64_t remove_unused(struct disk_index *x, uint32_t before) {
    uint64_t removed = 0;
    for (uint32_t i = 0; i < x->entries_n; i++)
        for (uint32_t at = i; at != DISK_NONE;) {
            const struct disk_entry *e = &x->entries[at];
            uint32_t parent = e->parent;
            if (e->state != DISK_LIVE || e->child != DISK_NONE || e->used >= before) break;
            removed += disk_index_remove(x, at);
            at = parent;
        }
    return removed;
}

int disk_clear(const char *dir, uint64_t id, uint64_t unused_s, uint64_t *removed, cohort_error *err) {
    struct disk_store s;
    *removed = 0;
    int code = disk_store_open(&s, dir, DISK_CHANGE, NULL, NULL, NULL, err);
    if (code) return code;
    uint32_t entry = id ? disk_index_find(&s.index, id) : DISK_NONE, now = disk_now();
    if (id && (entry == DISK_NONE || !is_sequence(&s.index.entries[entry]))) {
        code = err_set(err, COHORT_E_NOT_FOUND, "id", "state-dir %s: there is no stored sequence %" PRIu64, dir, id);
    } else if (id) {
        *removed = remove_sequence(&s.index, entry);
    } else if (unused_s) {
        *removed = unused_s < now ? remove_unused(&s.index, now - (uint32_t)unused_s) : 0;
    } else {
        for (uint32_t i; (i = disk_index_next(&s.index, DISK_NONE)) != DISK_NONE;)
            *removed += disk_index_remove(&s.index, i);
    }
    if (!code) code = commit_removals(&s, err);
    disk_store_close(&s);
    if (code) *removed = 0;
    return code;
}
