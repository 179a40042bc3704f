add_executable(vocab_tool ${CMAKE_CURRENT_SOURCE_DIR}/vocab_tool.c)
target_link_libraries(vocab_tool PRIVATE cohort_flags format text)

cohort_test(tokenizer SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_tokenizer.c ${CMAKE_CURRENT_SOURCE_DIR}/tiny_vocab.c
            ROOMS text TIMEOUT 300)
cohort_test(tokenizer_vectors SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_tokenizer_vectors.c ROOMS text format)
target_link_libraries(test_tokenizer_vectors PRIVATE PkgConfig::JANSSON)
cohort_test(detok SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_detok.c ${CMAKE_CURRENT_SOURCE_DIR}/tiny_vocab.c ROOMS text)
cohort_test(marked SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_marked.c ${CMAKE_CURRENT_SOURCE_DIR}/tiny_vocab.c ROOMS text)
