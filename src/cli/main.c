/* `cohort COMMAND [options]`: finds the command and runs it. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

int main(int argc, char **argv) {
    const char *word = argc > 1 ? argv[1] : "--help";
    if (!strcmp(word, "--version") || !strcmp(word, "version")) {
        printf("cohort %s\n", COHORT_VERSION);
        return 0;
    }
    if (!strcmp(word, "--help") || !strcmp(word, "-h") || !strcmp(word, "help")) {
        cli_usage();
        return 0;
    }
    for (const struct cli_command *command = cli_commands; command->name; command++) {
        if (strcmp(command->name, word) != 0) continue;
        struct cli_options options;
        int rc = cli_parse(argc - 2, argv + 2, command, &options);
        return rc ? rc - 1 : command->run(&options);
    }
    fprintf(stderr, "cohort: there is no command \"%s\"; `cohort --help` lists them\n", word);
    return 2;
}
