# With plain vector operations, and with those of the best level this machine has.
cohort_test(sample SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_sample.c ROOMS sample backend text base TIMEOUT 300)
cohort_test(sample_backend SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_sample.c ROOMS sample backend text base TIMEOUT 300)
target_compile_definitions(test_sample_backend PRIVATE SAMPLE_TEST_BACKEND=NULL)
set(samplers ${CMAKE_CURRENT_SOURCE_DIR}/test_samplers.c ${CMAKE_CURRENT_SOURCE_DIR}/samplers_naive.c ${CMAKE_CURRENT_SOURCE_DIR}/tiny_vocab.c)
cohort_test(samplers SOURCES ${samplers} ROOMS sample backend text base TIMEOUT 300)
cohort_test(samplers_backend SOURCES ${samplers} ROOMS sample backend text base TIMEOUT 300)
target_compile_definitions(test_samplers_backend PRIVATE SAMPLE_TEST_BACKEND=NULL)
