/* `cohort serve`: binds first, then loads in a thread of its own while the loop already answers /health. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "cli/cli.h"
#include "server/server.h"

enum { CLOSE_GRACE_MS = 5000 };

struct loading {
    struct cli_options options; /* with the tenants of the server's keys */
    struct server *server;
    cohort_model *model;
    cohort_engine *engine;
    char *plan; /* of its memory */
};

static void print_start(const struct loading *l) {
    cohort_model_info info;
    cohort_engine_options engine;
    cohort_model_get_info(l->model, &info);
    cohort_engine_get_options(l->engine, &engine);
    fprintf(stderr, "cohort %s: %s (%s, %.0f M weights, numerics version %d), cpu level %s, %d threads\n",
            COHORT_VERSION, info.name, info.architecture, (double)info.parameters / 1e6, info.numerics_version,
            info.cpu, info.threads);
    fprintf(stderr, "  %u waiting behind %u rows, %u tokens an iteration%s\n", engine.queue, engine.rows,
            engine.batch_tokens, l->options.batch_tokens < l->options.rows ? " (raised to the number of rows)" : "");
    for (const char *line = l->plan; line && *line;) { /* what `cohort inspect --plan` says */
        size_t n = strcspn(line, "\n");
        fprintf(stderr, "  %.*s\n", (int)n, line);
        line += n + (line[n] != 0);
    }
    const char *whose = info.chat_template_built_in                                 ? "built-in"
                        : l->options.chat_template || l->options.chat_template_file ? "given"
                                                                                    : "the model's own";
    if (*info.chat_error)
        fprintf(stderr, "  no chats: %s\n", info.chat_error);
    else
        fprintf(stderr, "  chats by %s template, answers read as %s%s%s\n", whose, info.chat_format,
                info.chat_tools ? ", tools" : "", info.chat_reasoning ? ", reasoning" : "");
    fprintf(stderr, "  listening on http://%s:%u\n", l->options.host, server_port(l->server));
}

static void *load(void *argument) {
    struct loading *l = argument;
    size_t len;
    if (cli_open_model(&l->options, 0, &l->model) != 0 || cli_plan(&l->options, l->model, 0, &l->plan, &len) != 0 ||
        cli_open_engine(&l->options, l->model, NULL, &l->engine) != 0) {
        server_abort(l->server);
        return NULL;
    }
    server_attach(l->server, l->model, l->engine);
    print_start(l); /* behind it: whoever acts on the line finds a server that serves */
    return NULL;
}

/* "dir/gemma-3.gguf" -> "gemma-3" */
static const char *model_name(const struct cli_options *options) {
    static char name[256];
    if (options->alias) return options->alias;
    const char *path = options->model ? options->model : cli_default_model();
    const char *slash = strrchr(path, '/');
    snprintf(name, sizeof name, "%s", slash ? slash + 1 : path);
    char *dot = strrchr(name, '.');
    if (dot && dot != name) *dot = 0;
    return name;
}

static int store_mode(const char *word, enum server_store *out) {
    static const char *const words[] = {
        [SERVER_STORE_MARKED] = "marked", [SERVER_STORE_ALL] = "all", [SERVER_STORE_NONE] = "none"};
    for (int i = 0; i <= SERVER_STORE_NONE; i++)
        if (strcmp(word, words[i]) == 0) {
            *out = (enum server_store)i;
            return 0;
        }
    return cli_failf("--store: \"%s\" is not none, marked or all", word);
}

int cmd_serve(const struct cli_options *options) {
    struct server_options server = {
        .api = &api,
        .host = options->host,
        .port = (uint16_t)options->port,
        .api_key = options->api_key,
        .keys_path = options->keys,
        .model_name = model_name(options),
        .drain_s = (uint32_t)options->drain_seconds,
        .verbose = options->verbose,
        .request_timeout_s = (uint32_t)options->request_timeout,
        .state_dir = options->state_dir,
        .request_templates = options->request_templates,
        .store_hours = (uint32_t)options->store_hours,
    };
    if (store_mode(options->store, &server.store) != 0) return 2;
    struct loading l = {.options = *options};
    cohort_error error = {0};
    if (server_open(&server, &l.server, &error) != 0) return cli_fail(&error);
    l.options.tenants = server_tenants(l.server, &l.options.tenants_n);
    pthread_t loader;
    if (pthread_create(&loader, NULL, load, &l) != 0) {
        server_close(l.server);
        return cli_failf("cannot start a thread");
    }
    int rc = server_run(l.server);
    pthread_join(loader, NULL);
    server_close(l.server);
    cohort_engine_close(l.engine, CLOSE_GRACE_MS);
    cohort_model_close(l.model);
    cohort_free(l.plan);
    return rc ? 1 : 0;
}
