/* Heapsort: no extra memory and no input that makes it slow, which matters because the order comes from a hostile file.
 * Pure. */
#include "format/gguf_internal.h"

static void sift_down(uint32_t *numbers, size_t at, size_t n, gguf_less *less, const void *context) {
    uint32_t moving = numbers[at];
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && less(context, numbers[child], numbers[child + 1])) child++;
        if (!less(context, moving, numbers[child])) break;
        numbers[at] = numbers[child];
    }
    numbers[at] = moving;
}

void gguf_sort(uint32_t *numbers, size_t n, gguf_less *less, const void *context) {
    for (size_t i = n / 2; i-- > 0;) sift_down(numbers, i, n, less, context);
    for (size_t end = n; end-- > 1;) {
        uint32_t largest = numbers[0];
        numbers[0] = numbers[end];
        numbers[end] = largest;
        sift_down(numbers, 0, end, less, context);
    }
}
