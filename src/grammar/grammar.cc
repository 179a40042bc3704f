/* The only file that sees XGrammar: vocabularies, compiled grammars, and the states of answers. Everything that
 * XGrammar does happens within a budget (budget.h) and a try; what it throws or warns of becomes an error. A compile
 * runs on a thread of its own, whose stack has a known size.
 *
 * Control tokens are spelled with a byte in front that no text has (scripts/xgrammar.patch sees to it that nothing
 * matches that byte), so that only a structural tag's token formats reach them, by id: tags.c turns names into ids. */
#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include <xgrammar/xgrammar.h>

extern "C" { // the house's headers are C's
#include "grammar/grammar.h"
#include "grammar/source.h"
}
#include "grammar/budget.h"

using cohort::budget;
using cohort::budget_scope;

enum : uint64_t {
    STEPS_PER_MS = 20000,               /* allocations of a compile that count as a millisecond */
    STACK_BYTES = UINT64_C(256) << 20,  /* of a compile's thread: address space, taken only where it is touched */
    STACK_GUARDED = UINT64_C(64) << 20, /* an allocation deeper in the stack than this ends the compile */
    VOCAB_BYTES = UINT64_C(4) << 30,
    STATE_BYTES = UINT64_C(64) << 20, /* of a state, its history with it */
    STATE_STEPS = 250000,             /* allocations of one call: some 200 ms, which a batch waits for; usual are 200 */
    STATE_NS = UINT64_C(5000000000)   /* processor time of one call with a state: a backstop only */
};
static const char control_byte = '\xff';

/* ---- What XGrammar says ---- */

static thread_local char warning[256]; // the first one of a compile

namespace xgrammar {
[[noreturn]] void LogFatalImpl(const std::string &file, int lineno, const std::string &message);
void LogMessageImpl(const std::string &file, int lineno, int level, const std::string &message);

void LogFatalImpl(const std::string &, int, const std::string &message) { throw std::runtime_error(message); }
void LogMessageImpl(const std::string &, int, int, const std::string &message) {
    if (!warning[0]) snprintf(warning, sizeof warning, "%s", message.empty() ? "a warning" : message.c_str());
}
} // namespace xgrammar

static int spent_error(cohort::spent what, const struct grammar_limits *limits, cohort_error *err) {
    switch (what) {
    case cohort::spent::bytes:
        return err_set(err, COHORT_E_LIMIT, "grammar", "takes more than %llu bytes of memory",
                       (unsigned long long)limits->bytes);
    case cohort::spent::stack:
        return err_set(err, COHORT_E_LIMIT, "grammar", "is nested too deeply");
    case cohort::spent::steps:
    case cohort::spent::time:
        return err_set(err, COHORT_E_LIMIT, "grammar", "takes more than %u ms to compile", limits->ms);
    case cohort::spent::memory:
    case cohort::spent::nothing:
        break;
    }
    return err_set(err, COHORT_E_MEMORY, "grammar", "no memory to compile it");
}

/* XGrammar's checks name their condition first. */
static const char *reason(const char *text) {
    const char *behind = strstr(text, "is false: ");
    const char *out = behind ? behind + strlen("is false: ") : text;
    return *out ? out : "not a grammar";
}

/* ---- Vocabulary ---- */

struct grammar_vocab {
    xgrammar::TokenizerInfo info;
    std::vector<int32_t> ends;
    std::vector<std::pair<std::string, int32_t>> controls; // spelled, sorted
    uint32_t n;
    budget memory;
};

static std::string spelling(const struct grammar_piece *piece, bool end) {
    std::string text;
    if (piece->control || end) text += control_byte;
    return text.append(piece->bytes, piece->len);
}

int grammar_vocab_make(struct grammar_vocab **out, const struct grammar_piece *pieces, uint32_t n, const int32_t *ends,
                       uint32_t ends_n, cohort_error *err) {
    *out = nullptr;
    budget b = {VOCAB_BYTES, UINT64_MAX, UINT64_C(60000000000), 0, 0, 0, 0, cohort::spent::nothing};
    budget_scope scope(&b);
    try {
        std::vector<int32_t> stops(ends, ends + ends_n);
        std::sort(stops.begin(), stops.end());
        stops.erase(std::unique(stops.begin(), stops.end()), stops.end());
        if (!stops.empty() && (stops.front() < 0 || (uint32_t)stops.back() >= n))
            return err_set(err, COHORT_E_ARGUMENT, "vocabulary", "an end token is not in it");
        std::vector<std::string> texts;
        std::vector<std::pair<std::string, int32_t>> controls;
        texts.reserve(n);
        for (uint32_t i = 0; i < n; i++) {
            texts.push_back(spelling(&pieces[i], std::binary_search(stops.begin(), stops.end(), (int32_t)i)));
            if (texts.back()[0] == control_byte && texts.back().size() > 1) controls.emplace_back(texts.back(), i);
        }
        std::sort(controls.begin(), controls.end());
        xgrammar::TokenizerInfo info(texts, xgrammar::VocabType::RAW, (int)n, stops, false);
        *out = new grammar_vocab{std::move(info), std::move(stops), std::move(controls), n, {}};
    } catch (const std::exception &e) {
        return err_set(err, COHORT_E_MEMORY, "vocabulary", "no memory for its grammars");
    } catch (...) {
        return err_set(err, COHORT_E_MEMORY, "vocabulary", "no memory for its grammars");
    }
    (*out)->memory = b;
    return 0;
}

void grammar_vocab_free(struct grammar_vocab *v) {
    if (!v) return;
    budget b = v->memory;
    budget_scope scope(&b);
    delete v;
}

static int32_t find_text(const std::vector<std::pair<std::string, int32_t>> &sorted, const std::string &text) {
    auto at = std::lower_bound(sorted.begin(), sorted.end(), text,
                               [](const auto &entry, const std::string &wanted) { return entry.first < wanted; });
    return at != sorted.end() && at->first == text ? at->second : -1;
}

int32_t grammar_vocab_find(const struct grammar_vocab *v, const char *text, size_t len) try {
    std::string wanted(text, len);
    int32_t id = find_text(v->controls, control_byte + wanted);
    if (id >= 0) return id;
    const auto &sorted = v->info.GetSortedDecodedVocab();
    auto at =
        std::lower_bound(sorted.begin(), sorted.end(), wanted,
                         [](const auto &entry, const std::string &text_wanted) { return entry.second < text_wanted; });
    return at != sorted.end() && at->second == wanted ? at->first : -1;
} catch (...) {
    return -1;
}

int32_t grammar_vocab_control(const struct grammar_vocab *v, uint32_t i) {
    return i < v->controls.size() ? v->controls[i].second : -1;
}

int grammar_vocab_is_control(const struct grammar_vocab *v, int32_t id) {
    const auto &texts = v->info.GetDecodedVocab();
    return id >= 0 && (size_t)id < texts.size() && texts[(size_t)id].size() > 1 && texts[(size_t)id][0] == control_byte;
}

/* ---- Compiling ---- */

struct grammar {
    xgrammar::CompiledGrammar compiled;
    const struct grammar_vocab *vocab;
    budget memory;
};

struct compile_job {
    const struct grammar_vocab *v;
    const struct grammar_source *source;
    const struct grammar_limits *limits;
    struct grammar *out;
    cohort_error *err;
    int result;
};

static xgrammar::CompiledGrammar compile_text(const struct compile_job *job) {
    const struct grammar_source *source = job->source;
    /* One thread, and a cache that lives as long as this compile: tools' schemas are much alike, and their states share
     * masks by it. Thirty tools take a ninth of the time. */
    xgrammar::GrammarCompiler compiler(job->v->info, 1, true);
    std::string text(source->text, source->len);
    std::optional<int> space;
    if (source->space) space = source->space;
    switch (source->kind) {
    case COHORT_GRAMMAR_EBNF:
        return compiler.CompileGrammar(text);
    case COHORT_GRAMMAR_TAGS:
        return compiler.CompileStructuralTag(text);
    default:
        return compiler.CompileJSONSchema(text, space.has_value(), std::nullopt, std::nullopt, true, space);
    }
}

static DLTensor as_tensor(uint32_t *words, int64_t *words_n) {
    DLTensor tensor = {};
    tensor.data = words;
    tensor.device = {kDLCPU, 0};
    tensor.ndim = 1;
    tensor.dtype = xgrammar::GetBitmaskDLType();
    tensor.shape = words_n;
    return tensor;
}

/* Whether any token may come first: rules that only lead to each other allow none. */
static bool begins(const xgrammar::CompiledGrammar &compiled, uint32_t n) {
    xgrammar::GrammarMatcher matcher(compiled);
    int64_t words_n = (n + 31) / 32;
    std::vector<uint32_t> words((size_t)words_n);
    DLTensor tensor = as_tensor(words.data(), &words_n);
    if (!matcher.FillNextTokenBitmask(&tensor)) return true;
    return std::any_of(words.begin(), words.end(), [](uint32_t word) { return word != 0; });
}

static int compile_within(struct compile_job *job, budget *b) {
    warning[0] = 0;
    budget_scope scope(b); // around the try: exceptions hold memory, too
    try {
        xgrammar::CompiledGrammar compiled = compile_text(job);
        /* Code that swallowed the exception went on without what it wanted. */
        if (b->what != cohort::spent::nothing) return spent_error(b->what, job->limits, job->err);
        if (warning[0]) return err_set(job->err, COHORT_E_UNSUPPORTED, "grammar", "%s", warning);
        if (!begins(compiled, job->v->n))
            return err_set(job->err, COHORT_E_ARGUMENT, "grammar", "no answer follows it");
        job->out = new grammar{std::move(compiled), job->v, {}};
    } catch (const std::bad_alloc &) {
        return spent_error(b->what, job->limits, job->err);
    } catch (const std::exception &e) {
        if (b->what != cohort::spent::nothing) return spent_error(b->what, job->limits, job->err);
        /* Expressions come here well written: what is wrong with one is its size. */
        if (strstr(e.what(), "Failed to build the automaton"))
            return err_set(job->err, COHORT_E_LIMIT, "grammar", "an expression of it is too large");
        return err_set(job->err, COHORT_E_ARGUMENT, "grammar", "%s", reason(e.what()));
    } catch (...) {
        return err_set(job->err, COHORT_E_ARGUMENT, "grammar", "not a grammar");
    }
    return 0;
}

static void *compile_main(void *arg) {
    struct compile_job *job = static_cast<compile_job *>(arg);
    budget b = {(int64_t)std::min<uint64_t>(job->limits->bytes, INT64_MAX),
                job->limits->ms * STEPS_PER_MS,
                job->limits->ms * UINT64_C(1000000),
                (uintptr_t)__builtin_frame_address(0) - STACK_GUARDED,
                0,
                0,
                0,
                cohort::spent::nothing};
    job->result = compile_within(job, &b);
    if (job->result == 0) job->out->memory = b;
    return nullptr;
}

static int compile_on_thread(struct compile_job *job) {
    pthread_attr_t attributes;
    pthread_t thread;
    if (pthread_attr_init(&attributes)) return err_set(job->err, COHORT_E_MEMORY, "grammar", "no memory for a thread");
    int failed =
        pthread_attr_setstacksize(&attributes, STACK_BYTES) || pthread_create(&thread, &attributes, compile_main, job);
    pthread_attr_destroy(&attributes);
    if (failed) return err_set(job->err, COHORT_E_MEMORY, "grammar", "no thread to compile it");
    pthread_join(thread, nullptr);
    return job->result;
}

int grammar_compile(const struct grammar_vocab *v, const cohort_grammar_source *source,
                    const struct grammar_limits *limits, struct grammar **out, cohort_error *err) {
    *out = nullptr;
    struct grammar_source checked;
    int rc = grammar_source_check(source, v, &checked, err);
    if (rc) return rc;
    struct compile_job job = {v, &checked, limits, nullptr, err, 0};
    rc = compile_on_thread(&job);
    grammar_source_free(&checked);
    *out = job.out;
    return rc;
}

void grammar_free(struct grammar *g) {
    if (!g) return;
    budget b = g->memory;
    budget_scope scope(&b);
    delete g;
}

uint64_t grammar_bytes(const struct grammar *g) { return g->memory.held > 0 ? (uint64_t)g->memory.held : 0; }

/* ---- The state of an answer ---- */

struct grammar_state {
    xgrammar::GrammarMatcher matcher;
    const struct grammar_vocab *vocab;
    budget memory;
    int broken; /* the code of what ended it; 0: none did */
};

static const budget state_budget = {STATE_BYTES, STATE_STEPS, STATE_NS, 0, 0, 0, 0, cohort::spent::nothing};

/* Calls `work` within the state's budget. What it throws ends the state: it may have been half done. */
template <typename F> static int with_state(struct grammar_state *s, F work) {
    if (s->broken) return s->broken;
    int rc;
    budget_scope scope(&s->memory);
    try {
        rc = work();
    } catch (const std::bad_alloc &) {
        rc = COHORT_E_MEMORY;
        s->broken = rc;
    } catch (...) {
        rc = COHORT_E_INTERNAL;
        s->broken = rc;
    }
    if (s->memory.what != cohort::spent::nothing)
        rc = s->broken = s->memory.what == cohort::spent::memory ? COHORT_E_MEMORY : COHORT_E_LIMIT;
    return rc;
}

int grammar_state_make(const struct grammar *g, struct grammar_state **out) {
    *out = nullptr;
    budget b = state_budget;
    struct grammar_state *s = nullptr;
    budget_scope scope(&b);
    try {
        s = new grammar_state{xgrammar::GrammarMatcher(g->compiled), g->vocab, {}, 0};
    } catch (...) {
        return b.what == cohort::spent::nothing || b.what == cohort::spent::memory ? COHORT_E_MEMORY : COHORT_E_LIMIT;
    }
    s->memory = b;
    *out = s;
    return 0;
}

void grammar_state_free(struct grammar_state *s) {
    if (!s) return;
    budget b = s->memory;
    budget_scope scope(&b);
    delete s;
}

static bool is_end(const struct grammar_vocab *v, int32_t token) {
    return std::binary_search(v->ends.begin(), v->ends.end(), token);
}

int grammar_state_mask(struct grammar_state *s, uint32_t *words) {
    uint32_t n = s->vocab->n, words_n = (n + 31) / 32;
    return with_state(s, [&] {
        if (s->matcher.IsTerminated()) { /* behind an end token only another one can come */
            memset(words, 0, words_n * sizeof *words);
            for (int32_t end : s->vocab->ends) words[end / 32] |= UINT32_C(1) << end % 32;
            return 1;
        }
        int64_t shape = words_n;
        DLTensor tensor = as_tensor(words, &shape);
        bool some = s->matcher.FillNextTokenBitmask(&tensor);
        if (!some) memset(words, 0xff, words_n * sizeof *words);
        return some ? 1 : 0;
    });
}

int grammar_state_accept(struct grammar_state *s, int32_t token) {
    if (token < 0 || (uint32_t)token >= s->vocab->n) return s->broken ? s->broken : COHORT_E_ARGUMENT;
    return with_state(s, [&] {
        if (s->matcher.IsTerminated()) return is_end(s->vocab, token) ? 0 : COHORT_E_ARGUMENT;
        return s->matcher.AcceptToken(token) ? 0 : COHORT_E_ARGUMENT;
    });
}

int grammar_state_complete(const struct grammar_state *s) { return !s->broken && s->matcher.IsCompleted(); }

size_t grammar_state_forced(struct grammar_state *s, char *out, size_t capacity) {
    size_t n = 0;
    int rc = with_state(s, [&] {
        if (s->matcher.IsTerminated()) return 0;
        std::string text = s->matcher.FindJumpForwardString();
        n = std::min(text.size(), capacity);
        memcpy(out, text.data(), n);
        return 0;
    });
    return rc ? 0 : n;
}
