/* What the disk tier knows of its records, in memory: the tree of records, who has which slot, and sessions. About 240
 * bytes for each record, DISK_RECORDS_MAX of them at most, and names of spaces. No files. Under the lock of its
 * owner.
 *
 * A record is LIVE (in the map and in the tree) or REMOVING (in neither, on the list `removing`, its slots still taken)
 * until its removal is committed. Entries' numbers stay, their addresses do not. */
#include "state/disk_internal.h"

#include <assert.h>
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"

enum { SLOTS_WORDS_LEAST = 64 };

int disk_index_init(struct disk_index *x, uint32_t groups, const uint64_t slot_bytes[]) {
    *x = (struct disk_index){.free_entries = DISK_NONE, .first = DISK_NONE, .removing = DISK_NONE, .next_id = 1};
    x->groups = groups;
    for (uint32_t g = 0; g < groups; g++) x->slot_bytes[g] = slot_bytes[g];
    x->sessions = mem_zalloc(DISK_SESSIONS_MAX, sizeof(*x->sessions));
    return x->sessions ? 0 : COHORT_E_MEMORY;
}

void disk_index_deinit(struct disk_index *x) {
    for (uint32_t i = 0; i < x->entries_n; i++) mem_free(x->entries[i].space);
    for (uint32_t g = 0; g < DISK_GROUPS_MAX; g++) mem_free(x->slots[g].taken);
    mem_free(x->entries);
    mem_free(x->map);
    mem_free(x->sessions);
    *x = (struct disk_index){0};
}

/* ---- The map ---- */
static uint32_t home(const struct disk_index *x, uint64_t id) {
    return (uint32_t)((id * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (x->map_size - 1);
}

/* The place of the id, or the free one where it would be. */
static uint32_t map_place(const struct disk_index *x, uint64_t id) {
    uint32_t at = home(x, id);
    while (x->map[at] != DISK_NONE && x->entries[x->map[at]].id != id) at = (at + 1) & (x->map_size - 1);
    return at;
}

uint32_t disk_index_find(const struct disk_index *x, uint64_t id) {
    return x->map_size == 0 || id == 0 ? DISK_NONE : x->map[map_place(x, id)];
}

/* Closes the gap, so that what was pushed past it is still found. */
static void map_remove(struct disk_index *x, uint64_t id) {
    uint32_t mask = x->map_size - 1, gap = map_place(x, id);
    for (uint32_t at = (gap + 1) & mask; x->map[at] != DISK_NONE; at = (at + 1) & mask) {
        uint32_t from = home(x, x->entries[x->map[at]].id);
        if (((at - from) & mask) < ((at - gap) & mask)) continue; /* it lies behind the gap by right */
        x->map[gap] = x->map[at];
        gap = at;
    }
    x->map[gap] = DISK_NONE;
}

/* Room for one entry more in the array and in the map, which is at most half full. */
static int grow(struct disk_index *x) {
    if (x->free_entries == DISK_NONE && x->entries_n == x->entries_cap) {
        uint32_t cap = x->entries_cap ? 2 * x->entries_cap : 256;
        struct disk_entry *entries = mem_realloc(x->entries, cap, sizeof(*entries));
        if (!entries) return COHORT_E_MEMORY;
        x->entries = entries;
        x->entries_cap = cap;
    }
    if (2 * (x->records + 1) <= x->map_size) return 0;
    uint32_t size = x->map_size ? 2 * x->map_size : 512;
    uint32_t *map = mem_alloc(size, sizeof(*map)), *old = x->map;
    if (!map) return COHORT_E_MEMORY;
    for (uint32_t i = 0; i < size; i++) map[i] = DISK_NONE;
    uint32_t old_size = x->map_size;
    x->map = map;
    x->map_size = size;
    for (uint32_t i = 0; i < old_size; i++)
        if (old[i] != DISK_NONE) map[map_place(x, x->entries[old[i]].id)] = old[i];
    mem_free(old);
    return 0;
}

/* ---- Records ---- */
uint64_t disk_chain(uint64_t id, uint64_t parent_chain, const int32_t *tokens, uint32_t n, const char *space,
                    size_t space_n) {
    unsigned char bytes[3 * sizeof(uint64_t) + PAGE_TOKENS * sizeof(int32_t) + DISK_SPACE_MAX];
    uint64_t head[3] = {id, parent_chain, n | (uint64_t)space_n << 32};
    size_t at = sizeof(head);
    memcpy(bytes, head, sizeof(head));
    memcpy(bytes + at, tokens, n * sizeof(*tokens));
    at += n * sizeof(*tokens);
    if (space_n) memcpy(bytes + at, space, space_n);
    return XXH3_64bits(bytes, at + space_n);
}

int disk_index_add(struct disk_index *x, uint32_t parent, const struct disk_record *record, uint32_t *out) {
    if (x->records >= DISK_RECORDS_MAX) return COHORT_E_LIMIT;
    char *space = NULL;
    int code = grow(x);
    if (code) return code;
    if (record->space_n && !(space = mem_alloc(record->space_n, 1))) return COHORT_E_MEMORY;
    uint32_t i = x->free_entries;
    if (i == DISK_NONE)
        i = x->entries_n++;
    else
        x->free_entries = x->entries[i].link;
    struct disk_entry *e = &x->entries[i];
    *e = (struct disk_entry){.id = record->id,
                             .parent = parent,
                             .child = DISK_NONE,
                             .before = DISK_NONE,
                             .link = DISK_NONE,
                             .space = space,
                             .space_n = (uint16_t)record->space_n,
                             .n = (uint8_t)record->n,
                             .state = DISK_LIVE};
    memcpy(e->tokens, record->tokens, record->n * sizeof(e->tokens[0]));
    if (space) memcpy(space, record->space, record->space_n);
    e->chain =
        disk_chain(e->id, parent == DISK_NONE ? 0 : x->entries[parent].chain, e->tokens, e->n, space, e->space_n);
    uint32_t *first = parent == DISK_NONE ? &x->first : &x->entries[parent].child;
    e->next = *first;
    if (e->next != DISK_NONE) x->entries[e->next].before = i;
    *first = i;
    x->map[map_place(x, e->id)] = i;
    x->records++;
    x->bytes += DISK_RECORD_BYTES;
    if (x->next_id <= e->id) x->next_id = e->id + 1;
    *out = i;
    return 0;
}

static void unlink_entry(struct disk_index *x, uint32_t entry) {
    struct disk_entry *e = &x->entries[entry];
    if (e->before != DISK_NONE)
        x->entries[e->before].next = e->next;
    else if (e->parent != DISK_NONE)
        x->entries[e->parent].child = e->next;
    else
        x->first = e->next;
    if (e->next != DISK_NONE) x->entries[e->next].before = e->before;
}

static void drop_sessions_of(struct disk_index *x, const struct disk_entry *e) {
    for (uint32_t i = 0; i < DISK_SESSIONS_MAX && e->sessions; i++)
        if (x->sessions[i].record == e->id) disk_index_session_drop(x, &x->sessions[i]);
}

static void retire(struct disk_index *x, uint32_t entry) {
    struct disk_entry *e = &x->entries[entry];
    drop_sessions_of(x, e);
    unlink_entry(x, entry);
    map_remove(x, e->id);
    x->records--;
    x->bytes -= disk_index_cost(x, e->groups);
    e->state = DISK_REMOVING;
    e->link = x->removing;
    x->removing = entry;
}

uint32_t disk_index_remove(struct disk_index *x, uint32_t entry) {
    uint32_t at = entry, n = 0;
    for (;;) { /* always the deepest first child, so that parents go last */
        while (x->entries[at].child != DISK_NONE) at = x->entries[at].child;
        uint32_t parent = x->entries[at].parent;
        retire(x, at);
        n++;
        if (at == entry) return n;
        at = parent;
    }
}

static void free_slot(struct disk_index *x, uint32_t group, uint32_t slot) {
    struct disk_slots *slots = &x->slots[group];
    slots->taken[slot / 64] &= ~(UINT64_C(1) << slot % 64);
    if (slot / 64 < slots->hint) slots->hint = slot / 64;
}

void disk_index_return_slots(struct disk_index *x, uint32_t entry, uint32_t groups) {
    struct disk_entry *e = &x->entries[entry];
    for (uint32_t g = 0; g < x->groups; g++) {
        if (!((e->groups & groups) >> g & 1)) continue;
        free_slot(x, g, e->slot[g]);
        e->groups &= (uint8_t) ~(1u << g);
        x->bytes -= x->slot_bytes[g];
    }
}

void disk_index_forget(struct disk_index *x, uint32_t entry) {
    struct disk_entry *e = &x->entries[entry];
    assert(e->state == DISK_REMOVING);
    for (uint32_t g = 0; g < x->groups; g++)
        if (e->groups >> g & 1) free_slot(x, g, e->slot[g]);
    mem_free(e->space);
    *e = (struct disk_entry){.state = DISK_FREE, .link = x->free_entries};
    x->free_entries = entry;
}

uint32_t disk_index_next(const struct disk_index *x, uint32_t entry) {
    if (entry == DISK_NONE) return x->first;
    if (x->entries[entry].child != DISK_NONE) return x->entries[entry].child;
    while (entry != DISK_NONE && x->entries[entry].next == DISK_NONE) entry = x->entries[entry].parent;
    return entry == DISK_NONE ? DISK_NONE : x->entries[entry].next;
}

/* ---- Slots ---- */
uint64_t disk_index_cost(const struct disk_index *x, uint32_t groups) {
    uint64_t bytes = DISK_RECORD_BYTES;
    for (uint32_t g = 0; g < x->groups; g++)
        if (groups >> g & 1) bytes += x->slot_bytes[g];
    return bytes;
}

static int slots_grow(struct disk_slots *slots, uint32_t words) {
    if (words <= slots->words) return 0;
    if (words > DISK_SLOTS_MAX / 64) return COHORT_E_LIMIT;
    uint32_t more = 2 * slots->words > words ? 2 * slots->words : words;
    if (more < SLOTS_WORDS_LEAST) more = SLOTS_WORDS_LEAST;
    if (more > DISK_SLOTS_MAX / 64) more = DISK_SLOTS_MAX / 64;
    uint64_t *taken = mem_realloc(slots->taken, more, sizeof(*taken));
    if (!taken) return COHORT_E_MEMORY;
    memset(taken + slots->words, 0, (more - slots->words) * sizeof(*taken));
    slots->taken = taken;
    slots->words = more;
    return 0;
}

static void give_slot(struct disk_index *x, uint32_t entry, uint32_t group, uint32_t slot) {
    struct disk_entry *e = &x->entries[entry];
    x->slots[group].taken[slot / 64] |= UINT64_C(1) << slot % 64;
    e->slot[group] = slot;
    e->groups |= (uint8_t)(1u << group);
    x->bytes += x->slot_bytes[group];
}

int disk_index_take_slot(struct disk_index *x, uint32_t entry, uint32_t group) {
    struct disk_slots *slots = &x->slots[group];
    uint32_t word = slots->hint;
    while (word < slots->words && slots->taken[word] == UINT64_MAX) word++;
    int code = slots_grow(slots, word + 1);
    if (code) return code;
    slots->hint = word;
    give_slot(x, entry, group, 64 * word + (uint32_t)__builtin_ctzll(~slots->taken[word]));
    return 0;
}

int disk_index_claim_slot(struct disk_index *x, uint32_t entry, uint32_t group, uint32_t slot) {
    struct disk_slots *slots = &x->slots[group];
    int code = slots_grow(slots, slot / 64 + 1);
    if (code) return code;
    if (slots->taken[slot / 64] >> slot % 64 & 1) return COHORT_E_BUSY;
    give_slot(x, entry, group, slot);
    return 0;
}

int disk_index_slots_free(const struct disk_index *x, uint32_t group, uint32_t first, uint32_t n) {
    const struct disk_slots *slots = &x->slots[group];
    for (uint64_t at = first, end = (uint64_t)first + n; at < end && at / 64 < slots->words;) {
        uint64_t word = slots->taken[at / 64] >> at % 64;
        uint64_t here = 64 - at % 64 < end - at ? 64 - at % 64 : end - at;
        if (here < 64) word &= (UINT64_C(1) << here) - 1;
        if (word) return 0;
        at += here;
    }
    return 1;
}

/* ---- Sessions ---- */
struct disk_session *disk_index_session(const struct disk_index *x, const char *name, size_t n) {
    uint64_t hash = XXH3_64bits(name, n);
    for (uint32_t i = 0; i < DISK_SESSIONS_MAX; i++) {
        struct disk_session *session = &x->sessions[i];
        if (session->record && session->hash == hash && session->name_n == n && !memcmp(session->name, name, n))
            return session;
    }
    return NULL;
}

static void mark_dirty(struct disk_index *x, struct disk_session *session) {
    if (!session->dirty) x->sessions_dirty++;
    session->dirty = 1;
}

void disk_index_session_drop(struct disk_index *x, struct disk_session *session) {
    uint32_t entry = disk_index_find(x, session->record);
    if (entry != DISK_NONE) x->entries[entry].sessions--;
    session->record = 0;
    x->sessions_n--;
    mark_dirty(x, session);
}

/* A free row, or the one used longest ago. */
static struct disk_session *session_room(struct disk_index *x) {
    struct disk_session *oldest = &x->sessions[0];
    for (uint32_t i = 0; i < DISK_SESSIONS_MAX; i++) {
        struct disk_session *session = &x->sessions[i];
        if (!session->record) return session;
        if (session->used < oldest->used) oldest = session;
    }
    disk_index_session_drop(x, oldest);
    return oldest;
}

struct disk_session *disk_index_session_put(struct disk_index *x, const char *name, size_t n, uint32_t entry,
                                            uint32_t tokens) {
    struct disk_session *session = disk_index_session(x, name, n);
    if (session)
        disk_index_session_drop(x, session);
    else
        session = session_room(x);
    session->hash = XXH3_64bits(name, n);
    memcpy(session->name, name, n);
    session->name_n = (uint16_t)n;
    session->record = x->entries[entry].id;
    session->tokens = tokens;
    session->used = ++x->clock;
    x->entries[entry].sessions++;
    x->sessions_n++;
    mark_dirty(x, session);
    return session;
}
