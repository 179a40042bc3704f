/* File blocks of the quantised types, as plain numbers. */
#ifndef BACKEND_CPU_UNPACK_H
#define BACKEND_CPU_UNPACK_H

#include <stdint.h>

#include "base/dtype.h"

/* One block of 32 columns or superblock of 256. Types with 32 columns per block have d (and m); superblock types have
 * d, dmin and a factor (and min_factor) per scale group. The codes are those of struct pack_form. */
struct unpacked {
    uint8_t code[256];
    uint16_t d; /* f16; MXFP4: bf16 */
    uint16_t m; /* f16: the minimum itself, or -dmin */
    int8_t factor[16];
    uint8_t min_factor[16];
};

typedef void (*unpack_fn)(const uint8_t *block, struct unpacked *out);
unpack_fn unpack_find(enum dtype type); /* NULL: not a quantised type that we know */

extern const int8_t unpack_codebook_iq4[16];
extern const int8_t unpack_codebook_mxfp4[16];

#endif
