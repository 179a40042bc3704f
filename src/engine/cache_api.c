/* State folders from outside: the cohort_cache_* functions of cohort.h. Any thread. */
#include "engine/internal.h"
#include "state/disk.h"

int cohort_cache_list(const char *state_dir, int json, char **out, size_t *out_len, cohort_error *err) {
    return disk_list(state_dir, json, out, out_len, err);
}

int cohort_cache_verify(const char *state_dir, int repair, uint64_t *all, uint64_t *bad, cohort_error *err) {
    return disk_verify(state_dir, repair, all, bad, err);
}

int cohort_cache_remove(const char *state_dir, uint64_t id, uint64_t unused_s, uint64_t *removed, cohort_error *err) {
    return disk_clear(state_dir, id, unused_s, removed, err);
}
