cohort_test(chat_reader SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_chat_reader.c ROOMS chat)
target_link_libraries(test_chat_reader PRIVATE PkgConfig::JANSSON)
cohort_test(chat_constrain SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_chat_constrain.c ${CMAKE_CURRENT_SOURCE_DIR}/tiny_vocab.c
            ROOMS chat text grammar)
target_link_libraries(test_chat_constrain PRIVATE PkgConfig::JANSSON)
cohort_test(chat_render SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_chat_render.c ${CMAKE_CURRENT_SOURCE_DIR}/tiny_vocab.c
            ROOMS chat text)
add_executable(chat_tool ${CMAKE_CURRENT_SOURCE_DIR}/chat_tool.c)
target_link_libraries(chat_tool PRIVATE cohort_flags format chat PkgConfig::JANSSON)
cohort_test(chat_prepare SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_chat_prepare.c ${CMAKE_CURRENT_SOURCE_DIR}/tiny_vocab.c
            ROOMS chat text)
cohort_test(chat_format SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_chat_format.c ROOMS chat jinja)
