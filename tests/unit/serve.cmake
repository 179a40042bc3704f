set(here ${CMAKE_CURRENT_SOURCE_DIR})
cohort_test(serve_failure SOURCES ${here}/test_serve_failure.c ${here}/fake_backend.c ROOMS cli api server engine TIMEOUT 120)
