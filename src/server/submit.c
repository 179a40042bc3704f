/* What helpers do for a call (call.h): prompts to ids, the grammar that its answers must follow, requests to the
 * engine.
 *
 *   call_tokenise -> [the answer has a form that is not known yet: compile, on the grammars' helper] -> call_submitted
 *
 * The call is the helper's from call_submit to call_submitted, but for `gone`. Compiling may take most of a second and
 * has helpers of its own, where keys take turns: it delays nobody's tokenising. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "server/internal.h"
#include "server/stored.h"

void call_forget_body(struct call *call) {
    struct params *p = &call->params;
    for (size_t i = 0; i < call->prompts_n; i++) {
        struct prompt *prompt = &call->prompts[i];
        prompt->text = NULL;
        if (p->keep_prompts) continue;
        mem_free(prompt->ids);
        prompt->ids = NULL;
    }
    cohort_prompt_free(call->chat);
    call->chat = NULL;
    cohort_grammar_release(call->grammar);
    call->grammar = NULL;
    chat_params_deinit(&p->chat);
    p->grammar = (cohort_grammar_source){0};
    p->stops_n = p->dry_breakers_n = 0; /* they lie in the body */
    mem_free(p->biases);
    mem_free(p->allowed_ids);
    mem_free(p->banned);
    p->biases = NULL;
    p->allowed_ids = NULL;
    p->banned = NULL;
    json_decref(call->body);
    call->body = NULL;
}

/* ---- prompts ---- */

static int chat_ids(struct call *call, struct prompt *prompt, cohort_error *err) {
    cohort_prompt_info info;
    cohort_chat chat = call->params.chat.chat;
    chat.now_s = call->created; /* the same when a stored call is made again */
    int rc = cohort_prompt_render(call->server->model, &chat, &call->chat, err);
    if (rc) return rc;
    cohort_prompt_get(call->chat, &info);
    cache_borders(info.turns, info.turns_n, info.n, &call->params.cache);
    prompt->ids = mem_alloc(info.n, sizeof *prompt->ids);
    if (!prompt->ids) return err_set(err, COHORT_E_MEMORY, NULL, "no memory for the prompt");
    memcpy(prompt->ids, info.ids, info.n * sizeof *prompt->ids);
    prompt->ids_n = info.n;
    for (size_t i = 0; i < call->choices_n && !rc && info.reads && !call->params.raw; i++)
        rc = parts_open(&call->choices[i], call->chat, err);
    return rc;
}

static int prompt_ids(struct call *call, struct prompt *prompt, cohort_error *err) {
    const cohort_model *model = call->server->model;
    if (call->params.chat.chat.messages) return chat_ids(call, prompt, err);
    if (!prompt->text) return 0;
    int flags = COHORT_TOKENIZE_BOS | (prompt->special ? COHORT_TOKENIZE_SPECIAL : 0);
    int rc = cohort_tokenize(model, prompt->text, prompt->text_len, flags, &prompt->ids, &prompt->ids_n, err);
    if (!rc && prompt->ids_n == 0)
        rc = err_set(err, COHORT_E_ARGUMENT, "prompt", "prompt is empty and the vocabulary has no begin token");
    return rc;
}

/* ---- requests ---- */

/* What is left of the request's time for the engine; E_TIMEOUT if nothing is. */
static int time_left(const struct call *call, uint32_t *ms, cohort_error *err) {
    uint64_t all_us = call->params.timeout_ms * 1000ull, gone_us = clock_us() - call->arrival.read_us;
    *ms = 0;
    if (all_us == 0) return 0;
    if (gone_us >= all_us) return call_time_is_over(call, err);
    *ms = (uint32_t)((all_us - gone_us + 999) / 1000);
    return 0;
}

/* What is drawn, and how. */
static void fill_sampling(const struct params *p, const struct choice *choice, cohort_request *request) {
    request->sampling = p->sampling;
    request->sampling.choice = choice->index % p->tries;
    request->biases = p->biases;
    request->biases_n = p->biases_n;
    request->allowed_ids = p->allowed_ids;
    request->allowed_ids_n = p->allowed_ids_n;
    request->banned = p->banned;
    request->banned_n = p->banned_n;
    request->dry_breakers = p->dry_breakers;
    request->dry_breakers_n = p->dry_breakers_n;
}

/* Where it ends. */
static void fill_ends(const struct params *p, cohort_request *request) {
    request->max_tokens = p->max_tokens;
    request->min_tokens = p->min_tokens;
    request->stops = p->stops;
    request->stops_n = p->stops_n;
    request->stop_ids = p->stop_ids;
    request->stop_ids_n = p->stop_ids_n;
    request->ignore_eos = p->ignore_eos;
    request->include_stop = p->include_stop;
    request->max_predict_ms = p->max_predict_ms;
}

/* Its form. */
static int fill_form(const struct call *call, cohort_request *request, cohort_error *err) {
    const struct params *p = &call->params;
    cohort_prompt_info info = {0};
    request->grammar = call->grammar;
    request->reasoning_budget = UINT32_MAX;
    if (!call->chat) return 0;
    cohort_prompt_get(call->chat, &info);
    request->show_special = info.reads;
    request->reasoning_end = info.reasoning_end; /* also without a budget: what came before it is counted */
    request->reasoning_end_n = info.reasoning_end_n;
    request->reasoning_begin = info.reasoning_begin;
    request->reasoning_begin_n = info.reasoning_begin_n;
    if (p->reasoning_budget == UINT32_MAX || !info.reasons) return 0;
    if (!info.reasoning_end)
        return err_set(err, COHORT_E_UNSUPPORTED, p->budget_field,
                       "%s: the model's reasoning has no end that could be put in", p->budget_field);
    request->reasoning_budget = p->reasoning_budget;
    return 0;
}

static int submit_choice(struct call *call, struct choice *choice, const struct prompt *prompt, cohort_error *err) {
    const struct params *p = &call->params;
    uint32_t timeout_ms;
    int code = time_left(call, &timeout_ms, err);
    if (code) return code;
    cohort_request request;
    cohort_request_defaults(&request);
    request.prompt = prompt->ids;
    request.prompt_n = prompt->ids_n;
    fill_sampling(p, choice, &request);
    fill_ends(p, &request);
    if ((code = fill_form(call, &request, err)) != 0) return code;
    request.pooling = p->pooling;
    request.logprobs = p->logprobs;
    request.prompt_logprobs = p->prompt_logprobs;
    request.post_sampling = p->post_sampling;
    memcpy(request.trace_id, call->arrival.trace.trace_id, sizeof request.trace_id);
    memcpy(request.trace_parent, call->arrival.trace.parent_id, sizeof request.trace_parent);
    request.timeout_ms = timeout_ms;
    request.priority = p->priority;
    cache_fill(&p->cache, &request);
    request.user = choice;
    if (call->stored && (code = stored_resume(call->stored, choice, &request, err)) != 0) return code;
    cohort_ticket ticket = choice->ticket;
    choice->ticket = 0;
    return cohort_submit(call->server->engine, ticket, &request, &choice->id, err);
}

static int submit_all(struct call *call) {
    int rc = 0;
    for (size_t i = 0; i < call->choices_n && !rc; i++)
        if (!call->stored || !stored_has_ended(call->stored, i))
            rc = submit_choice(call, &call->choices[i], &call->prompts[i / call->params.tries], &call->error);
    return rc;
}

/* ---- grammars ---- */

/* What the answers must follow; kind NONE: nothing. */
static cohort_grammar_source form_of(const struct call *call) {
    cohort_prompt_info info;
    if (!call->chat) return call->params.grammar;
    cohort_prompt_get(call->chat, &info);
    return info.grammar;
}

enum { BLAME_US = 1000000 /* that looking for what is wrong may take */ };

static int is_wrong(const struct call *call, const cohort_grammar_source *source, cohort_error *err) {
    cohort_grammar *grammar = NULL;
    int rc = cohort_grammar_compile(call->server->model, source, &grammar, err);
    cohort_grammar_release(grammar);
    return rc != 0;
}

static int blame(cohort_error *err, const cohort_error *why, const char *field) {
    return err_set(err, why->code, field, "%s: %s", field, why->text);
}

/* A tool's schema that does not compile by itself either. 1: there is one. */
static int blame_tool(const struct call *call, cohort_error *err) {
    const cohort_chat *chat = &call->params.chat.chat;
    uint64_t until_us = clock_us() + BLAME_US;
    json_t *tools = json_loadb(chat->tools, chat->tools_n, JSON_ALLOW_NUL, NULL);
    int found = 0;
    for (size_t i = 0; i < json_array_size(tools) && !found && clock_us() < until_us; i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        char *schema = json_dumps(json_object_get(function, "parameters"), JSON_COMPACT), field[48];
        cohort_error why = {0};
        if (!schema) continue;
        const cohort_grammar_source source = {
            .kind = COHORT_GRAMMAR_JSON_SCHEMA, .text = schema, .len = strlen(schema)};
        snprintf(field, sizeof field, "tools[%zu].function.parameters", i);
        if ((found = is_wrong(call, &source, &why)) != 0) blame(err, &why, field);
        free(schema);
    }
    json_decref(tools);
    return found;
}

/* The field that a grammar's fault came from. The answer's form and the tools make one grammar: what is wrong is found
 * by looking at each alone. */
static void name_fault(const struct call *call, cohort_error *err) {
    const struct params *p = &call->params;
    const cohort_grammar_source *answer = p->chat.chat.messages ? &p->chat.chat.answer : &p->grammar;
    const cohort_error why = *err;
    cohort_error alone = {0};
    if (why.code == COHORT_E_MEMORY || strcmp(why.field, "grammar") != 0) return;
    int tools = p->chat.chat.tools != NULL;
    if (tools && answer->kind && is_wrong(call, answer, &alone))
        blame(err, &alone, p->form_field);
    else if (!tools || !blame_tool(call, err))
        blame(err, &why, !tools || (answer->kind && p->form_field) ? p->form_field : "tools");
}

static void finish_work(struct call *call, int rc) {
    if (rc && !call->error.code) call->error.code = rc;
    if (!rc) return;
    name_fault(call, &call->error);
    call_name_input(call->dialect, &call->error);
    if (call->dialect->name_field) call->dialect->name_field(call, &call->error);
}

/* Tools that do not ask for it are held to their schemas anyhow, where these can be held: else they are let off. */
static int compile_loose(struct call *call) {
    cohort_prompt_info info;
    cohort_prompt *loose;
    cohort_chat chat = call->params.chat.chat;
    chat.strict = 0;
    chat.now_s = call->created;
    int rc = cohort_prompt_render(call->server->model, &chat, &loose, NULL);
    if (rc) return rc;
    cohort_prompt_get(loose, &info);
    if (info.grammar.kind) rc = cohort_grammar_compile(call->server->model, &info.grammar, &call->grammar, NULL);
    cohort_prompt_free(loose);
    return rc;
}

static void compile(struct pool_job *job) {
    struct call *call = (struct call *)job;
    const cohort_grammar_source source = form_of(call);
    if (call->gone) return; /* nobody waits for it */
    int rc = cohort_grammar_compile(call->server->model, &source, &call->grammar, &call->error);
    if (rc == COHORT_E_UNSUPPORTED && call->chat && call->params.chat.chat.tools && compile_loose(call) == 0) {
        call->error = (cohort_error){0};
        rc = 0;
    }
    finish_work(call, rc ? rc : submit_all(call));
}

static void compiled(struct pool_job *job) { call_submitted((struct call *)job); }

/* ---- the two steps ---- */

void call_tokenise(struct pool_job *job) {
    struct call *call = (struct call *)job;
    int rc = call->dialect->prepare ? call->dialect->prepare(call, &call->error) : 0;
    for (size_t i = 0; i < call->prompts_n && !rc; i++) rc = prompt_ids(call, &call->prompts[i], &call->error);
    const cohort_grammar_source form = form_of(call);
    /* What is compiled already waits for nobody. */
    int ready = form.kind == COHORT_GRAMMAR_NONE ||
                (!rc && cohort_grammar_find(call->server->model, &form, &call->grammar, NULL) == 0);
    if (!rc && ready) rc = submit_all(call);
    finish_work(call, rc);
}

void call_tokenised(struct pool_job *job) {
    struct call *call = (struct call *)job;
    if (call->error.code || call->grammar || form_of(call).kind == COHORT_GRAMMAR_NONE) {
        call_submitted(call);
        return;
    }
    call->job.work = compile;
    call->job.done = compiled;
    pool_add(call->server->grammars, &call->job);
}
