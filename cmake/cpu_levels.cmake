# A translation unit per instruction-set level with its own flags; everything else is built for the baseline CPU. Sanitizers stay out of
# them: they take minutes to compile so unrolled a file; its bounds are checked by canaries in tests/kernels, and the reference is sanitized.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  file(GLOB avx2 CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/cpu/*_avx2.c)
  file(GLOB avx512 CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/cpu/*_avx512.c)
  set_source_files_properties(${avx2} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c;-O3;-DNDEBUG;-fno-sanitize=all")
  set_source_files_properties(${avx512} PROPERTIES COMPILE_OPTIONS
    "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512vnni;-mfma;-mf16c;-mprefer-vector-width=512;-O3;-DNDEBUG;-fno-sanitize=all")
endif()
