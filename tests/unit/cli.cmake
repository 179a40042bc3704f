cohort_test(top SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_top.c ROOMS cli)
