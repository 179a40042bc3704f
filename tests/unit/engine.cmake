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
set(histories ${here}/histories_draw.c ${here}/histories_model.c ${here}/histories_answer.c ${here}/histories_check.c ${here}/histories_play.c)
cohort_test(engine_histories SOURCES ${here}/test_engine_histories.c ${histories} ${here}/fake_backend.c ROOMS engine TIMEOUT 600)
set_tests_properties(engine_histories PROPERTIES SKIP_RETURN_CODE 77)
cohort_test(tenants SOURCES ${here}/test_tenants.c ROOMS engine)
cohort_test(engine_tenants TSAN SOURCES ${here}/test_engine_tenants.c ${here}/engine_run.c ${here}/fake_backend.c ${here}/fake_model.c ROOMS engine)
cohort_test(model_api SOURCES ${here}/test_model_api.c ${here}/engine_run.c ROOMS engine)
cohort_test(trace TSAN SOURCES ${here}/test_trace.c ${here}/engine_run.c ROOMS engine)
target_link_libraries(test_trace PRIVATE PkgConfig::JANSSON)
cohort_test(engine_ring TSAN SOURCES ${here}/test_ring.c ROOMS engine)

# The public header on its own, in both languages.
add_executable(test_header ${here}/header_c.c ${here}/header_cxx.cpp)
target_link_libraries(test_header PRIVATE cohort_flags cohort_lib)
add_test(NAME header COMMAND test_header)
