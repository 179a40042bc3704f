cohort_test(pages SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_pages.c ROOMS pages)
cohort_test(sched SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_sched.c ROOMS sched)
