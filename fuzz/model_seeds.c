/* Writes a tiny model of each family into the current folder, as seeds. */
#include <stdio.h>
#include <stdlib.h>

#include "tiny_model.h"

int main(void) {
    static struct gguf_writer w;
    for (size_t i = 0; tiny_families[i]; i++) {
        char path[64];
        void *bytes;
        tiny_make(&w, tiny_families[i], 1);
        size_t n = gw_finish(&w, &bytes);
        snprintf(path, sizeof path, "%s.gguf", tiny_families[i]);
        FILE *f = fopen(path, "wb");
        if (!f || fwrite(bytes, 1, n, f) != n || fclose(f)) return 1;
        free(bytes);
        gw_deinit(&w);
    }
    return 0;
}
