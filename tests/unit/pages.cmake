foreach(subject pages prefix prefix_evict prefix_random)
  cohort_test(${subject} SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_${subject}.c ROOMS pages)
endforeach()
