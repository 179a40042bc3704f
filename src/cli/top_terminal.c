/* The terminal of `cohort top` (top_terminal.h). `entered` says whether there is something to put back. */
#include "cli/top_terminal.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/buf.h"

static int entered, keys_changed;
static struct termios before;

static void put(const char *bytes, size_t n) {
    while (n > 0) {
        ssize_t done = write(STDOUT_FILENO, bytes, n);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return; /* the terminal is gone: there is nobody to tell */
        bytes += done;
        n -= (size_t)done;
    }
}

void top_terminal_enter(void) {
    static const char other_screen[] = "\033[?1049h\033[?25l\033[2J";
    if (entered) return;
    entered = 1;
    if (tcgetattr(STDIN_FILENO, &before) == 0) {
        struct termios raw = before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO); /* signals keep their keys */
        keys_changed = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
    }
    put(other_screen, sizeof other_screen - 1);
}

void top_terminal_leave(void) {
    static const char own_screen[] = "\033[?25h\033[?1049l";
    if (!entered) return;
    entered = 0;
    put(own_screen, sizeof own_screen - 1);
    if (keys_changed) tcsetattr(STDIN_FILENO, TCSANOW, &before);
    keys_changed = 0;
}

void top_terminal_draw(const char *lines) {
    struct winsize size;
    struct buf out = {0};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0)
        size = (struct winsize){.ws_row = 24, .ws_col = 80};
    int rc = buf_adds(&out, "\033[H");
    for (unsigned row = 0; *lines && row < size.ws_row && !rc; row++) {
        size_t len = strcspn(lines, "\n");
        if (row) rc = buf_adds(&out, "\r\n");
        if (!rc) rc = buf_add(&out, lines, len < size.ws_col ? len : size.ws_col);
        if (!rc && len < size.ws_col) rc = buf_adds(&out, "\033[K");
        lines += len + (lines[len] != 0);
    }
    if (!rc) rc = buf_adds(&out, "\033[J");
    if (!rc) put(out.data, out.len);
    buf_free(&out);
}
