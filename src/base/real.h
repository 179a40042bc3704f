/* Doubles as text: the shortest that reads back as the same one, as Python and JavaScript write them. Reentrant; the
 * process's locale must be C's, as it is unless a program sets another. */
#ifndef BASE_REAL_H
#define BASE_REAL_H

enum { REAL_TEXT_MAX = 40 /* bytes, the NUL too */ };

/* Finite values: "0.1", "100000.0", "1e+16", "1.5e-07". */
void real_text(char out[REAL_TEXT_MAX], double value);
/* JSON text whose numbers have more digits than they need, in place: fractions and exponents as above, the rest as it
 * is. NULL is allowed. */
char *real_shorten_json(char *json);

#endif
