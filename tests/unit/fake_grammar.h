/* Grammars without XGrammar, for tests of what is around them: it implements grammar.h, so a test program that links
 * this file never takes the real one in. It knows one kind, COHORT_GRAMMAR_REGEX, of that a part without groups and
 * alternatives: characters, sets ("[a-f]", "[^x]", "."), and behind them "*", "+", "?", "{n}", "{m,n}". The same texts
 * mean the same to the real one. What it takes is plain C, so thread checkers see all of it. */
#ifndef TESTS_FAKE_GRAMMAR_H
#define TESTS_FAKE_GRAMMAR_H

#include <stdatomic.h>

struct fake_grammar {
    _Atomic int compile_us;       /* every compile takes so long */
    _Atomic int compile_code;     /* and ends with this, if that is not 0 */
    _Atomic int compiles;         /* so far */
    _Atomic int grammars, states; /* that are not freed */
    _Atomic int mask_us;          /* every mask takes so long */
    _Atomic int break_after;      /* a state fails with E_LIMIT at the mask behind so many tokens; 0: never */
};
extern struct fake_grammar fake_grammar;

#endif
