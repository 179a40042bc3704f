/* Which block of the prefix tree a record of the disk tier is: a hash table of fixed size. Engine thread. */
#ifndef ENGINE_RECORDS_H
#define ENGINE_RECORDS_H

#include "pages/prefix.h"

struct records {
    struct record {
        uint64_t id; /* 0: free */
        prefix_block block;
    } * list;
    size_t bytes;
    uint64_t size, n; /* size: a power of two, above 4/3 of the most */
};

int records_init(struct records *r, uint64_t most); /* 0 or COHORT_E_MEMORY */
void records_deinit(struct records *r);
int records_put(struct records *r, uint64_t id, prefix_block block); /* 0: full */
prefix_block records_get(const struct records *r, uint64_t id);      /* 0: not there */
void records_drop(struct records *r, uint64_t id);

#endif
