/* strftime_now: Python's datetime.strftime of a moment that the caller gives, in UTC. */
#include <time.h>

#include "jinja/text.h"

val time_format(struct run *x, int64_t now_s, const struct str *format) {
    time_t now = (time_t)now_s;
    struct tm tm;
    if (now_s < 0 || now_s > 253402300799 || !gmtime_r(&now, &tm)) jx_fail(x, "the time is out of range");
    static const char *const days[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
    static const char *const months[] = {"January", "February", "March",     "April",   "May",      "June",
                                         "July",    "August",   "September", "October", "November", "December"};
    struct maker m = maker_begin(x);
    for (size_t at = 0; at < format->n; at++) {
        char text[64], pattern[4] = {'%', 0, 0, 0};
        if (format->b[at] != '%' || at + 1 >= format->n) {
            maker_part(&m, format, at, 1);
            continue;
        }
        char c = format->b[++at];
        int short_form = c == '-' && at + 1 < format->n;
        if (short_form) c = format->b[++at];
        switch (c) {
        case 'A':
            maker_text(&m, days[tm.tm_wday], 0);
            break;
        case 'a':
            maker_add(&m, days[tm.tm_wday], 3, 0);
            break;
        case 'B':
            maker_text(&m, months[tm.tm_mon], 0);
            break;
        case 'b':
        case 'h':
            maker_add(&m, months[tm.tm_mon], 3, 0);
            break;
        case 'p':
            maker_text(&m, tm.tm_hour < 12 ? "AM" : "PM", 0);
            break;
        case 'f':
            maker_text(&m, "000000", 0);
            break;
        case 'z':
        case 'Z':
            break; /* a naive datetime has no zone */
        case '%':
            maker_text(&m, "%", 0);
            break;
        case 'n':
            maker_text(&m, "\n", 0);
            break;
        case 't':
            maker_text(&m, "\t", 0);
            break;
        case 'c': {
            size_t n = strftime(text, sizeof(text), " %e %H:%M:%S %Y", &tm);
            maker_add(&m, days[tm.tm_wday], 3, 0);
            maker_text(&m, " ", 0);
            maker_add(&m, months[tm.tm_mon], 3, 0);
            maker_add(&m, text, n, 0);
            break;
        }
        case 'x':
            maker_add(&m, text, strftime(text, sizeof(text), "%m/%d/%y", &tm), 0);
            break;
        case 'X':
            maker_add(&m, text, strftime(text, sizeof(text), "%H:%M:%S", &tm), 0);
            break;
        default: {
            static const char known[] = "CdDeFgGHIjklmMRsSTuUVwWyY";
            int is = 0;
            for (const char *k = known; *k; k++) is |= *k == c;
            if (!is) jx_fail(x, "unknown directive of strftime_now");
            pattern[1] = short_form ? '-' : c;
            pattern[2] = short_form ? c : 0;
            _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wformat-nonliteral\"")
                maker_add(&m, text, strftime(text, sizeof(text), pattern, &tm), 0);
            _Pragma("GCC diagnostic pop")
        }
        }
    }
    return maker_end(&m);
}
