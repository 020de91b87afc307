#include "placer/task_topology.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"

struct bucket {
    uint32_t n_tasks[TASK_TOPOLOGY_ROLES_MAX]; /* by role */
    uint64_t load;
};

/* The names of one group, up to ';' or the end. Returns how many, or -EINVAL. */
static int parse_group(const char *text, size_t len, const struct task_topology_role *roles,
                       size_t n_roles, uint8_t *ret_members, struct err *err)
{
    bool seen[TASK_TOPOLOGY_ROLES_MAX] = {false};
    int n = 0;

    for (size_t at = 0; at <= len;) {
        const char *name = text + at;
        size_t name_len = 0, r = 0, blank;

        while (at + name_len < len && name[name_len] != ',')
            name_len++;
        at += name_len + 1;
        blank = strspn(name, " ");
        name += blank <= name_len ? blank : name_len;
        name_len -= blank <= name_len ? blank : name_len;
        while (name_len > 0 && name[name_len - 1] == ' ')
            name_len--;
        while (r < n_roles &&
               (strlen(roles[r].role) != name_len || memcmp(roles[r].role, name, name_len) != 0))
            r++;
        if (r == n_roles)
            return err_set(err, -EINVAL, "\"%.*s\" is not a task of this job",
                           (int)(name_len < 64 ? name_len : 64), name);
        if (seen[r])
            return err_set(err, -EINVAL, "\"%s\" stands in a group twice", roles[r].role);
        seen[r] = true;
        ret_members[n++] = (uint8_t)r;
    }
    return n;
}

static int add_groups(struct task_topology *t, const struct task_topology_role *roles,
                      const char *text, int8_t pull, struct err *err)
{
    while (text != NULL && *text != '\0') {
        const size_t len = strcspn(text, ";");
        uint8_t members[TASK_TOPOLOGY_ROLES_MAX];
        const int n = parse_group(text, len, roles, t->n_roles, members, err);

        if (n < 0)
            return n;
        if (n == 1)
            t->pull[members[0]][members[0]] = pull;
        for (int i = 0; i < n; i++)
            for (int k = 0; k < n; k++)
                if (i != k)
                    t->pull[members[i]][members[k]] = pull;
        text += len + (text[len] == ';');
    }
    return 0;
}

int task_topology_parse(struct task_topology *t, const struct task_topology_role *roles,
                        size_t n_roles, const char *affinity, const char *anti_affinity,
                        const char *order, struct err *err)
{
    bool is_ordered[TASK_TOPOLOGY_ROLES_MAX] = {false};
    int n = 0, r;

    check(n_roles <= TASK_TOPOLOGY_ROLES_MAX);
    memset(t, 0, sizeof(*t));
    t->n_roles = n_roles;
    r = add_groups(t, roles, affinity, 1, err);
    if (r == 0)
        r = add_groups(t, roles, anti_affinity, -1, err); /* denial wins */
    if (r == 0 && order != NULL && order[0] != '\0')
        r = n = parse_group(order, strlen(order), roles, n_roles, t->order, err);
    if (r < 0)
        return r;
    for (int i = 0; i < n; i++)
        is_ordered[t->order[i]] = true;
    for (size_t i = 0; i < n_roles; i++)
        if (!is_ordered[i])
            t->order[n++] = (uint8_t)i;
    return 0;
}

static int64_t pull_of(const struct task_topology *t, const struct bucket *b, size_t role)
{
    int64_t sum = 0;

    for (size_t r = 0; r < t->n_roles; r++)
        sum += (int64_t)t->pull[role][r] * b->n_tasks[r];
    return sum;
}

/* The bucket that the next task of the role joins; n: none of them. */
static size_t choose(const struct task_topology *t, const struct bucket *buckets, size_t n,
                     size_t role)
{
    size_t best = n;
    int64_t best_pull = 0;

    for (size_t i = 0; i < n; i++) {
        const int64_t pull = pull_of(t, &buckets[i], role);

        if (pull < 0 || (best < n && (pull < best_pull || (pull == best_pull &&
                                                           buckets[i].load >= buckets[best].load))))
            continue;
        best = i;
        best_pull = pull;
    }
    return best;
}

size_t task_topology_buckets(const struct task_topology *t, const struct task_topology_role *roles,
                             uint32_t *ret_buckets)
{
    size_t first[TASK_TOPOLOGY_ROLES_MAX], n_tasks = 0, n = 0;
    struct bucket *buckets;

    for (size_t r = 0; r < t->n_roles; r++) {
        first[r] = n_tasks;
        n_tasks += roles[r].count;
    }
    buckets = xcalloc(n_tasks + 1, sizeof(*buckets));
    for (size_t o = 0; o < t->n_roles; o++) {
        const size_t role = t->order[o];

        for (uint32_t i = 0; i < roles[role].count; i++) {
            const size_t b = choose(t, buckets, n, role);

            n += b == n;
            buckets[b].n_tasks[role]++;
            buckets[b].load += roles[role].load;
            ret_buckets[first[role] + i] = (uint32_t)b;
        }
    }
    free(buckets);
    return n;
}
