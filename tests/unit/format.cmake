set(gguf_writer ${CMAKE_CURRENT_SOURCE_DIR}/gguf_writer.c)
cohort_test(format SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_format.c ${gguf_writer} ROOMS format PkgConfig::JANSSON)
cohort_test(format_hostile SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_format_hostile.c ${gguf_writer} ROOMS format)
