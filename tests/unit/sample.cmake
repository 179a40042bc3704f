cohort_test(sample SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_sample.c ROOMS sample base TIMEOUT 300)
