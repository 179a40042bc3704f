cohort_test(team TSAN SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_team.c ROOMS backend)
cohort_test(exec SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_exec.c ${CMAKE_CURRENT_SOURCE_DIR}/exec_model.c ROOMS backend)
cohort_test(exec_recur SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_exec_recur.c ${CMAKE_CURRENT_SOURCE_DIR}/exec_model.c ROOMS backend)
cohort_test(weights SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_weights.c ROOMS backend)
