add_executable(vocab_tool ${CMAKE_CURRENT_SOURCE_DIR}/vocab_tool.c)
target_link_libraries(vocab_tool PRIVATE cohort_flags format text)
