/* The fixture of the engine's tests on the fake backend (fake_model.h). */
#include "fake_model.h"

cohort_model *model;
cohort_model_info info;

int open_model(void **state) {
    model = run_open_model("gemma3", NULL, 0);
    if (model) cohort_model_get_info(model, &info);
    return 0;
}

int close_model(void **state) {
    cohort_model_close(model);
    return 0;
}

int reset(void **state) {
    fake_backend.delay_us = fake_backend.hold = fake_backend.refuse_launch = fake_backend.break_wait = 0;
    fake_backend.poison = fake_backend.end = -1;
    return 0;
}
