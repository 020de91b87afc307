#include "loadtest/load_gen.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/xalloc.h"

#define TICK_US     10000u /* looks at stop, the end, and calls that wait after a failure */
#define MAX_BURST   512u   /* calls started in one turn; then the sockets get theirs */
#define MAX_LOOKUPS 64u    /* outstanding messages of a stream that an answer is held against */

enum gen_phase { GEN_CONNECTING = 0, GEN_RUNNING, GEN_DRAINING, GEN_ENDED };

struct link { /* one connection */
    struct grpc_channel *channel;
    uint32_t n_in_flight;
};

struct load_gen {
    struct load_conf conf;
    uint32_t thread;
    uint32_t concurrency; /* this thread's share of what the conf says */
    uint64_t max_calls;
    struct loop loop;
    struct link *links;
    uint32_t n_links, next_link;
    struct list calls;   /* struct unary */
    struct list streams; /* struct stream */
    uint32_t n_streams;  /* that shall be open */
    uint32_t n_open;
    uint32_t n_in_flight; /* calls or messages */
    uint32_t n_owed;      /* closed loop: to be started at the next tick, after a failure */
    uint64_t n_calls;     /* started; numbers them */
    struct load_schedule schedule;
    uint64_t next_us; /* offset of the next call of the schedule */
    uint64_t start_us, end_us, phase_until_us;
    enum gen_phase phase;
    struct timer tick;
    ev_io due; /* timerfd: libev's own timers are a millisecond coarse */
    int due_fd;
    struct load_stats stats;
    struct h2_field *fields; /* conf.metadata, and room for one more */
    struct buf message;
    struct arena scratch;
    int result;
    struct err err;
};

struct unary {
    struct list node;
    struct load_gen *gen;
    struct link *link;
    struct grpc_call *call;
    struct load_name *replica;
    uint64_t number, intended_us, first_us;
    uint64_t n_messages;
    struct load_check check; /* of the first message */
};

struct pending { /* a message whose answer is outstanding */
    uint64_t number, intended_us;
};

struct stream {
    struct list node;
    struct load_gen *gen;
    struct link *link;
    struct grpc_call *call;
    struct load_name *replica;
    struct pending *ring;
    uint32_t first, n, cap; /* cap: a power of two */
    uint64_t n_sent;
    bool half_closed;
};

static void gen_pump(struct load_gen *g);

/* --- statistics --- */

static void stats_add(_Atomic uint64_t *counter)
{
    /* one writer: no need of a locked instruction */
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

static void stats_touch(struct load_name *row)
{
    const uint64_t now_us = clock_wall_us();

    row->n_calls++;
    row->last_us = now_us;
    if (row->first_us == 0)
        row->first_us = now_us;
}

static void stats_ok(struct load_gen *g, uint64_t intended_us, const struct load_check *c,
                     struct load_name *replica)
{
    struct load_stats *s = &g->stats;
    const uint64_t now_us = clock_mono_us();

    s->last_us = now_us;
    if (!c->belongs) {
        s->n_wrong++;
        stats_add(&s->n_failed);
        load_stats_add_error(s, GRPC_OK, "the answer does not belong to the request");
        return;
    }
    stats_add(&s->n_ok);
    histogram_add(&s->latency_us, now_us > intended_us ? now_us - intended_us : 0, 1);
    if (replica != NULL)
        stats_touch(replica);
    if (c->version[0] == '\0')
        return;
    struct load_name *version = load_names_find(&s->versions, c->version, strlen(c->version));
    stats_touch(version);
    version->n_images += c->n_images;
    version->n_correct += c->n_correct;
}

static void stats_failed(struct load_gen *g, int status, const char *message)
{
    g->stats.last_us = clock_mono_us();
    stats_add(&g->stats.n_failed);
    load_stats_add_error(&g->stats, status, message != NULL ? message : "");
}

static struct load_name *replica_of(struct load_gen *g, const struct h2_field *fields, size_t n)
{
    static const char name[] = "penstock-replica";

    for (size_t i = 0; i < n; i++) {
        if (fields[i].name_len == sizeof(name) - 1 &&
            memcmp(fields[i].name, name, sizeof(name) - 1) == 0)
            return load_names_find(&g->stats.replicas, fields[i].value, fields[i].value_len);
    }
    return NULL;
}

/* --- unary calls --- */

static struct link *pick_link(struct load_gen *g)
{
    struct link *best = &g->links[g->next_link];

    for (uint32_t i = 1; i < g->n_links && best->n_in_flight > 0; i++) {
        struct link *l = &g->links[(g->next_link + i) % g->n_links];

        if (l->n_in_flight < best->n_in_flight)
            best = l;
    }
    g->next_link = (g->next_link + 1) % g->n_links;
    return best;
}

static void unary_on_headers(void *user, struct grpc_call *c, const struct h2_field *fields,
                             size_t n)
{
    struct unary *u = user;

    (void)c;
    u->replica = replica_of(u->gen, fields, n);
}

static void unary_on_message(void *user, struct grpc_call *c, const uint8_t *p, size_t len,
                             bool compressed)
{
    struct unary *u = user;
    struct load_gen *g = u->gen;

    (void)c;
    g->stats.n_messages++;
    g->stats.bytes_received += len;
    if (u->n_messages++ > 0)
        return;
    u->first_us = clock_mono_us();
    if (!compressed) /* we never ask for it: such an answer can't be ours */
        load_payload_check(g->conf.payload, g->thread, u->number, p, len, &g->scratch, &u->check);
}

static void unary_on_end(void *user, struct grpc_call *c, int status, const char *message,
                         const struct h2_field *trailers, size_t n)
{
    struct unary *u = user;
    struct load_gen *g = u->gen;

    (void)c;
    (void)trailers;
    (void)n;
    g->stats.by_status[status]++;
    if (status != GRPC_OK) {
        stats_failed(g, status, message);
    } else {
        stats_ok(g, u->intended_us, &u->check, u->replica);
        if (u->n_messages > 1)
            histogram_add(&g->stats.first_message_us, u->first_us - u->intended_us, 1);
    }
    u->link->n_in_flight--;
    g->n_in_flight--;
    list_remove(&u->node);
    free(u);
    if (!g->conf.is_open)
        g->n_owed++;
    /* a closed loop whose server is gone would spin: its calls wait for the tick */
    if (status != GRPC_UNAVAILABLE)
        gen_pump(g);
}

static const struct grpc_call_ops unary_ops = {
    .on_headers = unary_on_headers,
    .on_message = unary_on_message,
    .on_end = unary_on_end,
};

/* number: of the call, or of the first message that a stream will carry. id: room that lasts until
 * the call was started. */
static struct grpc_call_conf call_conf(struct load_gen *g, uint64_t number, char id[LOAD_ID_SIZE])
{
    if (g->conf.has_request_ids) {
        struct h2_field *f = &g->fields[g->conf.n_metadata];

        *f = H2_FIELD("x-request-id", "");
        f->value = id;
        f->value_len = (uint32_t)load_payload_id(g->conf.payload, g->thread, number, id);
        f->flags = H2_FIELD_NO_INDEX; /* each is another: it would only push others out */
    }
    return (struct grpc_call_conf){
        .path = g->conf.payload->path,
        .metadata = g->fields,
        .n_metadata = g->conf.n_metadata + (g->conf.has_request_ids ? 1 : 0),
        .deadline_us = g->conf.deadline_us > 0 ? clock_mono_us() + g->conf.deadline_us : 0,
        .max_message_bytes = LOAD_MAX_MESSAGE_BYTES,
    };
}

static void unary_start(struct load_gen *g, uint64_t number, uint64_t intended_us)
{
    char id[LOAD_ID_SIZE];
    const struct grpc_call_conf conf = call_conf(g, number, id);
    struct unary *u = xcalloc(1, sizeof(*u));

    u->gen = g;
    u->number = number;
    u->intended_us = intended_us;
    u->link = pick_link(g);
    u->link->n_in_flight++;
    list_push_back(&g->calls, &u->node);
    u->call =
        grpc_call_unary(u->link->channel, &conf, g->message.data, g->message.len, &unary_ops, u);
}

/* --- streams --- */

static struct pending *stream_at(const struct stream *s, uint32_t i)
{
    return &s->ring[(s->first + i) & (s->cap - 1)];
}

static void stream_push(struct stream *s, struct pending p)
{
    if (s->n == s->cap) { /* unroll into twice the room */
        const uint32_t cap = s->cap > 0 ? s->cap * 2 : 16;
        struct pending *ring = xcalloc(cap, sizeof(*ring));

        for (uint32_t i = 0; i < s->n; i++)
            ring[i] = *stream_at(s, i);
        free(s->ring);
        s->ring = ring;
        s->first = 0;
        s->cap = cap;
    }
    s->n++;
    *stream_at(s, s->n - 1) = p;
}

static struct pending stream_take(struct stream *s, uint32_t i)
{
    const struct pending p = *stream_at(s, i);

    for (; i > 0; i--)
        *stream_at(s, i) = *stream_at(s, i - 1);
    s->first = (s->first + 1) & (s->cap - 1);
    s->n--;
    return p;
}

static void stream_on_headers(void *user, struct grpc_call *c, const struct h2_field *fields,
                              size_t n)
{
    struct stream *s = user;

    (void)c;
    s->replica = replica_of(s->gen, fields, n);
}

static void stream_half_close(struct stream *s)
{
    if (s->half_closed)
        return;
    s->half_closed = true;
    grpc_call_half_close(s->call);
}

/* Answers come in order from most servers; one that answers out of order is found by its id. */
static void stream_on_message(void *user, struct grpc_call *c, const uint8_t *p, size_t len,
                              bool compressed)
{
    struct stream *s = user;
    struct load_gen *g = s->gen;
    struct load_check check = {.belongs = false};
    uint32_t at = 0;

    (void)c;
    (void)compressed;
    g->stats.n_messages++;
    g->stats.bytes_received += len;
    if (s->n == 0) {
        g->stats.n_wrong++;
        stats_failed(g, GRPC_OK, "an answer without a request");
        return;
    }
    for (uint32_t i = 0; i < s->n && i < MAX_LOOKUPS && !check.belongs; i++) {
        load_payload_check(g->conf.payload, g->thread, stream_at(s, i)->number, p, len, &g->scratch,
                           &check);
        at = check.belongs ? i : 0;
    }

    const struct pending answered = stream_take(s, at);
    if (check.in_band[0] != '\0') {
        g->stats.by_status[GRPC_UNKNOWN]++;
        stats_failed(g, GRPC_UNKNOWN, check.in_band);
    } else {
        g->stats.by_status[GRPC_OK]++;
        stats_ok(g, answered.intended_us, &check, s->replica);
    }
    s->link->n_in_flight--;
    g->n_in_flight--;
    if (!g->conf.is_open)
        g->n_owed++;
    gen_pump(g);
}

static void stream_on_end(void *user, struct grpc_call *c, int status, const char *message,
                          const struct h2_field *trailers, size_t n)
{
    struct stream *s = user;
    struct load_gen *g = s->gen;

    (void)c;
    (void)trailers;
    (void)n;
    if (status != GRPC_OK && s->n == 0) /* nothing was outstanding, but it is no good end */
        load_stats_add_error(&g->stats, status, message != NULL ? message : "");
    for (; s->n > 0; stream_take(s, 0)) {
        g->stats.by_status[status]++;
        stats_failed(g, status, status != GRPC_OK ? message : "the stream ended before the answer");
        s->link->n_in_flight--;
        g->n_in_flight--;
        if (!g->conf.is_open)
            g->n_owed++;
    }
    list_remove(&s->node);
    g->n_open--;
    free(s->ring);
    free(s);
    /* the tick opens another */
}

static const struct grpc_call_ops stream_ops = {
    .on_headers = stream_on_headers,
    .on_message = stream_on_message,
    .on_end = stream_on_end,
};

static void gen_open_streams(struct load_gen *g)
{
    while (g->n_open < g->n_streams) {
        char id[LOAD_ID_SIZE];
        const struct grpc_call_conf conf = call_conf(g, g->n_calls, id);
        struct stream *s = xcalloc(1, sizeof(*s));

        s->gen = g;
        s->link = &g->links[g->next_link];
        g->next_link = (g->next_link + 1) % g->n_links;
        list_push_back(&g->streams, &s->node);
        g->n_open++;
        s->call = grpc_call_start(s->link->channel, &conf, &stream_ops, s);
    }
}

/* The open stream with the fewest outstanding messages, or NULL. */
static struct stream *pick_stream(struct load_gen *g)
{
    struct stream *best = NULL;

    list_each (&g->streams, it) {
        struct stream *s = list_entry(it, struct stream, node);

        if (!s->half_closed && (best == NULL || s->n < best->n))
            best = s;
    }
    return best;
}

static void stream_send(struct stream *s, uint64_t number, uint64_t intended_us)
{
    struct load_gen *g = s->gen;

    stream_push(s, (struct pending){number, intended_us});
    s->link->n_in_flight++;
    s->n_sent++;
    grpc_call_send(s->call, g->message.data, g->message.len, false);
    if (s->n_sent == g->conf.messages_per_stream)
        stream_half_close(s);
}

/* --- starting --- */

/* False: not now (no stream is open). */
static bool gen_start_one(struct load_gen *g, uint64_t intended_us)
{
    struct stream *s = NULL;
    const uint64_t number = g->n_calls;

    if (g->n_streams > 0) {
        s = pick_stream(g);
        if (s == NULL)
            return false;
    }
    buf_reset(&g->message);
    load_payload_build(g->conf.payload, g->thread, number, &g->message);
    g->n_calls++;
    g->n_in_flight++;
    stats_add(&g->stats.n_started);
    g->stats.bytes_sent += g->message.len;
    if (s != NULL)
        stream_send(s, number, intended_us);
    else
        unary_start(g, number, intended_us);
    return true;
}

static bool gen_may_start(const struct load_gen *g)
{
    return g->phase == GEN_RUNNING && g->n_calls < g->max_calls;
}

static void gen_arm(struct load_gen *g, uint64_t at_us)
{
    struct itimerspec its = {.it_value = {.tv_sec = (time_t)(at_us / US_PER_S),
                                          .tv_nsec = (long)(at_us % US_PER_S) * 1000}};

    timerfd_settime(g->due_fd, TFD_TIMER_ABSTIME, &its, NULL);
}

/* Open loop: start what is due, then sleep until the next. The schedule does not move on while
 * max_in_flight are running: those calls keep their intended moments and start late. */
static void gen_pump_open(struct load_gen *g)
{
    uint64_t now_us = clock_mono_us();

    for (uint32_t burst = 0; gen_may_start(g) && g->next_us < g->conf.duration_us; burst++) {
        const uint64_t intended_us = g->start_us + g->next_us;

        if (intended_us > now_us || burst == MAX_BURST) {
            gen_arm(g, intended_us > now_us ? intended_us : now_us + 1);
            return;
        }
        if (g->n_in_flight >= g->conf.max_in_flight || !gen_start_one(g, intended_us))
            return; /* the end of a call, or the tick, comes here again */
        histogram_add(&g->stats.late_us, now_us - intended_us, 1);
        g->next_us = load_schedule_next(&g->schedule);
        now_us = clock_mono_us();
    }
}

static void gen_pump(struct load_gen *g)
{
    if (g->conf.is_open) {
        gen_pump_open(g);
        return;
    }
    for (uint32_t burst = 0; g->n_owed > 0 && burst < MAX_BURST && gen_may_start(g); burst++) {
        if (clock_mono_us() >= g->end_us || !gen_start_one(g, clock_mono_us()))
            return;
        g->n_owed--;
    }
}

static void gen_on_due(struct ev_loop *ev, ev_io *w, int revents)
{
    struct load_gen *g = w->data;
    uint64_t expired;

    (void)ev;
    (void)revents;
    if (read(g->due_fd, &expired, sizeof(expired)) > 0)
        gen_pump(g);
}

/* --- phases --- */

static bool gen_is_connected(struct load_gen *g)
{
    for (uint32_t i = 0; i < g->n_links; i++) {
        if (pool_state(grpc_channel_pool(g->links[i].channel)) != POOL_UP)
            return false;
    }
    return true;
}

static void gen_begin(struct load_gen *g)
{
    g->phase = GEN_RUNNING;
    g->start_us = clock_mono_us();
    g->stats.first_us = g->start_us;
    g->end_us = g->conf.duration_us == UINT64_MAX ? UINT64_MAX : g->start_us + g->conf.duration_us;
    if (g->conf.is_open)
        g->next_us = load_schedule_next(&g->schedule);
    g->n_owed = g->concurrency;
    gen_open_streams(g);
    gen_pump(g);
}

/* Nothing more is to be started. */
static bool gen_has_started_all(const struct load_gen *g)
{
    if (atomic_load(g->conf.stop) || g->n_calls >= g->max_calls)
        return true;
    return g->conf.is_open ? g->next_us >= g->conf.duration_us : clock_mono_us() >= g->end_us;
}

static void gen_drain(struct load_gen *g)
{
    g->phase = GEN_DRAINING;
    g->phase_until_us = clock_mono_us() + g->conf.drain_us;
    g->n_streams = 0; /* none is opened again */
    list_each (&g->streams, it) {
        stream_half_close(list_entry(it, struct stream, node));
    }
}

static void gen_on_tick(struct timer *t)
{
    struct load_gen *g = container_of(t, struct load_gen, tick);
    const uint64_t now_us = clock_mono_us();

    if (g->phase == GEN_CONNECTING) {
        if (gen_is_connected(g)) {
            gen_begin(g);
        } else if (now_us >= g->phase_until_us || atomic_load(g->conf.stop)) {
            g->result = err_set(&g->err, -ETIMEDOUT, "%s: no connection: %s", g->conf.to.text,
                                pool_why_down(grpc_channel_pool(g->links[0].channel)));
            g->phase = GEN_ENDED;
        }
    }
    if (g->phase == GEN_RUNNING) {
        gen_open_streams(g);
        gen_pump(g);
        if (gen_has_started_all(g))
            gen_drain(g);
    }
    if (g->phase == GEN_DRAINING &&
        ((g->n_in_flight == 0 && g->n_open == 0) || now_us >= g->phase_until_us))
        g->phase = GEN_ENDED;
    if (g->phase == GEN_ENDED)
        loop_stop(&g->loop);
    else
        timer_start(&g->loop, &g->tick, now_us + TICK_US);
}

/* --- start and end --- */

/* The k-th of n parts of total; the parts differ by one at most. */
static uint64_t part_of(uint64_t total, uint32_t k, uint32_t n)
{
    return total / n + (k < total % n ? 1 : 0);
}

struct load_gen *load_gen_new(const struct load_conf *conf, uint32_t thread)
{
    struct load_gen *g = xcalloc(1, sizeof(*g));
    const uint32_t n = conf->n_threads;

    g->conf = *conf;
    g->thread = thread;
    g->concurrency = (uint32_t)part_of(conf->concurrency, thread, n);
    g->n_streams = (uint32_t)part_of(conf->n_streams, thread, n);
    g->n_links = (uint32_t)part_of(conf->n_connections, thread, n);
    g->max_calls = conf->max_calls == UINT64_MAX ? UINT64_MAX : part_of(conf->max_calls, thread, n);
    if (conf->is_open)
        load_schedule_split(&g->schedule, &conf->schedule, thread, n, conf->is_poisson, conf->seed);
    g->fields = xcalloc(conf->n_metadata + 1, sizeof(*g->fields));
    for (size_t i = 0; i < conf->n_metadata; i++)
        g->fields[i] = conf->metadata[i];
    list_init(&g->calls);
    list_init(&g->streams);
    load_stats_init(&g->stats);
    buf_init(&g->message, LOAD_MAX_MESSAGE_BYTES + 64);
    arena_init(&g->scratch, 0);
    return g;
}

static void gen_connect(struct load_gen *g)
{
    struct grpc_channel_conf conf = g->conf.channel;

    conf.pool.min_conns = conf.pool.max_conns = 1;
    g->links = xcalloc(g->n_links, sizeof(*g->links));
    for (uint32_t i = 0; i < g->n_links; i++) {
        conf.pool.seed = g->conf.seed + i;
        g->links[i].channel = grpc_channel_new(&g->loop, &g->conf.to, &conf);
        pool_warm(grpc_channel_pool(g->links[i].channel));
    }
}

static void gen_abandon(struct load_gen *g)
{
    struct list *it;

    while ((it = list_pop_front(&g->calls)) != NULL) {
        struct unary *u = list_entry(it, struct unary, node);

        grpc_call_abandon(u->call);
        g->stats.n_unfinished++;
        free(u);
    }
    while ((it = list_pop_front(&g->streams)) != NULL) {
        struct stream *s = list_entry(it, struct stream, node);

        grpc_call_abandon(s->call);
        g->stats.n_unfinished += s->n;
        free(s->ring);
        free(s);
    }
}

int load_gen_run(struct load_gen *g, struct err *err)
{
    loop_init(&g->loop, NULL);
    g->due_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (g->due_fd < 0) {
        const int r = err_set(err, -errno, "timerfd: %s", strerror(errno));

        loop_fini(&g->loop);
        return r;
    }
    ev_io_init(&g->due, gen_on_due, g->due_fd, EV_READ);
    g->due.data = g;
    ev_io_start(g->loop.ev, &g->due);
    g->tick.fire = gen_on_tick;
    gen_connect(g);
    g->phase_until_us = clock_mono_us() + g->conf.connect_us;
    timer_start(&g->loop, &g->tick, clock_mono_us() + 1);
    loop_run(&g->loop);

    gen_abandon(g);
    ev_io_stop(g->loop.ev, &g->due);
    close(g->due_fd);
    for (uint32_t i = 0; i < g->n_links; i++)
        grpc_channel_free(g->links[i].channel);
    loop_fini(&g->loop);
    if (g->result != 0)
        return err_set(err, g->result, "%s", g->err.text);
    return 0;
}

struct load_stats *load_gen_stats(struct load_gen *g)
{
    return &g->stats;
}

struct load_gen *load_gen_free(struct load_gen *g)
{
    if (g == NULL)
        return NULL;
    load_stats_fini(&g->stats);
    load_schedule_fini(&g->schedule);
    buf_fini(&g->message);
    arena_fini(&g->scratch);
    free(g->links);
    free(g->fields);
    free(g);
    return NULL;
}
