set(here ${CMAKE_CURRENT_SOURCE_DIR})
cohort_test(state SOURCES ${here}/test_state.c ROOMS state)
cohort_test(disk TSAN SOURCES ${here}/test_disk.c ${here}/disk_rig.c ROOMS state TIMEOUT 120)
cohort_test(disk_hostile SOURCES ${here}/test_disk_hostile.c ${here}/disk_rig.c ROOMS state TIMEOUT 240)
