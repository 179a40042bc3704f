/* Rendering a prepared chat: text with marks, ids, the ends of turns.
 *
 * Where a message's turn ends is found by marks: behind its last byte, and behind what the template is known to write
 * there whatever follows. An end must be the same place in every chat that begins with the same messages. So it lies in
 * front of every byte of a later message, and within what stays when the chat goes on, which a second rendering with
 * two more messages shows: templates move system texts and tools to the last question, or drop reasoning from all but
 * the last answer. */
#include "chat/render.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "chat/internal.h"

struct rendering {
    const struct chat_template *t;
    const cohort_chat *chat;
    struct chat_prepared p;
    struct jinja_text text;
    size_t stays; /* bytes of it that stay when the chat goes on */
    cohort_error *err;
};

static int no_memory(cohort_error *err) { return err_set(err, COHORT_E_MEMORY, NULL, "no memory to render the chat"); }

static int write_messages(const struct rendering *r, const json_t *messages, int generation, int go_on,
                          struct jinja_text *out, cohort_error *err) {
    const struct chat_prepared *p = &r->p;
    char *json = json_dumps(messages, JSON_COMPACT), *tools = p->tools ? json_dumps(p->tools, 0) : NULL;
    memset(out, 0, sizeof(*out));
    int code = json && (tools || !p->tools) ? 0 : no_memory(err);
    struct chat_told values = {.messages = json,
                               .messages_n = json ? strlen(json) : 0,
                               .tools = tools,
                               .tools_n = tools ? strlen(tools) : 0,
                               .variables = p->variables,
                               .generation = generation,
                               .go_on = go_on,
                               .now_s = r->chat->now_s};
    if (!code) code = chat_template_write(r->t, p->variant, &values, out, err);
    free(json); /* jansson's */
    free(tools);
    return code;
}

/* ---- an answer that goes on ---- */

/* Cuts behind the last message's content and gives it back its white space. */
static int cut_open(struct rendering *r) {
    struct jinja_text *text = &r->text;
    uint16_t mark = (uint16_t)(json_array_size(r->p.messages));
    size_t end = text->len, n = strlen(r->p.tail);
    while (end > 0 && text->marks[end - 1] != mark) end--;
    if (end == 0)
        return err_set(r->err, COHORT_E_UNSUPPORTED, "messages", "the chat template leaves out the last message");
    if (r->p.stands_in) end--;
    char *bytes = mem_realloc(text->bytes, end + n + 1, 1);
    if (!bytes) return no_memory(r->err);
    text->bytes = bytes;
    uint16_t *marks = mem_realloc(text->marks, end + n + 1, sizeof(*marks));
    if (!marks) return no_memory(r->err);
    text->marks = marks;
    memcpy(bytes + end, r->p.tail, n + 1);
    for (size_t i = 0; i < n; i++) marks[end + i] = mark;
    text->len = end + n;
    return 0;
}

/* ---- ends of turns ---- */

enum { CHECKED_BYTES = 1 << 18 };

/* How many bytes both begin with, from the same origins. */
static size_t same_bytes(const struct jinja_text *a, const struct jinja_text *b) {
    size_t n = 0, max = a->len < b->len ? a->len : b->len;
    while (n < max && a->bytes[n] == b->bytes[n] && a->marks[n] == b->marks[n]) n++;
    return n;
}

/* Renders the chat with an answer, if it waits for one, and another question. */
static int find_stays(struct rendering *r) {
    static const char *const said[] = {"user", "assistant"};
    cohort_error ignored;
    struct jinja_text more;
    int answered = r->p.roles[r->p.n - 1] == COHORT_ROLE_ASSISTANT || r->p.roles[r->p.n - 1] == COHORT_ROLE_SYSTEM;
    json_t *messages = json_copy(r->p.messages), *added = json_array();
    int bad = !messages || !added;
    for (int i = !answered; i >= 0 && !bad; i--)
        bad = json_array_append_new(added, json_pack("{s:s,s:s}", "role", said[i], "content", "go on"));
    if (!bad && r->p.variant->can.typed_content) chat_type_contents(added);
    bad = bad || json_array_extend(messages, added);
    r->stays = r->text.len;
    if (!bad && write_messages(r, messages, 0, 0, &more, &ignored) == 0) {
        r->stays = same_bytes(&r->text, &more);
        jinja_text_free(&more);
    }
    json_decref(messages);
    json_decref(added);
    return bad ? no_memory(r->err) : 0;
}

/* Behind message i's last byte and what closes its turn. */
static size_t end_behind(const struct rendering *r, size_t i, size_t last) {
    const struct buf *close = &r->p.variant->close[r->p.roles[i]];
    size_t n = 0;
    while (n < close->len && last + n < r->text.len && r->text.marks[last + n] == 0 &&
           r->text.bytes[last + n] == close->data[n])
        n++;
    return last + n;
}

/* In bytes of the text. */
static int find_ends(struct rendering *r, size_t *ends) {
    struct chat_prepared *p = &r->p;
    size_t elements = json_array_size(p->messages), *first = mem_alloc(elements, 2 * sizeof(*first)), limit = r->stays;
    if (!first) return no_memory(r->err);
    size_t *last = first + elements;
    for (size_t k = 0; k < elements; k++) first[k] = last[k] = SIZE_MAX;
    for (size_t b = 0; b < r->text.len; b++) {
        size_t k = r->text.marks[b] - (size_t)1;
        if (k >= elements) continue;
        if (first[k] == SIZE_MAX) first[k] = b;
        last[k] = b + 1;
    }
    for (size_t i = p->n; i-- > 0;) {
        size_t k = p->at[i];
        size_t end = last[k] != SIZE_MAX ? end_behind(r, i, last[k]) : 0;
        if (i == p->n - 1 && r->chat->ending == 0) end = r->text.len;
        ends[i] = end < limit ? end : limit;
        if (first[k] < limit) limit = first[k];
    }
    for (size_t i = 1; i < p->n; i++)
        if (ends[i] < ends[i - 1]) ends[i] = ends[i - 1];
    mem_free(first);
    return 0;
}

/* How much of the text a chat of the messages up to the i-th has, too. */
static int find_common(const struct rendering *r, size_t i, size_t *common) {
    cohort_error ignored;
    struct jinja_text less;
    json_t *messages = json_copy(r->p.messages);
    int bad = !messages;
    while (!bad && json_array_size(messages) > r->p.at[i] + 1)
        bad = json_array_remove(messages, json_array_size(messages) - 1);
    *common = r->text.len;
    if (!bad && write_messages(r, messages, 0, 0, &less, &ignored) == 0) {
        *common = same_bytes(&r->text, &less);
        jinja_text_free(&less);
    }
    json_decref(messages);
    return bad ? no_memory(r->err) : 0;
}

/* Where what is written of a message depends on what follows: the ends of the turns that matter most, by rendering the
 * chat up to there. All others are not known, and lie where the one before them does. */
static int check_ends(const struct rendering *r, size_t *ends) {
    const struct chat_prepared *p = &r->p;
    size_t last = r->text.len > CHECKED_BYTES ? 3 : 8, systems = 0;
    if (p->variant->steady) return 0;
    while (systems < p->n && p->roles[systems] == COHORT_ROLE_SYSTEM) systems++;
    for (size_t i = 0; i < p->n; i++) {
        size_t common = 0;
        int code = i + 1 == systems || i + last >= p->n ? find_common(r, i, &common) : 0;
        if (code) return code;
        if (common < ends[i]) ends[i] = common;
        if (i && ends[i] < ends[i - 1]) ends[i] = ends[i - 1];
    }
    return 0;
}

static int encode(struct rendering *r, struct chat_prompt *out) {
    size_t n = r->p.n, *ends = mem_alloc(n, sizeof(*ends));
    uint32_t *places = mem_alloc(n, sizeof(*places));
    out->turns = mem_zalloc(n, sizeof(*out->turns));
    int code = ends && places && out->turns ? 0 : no_memory(r->err);
    if (!code) code = find_stays(r);
    if (!code) code = find_ends(r, ends);
    if (!code) code = check_ends(r, ends);
    if (!code && r->chat->ending == COHORT_CHAT_CONTINUE) ends[n - 1] = r->text.len; /* an open turn has no other end */
    struct tokenizer_marked in = {.text = r->text.bytes ? r->text.bytes : "",
                                  .marks = r->text.marks,
                                  .len = r->text.len,
                                  .cuts = ends,
                                  .cut_ids = places,
                                  .cuts_n = n};
    if (!code) code = tokenizer_encode_marked(r->t->tokenizer, &in, &out->ids, &out->n, r->err);
    if (!code && out->n == 0) code = err_set(r->err, COHORT_E_ARGUMENT, "messages", "the messages hold no text");
    for (size_t i = 0; !code && i < n; i++) out->turns[i] = (cohort_turn){.role = r->p.roles[i], .end = places[i]};
    out->turns_n = code ? 0 : n;
    mem_free(ends);
    mem_free(places);
    return code;
}

/* ---- how the answer is read ---- */

/* The message that goes on: its text says whether reasoning is open. */
static int keep_last(const struct rendering *r, cohort_chat *out) {
    const json_t *messages = r->p.messages, *last = json_array_get(messages, json_array_size(messages) - 1),
                 *content = json_object_get(last, "content");
    if (json_is_array(content)) content = json_object_get(json_array_get(content, 0), "text");
    struct buf json = {0};
    int code = buf_adds(&json, "[{\"role\":\"assistant\",\"content\":");
    if (!code)
        code = buf_json_string(&json, r->p.stands_in ? "" : json_string_value(content),
                               r->p.stands_in ? 0 : json_string_length(content));
    if (!code) code = buf_adds(&json, "}]");
    out->messages = json.data;
    out->messages_n = json.len;
    return code;
}

/* What outlives the caller's chat: tools if they are shown, which of them may be called, how strict. */
static int keep_chat(const struct rendering *r, struct chat_prompt *out) {
    const cohort_chat *c = r->chat;
    cohort_chat *mine = &out->chat;
    *mine = *c;
    mine->messages = mine->variables = mine->chat_template = mine->effort = mine->tool_name = mine->tools = NULL;
    mine->messages_n = mine->variables_n = mine->chat_template_n = mine->tools_n = mine->tool_names_allowed_n = 0;
    mine->tool_names_allowed = NULL;
    mine->answer = (cohort_grammar_source){0};
    if (c->ending == COHORT_CHAT_CONTINUE && keep_last(r, mine)) return no_memory(r->err);
    if (!r->p.shows_tools) return 0;
    mine->tools = mem_text(c->tools, c->tools_n);
    mine->tools_n = c->tools_n;
    mine->tool_name = c->tool_choice == COHORT_TOOLS_NAMED ? mem_text(c->tool_name, strlen(c->tool_name)) : NULL;
    if (!mine->tools || (c->tool_choice == COHORT_TOOLS_NAMED && !mine->tool_name)) return no_memory(r->err);
    if (c->tool_names_allowed_n == 0) return 0;
    mine->tool_names_allowed = mem_zalloc(c->tool_names_allowed_n, sizeof(*mine->tool_names_allowed));
    if (!mine->tool_names_allowed) return no_memory(r->err);
    for (size_t i = 0; i < c->tool_names_allowed_n; i++) {
        mine->tool_names_allowed[i] = mem_text(c->tool_names_allowed[i], strlen(c->tool_names_allowed[i]));
        if (!mine->tool_names_allowed[i]) return no_memory(r->err);
        mine->tool_names_allowed_n = i + 1;
    }
    return 0;
}

struct chat_wants chat_prompt_wants(const struct chat_prompt *p) {
    return (struct chat_wants){.chat = &p->chat, .tokenizer = p->tokenizer, .prompt = p->text, .prompt_n = p->text_n};
}

/* Markers are the template's own, so their text means tokens. */
static int marker_ids(const struct rendering *r, const char *text, int32_t **ids, size_t *ids_n) {
    size_t n = strlen(text);
    uint16_t *marks = mem_zalloc(n, sizeof(*marks));
    if (!marks) return no_memory(r->err);
    struct tokenizer_marked in = {.text = text, .marks = marks, .len = n, .within = 1};
    int code = n ? tokenizer_encode_marked(r->t->tokenizer, &in, ids, ids_n, r->err) : 0;
    mem_free(marks);
    return code;
}

static int describe_answer(struct rendering *r, struct chat_prompt *out) {
    const struct chat_abilities *can = &r->p.variant->can;
    out->format = can->format;
    chat_format_ref(out->format);
    int code = keep_chat(r, out);
    if (code) return code;
    struct chat_wants wants = chat_prompt_wants(out), now = wants;
    now.chat = r->chat;
    out->reasons = (uint8_t)chat_format_reasons(can->format, &wants);
    out->reads = (uint8_t)chat_format_reads(can->format, &wants);
    if (out->reasons)
        code = marker_ids(r, chat_format_reasoning_end(out->format), &out->reasoning_end, &out->reasoning_end_n);
    if (out->reasons && !code)
        code = marker_ids(r, chat_format_reasoning_begin(out->format, &wants), &out->reasoning_begin,
                          &out->reasoning_begin_n);
    return code ? code : chat_constrain(can->format, &now, &out->grammar, r->err);
}

/* ---- */

static int render(struct rendering *r, struct chat_prompt *out) {
    int go_on = r->chat->ending == COHORT_CHAT_CONTINUE;
    int code = chat_prepare(r->t, r->chat, &r->p, r->err);
    if (!code) code = write_messages(r, r->p.messages, r->chat->ending == 1, go_on, &r->text, r->err);
    if (!code && go_on) code = cut_open(r);
    if (!code) code = encode(r, out);
    if (code) return code;
    out->tokenizer = r->t->tokenizer;
    out->text = r->text.bytes;
    out->text_n = r->text.len;
    r->text.bytes = NULL;
    return describe_answer(r, out);
}

int chat_render(const struct chat_template *t, const cohort_chat *chat, struct chat_prompt *out, cohort_error *err) {
    struct rendering r = {.t = t, .chat = chat, .err = err};
    memset(out, 0, sizeof(*out));
    int code = render(&r, out);
    chat_prepared_free(&r.p);
    jinja_text_free(&r.text);
    if (code) chat_prompt_clear(out);
    return code;
}

int chat_render_own(const struct tokenizer *t, const cohort_chat *chat, struct chat_prompt *out, cohort_error *err) {
    struct chat_template *own;
    memset(out, 0, sizeof(*out));
    int code = chat_template_make(t, chat->chat_template, chat->chat_template_n, NULL, 0, &own, err);
    if (code) return code;
    code = chat_render(own, chat, out, err);
    chat_template_free(own);
    return code;
}

void chat_prompt_clear(struct chat_prompt *p) {
    for (size_t i = 0; i < p->chat.tool_names_allowed_n; i++) mem_free((char *)p->chat.tool_names_allowed[i]);
    mem_free(p->chat.tool_names_allowed);
    mem_free((char *)p->chat.tool_name);
    mem_free((char *)p->chat.tools);
    mem_free((char *)p->chat.messages);
    mem_free((char *)p->grammar.text);
    mem_free(p->ids);
    mem_free(p->turns);
    mem_free(p->text);
    mem_free(p->reasoning_end);
    mem_free(p->reasoning_begin);
    chat_format_unref(p->format);
    memset(p, 0, sizeof(*p));
}
