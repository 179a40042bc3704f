/* cohort: many LLM requests in one running batch, each with the bytes it would have got alone.
 *
 * The one public header; C11 and C++ callable. Everything is reached through opaque handles.
 *
 * Conventions
 *   - Functions that can fail return COHORT_OK (0) or a negative COHORT_E_... code and, where they take a
 *     `cohort_error *err` (may be NULL), put the code, the offending field and one line of text there.
 *   - "Copied" means that the caller may free or change the argument as soon as the call returns.
 *   - Unless a function says otherwise it may be called from any thread, also at the same time as others on the
 *     same handle. A handle is closed by one thread, after every other use of it has ended.
 *   - Options structs are filled by their `_defaults` function first; `size` lets them grow.
 *   - Strings have lengths. They may contain NUL. Text out is raw bytes, and whole UTF-8 characters where the model
 *     produced whole characters.
 */
#ifndef COHORT_COHORT_H
#define COHORT_COHORT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COHORT_VERSION "0.1.0"

#if defined(__GNUC__)
#define COHORT_API __attribute__((visibility("default")))
#else
#define COHORT_API
#endif

/* ---- Errors: name, number, text. The one list. ---- */
#define COHORT_ERROR_LIST(X)                                                                                           \
    X(OK, 0, "ok")                                                                                                     \
    X(E_MEMORY, -1, "out of memory")                                                                                   \
    X(E_IO, -2, "input or output failed")                                                                              \
    X(E_FILE, -3, "bad model file")                                                                                    \
    X(E_UNSUPPORTED, -4, "not supported")                                                                              \
    X(E_ARGUMENT, -5, "bad argument")                                                                                  \
    X(E_CONTEXT, -6, "prompt longer than the context")                                                                 \
    X(E_CAPACITY, -7, "request can never fit the state budget")                                                        \
    X(E_BUSY, -8, "waiting line is full")                                                                              \
    X(E_CLOSED, -9, "engine is closing")                                                                               \
    X(E_CANCELLED, -10, "cancelled")                                                                                   \
    X(E_NUMERIC, -11, "model produced no finite logits")                                                               \
    X(E_NOT_FOUND, -12, "not found")                                                                                   \
    X(E_AGAIN, -13, "nothing yet, ask again")                                                                          \
    X(E_LIMIT, -14, "a stated limit was exceeded")                                                                     \
    X(E_INTERNAL, -15, "internal error")                                                                               \
    X(E_TIMEOUT, -16, "the request's time is over")

enum {
#define COHORT_ERROR_ENUM(name, number, text) COHORT_##name = (number),
    COHORT_ERROR_LIST(COHORT_ERROR_ENUM)
#undef COHORT_ERROR_ENUM
};

typedef struct cohort_error {
    int code;
    char field[48];          /* the request or file field at fault, "" if none */
    char text[460];          /* one line, valid UTF-8, no newline */
    uint32_t retry_after_ms; /* E_BUSY: when it may be worth to ask again, by the measured rate; 0: not known */
} cohort_error;

/* The list's name ("E_BUSY") and text of a code; never NULL. */
COHORT_API const char *cohort_error_name(int code);
COHORT_API const char *cohort_error_text(int code);

/* ---- Model: a file, its tokenizer, its packed weights ---- */
typedef struct cohort_model cohort_model;
typedef struct cohort_engine cohort_engine;

typedef void (*cohort_progress_fn)(void *user, const char *stage, double fraction); /* 0..1, from the calling thread */

typedef struct cohort_model_options {
    size_t size;
    const char *cpu;              /* "ref", "avx2", "avxvnni", "avx512", "neon"; NULL: the best this machine runs */
    int threads;                  /* compute threads; 0: what affinity and cgroup quota allow */
    int vocab_only;               /* tokenizer and metadata only: an engine cannot be opened on it */
    const char *chat_template;    /* copied; or a built-in one's name; instead of the file's own; NULL: that, or a
                                     built-in one */
    uint32_t grammar_ms;          /* limits of compiling: processor time, */
    uint64_t grammar_bytes;       /* and memory; */
    uint64_t grammar_cache_bytes; /* and of what is kept */
    cohort_progress_fn progress;  /* of the packing; both must live as long as the model */
    void *progress_user;
} cohort_model_options;

COHORT_API void cohort_model_options_defaults(cohort_model_options *options);
/* Opens and checks a GGUF file (its first shard). Its weights are packed when an engine is opened. `path` is copied.
 * *out is NULL on failure. */
COHORT_API int cohort_model_open(const char *path, const cohort_model_options *options, cohort_model **out,
                                 cohort_error *err);
/* Every engine on the model must be closed before. NULL is allowed. */
COHORT_API void cohort_model_close(cohort_model *model);

/* What a request for an embedding gets: of the last layer's normed output at each position, in fp32, */
typedef enum cohort_pooling {
    COHORT_POOLING_NONE, /* (no embedding) */
    COHORT_POOLING_MEAN, /* the mean over all positions, */
    COHORT_POOLING_CLS,  /* the first position's, */
    COHORT_POOLING_LAST  /* or the last one's */
} cohort_pooling;

typedef struct cohort_model_info {
    const char *architecture; /* strings live as long as the model */
    const char *name;
    const char *cpu; /* level in use */
    int threads;
    int numerics_version;
    uint64_t parameters;
    uint64_t file_bytes;
    uint64_t packed_bytes; /* 0 while no engine is open */
    uint32_t vocab_size;
    uint32_t context_trained;
    uint32_t layers;
    uint32_t embedding_width;
    int32_t bos, eos;       /* -1: none */
    cohort_pooling pooling; /* the file's own kind; NONE: it names none */
    int add_bos;            /* plain text prompts get the begin token in front */
    /* Markers for filling in between a prefix and a suffix, and between files; -1: none. */
    int32_t fim_prefix, fim_suffix, fim_middle, fim_pad, fim_repository, fim_file;
    const char *chat_template; /* what chats are rendered by: the file's own, or a built-in one for its markers */
    int chat_template_built_in;
    const char *chat_error;         /* why it is of no use; "": it is. Chats are E_UNSUPPORTED then */
    const char *chat_format;        /* name of the description that answers of this template are read by */
    int chat_tools, chat_reasoning; /* the template itself tells of tools; its answers may hold reasoning */
} cohort_model_info;

COHORT_API void cohort_model_get_info(const cohort_model *model, cohort_model_info *out);

/* Writes a report of the file (metadata and tensors) into a malloc'ed NUL-terminated *out: text, or JSON if `json`. The
 * caller frees it with cohort_free. Reads headers only: no packing. */
COHORT_API int cohort_inspect(const char *path, int json, char **out, size_t *out_len, cohort_error *err);
COHORT_API void cohort_free(void *memory);

enum {
    COHORT_TOKENIZE_SPECIAL = 1, /* read special tokens' text in the input as those tokens; else as plain text */
    COHORT_TOKENIZE_BOS = 2      /* put the begin token in front if the vocabulary wants one */
};
/* Encodes `len` bytes of text (invalid UTF-8 is an E_ARGUMENT). *out: array of *n ids, freed with cohort_free. */
COHORT_API int cohort_tokenize(const cohort_model *model, const char *text, size_t len, int flags, int32_t **out,
                               size_t *n, cohort_error *err);
/* Joined bytes of ids; special tokens give nothing unless `special`. *out freed with cohort_free (NUL added). */
COHORT_API int cohort_detokenize(const cohort_model *model, const int32_t *ids, size_t n, int special, char **out,
                                 size_t *len, cohort_error *err);
/* One token's own bytes, in the model's memory. E_ARGUMENT for an id outside the vocabulary. */
COHORT_API int cohort_token_piece(const cohort_model *model, int32_t id, const char **bytes, size_t *len);
/* ---- Constrained output: a grammar that an answer must follow ---- */
typedef enum cohort_grammar_kind {
    COHORT_GRAMMAR_NONE,
    COHORT_GRAMMAR_JSON,        /* any JSON object; no text */
    COHORT_GRAMMAR_JSON_SCHEMA, /* a JSON schema */
    COHORT_GRAMMAR_REGEX,       /* the whole answer matches it */
    COHORT_GRAMMAR_EBNF,        /* GBNF's notation; begins with the rule "root" */
    COHORT_GRAMMAR_TAGS /* a structural tag (docs/GRAMMARS.md): text, tags, schemas, tokens in sequence or choice */
} cohort_grammar_kind;
enum {
    COHORT_GRAMMAR_BYTES_MAX = 1 << 20,        /* of its text */
    COHORT_GRAMMAR_MS_DEFAULT = 700,           /* processor time to compile one */
    COHORT_GRAMMAR_MEMORY_DEFAULT = 256 << 20, /* bytes that one may take, compiled or meanwhile */
    COHORT_GRAMMAR_CACHE_DEFAULT = 512 << 20,  /* bytes of compiled ones that are kept for the next request */
    COHORT_GRAMMAR_SPACE_MAX = 64
};
typedef struct cohort_grammar_source {
    cohort_grammar_kind kind;
    const char *text;
    size_t len;
    int32_t space; /* white space in JSON: 0: as it is usually written (", " and ": "); n: up to so many characters
                      wherever JSON allows some. At most COHORT_GRAMMAR_SPACE_MAX */
} cohort_grammar_source;
/* Compiled for a model's vocabulary. Immutable, counted: it lives while its maker, a request or the model's cache has
 * it, and must be let go of before the model is closed. */
typedef struct cohort_grammar cohort_grammar;
/* Compiles, or finds it among those compiled before. Takes up to the model's limits of time and memory: not for a
 * thread that must not wait. E_ARGUMENT: the grammar is not one, with the reason, field "grammar"; E_LIMIT: too large;
 * E_UNSUPPORTED: something in it that cannot be held. Never a grammar that holds less than what was asked for. */
COHORT_API int cohort_grammar_compile(const cohort_model *model, const cohort_grammar_source *source,
                                      cohort_grammar **out, cohort_error *err);
/* The same if the text is remembered, compiled or refused; else E_NOT_FOUND. Never waits. */
COHORT_API int cohort_grammar_find(const cohort_model *model, const cohort_grammar_source *source, cohort_grammar **out,
                                   cohort_error *err);
COHORT_API void cohort_grammar_release(cohort_grammar *grammar); /* NULL is allowed */

/* ---- Chats: messages to ids, and answers to text, reasoning and calls ---- */
enum cohort_role { COHORT_ROLE_SYSTEM, COHORT_ROLE_USER, COHORT_ROLE_ASSISTANT, COHORT_ROLE_TOOL };
/* Where a message's turn ends: `end` of the ids lie wholly before that. A chat that begins with the same messages has
 * the same ids up to there, but for the rare word that the two sides of an end make together. */
typedef struct cohort_turn {
    int role;
    uint32_t end;
} cohort_turn;

typedef enum cohort_tool_choice {
    COHORT_TOOLS_AUTO,     /* text, or calls */
    COHORT_TOOLS_NONE,     /* no calls */
    COHORT_TOOLS_REQUIRED, /* one call at least */
    COHORT_TOOLS_NAMED     /* a call of the tool `tool_name` */
} cohort_tool_choice;
typedef enum cohort_reasoning { COHORT_REASONING_DEFAULT, COHORT_REASONING_OFF, COHORT_REASONING_ON } cohort_reasoning;
enum { COHORT_CHAT_CONTINUE = 2, COHORT_CHAT_TOOLS_MAX = 512 };

/* All JSON is in the shapes of the OpenAI API, and checked. */
typedef struct cohort_chat {
    size_t size;
    const char *messages; /* array of {"role","content",...}; an assistant's may have "tool_calls" and
                             "reasoning_content", a tool's has "tool_call_id" */
    size_t messages_n;
    const char *tools; /* array of {"type":"function","function":{...}}; NULL: none */
    size_t tools_n;
    const char *variables; /* object: more of the template's variables; NULL: none */
    size_t variables_n;
    const char *chat_template; /* instead of the model's own; NULL: the model's */
    size_t chat_template_n;
    int ending;    /* 0: behind the last turn; 1: the assistant's turn is opened; COHORT_CHAT_CONTINUE: the last message
                      is an assistant's, and its turn stays open behind it, with the white space that it ends with */
    int64_t now_s; /* Unix time that templates are told; part of the request */
    cohort_reasoning reasoning;
    const char *effort; /* "low", "medium", "high", ...; NULL: the template's own */
    cohort_tool_choice tool_choice;
    const char *tool_name;           /* NAMED */
    const char **tool_names_allowed; /* only these may be called; NULL: all */
    size_t tool_names_allowed_n;
    int parallel_calls;           /* 1: more than one call may come */
    int strict;                   /* 1: arguments follow their schemas also where a tool does not say "strict" */
    cohort_grammar_source answer; /* what the text of the answer must follow; kind NONE: anything */
} cohort_chat;
COHORT_API void cohort_chat_defaults(cohort_chat *chat); /* ending 1, parallel_calls 1, strict 1 */

/* A rendered chat: its ids, and how its answer is to be read. Owned by who rendered it; immutable. */
typedef struct cohort_prompt cohort_prompt;
typedef struct cohort_prompt_info { /* all of it lives as long as the prompt */
    const int32_t *ids;
    size_t n;
    const cohort_turn *turns; /* one for each message, no end before the last one's: places for snapshot_at */
    size_t turns_n;
    const char *text; /* as the template wrote it, markers and all */
    size_t text_n;
    cohort_grammar_source grammar; /* what the whole answer must follow, markers and reasoning, too: to be compiled.
                                      Kind NONE: nothing */
    int reads; /* 1: answers may hold markers: the request needs `show_special` and a reader. 0: they are plain text */
    int reasons;                  /* 1: the answer begins within reasoning, or may begin with it */
    const int32_t *reasoning_end; /* the ids that close reasoning: for the request's budget; NULL: it has none */
    size_t reasoning_end_n;
    const int32_t *reasoning_begin; /* and those that open it; NULL: the prompt has opened it */
    size_t reasoning_begin_n;
    const char *format; /* name of the description that answers are read by; "": plain text */
} cohort_prompt_info;
/* Renders with the model's template: its markers mean tokens; what messages, tools and variables bring is plain text,
 * whatever it spells. Errors are E_ARGUMENT (or E_UNSUPPORTED, E_LIMIT) with the field ("messages[2].role", "tools[0]")
 * and, when the template refuses, its own words. */
COHORT_API int cohort_prompt_render(const cohort_model *model, const cohort_chat *chat, cohort_prompt **out,
                                    cohort_error *err);
COHORT_API void cohort_prompt_get(const cohort_prompt *prompt, cohort_prompt_info *out);
COHORT_API void cohort_prompt_free(cohort_prompt *prompt); /* NULL is allowed */

/* Reads an answer, piece by piece. The parts are the same however the text is cut into pieces, and so are their joined
 * bytes. Independent of the prompt once opened; one thread at a time. */
typedef struct cohort_reader cohort_reader;
typedef enum cohort_part_type {
    COHORT_PART_TEXT = 1,  /* bytes of the answer's text */
    COHORT_PART_REASONING, /* bytes of its reasoning */
    COHORT_PART_CALL,      /* a call begins: bytes are the tool's whole name; `call` counts from 0 */
    COHORT_PART_ARGUMENTS, /* bytes of call `call`'s arguments: joined they are one JSON object */
    COHORT_PART_CALL_END   /* the call is whole. A call without it was cut off */
} cohort_part_type;
typedef struct cohort_part {
    cohort_part_type type;
    uint32_t call;
    const char *bytes; /* until the next call with this reader */
    size_t len;
} cohort_part;
COHORT_API int cohort_reader_open(const cohort_prompt *prompt, cohort_reader **out, cohort_error *err);
/* Takes the next piece, as TOKEN and FINISH events bring it; `last`: there is no more, and what was held back to see
 * whether it is a marker comes out as what it is. Then cohort_reader_next until E_AGAIN. */
COHORT_API int cohort_reader_feed(cohort_reader *reader, const char *text, size_t len, int last, cohort_error *err);
COHORT_API int cohort_reader_next(cohort_reader *reader, cohort_part *out);
COHORT_API void cohort_reader_close(cohort_reader *reader); /* NULL is allowed */

/* ---- Engine: one running batch ---- */

/* Whose requests they are: an API key, a team. Tenants share the rows and the tokens by weight when there are not
 * enough for all; docs/SCHEDULER.md states for how long one can keep another waiting. */
enum {
    COHORT_TENANTS_MAX = 1024,
    COHORT_TENANT_NAME_MAX = 63,
    COHORT_WEIGHT_MAX = 1000,
    COHORT_TOKENS_PER_MINUTE_MAX = 1000000000,
    COHORT_PRIORITY_MAX = 100 /* and -100 at least */
};
typedef struct cohort_tenant {
    const char *name;           /* copied; 1 to COHORT_TENANT_NAME_MAX bytes of [A-Za-z0-9._-], unique */
    uint32_t weight;            /* 1 .. COHORT_WEIGHT_MAX: its share of tokens beside the others' weights */
    uint32_t rows;              /* rows that run together at most; 0: no limit of its own */
    uint32_t queue;             /* places (waiting, or running) at most; 0: no limit of its own */
    uint64_t tokens_per_minute; /* prompt and generated tokens, at most COHORT_TOKENS_PER_MINUTE_MAX; 0: no limit. A
                                   minute's worth may come at once; what goes beyond it is waited for afterwards */
} cohort_tenant;

/* How keys and values are kept: half precision, or codes of 8 or 4 bits with a scale for every 32 of them
 * (docs/NUMERICS.md, State). Answers depend on it. */
typedef enum cohort_state_form { COHORT_FORM_F16, COHORT_FORM_Q8_0, COHORT_FORM_Q4_0 } cohort_state_form;
typedef struct cohort_layer_forms { /* the exception for layers first .. last */
    uint32_t first, last;
    cohort_state_form key, value;
} cohort_layer_forms;
enum { COHORT_LAYER_FORMS_MAX = 64 };

typedef struct cohort_engine_options {
    size_t size;
    uint32_t context;       /* tokens of prompt + answer a request may have; 0: trained context, at most 32768 */
    uint32_t rows;          /* rows that run together */
    uint32_t queue;         /* waiting line behind them */
    uint32_t batch_tokens;  /* token budget of an iteration; raised to `rows` if below */
    uint64_t kv_tokens;     /* state budget in tokens over all rows; 0: from kv_bytes, or else `rows` times the pages
                               that `context` takes, capped at half of the memory */
    uint64_t kv_bytes;      /* state budget in bytes; 0: see kv_tokens */
    int pipeline;           /* 1: next iteration launched before the last is delivered; output is the same either way */
    uint32_t ring_bytes;    /* undelivered output a request may hold before it is paused */
    uint32_t itl_target_ms; /* time between tokens that reading prompts may stretch an iteration to; 0: by the ratio */
    uint32_t itl_ratio_percent;   /* the same, in percent of an iteration without prompts: 110 .. 10000 */
    const cohort_tenant *tenants; /* copied; NULL: one, "default", without limits */
    size_t tenants_n;             /* at most COHORT_TENANTS_MAX */
    const char *trace_path;       /* copied; a file in Chrome's trace format gets spans of everything; NULL: none */
    int cache;                    /* 1: prefixes that were read are kept and shared; output is the same either way */
    uint32_t snapshot_stride; /* windowed layers: beside the ends of prompts, turns and answers, a place to go on every
                                 so many tokens; 0: none */
    const char *state_dir;    /* copied; a folder in which state survives the engine; NULL: none */
    uint64_t state_dir_bytes; /* its size at most */
    cohort_state_form key_form, value_form; /* of every layer; q4_0 only where no window bounds the state, else q8_0 */
    const cohort_layer_forms *layer_forms;  /* exceptions, as they are; copied; a later one goes before an earlier */
    size_t layer_forms_n;                   /* at most COHORT_LAYER_FORMS_MAX */
    uint32_t quantise_after;                /* positions below it are f16 everywhere; raised to a multiple of 32 */
} cohort_engine_options;

COHORT_API void cohort_engine_options_defaults(cohort_engine_options *options);
/* What an engine of these options would take of memory, as text, or JSON if `json`: state by kind of layer, weights,
 * working memory, and what this process may use. Packs nothing and takes no state; the model must have no engine open.
 * *out freed with cohort_free. */
COHORT_API int cohort_plan(cohort_model *model, const cohort_engine_options *options, int json, char **out,
                           size_t *out_len, cohort_error *err);
/* Packs the weights for this engine, takes the state's memory and starts the thread. A model has one engine at a time
 * (E_UNSUPPORTED). `options` NULL: the defaults. E_UNSUPPORTED names a tensor type that is not implemented. */
COHORT_API int cohort_engine_open(cohort_model *model, const cohort_engine_options *options, cohort_engine **out,
                                  cohort_error *err);
/* Refuses new work; requests and tasks that are there go on. (Under a hold, waiting requests stay in line: let go of it
 * to let them end.) Returns at once. */
COHORT_API void cohort_engine_drain(cohort_engine *engine);
/* 1 once no request and no task waits or runs. */
COHORT_API int cohort_engine_idle(const cohort_engine *engine);
/* Drains for at most `grace_ms`, cancels what is left, joins the thread and frees the handle. NULL is allowed. */
COHORT_API void cohort_engine_close(cohort_engine *engine, uint32_t grace_ms);
/* The effective options: what 0 and the raised budget became. Lists in them live as long as the engine. */
COHORT_API void cohort_engine_get_options(const cohort_engine *engine, cohort_engine_options *out);

/* From logits to a token: docs/SAMPLING.md has every formula. Biases, allowed and banned ids act first, then these in
 * their order, of which each may be left out (that one is off then) and none may come twice. The draw is last.
 * Mirostat, if it is on, acts behind them in the place of all filters between DRY and the temperature. */
typedef enum cohort_sampler {
    COHORT_SAMPLER_PENALTIES = 1, /* repetition, frequency, presence */
    COHORT_SAMPLER_DRY,
    COHORT_SAMPLER_TOP_N_SIGMA,
    COHORT_SAMPLER_TOP_K,
    COHORT_SAMPLER_TYPICAL,
    COHORT_SAMPLER_TOP_P,
    COHORT_SAMPLER_MIN_P,
    COHORT_SAMPLER_XTC,
    COHORT_SAMPLER_TEMPERATURE
} cohort_sampler;
enum { COHORT_SAMPLERS = 9, COHORT_SAMPLER_WINDOW_MAX = 1 << 20 };

typedef struct cohort_sampling {
    float temperature;           /* 0: greedy. 0..100 */
    float temperature_range;     /* 0: off. 0..100: the temperature follows the entropy, within range on either side */
    float temperature_exponent;  /* of that; 0..100 */
    int32_t top_k;               /* 0: off */
    float top_p;                 /* 1: off. 0..1 */
    float min_p;                 /* 0: off. 0..1 */
    float typical_p;             /* 1: off. 0..1 */
    float top_n_sigma;           /* 0: off. 0..1000 */
    float xtc_probability;       /* 0: off. 0..1 */
    float xtc_threshold;         /* 0..1; above 0.5: off */
    uint32_t min_keep;           /* filters leave at least so many candidates; 0: one */
    float repetition_penalty;    /* 1: off. Above 0, to 100: each distinct id of the window once, prompt and answer */
    int32_t repetition_window;   /* so many tokens back; 0: off, -1: all */
    float frequency_penalty;     /* 0: off. -100..100: for each time that the id is in the window, answer only */
    float presence_penalty;      /* 0: off. -100..100: if it is there at all */
    int32_t answer_window;       /* of these two: so many tokens back; 0: off, -1: all */
    float dry_multiplier;        /* 0: off. 0..100 */
    float dry_base;              /* 1..100 */
    uint32_t dry_allowed_length; /* repeats of up to so many tokens go free; at least 1 */
    int32_t dry_window;          /* so many tokens back; 0: off, -1: all */
    int32_t mirostat;            /* 0: off; 1, 2: its versions */
    float mirostat_tau, mirostat_eta; /* 0..100; 0..1 */
    uint8_t order[COHORT_SAMPLERS];   /* of cohort_sampler */
    uint32_t order_n;                 /* 0: the order of the enum, all of them */
    uint64_t seed;                    /* used if has_seed; else drawn fresh and reported in the finish event */
    int has_seed;
    uint32_t choice; /* own random stream under the same seed: the index among a request's choices */
} cohort_sampling;

typedef struct cohort_span {
    const char *bytes;
    size_t len;
} cohort_span;

enum {
    COHORT_STOPS_MAX = 16,
    COHORT_STOP_BYTES_MAX = 256,
    COHORT_STOP_IDS_MAX = 64,
    COHORT_TOP_LOGPROBS_MAX = 20,
    COHORT_SNAPSHOTS_MAX = 8,
    COHORT_CACHE_SALT_MAX = 256,
    COHORT_SESSION_NAME_MAX = 128,
    COHORT_BIASES_MAX = 4096,
    COHORT_ALLOWED_IDS_MAX = 65536,
    COHORT_BANNED_MAX = 256,     /* sequences, */
    COHORT_BANNED_IDS_MAX = 64,  /* of so many ids each */
    COHORT_DRY_BREAKERS_MAX = 32 /* of COHORT_STOP_BYTES_MAX bytes each */
};

typedef struct cohort_bias {
    int32_t id;
    float bias; /* added to the logit: -100 .. 100, or minus infinity: never this one */
} cohort_bias;

typedef struct cohort_ids {
    const int32_t *ids;
    size_t n;
} cohort_ids;

typedef struct cohort_logprob {
    int32_t id;
    float logprob;
} cohort_logprob;

/* A token that a request was given before, as its TOKEN event told it. */
typedef struct cohort_saved_token {
    int32_t token;
    float logprob;
    float sampler_state;
    uint32_t top_n;
    const cohort_logprob *top;
} cohort_saved_token;

typedef struct cohort_request {
    size_t size;
    const int32_t *prompt; /* copied; at least one id, each inside the vocabulary */
    size_t prompt_n;
    uint32_t max_tokens; /* 0 only together with prompt_logprobs or pooling; UINT32_MAX: as many as the context
                            and the state budget have room for */
    cohort_sampling sampling;
    const cohort_span *stops; /* copied; at most COHORT_STOPS_MAX, none empty */
    size_t stops_n;
    const int32_t *stop_ids; /* copied; end the row like the end token does */
    size_t stop_ids_n;
    /* What the answer must follow; taken hold of by the request. Where it leaves only one text, that comes without
     * being drawn; when it is at its end the row ends with STOP. */
    const cohort_grammar *grammar;
    /* Reasoning: if these ids have not come among the first `reasoning_budget` tokens, they come there: once it is
     * open. */
    const int32_t *reasoning_end; /* copied; at most COHORT_STOP_IDS_MAX; NULL: no budget */
    size_t reasoning_end_n;
    const int32_t *reasoning_begin; /* copied, as many: it opens behind these; NULL: it is open from the beginning */
    size_t reasoning_begin_n;
    uint32_t reasoning_budget;
    int show_special; /* 1: the text of control tokens is part of the answer's text */
    int ignore_eos;
    int include_stop;    /* 1: the stop string that ended it is part of the text */
    uint32_t min_tokens; /* before so many neither end tokens nor stop ids are drawn, and no stop string ends it */
    const cohort_bias *biases; /* copied; an id only once */
    size_t biases_n;
    const int32_t *allowed_ids; /* copied; only these can be drawn; NULL: all. An id only once */
    size_t allowed_ids_n;
    const cohort_ids *banned; /* copied; none of these sequences is ever completed */
    size_t banned_n;
    const cohort_span *dry_breakers; /* copied; a repeat does not reach over these texts */
    size_t dry_breakers_n;
    cohort_pooling pooling; /* an embedding instead of an answer, which ends with STOP: max_tokens is 0 then, and
                               neither prompt_logprobs nor resume is possible */
    int post_sampling;      /* 1: log-probabilities are those of what the samplers left, not of the whole row at
                               temperature 1 */
    int logprobs;           /* -1: none; 0: the chosen token's; n: and the n best's, at most COHORT_TOP_LOGPROBS_MAX */
    int prompt_logprobs;    /* 1: a COHORT_EVENT_PROMPT event for each prompt position */
    int32_t priority;       /* among the tenant's own requests: lower goes first; -100 .. 100 */
    uint32_t chunk_max;     /* prompt tokens that one iteration may take of it; 0: as many as fit */
    const uint32_t *snapshot_at; /* copied; ascending positions inside the prompt at which a chunk ends exactly */
    size_t snapshot_at_n;        /* at most COHORT_SNAPSHOTS_MAX */
    uint32_t timeout_ms;         /* since submit: after it the request fails with E_TIMEOUT; 0: never */
    uint32_t max_predict_ms;     /* since the first token, and only behind a newline: ends with LENGTH; 0: never */
    /* The prefix store. Tenants never share; a salt keeps a request apart from the tenant's others, too. */
    int cache_prompt;       /* 0: takes nothing from the store and leaves nothing there */
    const char *cache_salt; /* copied; at most COHORT_CACHE_SALT_MAX bytes; NULL: none */
    size_t cache_salt_n;
    const char *session; /* copied; 1 to COHORT_SESSION_NAME_MAX bytes: a conversation whose state is kept longer, and
                            can be saved and restored by this name; NULL: none */
    size_t session_n;
    /* A continuation: the tokens that this very request was given before, in another process, say. They come again as
     * TOKEN events, with their text, and then it goes on: all of it equals an uninterrupted run. If they cannot have
     * come from this request (a stop within, too many) it fails with E_ARGUMENT, "resume". Not with prompt_logprobs. */
    const cohort_saved_token *resume; /* copied */
    size_t resume_n;
    uint8_t trace_id[16]; /* W3C trace context of the caller, for spans; all 0: none */
    uint8_t trace_parent[8];
    void *user; /* handed back in events, never read */
} cohort_request;

COHORT_API void cohort_request_defaults(cohort_request *request);

typedef uint64_t cohort_ticket; /* a reserved place in the line; 0 is none */
typedef uint64_t cohort_id;     /* a submitted request; 0 is none; never reused */

/* Takes a place in the line, before any work is done for the request: E_BUSY (with retry_after_ms) when the line or one
 * of the tenant's limits is full, E_CLOSED. `tenant`: index into the options' tenants. */
COHORT_API int cohort_reserve_for(cohort_engine *engine, uint32_t tenant, cohort_ticket *out, cohort_error *err);
/* The same for tenant 0. */
COHORT_API int cohort_reserve(cohort_engine *engine, cohort_ticket *out, cohort_error *err);
/* What length alone says of a prompt of `bytes` bytes of text before it is tokenised: E_CONTEXT or E_CAPACITY if not
 * even the fewest tokens that it can be fit beside `max_tokens` new ones (UINT32_MAX: beside one). */
COHORT_API int cohort_check_length(const cohort_engine *engine, size_t bytes, uint32_t max_tokens, cohort_error *err);
/* Gives an unused place back. */
COHORT_API void cohort_unreserve(cohort_engine *engine, cohort_ticket ticket);
/* Submits with a place (which is used up, also on failure). Errors: E_ARGUMENT with the field's name, E_CONTEXT and
 * E_CAPACITY with both numbers, E_CLOSED. After success exactly one COHORT_EVENT_FINISH follows for *out. */
COHORT_API int cohort_submit(cohort_engine *engine, cohort_ticket ticket, const cohort_request *request, cohort_id *out,
                             cohort_error *err);
/* Ends a request at the next iteration boundary; a finish event still comes. Unknown or ended ids are ignored. */
COHORT_API void cohort_cancel(cohort_engine *engine, cohort_id id);
/* Forgets a request: its handle is freed as soon as it has ended (it is cancelled first if it has not). Every submitted
 * id is dropped exactly once by its owner. */
COHORT_API void cohort_drop(cohort_engine *engine, cohort_id id);

typedef enum cohort_event_type {
    COHORT_EVENT_TOKEN = 1, /* one generated token, with the text that became certain with it (may be empty) */
    COHORT_EVENT_PROMPT,    /* what the model says of one prompt position */
    COHORT_EVENT_EMBEDDING, /* all of it, once */
    COHORT_EVENT_FINISH     /* the last one */
} cohort_event_type;

typedef enum cohort_finish {
    COHORT_FINISH_STOP = 1,
    COHORT_FINISH_LENGTH,
    COHORT_FINISH_CANCELLED,
    COHORT_FINISH_ERROR
} cohort_finish;

typedef struct cohort_stats {
    uint32_t prompt_tokens;
    uint32_t cached_tokens;
    uint32_t generated_tokens; /* the end token counts */
    uint32_t forced_tokens;    /* of these: filled in, not drawn */
    uint32_t reasoning_tokens; /* of reasoning_begin .. reasoning_end, if the request has them */
    uint64_t queue_us, prefill_us, decode_us, first_token_us; /* first_token_us: since submit */
    uint64_t seed;                                            /* the one used */
    uint32_t preemptions;                                     /* times that its state was given up and read again */
    uint32_t redone_tokens;                                   /* positions read again because of that */
} cohort_stats;

typedef struct cohort_event {
    cohort_event_type type;
    cohort_id id;
    void *user;
    int32_t token;    /* TOKEN: the id. PROMPT: the most likely next id */
    uint32_t index;   /* TOKEN: 0-based count of generated tokens. PROMPT: position */
    const char *text; /* TOKEN, FINISH (text that was held back): bytes valid until the next call for this id */
    size_t text_len;
    float logprob; /* TOKEN: of `token`, NAN unless asked for. PROMPT: of the prompt's next id (NAN at the last).
                      FINISH: of `stop_token` */
    const cohort_logprob *top; /* as `text`; best first, ties by lower id */
    uint32_t top_n;
    float sampler_state;    /* TOKEN: what a continuation needs to go on behind it */
    const float *embedding; /* EMBEDDING: valid as `text` */
    uint32_t embedding_n;
    cohort_finish finish; /* FINISH */
    int error;            /* FINISH: code if finish is ERROR or CANCELLED */
    const char *error_text;
    int32_t stop_token; /* FINISH with STOP: the id that ended it, or -1 for a stop string */
    int32_t stop_index; /* FINISH with STOP by a string: which one, else -1 */
    cohort_stats stats; /* FINISH */
} cohort_event;

/* Takes the next event of a request: COHORT_OK, E_AGAIN if there is none yet, E_NOT_FOUND if the id is unknown or its
 * finish event was taken. One thread per id. */
COHORT_API int cohort_next(cohort_engine *engine, cohort_id id, cohort_event *out);
/* Waits up to timeout_ms (-1: for ever) for cohort_next to have something to say. COHORT_OK or E_AGAIN. */
COHORT_API int cohort_wait(cohort_engine *engine, cohort_id id, int timeout_ms);
/* A descriptor that is readable while some request got events since the last cohort_ready. Engine's; do not close. */
COHORT_API int cohort_event_fd(cohort_engine *engine);
/* Fills ids that may have events (each once), returns how many; 0 makes the descriptor unreadable. For one listener
 * thread. */
COHORT_API size_t cohort_ready(cohort_engine *engine, cohort_id *ids, size_t capacity);

/* ---- Tasks: work at an iteration boundary of the running engine ---- */
typedef uint64_t cohort_task; /* 0 is none; never reused */
enum {
    COHORT_TASK_READ,     /* runs at the next boundary */
    COHORT_TASK_EXCLUSIVE /* admission is held, what was admitted ends, it runs, admission goes on */
};
enum { COHORT_TASKS_MAX = 64 /* not run yet */ };
/* Calls `run` once, always on the engine thread: with COHORT_OK at its boundary, or with the code why it never will run
 * (E_CANCELLED after cohort_task_cancel, E_CLOSED when the engine closes or fails). It must be brief and may reserve,
 * submit, cancel and add tasks, but not wait for the engine or close it. Exclusive tasks run in the order in which they
 * were added; read tasks do not wait for them. E_BUSY with COHORT_TASKS_MAX pending, E_CLOSED also while draining;
 * `run` is not called then. `out` may be NULL. */
COHORT_API int cohort_task_add(cohort_engine *engine, int kind, void (*run)(void *user, int code), void *user,
                               cohort_task *out, cohort_error *err);
/* A task that has not begun is not run: it hears of it at the next boundary, with E_CANCELLED. Others are ignored. */
COHORT_API void cohort_task_cancel(cohort_engine *engine, cohort_task task);
/* Holds admission (waiting requests stay in line, admitted ones go on), or lets it go on. Apart from the holds of
 * exclusive tasks: either keeps admission held. */
COHORT_API void cohort_engine_hold(cohort_engine *engine, int hold);

/* ---- State that survives ---- */
/* A session's state, as its last finished request left it, under the tenant and the name of the requests' `session`.
 * These three wait for the disk: not for a thread that must not. `tokens` and `bytes` may be NULL. */
/* Makes sure that it is on the disk, under `name` as well. E_NOT_FOUND: no such session; E_UNSUPPORTED: no state_dir.
 */
COHORT_API int cohort_session_save(cohort_engine *engine, uint32_t tenant, const cohort_span *session,
                                   const cohort_span *name, uint32_t *tokens, uint64_t *bytes, cohort_error *err);
/* Makes what was saved under `name` the session's state. What does not hold its checksum is not taken. */
COHORT_API int cohort_session_restore(cohort_engine *engine, uint32_t tenant, const cohort_span *session,
                                      const cohort_span *name, uint32_t *tokens, uint64_t *bytes, cohort_error *err);
/* Forgets the session; its state ages from then on. What was saved of it stays. */
COHORT_API int cohort_session_erase(cohort_engine *engine, uint32_t tenant, const cohort_span *session,
                                    uint32_t *tokens, cohort_error *err);
/* What the bytes of every answer depend on beside the request: model file, tokenizer, numeric settings. 32 hex digits
 * and a NUL. Requests that were begun under another identity must not be resumed. Reads the model file once. */
enum { COHORT_IDENTITY_SIZE = 33 };
COHORT_API int cohort_engine_identity(cohort_engine *engine, char out[COHORT_IDENTITY_SIZE], cohort_error *err);

/* A state_dir from outside: what is in it (text, or JSON; *out freed with cohort_free), whether it holds what its
 * checksums say (`repair`: removes what does not), and removing a stored sequence (id as listed), all (id 0) or what
 * was not used for so many seconds (id 0). Changing it is E_BUSY while an engine has it open. */
COHORT_API int cohort_cache_list(const char *state_dir, int json, char **out, size_t *out_len, cohort_error *err);
COHORT_API int cohort_cache_verify(const char *state_dir, int repair, uint64_t *all, uint64_t *bad, cohort_error *err);
COHORT_API int cohort_cache_remove(const char *state_dir, uint64_t id, uint64_t unused_s, uint64_t *removed,
                                   cohort_error *err);

/* ---- Sight ---- */
enum { COHORT_HISTOGRAM_BUCKETS = 16 };
typedef struct cohort_histogram { /* bucket i counts values <= cohort_histogram_bounds[i]; the last has no bound */
    uint64_t buckets[COHORT_HISTOGRAM_BUCKETS];
    uint64_t count;
    double sum;
} cohort_histogram;
extern COHORT_API const double cohort_histogram_bounds_s[COHORT_HISTOGRAM_BUCKETS - 1];

typedef struct cohort_metrics {
    uint64_t requests_submitted, requests_finished_stop, requests_finished_length, requests_cancelled, requests_failed;
    uint64_t requests_refused; /* E_BUSY */
    uint64_t prompt_tokens, cached_tokens, generated_tokens;
    uint64_t iterations, iteration_tokens;
    uint64_t kv_pages_total, kv_pages_used; /* used: by rows. What only the prefix store holds is free for the taking */
    uint32_t rows_running, rows_preparing, rows_waiting;                   /* gauges */
    uint64_t step_build_us, step_forward_us, step_deliver_us, step_gap_us; /* sums over iterations */
    uint64_t last_iteration_us_ago; /* time since the loop last made a step; 0 while idle */
    int healthy;
    cohort_histogram ttft_s, inter_token_s, e2e_s, queue_s;
    uint64_t preemptions, redone_tokens; /* state given up under pressure or for another tenant's share */
    uint64_t snapshot_boundaries, tasks_run, requests_timed_out;
    uint64_t trace_dropped;   /* spans that found the trace's buffer full */
    uint64_t steady_step_us;  /* what an iteration of the rows that decode now takes without prompts, as measured */
    uint64_t prompt_token_ns; /* what one prompt token adds to an iteration, as measured */
    /* the prefix store */
    uint64_t cache_lookups, cache_hits; /* admissions that might have taken something, and those that did */
    uint64_t cache_blocks, cache_snapshots, cache_bytes;                /* gauges; bytes: held by nothing else */
    uint64_t cache_evictions, cache_snapshot_evictions, cache_sessions; /* blocks; snapshots; sessions known (gauge) */
    /* the disk tier */
    uint64_t disk_blocks, disk_bytes, disk_queued_bytes;                 /* gauges */
    uint64_t disk_written, disk_restored, disk_evictions, disk_failures; /* blocks */
    uint64_t disk_restores;    /* requests that went on from what was on the disk */
    uint64_t requests_resumed; /* continuations */
    uint64_t forced_tokens;
    uint64_t grammar_masks, grammar_mask_us; /* made, and the time that it took */
    /* compiling: asked for, found ready, refused; what is kept (gauges) */
    uint64_t grammar_lookups, grammar_hits, grammar_refused, grammar_cached, grammar_cached_bytes;
} cohort_metrics;

COHORT_API void cohort_metrics_get(cohort_engine *engine, cohort_metrics *out);

typedef struct cohort_tenant_metrics {
    char name[COHORT_TENANT_NAME_MAX + 1];
    uint32_t places, rows; /* gauges: requests that wait or run, and those that were admitted */
    uint64_t requests_submitted, requests_refused, prompt_tokens, generated_tokens;
} cohort_tenant_metrics;
/* E_NOT_FOUND for an index behind the last tenant. */
COHORT_API int cohort_tenant_metrics_get(cohort_engine *engine, uint32_t tenant, cohort_tenant_metrics *out);

#ifdef __cplusplus
}
#endif
#endif
