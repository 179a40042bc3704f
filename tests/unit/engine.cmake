# The engine's tests run twice: on the real backend, and on one without arithmetic that can be told to fail. The latter defines every
# symbol of backend.h, so the real library's objects are never taken.
set(here ${CMAKE_CURRENT_SOURCE_DIR})
cohort_test(engine SOURCES ${here}/test_engine.c ${here}/engine_run.c ROOMS engine TIMEOUT 600)
cohort_test(engine_fake TSAN SOURCES ${here}/test_engine.c ${here}/engine_run.c ${here}/fake_backend.c ROOMS engine TIMEOUT 300)
cohort_test(engine_faults SOURCES ${here}/test_engine_faults.c ${here}/engine_run.c ${here}/fake_backend.c ${here}/fake_model.c ROOMS engine TIMEOUT 300)
cohort_test(engine_pressure SOURCES ${here}/test_engine_pressure.c ${here}/engine_run.c ${here}/fake_backend.c ${here}/fake_model.c ROOMS engine TIMEOUT 300)
cohort_test(engine_tasks TSAN SOURCES ${here}/test_engine_tasks.c ${here}/engine_run.c ${here}/fake_backend.c ${here}/fake_model.c ROOMS engine TIMEOUT 300)
cohort_test(engine_deadlines TSAN SOURCES ${here}/test_engine_deadlines.c ${here}/engine_run.c ${here}/fake_backend.c ${here}/fake_model.c ROOMS engine TIMEOUT 300)
cohort_test(engine_stress TSAN SOURCES ${here}/test_engine_stress.c ${here}/engine_run.c ROOMS engine TIMEOUT 600)

# Random histories of the prefix store, from one seed: ten thousand on the backend without arithmetic, two hundred on the real one at its
# best level, and a few at the reference, which takes a minute of a core for ten. More by hand: test_engine_histories --seed 7 --histories 100000
set(histories ${here}/histories_answer.c ${here}/histories_check.c ${here}/histories_draw.c ${here}/histories_model.c ${here}/histories_play.c)
cohort_test(engine_cache SOURCES ${here}/test_engine_cache.c ${histories} ${here}/engine_run.c ${here}/fake_backend.c ROOMS engine TIMEOUT 300)
foreach(kind histories histories_cpu)
  add_executable(test_engine_${kind} ${here}/test_engine_histories.c ${histories})
  target_link_libraries(test_engine_${kind} PRIVATE cohort_flags engine m)
  target_compile_definitions(test_engine_${kind} PRIVATE COHORT_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
endforeach()
target_sources(test_engine_histories PRIVATE ${here}/fake_backend.c)
if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT COHORT_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
  set(histories_n 10000)
else()
  set(histories_n 500) # much slower under sanitizers, under an emulator and without optimisation
endif()
add_test(NAME engine_histories COMMAND test_engine_histories --histories ${histories_n})
set(cpu_models llama,gemma3,gemma3:64,gemma2:40)
add_test(NAME engine_histories_cpu COMMAND test_engine_histories_cpu --histories 200 --models ${cpu_models})
add_test(NAME engine_histories_ref COMMAND test_engine_histories_cpu --histories 16 --length 2 --models ${cpu_models} --cpu ref)
set_tests_properties(engine_histories engine_histories_cpu engine_histories_ref PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600)
cohort_test(tenants SOURCES ${here}/test_tenants.c ROOMS engine)
cohort_test(cache_parts SOURCES ${here}/test_cache_parts.c ROOMS engine)
cohort_test(engine_resume TSAN SOURCES ${here}/test_engine_resume.c ${here}/engine_run.c ${here}/fake_backend.c ${here}/fake_model.c ROOMS engine)
cohort_test(engine_tenants TSAN SOURCES ${here}/test_engine_tenants.c ${here}/engine_run.c ${here}/fake_backend.c ${here}/fake_model.c ROOMS engine)
cohort_test(model_api SOURCES ${here}/test_model_api.c ${here}/engine_run.c ROOMS engine)
cohort_test(trace TSAN SOURCES ${here}/test_trace.c ${here}/engine_run.c ROOMS engine)
target_link_libraries(test_trace PRIVATE PkgConfig::JANSSON)
cohort_test(engine_ring TSAN SOURCES ${here}/test_ring.c ROOMS engine)

# The public header on its own, in both languages.
add_executable(test_header ${here}/header_c.c ${here}/header_cxx.cpp)
target_link_libraries(test_header PRIVATE cohort_flags cohort_lib)
add_test(NAME header COMMAND test_header)
