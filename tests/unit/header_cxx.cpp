// cohort.h alone, as C++: compiles, and links to the same functions.
#include "cohort/cohort.h"

extern "C" const char *header_from_cxx(void);

extern "C" const char *header_from_cxx(void) {
    cohort_request request;
    cohort_request_defaults(&request);
    return request.size == sizeof(request) ? cohort_error_name(COHORT_E_BUSY) : "";
}
