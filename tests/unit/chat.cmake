cohort_test(chat_reader SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_chat_reader.c ROOMS chat)
target_link_libraries(test_chat_reader PRIVATE PkgConfig::JANSSON)
