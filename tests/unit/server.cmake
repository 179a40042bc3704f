set(here ${CMAKE_CURRENT_SOURCE_DIR})
cohort_test(traceparent SOURCES ${here}/test_traceparent.c ROOMS server)
target_link_libraries(test_traceparent PRIVATE PkgConfig::EVENT)
cohort_test(report SOURCES ${here}/test_report.c ROOMS server engine)
