/* cohort.h alone, as C. */
#include "cohort/cohort.h"

const char *header_from_c(void);
const char *header_from_cxx(void);

const char *header_from_c(void) { return cohort_error_name(COHORT_E_BUSY); }

int main(void) { return header_from_c() == header_from_cxx() ? 0 : 1; }
