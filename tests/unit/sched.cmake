foreach(subject sched sched_state sched_room sched_share)
  cohort_test(${subject} SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_${subject}.c ${CMAKE_CURRENT_SOURCE_DIR}/sched_rig.c ROOMS sched)
endforeach()
foreach(subject sched_prefix sched_loads sched_recurrent)
  cohort_test(${subject} SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/test_${subject}.c ${CMAKE_CURRENT_SOURCE_DIR}/sched_texts.c
              ${CMAKE_CURRENT_SOURCE_DIR}/sched_rig.c ROOMS sched)
endforeach()
