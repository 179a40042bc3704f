/* `cohort cache ls | rm ID|all|--unused SECONDS | verify [--repair]`: what a state folder holds. `ls` and `verify` also
 * while a server has it. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

static int list(const struct cli_options *options) {
    char *text;
    size_t len;
    cohort_error error = {0};
    if (options->object) return cli_failf("cache ls: one argument too many: %s", options->object);
    if (cohort_cache_list(options->state_dir, options->json, &text, &len, &error) != 0) return cli_fail(&error);
    fwrite(text, 1, len, stdout);
    cohort_free(text);
    return 0;
}

static int remove_some(const struct cli_options *options) {
    const char *what = options->object;
    uint64_t id = 0, removed;
    cohort_error error = {0};
    int is_all = what && !strcmp(what, "all");
    if (!what == (options->unused < 0)) return cli_failf("cache rm: an ID, `all` or --unused SECONDS, one of them");
    if (what && !is_all) {
        char *end;
        errno = 0;
        id = *what >= '0' && *what <= '9' ? strtoull(what, &end, 10) : 0;
        if (!id || errno || *end) return cli_failf("cache rm: \"%s\" is not an id as `cohort cache ls` shows it", what);
    }
    uint64_t unused = what ? 0 : (uint64_t)options->unused;
    if (cohort_cache_remove(options->state_dir, id, unused, &removed, &error) != 0) return cli_fail(&error);
    printf("%" PRIu64 " blocks removed\n", removed);
    return 0;
}

static int verify(const struct cli_options *options) {
    uint64_t all, bad;
    cohort_error error = {0};
    if (options->object) return cli_failf("cache verify: one argument too many: %s", options->object);
    if (cohort_cache_verify(options->state_dir, options->repair, &all, &bad, &error) != 0) return cli_fail(&error);
    printf("%" PRIu64 " blocks, %" PRIu64 " bad%s\n", all, bad, bad && options->repair ? " and removed" : "");
    return bad && !options->repair;
}

int cmd_cache(const struct cli_options *options) {
    const char *action = options->argument ? options->argument : "";
    if (!options->state_dir) return cli_failf("cache: --state-dir DIR is missing");
    if (!strcmp(action, "ls")) return list(options);
    if (!strcmp(action, "rm")) return remove_some(options);
    if (!strcmp(action, "verify")) return verify(options);
    return cli_failf("cache: ls, rm or verify, not \"%s\"", action);
}
