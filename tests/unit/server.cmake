cohort_test(server SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_server.c ROOMS server)
target_link_libraries(test_server PRIVATE PkgConfig::JANSSON)
