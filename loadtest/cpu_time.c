#include "loadtest/cpu_time.h"

#include <dirent.h>
#include <stdio.h>

static double thread_us(const char *tasks, const char *tid)
{
    char path[320];
    unsigned long long ns = 0;
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s/schedstat", tasks, tid);
    f = fopen(path, "re");
    if (f == NULL)
        return 0.0; /* it has just ended */
    if (fscanf(f, "%llu", &ns) != 1)
        ns = 0;
    fclose(f);
    return (double)ns / 1e3;
}

double cpu_time_us(const pid_t *pids, size_t n)
{
    double us = 0.0;

    for (size_t i = 0; i < n; i++) {
        char tasks[40];
        const struct dirent *entry;
        DIR *dir;

        snprintf(tasks, sizeof(tasks), "/proc/%d/task", (int)pids[i]);
        dir = opendir(tasks);
        if (dir == NULL)
            continue;
        while ((entry = readdir(dir)) != NULL) {
            if (entry->d_name[0] != '.')
                us += thread_us(tasks, entry->d_name);
        }
        closedir(dir);
    }
    return us;
}
