/* The terminal while `cohort top` has it: another screen, no cursor, keys without return. Main thread. */
#ifndef CLI_TOP_TERMINAL_H
#define CLI_TOP_TERMINAL_H

void top_terminal_enter(void);
void top_terminal_leave(void); /* everything as it was before */
/* Lines of ASCII, cut to the screen's size. */
void top_terminal_draw(const char *lines);

#endif
