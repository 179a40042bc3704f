cohort_test(state SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_state.c ROOMS state)
