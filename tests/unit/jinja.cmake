cohort_test(jinja SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_jinja.c ROOMS jinja)
