set(GRAMMAR_RIG ${CMAKE_CURRENT_SOURCE_DIR}/grammar_rig.c)
cohort_test(grammar SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_grammar.c ${GRAMMAR_RIG} ROOMS grammar)
