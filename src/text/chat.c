/* Rendering a chat. Turn strings are searched for markers, contents never: between two markers the text of turns and
 * contents is one string, and that is encoded as plain text, as it would be in the model's training. A turn may end
 * inside such a string: its end in ids is found once the string is encoded, by the bytes that its tokens stand for. */
#include "text/chat.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "text/chat_templates.h"
#include "text/tokenizer_internal.h"

_Static_assert((int)COHORT_ROLE_SYSTEM == (int)CHAT_SYSTEM && (int)COHORT_ROLE_USER == (int)CHAT_USER &&
                   (int)COHORT_ROLE_ASSISTANT == (int)CHAT_ASSISTANT && (int)COHORT_ROLE_TOOL == (int)CHAT_TOOL,
               "the roles are the same");

struct message {
    enum chat_role role;
    size_t at, len; /* of the contents */
};

struct render {
    const struct tokenizer *t;
    struct buf contents; /* of all messages, joined parts */
    struct message *messages;
    cohort_turn *turns;       /* one for each message; ended <= n have an end, */
    size_t n, ended, encoded; /* in ids those before `encoded`, the others in bytes of `text` */
    struct buf text;          /* waiting to be encoded */
    struct ids out;
    int eats_space; /* the last marker drops white space behind it */
    cohort_error *err;
};

static int is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static int no_memory(cohort_error *err, int code) {
    if (code == COHORT_E_LIMIT)
        return err_set(err, code, "messages", "the messages are longer than %d bytes", TOKENIZER_TEXT_MAX);
    return err_set(err, COHORT_E_MEMORY, NULL, "no memory to render the chat");
}

/* Nesting outside strings, before a parser that recurses sees it. */
static int check_depth(const char *json, size_t len, cohort_error *err) {
    int depth = 0, in_string = 0;
    for (size_t i = 0; i < len; i++) {
        char c = json[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = 0;
        } else if (c == '"') {
            in_string = 1;
        } else if (c == '[' || c == '{') {
            if (++depth > CHAT_JSON_DEPTH_MAX)
                return err_set(err, COHORT_E_LIMIT, "messages", "nested deeper than %d levels", CHAT_JSON_DEPTH_MAX);
        } else if (c == ']' || c == '}') {
            depth--;
        }
    }
    return 0;
}

static int refuse(struct render *r, int code, size_t i, const char *key, const char *reason) {
    char field[48];
    snprintf(field, sizeof(field), "messages[%zu]%s%s", i, *key ? "." : "", key);
    return err_set(r->err, code, field, "%s: %s", field, reason);
}

static int read_role(struct render *r, size_t i, const json_t *message, enum chat_role *out) {
    static const struct {
        const char *name;
        enum chat_role role;
    } roles[] = {{"system", CHAT_SYSTEM},
                 {"developer", CHAT_SYSTEM},
                 {"user", CHAT_USER},
                 {"assistant", CHAT_ASSISTANT},
                 {"tool", CHAT_TOOL}};
    const json_t *role = json_object_get(message, "role");
    if (!json_is_string(role)) return refuse(r, COHORT_E_ARGUMENT, i, "role", "missing or not a string");
    for (size_t k = 0; k < sizeof(roles) / sizeof(roles[0]); k++) {
        if (json_string_length(role) != strlen(roles[k].name) || strcmp(json_string_value(role), roles[k].name) != 0)
            continue;
        *out = roles[k].role;
        if (!r->t->chat->turns[*out].open)
            return refuse(r, COHORT_E_UNSUPPORTED, i, "role", "the model's turn template has no such turns");
        return 0;
    }
    return refuse(r, COHORT_E_ARGUMENT, i, "role", "not system, developer, user, assistant or tool");
}

static int read_parts(struct render *r, size_t i, const json_t *content) {
    int code = 0;
    for (size_t k = 0; !code && k < json_array_size(content); k++) {
        const json_t *part = json_array_get(content, k), *type = json_object_get(part, "type"),
                     *text = json_object_get(part, "text");
        if (!json_is_string(type) || strcmp(json_string_value(type), "text") != 0 || !json_is_string(text))
            return refuse(r, COHORT_E_ARGUMENT, i, "content", "a part that is not {\"type\":\"text\",\"text\":...}");
        code = buf_add(&r->contents, json_string_value(text), json_string_length(text));
    }
    return code ? no_memory(r->err, code) : 0;
}

/* An assistant's turn may have no content; what stands there instead is not rendered, so it is refused. */
static int read_message(struct render *r, size_t i, const json_t *message) {
    struct message *m = &r->messages[i];
    if (!json_is_object(message)) return refuse(r, COHORT_E_ARGUMENT, i, "", "not an object");
    int code = read_role(r, i, message, &m->role);
    if (code) return code;
    const json_t *content = json_object_get(message, "content"), *calls = json_object_get(message, "tool_calls");
    if (calls && !json_is_null(calls) && !(json_is_array(calls) && json_array_size(calls) == 0))
        return refuse(r, COHORT_E_UNSUPPORTED, i, "tool_calls", "not supported");
    m->at = r->contents.len;
    if (json_is_string(content)) {
        code = buf_add(&r->contents, json_string_value(content), json_string_length(content));
        if (code) return no_memory(r->err, code);
    } else if (json_is_array(content)) {
        code = read_parts(r, i, content);
        if (code) return code;
    } else if (m->role != CHAT_ASSISTANT || (content && !json_is_null(content))) {
        return refuse(r, COHORT_E_ARGUMENT, i, "content", "missing, or not a string or an array of text parts");
    }
    m->len = r->contents.len - m->at;
    return 0;
}

static int read_messages(struct render *r, const char *json, size_t len) {
    int code = check_depth(json, len, r->err);
    if (code) return code;
    json_error_t where;
    json_t *root = json_loadb(json, len, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &where);
    if (!root) return err_set(r->err, COHORT_E_ARGUMENT, "messages", "not JSON: %s", where.text);
    r->n = json_array_size(root);
    if (!json_is_array(root) || r->n == 0)
        code = err_set(r->err, COHORT_E_ARGUMENT, "messages", "not an array with at least one message");
    else if (r->n > CHAT_MESSAGES_MAX)
        code = err_set(r->err, COHORT_E_LIMIT, "messages", "%zu messages, the limit is %d", r->n, CHAT_MESSAGES_MAX);
    else if (!(r->messages = mem_zalloc(r->n, sizeof(*r->messages))) ||
             !(r->turns = mem_zalloc(r->n, sizeof(*r->turns))))
        code = no_memory(r->err, COHORT_E_MEMORY);
    for (size_t i = 0; !code && i < r->n; i++) code = read_message(r, i, json_array_get(root, i));
    json_decref(root);
    return code;
}

/* The next message's turn ends here. */
static void end_turn(struct render *r) {
    cohort_turn *turn = &r->turns[r->ended];
    *turn = (cohort_turn){.role = (int)r->messages[r->ended].role, .end = (uint32_t)r->text.len};
    r->ended++;
}

/* Turns' ends from bytes of `text` to ids: `text` without its first `skip` bytes has become the ids from `first` on. A
 * token that an end cuts lies behind it. */
static void place_ends(struct render *r, size_t skip, size_t first) {
    size_t bytes = 0, at = first, end = 0, all = 0, len;
    const char *piece;
    for (size_t i = first; r->encoded < r->ended && i < r->out.n; i++) {
        tokenizer_piece(r->t, r->out.v[i], 1, &piece, &len);
        all += len;
    }
    /* A space that the encoder put in front is no byte of the text. Characters that the vocabulary lacks have no bytes
     * to go by: then the ends are where the text begins. */
    size_t extra = all - (r->text.len - skip);
    int exact = all >= r->text.len - skip && extra <= 1;
    for (; r->encoded < r->ended; r->encoded++) {
        cohort_turn *turn = &r->turns[r->encoded];
        end = turn->end > skip ? turn->end - skip + extra : 0;
        for (; exact && at < r->out.n; at++) {
            tokenizer_piece(r->t, r->out.v[at], 1, &piece, &len);
            if (bytes + len > end) break;
            bytes += len;
        }
        turn->end = (uint32_t)at;
    }
}

/* Encodes the waiting text. */
static int flush(struct render *r) {
    size_t skip = 0, first = r->out.n;
    while (r->eats_space && skip < r->text.len && is_space(r->text.data[skip])) skip++;
    if (r->text.len > skip) {
        int32_t *ids;
        size_t n;
        int code = tokenizer_encode(r->t, r->text.data + skip, r->text.len - skip, 0, &ids, &n, r->err);
        if (code) return code;
        for (size_t i = 0; !code && i < n; i++) code = ids_add(&r->out, ids[i]);
        mem_free(ids);
        if (code) return no_memory(r->err, code);
    }
    place_ends(r, skip, first);
    buf_clear(&r->text);
    return 0;
}

static int add_text(struct render *r, const char *text, size_t n) {
    int code = buf_add(&r->text, text, n);
    return code ? no_memory(r->err, code) : 0;
}

/* A string of the template: markers become tokens. */
static int add_turn(struct render *r, const char *text) {
    size_t n = strlen(text), done = 0;
    while (done < n) {
        size_t at = done, len = 0;
        int32_t id = special_next(&r->t->all, &r->t->vocab, text, n, &at, &len);
        while (id >= 0 && r->t->vocab.type[id] != TOKEN_CONTROL) { /* a line end, say: plain text finds it again */
            at += len;
            id = special_next(&r->t->all, &r->t->vocab, text, n, &at, &len);
        }
        if (id < 0) at = n;
        int code = add_text(r, text + done, at - done);
        if (code || id < 0) return code;
        code = flush(r);
        if (!code && ids_add(&r->out, id)) code = no_memory(r->err, COHORT_E_MEMORY);
        if (code) return code;
        r->eats_space = r->t->flags[id] & ID_EATS_SPACE;
        done = at + len;
    }
    return 0;
}

/* `open`: the turn goes on behind it, so that its end is as it was given. */
static int add_content(struct render *r, const struct message *m, int open) {
    size_t begin = m->at, end = m->at + m->len;
    if (r->t->chat->trim) {
        while (begin < end && is_space(r->contents.data[begin])) begin++;
        while (!open && end > begin && is_space(r->contents.data[end - 1])) end--;
    }
    return end > begin ? add_text(r, r->contents.data + begin, end - begin) : 0;
}

/* The system texts [first, last) in front of what the user says. */
static int add_systems(struct render *r, size_t first, size_t last) {
    const struct chat_turn *turn = &r->t->chat->turns[CHAT_SYSTEM];
    int code = 0;
    for (size_t i = first; !code && i < last; i++) {
        code = add_turn(r, turn->open);
        if (!code) code = add_content(r, &r->messages[i], 0);
        if (!code) code = add_turn(r, turn->close);
        if (!code) end_turn(r);
    }
    return code;
}

/* What an answer that has begun stands behind: where the model's own answers begin, if that is a whole opening. */
static const char *answer_opening(const struct chat_template *c) {
    const char *open = c->turns[CHAT_ASSISTANT].open;
    return strlen(c->generation) > strlen(open) ? c->generation : open;
}

static int add_messages(struct render *r, int go_on) {
    const struct chat_template *c = r->t->chat;
    int code = 0;
    size_t waiting = 0; /* system messages that no user's turn has taken up yet */
    for (size_t i = 0; !code && i <= r->n; i++) {
        int is_end = i == r->n;
        enum chat_role role = is_end ? CHAT_ROLES : r->messages[i].role;
        if (role == CHAT_SYSTEM && c->system_inside) {
            waiting++;
            continue;
        }
        if (waiting && role != CHAT_USER) { /* nobody speaks: a user's turn of its own */
            code = add_turn(r, c->turns[CHAT_USER].open);
            if (!code) code = add_systems(r, i - waiting, i);
            if (!code) code = add_turn(r, c->turns[CHAT_USER].close);
            waiting = 0;
        }
        if (is_end || code) break;
        int open = go_on && i == r->n - 1;
        code = add_turn(r, open ? answer_opening(c) : c->turns[role].open);
        if (!code && waiting) code = add_systems(r, i - waiting, i);
        waiting = 0;
        if (!code) code = add_content(r, &r->messages[i], open);
        if (!code && !open) code = add_turn(r, c->turns[role].close);
        if (!code) end_turn(r);
    }
    return code;
}

static int render(struct render *r, int add_generation) {
    const struct tokenizer *t = r->t;
    int begin = t->bos >= 0 && (t->add_bos || t->chat->begin);
    int code = begin && ids_add(&r->out, t->bos) ? no_memory(r->err, COHORT_E_MEMORY) : 0;
    if (!code) code = add_turn(r, t->chat->start);
    int go_on = add_generation == COHORT_CHAT_CONTINUE;
    if (!code && go_on && r->messages[r->n - 1].role != CHAT_ASSISTANT)
        code = refuse(r, COHORT_E_ARGUMENT, r->n - 1, "role", "only an assistant's turn can be continued");
    if (!code) code = add_messages(r, go_on);
    if (!code && add_generation && !go_on) code = add_turn(r, t->chat->generation);
    if (!code) code = flush(r);
    if (!code && begin && r->out.n > 1 && r->out.v[1] == t->bos) { /* the first turn opens with it, too */
        memmove(r->out.v, r->out.v + 1, --r->out.n * sizeof(*r->out.v));
        for (size_t i = 0; i < r->n; i++) r->turns[i].end -= r->turns[i].end > 0;
    }
    return code;
}

int chat_render(const struct tokenizer *t, const char *json, size_t len, int add_generation, int32_t **out, size_t *n,
                cohort_turn **turns, size_t *turns_n, cohort_error *err) {
    struct render r = {.t = t, .err = err};
    r.contents.max = r.text.max = TOKENIZER_TEXT_MAX;
    *out = NULL;
    *turns = NULL;
    *n = *turns_n = 0;
    int code = read_messages(&r, json, len);
    if (!code) code = render(&r, add_generation);
    if (!code && !r.out.v) code = err_set(err, COHORT_E_ARGUMENT, "messages", "the messages hold no text");
    buf_free(&r.contents);
    buf_free(&r.text);
    mem_free(r.messages);
    if (code) {
        mem_free(r.out.v);
        mem_free(r.turns);
        return code;
    }
    *out = r.out.v;
    *n = r.out.n;
    *turns = r.turns;
    *turns_n = r.n;
    return 0;
}

const char *chat_template_name(const struct tokenizer *t) { return t->chat->name; }
