cohort_test(team SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_team.c ROOMS backend)
