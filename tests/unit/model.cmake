cohort_test(model SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_model.c ${CMAKE_CURRENT_SOURCE_DIR}/test_model_hostile.c
            ${CMAKE_CURRENT_SOURCE_DIR}/tiny_model.c
            ${CMAKE_CURRENT_SOURCE_DIR}/tiny_gguf.c ${CMAKE_CURRENT_SOURCE_DIR}/gguf_writer.c ROOMS model format base)
