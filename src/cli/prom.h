/* Prometheus' text format, read strictly: what is not of its grammar, or longer than these limits, is an error. The
 * text comes from whoever answers on a port, so nothing in it is trusted. Pure. */
#ifndef CLI_PROM_H
#define CLI_PROM_H

#include <stddef.h>

enum { PROM_NAME_MAX = 95, PROM_LABELS_MAX = 8, PROM_LABEL_MAX = 127 };

struct prom_label {
    char name[PROM_NAME_MAX + 1], value[PROM_LABEL_MAX + 1];
};

struct prom_sample {
    char name[PROM_NAME_MAX + 1];
    struct prom_label labels[PROM_LABELS_MAX];
    unsigned labels_n;
    double value;
};

struct prom {
    const char *at, *end;
};

/* 1: *out is the next sample. 0: there is none. -1: the text is not of the format. */
int prom_next(struct prom *p, struct prom_sample *out);
const char *prom_label(const struct prom_sample *sample, const char *name); /* NULL: it has no such label */

#endif
