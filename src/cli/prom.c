/* The reader of Prometheus' text format (prom.h). Invariant: at <= end, and nothing behind end is looked at. */
#include "cli/prom.h"

#include <stdlib.h>
#include <string.h>

static int peek(const struct prom *p) { return p->at < p->end ? (unsigned char)*p->at : -1; }

static void skip_blanks(struct prom *p) {
    while (peek(p) == ' ' || peek(p) == '\t') p->at++;
}

static int is_letter(int c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':'; }

static int read_name(struct prom *p, char out[PROM_NAME_MAX + 1]) {
    size_t n = 0;
    int c;
    while (is_letter(c = peek(p)) || (n && c >= '0' && c <= '9')) {
        if (n == PROM_NAME_MAX) return -1;
        out[n++] = (char)c;
        p->at++;
    }
    out[n] = 0;
    return n ? 0 : -1;
}

/* Up to the closing quote. */
static int read_label_value(struct prom *p, char out[PROM_LABEL_MAX + 1]) {
    size_t n = 0;
    for (;;) {
        int c = peek(p);
        if (c <= 0 || c == '\n') return -1;
        p->at++;
        if (c == '"') break;
        if (c == '\\') {
            c = peek(p);
            if (c != '\\' && c != '"' && c != 'n') return -1;
            if (c == 'n') c = '\n';
            p->at++;
        }
        if (n == PROM_LABEL_MAX) return -1;
        out[n++] = (char)c;
    }
    out[n] = 0;
    return 0;
}

/* Behind the brace that opens them, up to the one that closes them. */
static int read_labels(struct prom *p, struct prom_sample *out) {
    for (;;) {
        skip_blanks(p);
        if (peek(p) == '}') break;
        if (out->labels_n == PROM_LABELS_MAX) return -1;
        struct prom_label *label = &out->labels[out->labels_n++];
        if (read_name(p, label->name) != 0) return -1;
        skip_blanks(p);
        if (peek(p) != '=') return -1;
        p->at++;
        skip_blanks(p);
        if (peek(p) != '"') return -1;
        p->at++;
        if (read_label_value(p, label->value) != 0) return -1;
        skip_blanks(p);
        if (peek(p) == ',')
            p->at++;
        else if (peek(p) != '}')
            return -1;
    }
    p->at++;
    return 0;
}

static int read_number(struct prom *p, double *out) {
    char word[64], *end;
    size_t n = 0;
    for (int c; (c = peek(p)) > ' '; p->at++) {
        if (n + 1 == sizeof word) return -1;
        word[n++] = (char)c;
    }
    word[n] = 0;
    if (n == 0) return -1;
    *out = strtod(word, &end);
    return *end ? -1 : 0;
}

static int read_line(struct prom *p, struct prom_sample *out) {
    double when;
    out->labels_n = 0;
    if (read_name(p, out->name) != 0) return -1;
    skip_blanks(p);
    if (peek(p) == '{') {
        p->at++;
        if (read_labels(p, out) != 0) return -1;
        skip_blanks(p);
    }
    if (read_number(p, &out->value) != 0) return -1;
    skip_blanks(p);
    if (peek(p) != '\n' && peek(p) != -1 && read_number(p, &when) != 0) return -1;
    skip_blanks(p);
    return peek(p) == '\n' || peek(p) == -1 ? 1 : -1;
}

int prom_next(struct prom *p, struct prom_sample *out) {
    for (;;) {
        skip_blanks(p);
        int c = peek(p);
        if (c == -1) return 0;
        if (c == '\n') {
            p->at++;
        } else if (c == '#') {
            const char *line = memchr(p->at, '\n', (size_t)(p->end - p->at));
            p->at = line ? line : p->end;
        } else {
            return read_line(p, out);
        }
    }
}

const char *prom_label(const struct prom_sample *sample, const char *name) {
    for (unsigned i = 0; i < sample->labels_n; i++)
        if (strcmp(sample->labels[i].name, name) == 0) return sample->labels[i].value;
    return NULL;
}
