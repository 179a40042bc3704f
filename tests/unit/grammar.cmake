set(GRAMMAR_RIG ${CMAKE_CURRENT_SOURCE_DIR}/grammar_rig.c)
cohort_test(grammar SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_grammar.c ${GRAMMAR_RIG} ROOMS grammar)
add_executable(grammar_tool ${CMAKE_CURRENT_SOURCE_DIR}/grammar_tool.c ${GRAMMAR_RIG})
target_link_libraries(grammar_tool PRIVATE cohort_flags grammar PkgConfig::JANSSON)
