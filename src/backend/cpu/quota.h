/* How many CPUs this process may use: its affinity mask and its control group's quota. */
#ifndef BACKEND_CPU_QUOTA_H
#define BACKEND_CPU_QUOTA_H

/* min(CPUs in the affinity mask, control group quota rounded down), at least 1. */
unsigned quota_cpus(void);

/* The quota alone, in whole CPUs rounded down but at least 1; 0: no limit. `membership` is a file like
 * /proc/self/cgroup, `mount` the folder where the hierarchies are mounted (both kinds of control groups). The strictest
 * of the process's group and all groups above it counts. */
unsigned quota_cgroup(const char *membership, const char *mount);

#endif
