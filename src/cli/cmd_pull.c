/* `cohort pull`: fetches the default model with the script that comes with the program (it uses pip, which carries the
 * model). */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

/* The script lies beside a built program's folder, or in the share folder of an installed one. */
static int find_script(char *out, size_t cap) {
    static const char *const places[] = {"/../scripts/fetch_model.py", "/../share/cohort/fetch_model.py"};
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return -1;
    self[n] = 0;
    char *slash = strrchr(self, '/');
    if (slash) *slash = 0;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if ((size_t)snprintf(out, cap, "%s%s", self, places[i]) < cap && access(out, R_OK) == 0) return 0;
    return -1;
}

int cmd_pull(const struct cli_options *options) {
    (void)options;
    char script[8192];
    if (find_script(script, sizeof script) != 0)
        return cli_failf("pull: fetch_model.py is not where the program expects it");
    execlp("python3", "python3", script, (char *)NULL);
    return cli_failf("pull: python3 cannot be started");
}
