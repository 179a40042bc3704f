cohort_test(base SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_base.c ROOMS base)
cohort_test(fmath SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_fmath.c ROOMS base)
