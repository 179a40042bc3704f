/* The fixture of the tests that play the engine on the fake backend: one tiny model for all of a program's tests, and a
 * backend that does nothing special when a test begins. One thread. */
#ifndef TESTS_FAKE_MODEL_H
#define TESTS_FAKE_MODEL_H

#include "engine_run.h"
#include "fake_backend.h"

extern cohort_model *model; /* NULL: the vectors are not there */
extern cohort_model_info info;

int open_model(void **state); /* cmocka: of the group */
int close_model(void **state);
int reset(void **state); /* cmocka: of each test */

#define NEEDS_MODEL                                                                                                    \
    if (!model) skip()

#endif
