/* The table of element types. Constant data, any thread. */
#include "base/dtype.h"

#include <stddef.h>

static const struct dtype_info types[DTYPE_END] = {
#define DTYPE_ROW(type, number, elements, bytes) [number] = {#type, elements, bytes},
    DTYPE_LIST(DTYPE_ROW)
#undef DTYPE_ROW
};

const struct dtype_info *dtype_info(uint32_t type) {
    return type < DTYPE_END && types[type].name ? &types[type] : NULL;
}
