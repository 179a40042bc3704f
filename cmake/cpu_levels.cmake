# A translation unit per instruction-set level with its own flags; everything else is built for the baseline CPU. Files of another processor's
# levels are left out (COHORT_FOREIGN_LEVELS: what follows the underscore in their names). Sanitizers stay out of the levels: they take minutes to
# compile so unrolled a file; its bounds are checked by canaries in tests/kernels, and the reference is sanitized.
function(cohort_level name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/cpu/*_${name}.c)
  set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS "${ARGN};-O3;-DNDEBUG;-fno-sanitize=all")
endfunction()
set(COHORT_FOREIGN_LEVELS)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  cohort_level(avx2 -mavx2 -mfma -mf16c)
  cohort_level(avxvnni -mavx2 -mfma -mf16c -mavxvnni)
  cohort_level(avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mfma -mf16c -mprefer-vector-width=512)
else()
  list(APPEND COHORT_FOREIGN_LEVELS avx)
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  # GCC schedules before it hands out registers, and so hoists loads until a tile's sums no longer fit.
  cohort_level(neon -march=armv8.2-a+dotprod $<$<C_COMPILER_ID:GNU>:-fno-schedule-insns>)
else()
  list(APPEND COHORT_FOREIGN_LEVELS neon)
endif()
