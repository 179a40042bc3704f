/* CPU limits as the kernel states them. A container that may use two CPUs of a 64-CPU host must not start 64 threads
 * that wait for each other. Reads a few small files at start; missing or odd ones mean "no limit". Any thread. */
#include "backend/cpu/quota.h"

#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_MAX = 16384, PATH_ROOM = 4096 };

/* Reads a small file as a string. 0, or -1 if there is none. Longer files are cut. */
static int text_read(const char *path, char *text, size_t room) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    size_t len = 0;
    ssize_t n;
    while (len < room - 1 && (n = read(fd, text + len, room - 1 - len)) > 0) len += (size_t)n;
    close(fd);
    text[len] = 0;
    return 0;
}

/* quota / period in whole CPUs, at least 1; 0 if it is no limit. */
static unsigned cpus_of(long long quota, long long period) {
    if (quota <= 0 || period <= 0) return 0;
    long long cpus = quota / period;
    if (cpus > 1 << 20) return 0;
    return cpus < 1 ? 1 : (unsigned)cpus;
}

static unsigned stricter(unsigned a, unsigned b) { return a == 0 || (b != 0 && b < a) ? b : a; }

/* The limit written in one group's folder: version 2 "cpu.max" ("max 100000", "250000 100000"), version 1 two files. */
static unsigned group_limit(const char *folder) {
    char path[PATH_ROOM + 64], text[256];
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    if (!text_read(path, text, sizeof text)) {
        char *rest;
        long long quota = strtoll(text, &rest, 10);
        return rest == text ? 0 : cpus_of(quota, strtoll(rest, NULL, 10));
    }
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
    if (text_read(path, text, sizeof text)) return 0;
    long long quota = strtoll(text, NULL, 10);
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
    if (text_read(path, text, sizeof text)) return 0;
    return cpus_of(quota, strtoll(text, NULL, 10));
}

/* The strictest limit on the way from root/group up to root. Inside a container the membership file may name a path of
 * the host that does not exist here; then only the part that does (at least the root) speaks. */
static unsigned chain_limit(const char *root, const char *group) {
    char folder[PATH_ROOM];
    int len = snprintf(folder, sizeof folder, "%s%s", root, group);
    if (len < 0 || (size_t)len >= sizeof folder) return 0;
    unsigned limit = 0;
    for (;;) {
        limit = stricter(limit, group_limit(folder));
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < strlen(root)) return limit;
        *slash = 0;
    }
}

/* 1 if the comma-separated list has the item. */
static int list_has(const char *list, const char *item) {
    size_t n = strlen(item);
    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (!strncmp(p, item, n) && (p[n] == 0 || p[n] == ',')) return 1;
    return 0;
}

unsigned quota_cgroup(const char *membership, const char *mount) {
    char text[FILE_MAX], root[PATH_ROOM], *save = NULL;
    unsigned limit = 0;
    if (text_read(membership, text, sizeof text)) return 0;
    /* Lines are number:controllers:/path; version 2 has no controllers. */
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *controllers = strchr(line, ':');
        if (!controllers) continue;
        controllers++;
        char *group = strchr(controllers, ':');
        if (!group) continue;
        *group++ = 0;
        if (!strcmp(group, "/")) group = "";
        if (*controllers == 0) {
            limit = stricter(limit, chain_limit(mount, group));
            snprintf(root, sizeof root, "%.2000s/unified", mount);
            limit = stricter(limit, chain_limit(root, group));
        } else if (list_has(controllers, "cpu")) {
            snprintf(root, sizeof root, "%.2000s/%.1000s", mount, controllers);
            limit = stricter(limit, chain_limit(root, group));
            snprintf(root, sizeof root, "%.2000s/cpu", mount);
            limit = stricter(limit, chain_limit(root, group));
        }
    }
    return limit;
}

/* CPUs in the affinity mask, whatever the size of the machine. */
static unsigned affinity_cpus(void) {
    enum { SETS = 16 }; /* 16 * 1,024 CPUs */
    cpu_set_t sets[SETS];
    if (sched_getaffinity(0, sizeof sets, sets)) return 1;
    int n = CPU_COUNT_S(sizeof sets, sets);
    return n < 1 ? 1 : (unsigned)n;
}

unsigned quota_cpus(void) { return stricter(affinity_cpus(), quota_cgroup("/proc/self/cgroup", "/sys/fs/cgroup")); }
