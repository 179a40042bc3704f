/* Whether a grammar, as gbnf.c writes it, has a text at all: a rule that must hold itself, over whatever detour, has
 * none, and an answer that follows it never ends. Pure; any thread.
 *
 * A rule has a text if it has one with what is known so far of the others; that is asked again, from the last rule to
 * the first, where the leaves usually stand, until nothing changes. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cohort/cohort.h"
#include "grammar/gbnf.h"

enum { WORK_MAX = 1 << 27 /* bytes read; by then a hostile grammar is refused */ };

struct ends {
    const char **rules; /* by number: behind its "::=" */
    uint8_t *known;
    size_t n;
};

static size_t rule_number(const char **at) {
    const char *name = *at;
    *at = strchr(name, ' ') + 1;
    return *name == 'r' && name[1] == 'o' ? 0 : strtoul(name + 1, NULL, 10);
}

static int choices_have(const struct ends *e, const char **at);

/* What stands here once. */
static int item_has(const struct ends *e, const char **at) {
    char c = **at;
    int yes = 1;
    if (c == '"' || c == '[') {
        *at = strchr(*at + 1, c == '"' ? '"' : ']') + 2;
    } else if (c == '(') {
        *at += 2;
        yes = choices_have(e, at);
        *at += 2;
    } else {
        yes = e->known[rule_number(at)];
    }
    return yes;
}

static int choices_have(const struct ends *e, const char **at) {
    int any = 0, all = 1;
    for (; **at != '\n' && **at != ')';) {
        if (**at == '|') {
            any |= all;
            all = 1;
            *at += 2;
            continue;
        }
        int has = item_has(e, at);
        if (strchr("*+?{", **at)) {
            has |= **at == '*' || **at == '?' || (**at == '{' && strtoul(*at + 1, NULL, 10) == 0);
            *at = strchr(*at, ' ') + 1;
        }
        all &= has;
    }
    return any | all;
}

static int settle(struct ends *e, size_t bytes) {
    size_t work = 0;
    for (int changed = 1; changed && !e->known[0];) {
        changed = 0;
        if ((work += bytes) > WORK_MAX) return COHORT_E_LIMIT;
        for (size_t i = e->n; i-- > 0;) {
            const char *at = e->rules[i];
            if (e->known[i] || !at || !choices_have(e, &at)) continue;
            e->known[i] = 1;
            changed = 1;
        }
    }
    return e->known[0] ? 0 : COHORT_E_ARGUMENT;
}

int gbnf_has_text(const char *text, size_t rules, cohort_error *err) {
    struct ends e = {.n = rules};
    e.rules = mem_zalloc(rules, sizeof(*e.rules));
    e.known = mem_zalloc(rules, 1);
    int code = e.rules && e.known ? 0 : COHORT_E_MEMORY;
    const char *line = text;
    for (; !code && *line; line = strchr(line, '\n') + 1) {
        size_t number = rule_number(&line);
        e.rules[number] = line + strlen("::= ");
    }
    if (!code) code = settle(&e, (size_t)(line - text));
    mem_free(e.rules);
    mem_free(e.known);
    if (code == COHORT_E_MEMORY) return err_set(err, code, "grammar", "no memory to read it");
    if (code == COHORT_E_LIMIT) return err_set(err, code, "grammar", "its rules refer to each other in too many ways");
    return code ? err_set(err, code, "grammar", "no text ends: the rules hold themselves for ever") : 0;
}
