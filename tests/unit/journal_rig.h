/* A journal in a folder of its own, for the tests of it. */
#ifndef JOURNAL_RIG_H
#define JOURNAL_RIG_H

#include "server/journal.h"

extern char dir[256], path[300]; /* the folder, and journal.db in it */

int journal_setup(void **state);
int journal_teardown(void **state);
struct journal *open_with(uint32_t keep_s, uint64_t bytes_max, uint32_t streams_max);
struct journal *open_it(void);
struct journal_result wait_result(struct journal *j);
void wait_good(struct journal *j, int n); /* takes `n` results, which must be good */
uint64_t begin(struct journal *j, const char *id, const char *owner);
/* On a journal that is closed. */
void exec_sql(const char *sql);
void forget_begun(void); /* the second copy: what is done to the rows is no damage then */

#endif
