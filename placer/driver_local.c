/* placer/driver_local.c - units as real processes of this machine.
 *
 * Invariants:
 *  - a unit has its own process group; the group is killed when its leader ends, before the leader
 *    is reaped, so that the group's number can't be somebody else's;
 *  - when we end without a word, the kernel kills our children (PR_SET_PDEATHSIG) and the keeper
 *    the rest of their groups;
 *  - a child holds no descriptor of ours but its three standard ones;
 *  - a unit leaves the map before its EXITED is told: the handler may start its successor.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/xalloc.h"
#include "placer/driver.h"
#include "placer/keeper.h"
#include "placer/nvml.h"
#include "placer/spawn.h"
#include "placer/unit_log.h"

#define LOG_BYTES_DFLT (8u * 1024 * 1024)
#define LOG_TURN_BYTES (256u * 1024) /* of one unit's output per loop turn */
#define COMMAND_MAX    (256u * 1024) /* bytes of a filled command and environment, each */
#define RESERVED_FOR_US                                                                            \
    (60 * US_PER_S)      /* an address that no unit took is free again after this                  \
                          */
#define PORT_FIRST 10000 /* under the usual ephemeral range: no outgoing connection takes one */
#define PORT_LAST  32767

struct port {
    uint16_t number;
    bool in_use; /* by a unit; else reserved until */
    uint64_t until_us;
};

struct driver_local {
    struct driver base;
    struct loop *loop;
    struct keeper keeper;
    char *logs;
    char *host;
    struct in_addr host_addr;
    uint64_t log_max_bytes;
    driver_event_fn on_event;
    void *arg;
    struct node_spec *nodes; /* declared; strings are ours */
    size_t n_nodes;
    struct list units;
    struct map by_id;
    struct port *ports;
    size_t n_ports;
    uint16_t next_port;
};

struct unit {
    struct list node;
    struct driver_local *driver;
    char *id;
    struct unit_log log;
    char address[DRIVER_ADDRESS_MAX];
    pid_t pid;
    ev_io exit_io;   /* the pidfd */
    ev_io output_io; /* read end of its stdout and stderr */
    struct timer announce;
    struct timer kill;
    struct dead dead;
};

static struct driver_local *local_of(struct driver *d)
{
    return container_of(d, struct driver_local, base);
}

/* ---- inventory ---- */

static void nodes_free(struct driver_local *d)
{
    for (size_t i = 0; i < d->n_nodes; i++) {
        free((char *)d->nodes[i].name);
        for (uint32_t c = 0; c < d->nodes[i].n_cards; c++) {
            free((char *)d->nodes[i].cards[c].id);
            free((char *)d->nodes[i].cards[c].model);
        }
    }
    free(d->nodes);
    d->nodes = NULL;
    d->n_nodes = 0;
}

void driver_local_set_nodes(struct driver *driver, const struct node_conf *nodes, size_t n_nodes)
{
    struct driver_local *d = local_of(driver);

    nodes_free(d);
    d->nodes = xcalloc(n_nodes > 0 ? n_nodes : 1, sizeof(*d->nodes));
    d->n_nodes = n_nodes;
    for (size_t i = 0; i < n_nodes; i++) {
        struct node_spec *spec = &d->nodes[i];

        *spec = (struct node_spec){.name = xstrdup(nodes[i].name),
                                   .cpu_milli = nodes[i].cpu_milli,
                                   .memory_mib = nodes[i].memory_mib};
        for (size_t c = 0; c < nodes[i].n_cards && c < PLAN_MAX_CARDS; c++)
            spec->cards[spec->n_cards++] =
                (struct card_spec){.id = xstrdup(nodes[i].cards[c].id),
                                   .model = xstrdup(nodes[i].cards[c].model),
                                   .memory_mib = nodes[i].cards[c].memory_mib};
    }
}

/* No nodes.json: this machine, with the cards that NVML finds. */
static int inventory_of_host(struct cluster_view *view, struct err *err)
{
    const long n_cpus = sysconf(_SC_NPROCESSORS_ONLN), pages = sysconf(_SC_PHYS_PAGES);
    struct nvml_card cards[PLAN_MAX_CARDS];
    struct node_spec spec = {0};
    char name[HOST_NAME_MAX + 1] = "";
    uint32_t n_lost = 0;
    struct err lost = {0};
    const int n_cards = nvml_cards(cards, PLAN_MAX_CARDS, &n_lost, &lost);

    if (n_cards < 0)
        return err_set(err, n_cards, "%s", lost.text);
    if (n_lost > 0)
        log_warn("cards_lost", "cards=%u msg=\"%s\"", n_lost, lost.text);
    if (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0')
        snprintf(name, sizeof(name), "local");
    spec.name = name;
    spec.cpu_milli = (uint32_t)(n_cpus > 0 ? n_cpus : 1) * 1000;
    spec.memory_mib =
        (uint32_t)((uint64_t)(pages > 0 ? pages : 0) * (uint64_t)sysconf(_SC_PAGESIZE) >> 20);
    for (int i = 0; i < n_cards; i++)
        spec.cards[spec.n_cards++] =
            (struct card_spec){cards[i].uuid, cards[i].model, cards[i].memory_mib};
    return cluster_view_set_node(view, &spec, err);
}

static int local_inventory(struct driver *driver, struct cluster_view *view, struct err *err)
{
    struct driver_local *d = local_of(driver);
    int r = 0;

    for (size_t i = 0; i < view->n_nodes; i++)
        view->nodes[i].down = true; /* those that are still there come up again below */
    if (d->n_nodes == 0)
        r = inventory_of_host(view, err);
    for (size_t i = 0; i < d->n_nodes && r >= 0; i++)
        r = cluster_view_set_node(view, &d->nodes[i], err);
    return r < 0 ? r : 0;
}

/* ---- addresses ---- */

static bool port_is_free(const struct driver_local *d, uint16_t number)
{
    const struct sockaddr_in sa = {
        .sin_family = AF_INET, .sin_port = htons(number), .sin_addr = d->host_addr};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool free_now;

    if (fd < 0)
        return false;
    free_now = bind(fd, (const struct sockaddr *)&sa, sizeof(sa)) == 0;
    close(fd);
    return free_now;
}

static struct port *port_find(struct driver_local *d, unsigned long number)
{
    for (size_t i = 0; i < d->n_ports; i++)
        if (d->ports[i].number == number)
            return &d->ports[i];
    return NULL;
}

static void port_release(struct driver_local *d, unsigned long number)
{
    struct port *p = port_find(d, number);

    if (p != NULL)
        *p = d->ports[--d->n_ports];
}

static int local_reserve_address(struct driver *driver, const char *node, char *dst, size_t size,
                                 struct err *err)
{
    struct driver_local *d = local_of(driver);

    (void)node; /* every node of this driver is this machine */
    for (size_t i = d->n_ports; i-- > 0;)
        if (!d->ports[i].in_use && d->ports[i].until_us < d->loop->now_us)
            d->ports[i] = d->ports[--d->n_ports];
    /* In turn, so that a port is not soon given to another replica: clients of the old one may
     * still try it. */
    for (int tries = 0; tries <= PORT_LAST - PORT_FIRST; tries++) {
        const uint16_t number = d->next_port;

        d->next_port = number == PORT_LAST ? PORT_FIRST : (uint16_t)(number + 1);
        if (port_find(d, number) != NULL || !port_is_free(d, number))
            continue;
        d->ports = xrealloc(d->ports, d->n_ports + 1, sizeof(*d->ports));
        d->ports[d->n_ports++] =
            (struct port){.number = number, .until_us = d->loop->now_us + RESERVED_FOR_US};
        snprintf(dst, size, "%s:%u", d->host, number);
        return 0;
    }
    return err_set(err, -EADDRINUSE, "no free port from %d to %d on %s", PORT_FIRST, PORT_LAST,
                   d->host);
}

/* ---- output ---- */

/* Reads what the unit wrote, at most a turn's worth; stops watching at its end. */
static void unit_read_output(struct unit *u)
{
    char chunk[16384];
    size_t total = 0;

    while (total < LOG_TURN_BYTES && u->output_io.fd >= 0) {
        const ssize_t n = read(u->output_io.fd, chunk, sizeof(chunk));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            ev_io_stop(u->driver->loop->ev, &u->output_io);
            close(u->output_io.fd);
            u->output_io.fd = -1;
            return;
        }
        unit_log_write(&u->log, chunk, (size_t)n);
        total += (size_t)n;
    }
}

static int local_logs(struct driver *driver, const char *log, uint64_t max_bytes,
                      struct buf *ret_text, struct err *err)
{
    return unit_log_tail(local_of(driver)->logs, log, max_bytes, ret_text, err);
}

/* ---- end of a unit ---- */

static void unit_reap(struct dead *dead)
{
    struct unit *u = container_of(dead, struct unit, dead);

    free(u->id);
    free(u);
}

/* Everything of the unit but its memory. */
static void unit_stop_watching(struct unit *u)
{
    struct loop *loop = u->driver->loop;

    timer_stop(loop, &u->announce);
    timer_stop(loop, &u->kill);
    ev_io_stop(loop->ev, &u->exit_io);
    close(u->exit_io.fd);
    ev_io_stop(loop->ev, &u->output_io);
    if (u->output_io.fd >= 0)
        close(u->output_io.fd);
    unit_log_close(&u->log);
    keeper_remove(u->driver->keeper.fd, u->pid);
    list_remove(&u->node);
    map_del(&u->driver->by_id, u->id, strlen(u->id));
    port_release(u->driver, strtoul(strrchr(u->address, ':') + 1, NULL, 10));
}

static void unit_tell_started(struct unit *u)
{
    const struct driver_event ev = {
        .kind = DRIVER_STARTED, .id = u->id, .address = u->address, .pid = u->pid};

    u->driver->on_event(u->driver->arg, &ev);
}

static void unit_on_announce(struct timer *t)
{
    unit_tell_started(container_of(t, struct unit, announce));
}

static void unit_on_kill(struct timer *t)
{
    kill(-container_of(t, struct unit, kill)->pid, SIGKILL);
}

/* The leader has ended: take the rest of its group along, keep what was written, tell. */
static void unit_end(struct unit *u)
{
    struct driver_local *d = u->driver;
    siginfo_t info = {0};
    char text[64];
    struct driver_event ev = {.kind = DRIVER_EXITED, .id = u->id, .pid = u->pid, .text = text};

    if (heap_node_is_linked(&u->announce.node)) {
        timer_stop(d->loop, &u->announce);
        unit_tell_started(u);
    }
    kill(-u->pid, SIGKILL);
    if (waitid(P_PID, (id_t)u->pid, &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0)
        return; /* not yet: the pidfd stays readable */
    unit_read_output(u);
    if (info.si_code == CLD_EXITED) {
        ev.status = info.si_status;
        snprintf(text, sizeof(text), "exit status %d", info.si_status);
    } else {
        ev.status = -info.si_status;
        snprintf(text, sizeof(text), "killed by signal %d", info.si_status);
    }
    unit_stop_watching(u);
    loop_bury(d->loop, &u->dead);
    d->on_event(d->arg, &ev);
}

static void unit_on_exit(struct ev_loop *ev, ev_io *w, int revents)
{
    (void)ev;
    (void)revents;
    unit_end(container_of(w, struct unit, exit_io));
}

static void unit_on_output(struct ev_loop *ev, ev_io *w, int revents)
{
    (void)ev;
    (void)revents;
    unit_read_output(container_of(w, struct unit, output_io));
}

/* ---- start ---- */

/* NUL-terminated strings one after another, and an array of pointers to them for execve. */
struct strings {
    struct buf bytes;
    size_t offsets[1024];
    size_t n;
    char *pointers[1025];
};

static bool strings_add(struct strings *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
static bool strings_add(struct strings *s, const char *fmt, ...)
{
    char *text;
    va_list ap;
    bool ok;

    if (s->n == ARRAY_LEN(s->offsets))
        return false;
    va_start(ap, fmt);
    ok = vasprintf(&text, fmt, ap) >= 0;
    va_end(ap);
    check(ok);
    s->offsets[s->n++] = s->bytes.len;
    ok = buf_append(&s->bytes, text, strlen(text) + 1);
    free(text);
    return ok;
}

static char **strings_pointers(struct strings *s)
{
    for (size_t i = 0; i < s->n; i++)
        s->pointers[i] = (char *)s->bytes.data + s->offsets[i];
    s->pointers[s->n] = NULL;
    return s->pointers;
}

static char *join_cards(const struct unit_spec *spec)
{
    struct buf b;
    char *text;

    buf_init(&b, 8192);
    for (size_t i = 0; i < spec->n_cards; i++)
        buf_printf(&b, "%s%s", i > 0 ? "," : "", spec->cards[i]);
    text = xstrdup(buf_cstr(&b));
    buf_fini(&b);
    return text;
}

static int fill_command(struct strings *argv, const struct unit_spec *spec, const char *address,
                        const char *cards, struct err *err)
{
    const char *colon = strrchr(address, ':');
    char *host = xstrndup(address, (size_t)(colon - address));
    const struct env_pair own[] = {{"address", address},
                                   {"host", host},
                                   {"port", colon + 1},
                                   {"node", spec->node},
                                   {"cards", cards}};
    struct env_pair *blanks = xcalloc(ARRAY_LEN(own) + spec->n_blanks, sizeof(*blanks));
    bool ok = true;

    memcpy(blanks, own, sizeof(own));
    if (spec->n_blanks > 0)
        memcpy(blanks + ARRAY_LEN(own), spec->blanks, spec->n_blanks * sizeof(*blanks));
    for (size_t i = 0; i < spec->n_command && ok; i++) {
        struct buf b;

        buf_init(&b, COMMAND_MAX);
        ok = command_fill(&b, spec->command[i], blanks,
                          spec->literal ? 0 : ARRAY_LEN(own) + spec->n_blanks) &&
             strings_add(argv, "%s", buf_cstr(&b));
        buf_fini(&b);
    }
    free(host);
    free(blanks);
    return ok ? 0
              : err_set(err, -E2BIG, "the command of %s is over %u bytes or %zu arguments",
                        spec->id, COMMAND_MAX, ARRAY_LEN(argv->offsets));
}

/* True when the spec, or the driver itself, sets this variable of ours anew. */
static bool is_overridden(const struct unit_spec *spec, const char *assignment)
{
    static const char *const own[] = {"PORT",
                                      "PENSTOCK_ADDRESS",
                                      "PENSTOCK_NODE",
                                      "CUDA_VISIBLE_DEVICES",
                                      "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
                                      "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"};
    const size_t len = strcspn(assignment, "=");

    for (size_t i = 0; i < ARRAY_LEN(own); i++)
        if (strlen(own[i]) == len && memcmp(own[i], assignment, len) == 0)
            return true;
    for (size_t i = 0; i < spec->n_env; i++)
        if (strlen(spec->env[i].name) == len && memcmp(spec->env[i].name, assignment, len) == 0)
            return true;
    return false;
}

/* Our own environment, then what every unit gets, then the spec's. A unit without a card sees none:
 * otherwise it would use those of others. */
static int fill_environment(struct strings *envp, const struct unit_spec *spec, const char *address,
                            const char *cards, struct err *err)
{
    bool ok = true;

    for (char **e = environ; *e != NULL && ok; e++)
        if (!is_overridden(spec, *e))
            ok = strings_add(envp, "%s", *e);
    ok = ok && strings_add(envp, "PORT=%s", strrchr(address, ':') + 1) &&
         strings_add(envp, "PENSTOCK_ADDRESS=%s", address) &&
         strings_add(envp, "PENSTOCK_NODE=%s", spec->node) &&
         strings_add(envp, "CUDA_VISIBLE_DEVICES=%s", cards);
    if (spec->gpu_milli > 0 && spec->gpu_milli < PLAN_CARD_MILLI) {
        ok = ok && strings_add(envp, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%u",
                               spec->gpu_milli < 10 ? 1 : spec->gpu_milli / 10);
        if (spec->gpu_memory_mib > 0) /* device 0 of those that it sees */
            ok = ok &&
                 strings_add(envp, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=%uM", spec->gpu_memory_mib);
    }
    for (size_t i = 0; i < spec->n_env && ok; i++)
        ok = strings_add(envp, "%s=%s", spec->env[i].name, spec->env[i].value);
    return ok ? 0
              : err_set(err, -E2BIG, "the environment of %s is over %u bytes or %zu variables",
                        spec->id, COMMAND_MAX, ARRAY_LEN(envp->offsets));
}

static int local_start(struct driver *driver, const struct unit_spec *spec, struct err *err)
{
    struct driver_local *d = local_of(driver);
    struct strings *argv = NULL, *envp = NULL;
    struct spawned process;
    struct unit *u;
    struct port *port;
    char *cards, *log;
    int r;

    if (map_get(&d->by_id, spec->id, strlen(spec->id)) != NULL)
        return err_set(err, -EEXIST, "unit %s runs already", spec->id);
    if (spec->n_command == 0)
        return err_set(err, -EINVAL, "unit %s has no command", spec->id);
    if (spec->log != NULL && !unit_log_name_is_fine(spec->log))
        return err_set(err, -EINVAL, "\"%.100s\" is not the name of a log", spec->log);

    u = xcalloc(1, sizeof(*u));
    u->driver = d;
    u->id = xstrdup(spec->id);
    u->announce.fire = unit_on_announce;
    u->kill.fire = unit_on_kill;
    u->dead.reap = unit_reap;
    argv = xcalloc(1, sizeof(*argv));
    envp = xcalloc(1, sizeof(*envp));
    buf_init(&argv->bytes, COMMAND_MAX);
    buf_init(&envp->bytes, COMMAND_MAX);
    cards = join_cards(spec);
    log = spec->log != NULL ? xstrdup(spec->log) : unit_log_name_of(spec->id);

    if (spec->address != NULL)
        snprintf(u->address, sizeof(u->address), "%s", spec->address);
    r = spec->address != NULL
            ? 0
            : local_reserve_address(driver, spec->node, u->address, sizeof(u->address), err);
    if (r == 0)
        r = fill_command(argv, spec, u->address, cards, err);
    if (r == 0)
        r = fill_environment(envp, spec, u->address, cards, err);
    if (r == 0)
        r = unit_log_open(&u->log, d->logs, log, d->log_max_bytes, err);
    if (r == 0)
        r = spawn(strings_pointers(argv), strings_pointers(envp), d->keeper.fd, &process, err);
    buf_fini(&argv->bytes);
    buf_fini(&envp->bytes);
    free(argv);
    free(envp);
    free(cards);
    free(log);
    if (r < 0) {
        unit_log_close(&u->log);
        unit_reap(&u->dead); /* never told to anybody: no callback of its own can run */
        return r;
    }

    port = port_find(d, strtoul(strrchr(u->address, ':') + 1, NULL, 10));
    if (port != NULL)
        port->in_use = true;
    list_push_back(&d->units, &u->node);
    map_set(&d->by_id, u->id, strlen(u->id), u);
    u->pid = process.pid;
    ev_io_init(&u->exit_io, unit_on_exit, process.pidfd, EV_READ);
    ev_io_init(&u->output_io, unit_on_output, process.output_fd, EV_READ);
    ev_io_start(d->loop->ev, &u->exit_io);
    ev_io_start(d->loop->ev, &u->output_io);
    timer_start(d->loop, &u->announce, d->loop->now_us);
    return 0;
}

static int local_stop(struct driver *driver, const char *id, uint64_t grace_us)
{
    struct driver_local *d = local_of(driver);
    struct unit *u = map_get(&d->by_id, id, strlen(id));

    if (u == NULL)
        return -ENOENT;
    kill(-u->pid, grace_us > 0 ? SIGTERM : SIGKILL);
    kill(-u->pid, SIGCONT); /* one that somebody stopped would not hear it */
    if (grace_us > 0)
        timer_start(d->loop, &u->kill, d->loop->now_us + grace_us);
    return 0;
}

/* ---- life ---- */

static void local_free(struct driver *driver)
{
    struct driver_local *d = local_of(driver);

    list_each (&d->units, it) {
        struct unit *u = list_entry(it, struct unit, node);

        kill(-u->pid, SIGKILL);
        waitpid(u->pid, NULL, 0);
        unit_stop_watching(u);
        unit_reap(&u->dead);
    }
    keeper_stop(&d->keeper);
    nodes_free(d);
    map_fini(&d->by_id);
    free(d->ports);
    free(d->logs);
    free(d->host);
    free(d);
}

static const struct driver_ops driver_local_ops = {
    .name = "local",
    .free = local_free,
    .inventory = local_inventory,
    .reserve_address = local_reserve_address,
    .start = local_start,
    .stop = local_stop,
    .logs = local_logs,
};

static int make_folder(const char *path, struct err *err)
{
    if (mkdir(path, 0755) != 0 && errno != EEXIST)
        return err_set(err, -errno, "can't make folder %s: %s", path, strerror(errno));
    return 0;
}

struct driver *driver_local_new(const struct driver_local_conf *conf, struct err *err)
{
    struct driver_local *d = xcalloc(1, sizeof(*d));
    struct rng rng;

    d->base.ops = &driver_local_ops;
    d->loop = conf->loop;
    d->logs = xasprintf("%s/logs", conf->state);
    d->host = xstrdup(conf->host != NULL ? conf->host : "127.0.0.1");
    d->log_max_bytes = conf->log_max_bytes > 0 ? conf->log_max_bytes : LOG_BYTES_DFLT;
    d->on_event = conf->on_event;
    d->arg = conf->arg;
    list_init(&d->units);
    map_init(&d->by_id);
    /* Drivers of several processes on this machine begin at different ports. */
    rng_init(&rng, (uint64_t)getpid() ^ clock_wall_us());
    d->next_port = (uint16_t)(PORT_FIRST + rng_below(&rng, PORT_LAST - PORT_FIRST + 1));
    driver_local_set_nodes(&d->base, conf->nodes, conf->n_nodes);
    if (inet_pton(AF_INET, d->host, &d->host_addr) != 1)
        err_set(err, -EINVAL, "host \"%s\" of the local driver is not an IPv4 address", d->host);
    else if (make_folder(conf->state, err) == 0 && make_folder(d->logs, err) == 0 &&
             keeper_start(&d->keeper, err) == 0)
        return &d->base;
    local_free(&d->base);
    return NULL;
}
