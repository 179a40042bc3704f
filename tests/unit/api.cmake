set(here ${CMAKE_CURRENT_SOURCE_DIR})
cohort_test(api_replies SOURCES ${here}/test_api_replies.c ROOMS api server engine)
target_link_libraries(test_api_replies PRIVATE PkgConfig::JANSSON)
