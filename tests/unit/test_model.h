/* The model tests' second file: what hostile files get told. */
#ifndef UNIT_TEST_MODEL_H
#define UNIT_TEST_MODEL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

void test_hostile_keys(void **state);
void test_hostile_tensors(void **state);

#endif
