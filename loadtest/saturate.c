#include "loadtest/saturate.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/xalloc.h"
#include "loadtest/cpu_time.h"
#include "loadtest/wire.h"
#include "net/h2_hpack.h"

#define CONNECT_S              5
#define DRAIN_US               (5 * US_PER_S)
#define EVENTS                 64
#define REQUEST_ID             "x-request-id"
#define ID_DIGITS              32u
#define ID_BYTES               (3 + sizeof(REQUEST_ID) - 1 + ID_DIGITS)
#define CONNECTIONS_PER_SOURCE 10000u
#define TABLE_SPREAD           4u /* places per open call: ids of long calls are stepped over */
#define NO_STATUS              UINT32_MAX

struct call {
    struct list node; /* link.sending, while the request is not out and its window is open */
    uint32_t id;      /* 0: free */
    bool answered;    /* response headers came */
    int64_t window;
    size_t left; /* of the message */
    size_t got;  /* of the answer's DATA */
    uint8_t prefix[GRPC_PREFIX_BYTES];
    uint64_t began_us;
};

struct link {
    struct wire wire; /* its address is epoll's data */
    struct load *load;
    struct hpack_in hpack;
    struct wire_block block;
    struct call *calls; /* by id / 2, modulo */
    uint32_t mask, n_open, n_streams, next_id;
    uint64_t n_started;
    struct list sending;
    int64_t window, stream_window; /* the peer's: of the connection, of a new stream */
    bool greeted;                  /* its first SETTINGS came */
    bool table_is_small;
    bool leaving; /* GOAWAY came */
};

struct load {
    const struct saturate_conf *conf;
    struct saturate_result *result;
    struct slab_pool slabs;
    struct h2_limits limits;
    struct link *links;
    uint32_t n_live;
    int epoll;
    uint64_t now_us;
    uint64_t n_started, n_ended;
    uint64_t next_request_id;
    bool stopping;
};

/* --- a call --- */

static struct call *link_call(struct link *l, uint32_t id)
{
    struct call *c = &l->calls[(id >> 1) & l->mask];

    return c->id == id && id != 0 ? c : NULL;
}

static void put_request_id(uint8_t *p, uint64_t n)
{
    char value[ID_DIGITS];
    struct h2_field f = H2_FIELD(REQUEST_ID, "");
    uint64_t x = n * 0x9e3779b97f4a7c15u; /* a bijection: no two alike */

    for (size_t i = 0; i < ID_DIGITS; i++) {
        value[i] = "0123456789abcdef"[x & 15];
        x = x >> 4 | x << 60;
    }
    f.value = value;
    f.value_len = ID_DIGITS;
    wire_put_literal(p, &f);
}

static void link_start_call(struct link *l)
{
    struct load *load = l->load;
    struct call *c;
    const uint8_t *block;
    size_t len;
    uint8_t *p;

    while ((c = &l->calls[(l->next_id >> 1) & l->mask])->id != 0)
        l->next_id += 2;
    *c = (struct call){.id = l->next_id,
                       .window = l->stream_window,
                       .left = load->conf->message_bytes,
                       .began_us = load->now_us};
    l->next_id += 2;
    l->n_open++;
    l->n_started++;
    load->n_started++;
    block = wire_block_next(&l->block, &len);

    const size_t all = len + (load->conf->has_request_ids ? ID_BYTES : 0);

    p = wire_put(&l->wire, FRAME_HEAD_BYTES + all);
    p = frame_write(p, all, FRAME_HEADERS, FRAME_END_HEADERS, c->id);
    memcpy(p, block, len);
    if (load->conf->has_request_ids)
        put_request_id(p + len, load->next_request_id++);
    list_push_back(&l->sending, &c->node);
}

static void link_fill(struct link *l)
{
    const struct load *load = l->load;

    while (l->greeted && !l->leaving && !load->stopping && l->n_open < l->n_streams &&
           load->n_started < load->conf->max_calls && l->next_id < FRAME_MAX_ID - 2 &&
           (load->conf->calls_each == 0 || l->n_started < load->conf->calls_each))
        link_start_call(l);
}

/* One DATA frame of the call. false: its window is closed. */
static bool link_send_data(struct link *l, struct call *c)
{
    const uint8_t *from = l->load->conf->message + (l->load->conf->message_bytes - c->left);
    size_t n = c->left < FRAME_PAYLOAD_BYTES ? c->left : FRAME_PAYLOAD_BYTES;
    uint8_t *p;

    if (c->window <= 0)
        return false;
    if ((int64_t)n > c->window)
        n = (size_t)c->window;
    if ((int64_t)n > l->window)
        n = (size_t)l->window;
    p = wire_put(&l->wire, FRAME_HEAD_BYTES + n);
    p = frame_write(p, n, FRAME_DATA, n == c->left ? FRAME_END_STREAM : 0, c->id);
    memcpy(p, from, n);
    c->left -= n;
    c->window -= (int64_t)n;
    l->window -= (int64_t)n;
    return true;
}

static void link_send(struct link *l)
{
    struct call *c;

    while (l->window > 0 && wire_queued(&l->wire) < WIRE_OUT_BYTES &&
           (c = list_first(&l->sending, struct call, node)) != NULL) {
        const bool sent = link_send_data(l, c);

        list_remove(&c->node);
        if (sent && c->left > 0)
            list_push_back(&l->sending, &c->node); /* the others' turn */
    }
}

static void link_end_call(struct link *l, struct call *c)
{
    list_remove(&c->node);
    c->id = 0;
    l->n_open--;
    l->load->n_ended++;
}

/* The answer is one message, to its last byte. */
static bool call_is_whole(const struct call *c)
{
    return c->got >= GRPC_PREFIX_BYTES &&
           c->got - GRPC_PREFIX_BYTES == frame_read_u32(c->prefix + 1);
}

/* END_STREAM came. status: NO_STATUS: none. */
static void link_finish_call(struct link *l, struct call *c, uint32_t status)
{
    struct saturate_result *r = l->load->result;

    if (status == NO_STATUS)
        r->n_no_status++;
    else if (status != GRPC_OK)
        r->by_status[status < GRPC_N_STATUS ? status : GRPC_UNKNOWN]++;
    else if (!call_is_whole(c))
        r->n_empty++;
    else {
        r->n_ok++;
        r->by_status[GRPC_OK]++;
        histogram_add(&r->latency_us, l->load->now_us - c->began_us, 1);
    }
    if (c->left > 0) { /* answered before all was sent */
        uint8_t *p = wire_put(&l->wire, FRAME_HEAD_BYTES + 4);

        frame_write_u32(frame_write(p, 4, FRAME_RST_STREAM, 0, c->id), H2_CANCEL);
    }
    link_end_call(l, c);
}

/* --- frames --- */

static const struct h2_field *find_field(const struct hpack_list *list, const char *name,
                                         size_t len)
{
    for (size_t i = list->n; i-- > 0;) { /* statuses come last, or first and alone */
        if (list->fields[i].name_len == len && memcmp(list->fields[i].name, name, len) == 0)
            return &list->fields[i];
    }
    return NULL;
}

#define FIND(list, name) find_field((list), (name), sizeof(name) - 1)

static uint32_t status_of(const struct hpack_list *list)
{
    const struct h2_field *f = FIND(list, "grpc-status");

    return f == NULL ? NO_STATUS : (uint32_t)grpc_status_parse(f->value, f->value_len);
}

static bool is_http_200(const struct hpack_list *list)
{
    const struct h2_field *f = FIND(list, ":status");

    return f != NULL && f->value_len == 3 && memcmp(f->value, "200", 3) == 0;
}

static int link_on_headers(struct link *l, const struct frame *f, const uint8_t *p, size_t len)
{
    struct load *load = l->load;
    struct call *c = link_call(l, f->id);
    const enum message_part part = c != NULL && c->answered ? MESSAGE_TRAILERS : MESSAGE_RESPONSE;
    struct hpack_list list;

    if ((f->flags & FRAME_END_HEADERS) == 0) /* one frame holds any answer to our calls */
        return -EPROTO;
    if (hpack_in_block(&l->hpack, &load->slabs, &load->limits, part, p, len, &list) != HPACK_OK) {
        hpack_in_done(&list);
        return -EPROTO;
    }
    if (c != NULL && (f->flags & FRAME_END_STREAM) != 0)
        link_finish_call(l, c, c->answered || is_http_200(&list) ? status_of(&list) : NO_STATUS);
    else if (c != NULL && !message_is_informational(&list.message))
        c->answered = true;
    hpack_in_done(&list);
    return 0;
}

static void link_on_data(struct link *l, const struct frame *f, const uint8_t *p, size_t len)
{
    struct call *c = link_call(l, f->id);

    wire_put_window(&l->wire, f->len);
    if (c == NULL)
        return;
    for (size_t i = 0; i < len && c->got + i < GRPC_PREFIX_BYTES; i++)
        c->prefix[c->got + i] = p[i];
    c->got += len;
    l->load->result->bytes_received += len;
    if ((f->flags & FRAME_END_STREAM) != 0)
        link_finish_call(l, c, NO_STATUS);
}

static void link_on_reset(struct link *l, uint32_t id)
{
    struct call *c = link_call(l, id);

    if (c == NULL)
        return;
    l->load->result->n_reset++;
    link_end_call(l, c);
}

/* A window that was shut has opened. */
static void call_resume(struct link *l, struct call *c)
{
    if (c->left > 0 && c->window > 0 && !list_is_linked(&c->node))
        list_push_back(&l->sending, &c->node);
}

static void link_on_window(struct link *l, uint32_t id, uint32_t by)
{
    struct call *c = link_call(l, id);

    if (id == 0)
        l->window += by;
    else if (c != NULL) {
        c->window += by;
        call_resume(l, c);
    }
}

static void link_set_stream_window(struct link *l, uint32_t value)
{
    const int64_t by = (int64_t)value - l->stream_window;

    l->stream_window = value;
    for (uint32_t i = 0; i <= l->mask; i++) {
        if (l->calls[i].id == 0)
            continue;
        l->calls[i].window += by;
        call_resume(l, &l->calls[i]);
    }
}

static int link_on_settings(struct link *l, const struct frame *f, const uint8_t *p, size_t len)
{
    struct wire_block *block = &l->block;

    if ((f->flags & FRAME_ACK) != 0)
        return 0;
    for (; len >= 6; p += 6, len -= 6) {
        const unsigned id = (unsigned)p[0] << 8 | p[1];
        const uint32_t value = frame_read_u32(p + 2);

        if (id == SETTING_INITIAL_WINDOW_SIZE)
            link_set_stream_window(l, value);
        else if (id == SETTING_MAX_CONCURRENT_STREAMS && value < l->load->conf->n_streams)
            l->n_streams = value;
        else if (id == SETTING_HEADER_TABLE_SIZE)
            l->table_is_small = value < 4096;
    }
    wire_put_settings_ack(&l->wire);
    if (l->greeted)
        return 0;
    l->greeted = true;
    return wire_block_make(&block, &l->load->conf->fields, &l->load->conf->n_fields, 1,
                           !l->table_is_small);
}

static int link_on_frame(struct link *l, const struct frame *f, const uint8_t *p, size_t len)
{
    switch (f->type) {
    case FRAME_HEADERS:
        return link_on_headers(l, f, p, len);
    case FRAME_DATA:
        link_on_data(l, f, p, len);
        return 0;
    case FRAME_RST_STREAM:
        link_on_reset(l, f->id);
        return 0;
    case FRAME_WINDOW_UPDATE:
        if (len != 4)
            return -EPROTO;
        link_on_window(l, f->id, frame_read_u32(p));
        return 0;
    case FRAME_SETTINGS:
        return link_on_settings(l, f, p, len);
    case FRAME_PING:
        if (len == 8 && (f->flags & FRAME_ACK) == 0)
            wire_put_pong(&l->wire, p);
        return 0;
    case FRAME_GOAWAY:
        l->leaving = true;
        return 0;
    case FRAME_CONTINUATION:
        return -EPROTO;
    default:
        return 0;
    }
}

/* --- a connection --- */

static void link_lost(struct link *l, const char *why)
{
    struct saturate_result *r = l->load->result;

    r->n_lost += l->n_open;
    l->load->n_ended += l->n_open;
    l->n_open = 0;
    r->n_connections_lost++;
    snprintf(r->why_lost, sizeof(r->why_lost), "%s", why);
    wire_close(&l->wire);
    l->load->n_live--;
}

/* Everything that one event brings: read, answer, write. */
static void link_turn(struct link *l)
{
    struct frame f;
    const uint8_t *p;
    size_t len;
    long n = wire_read(&l->wire);
    int r = 0;

    while (n > 0 && (r = wire_next(&l->wire, &f, &p, &len)) > 0) {
        r = link_on_frame(l, &f, p, len);
        if (r < 0)
            break;
    }
    if (r == 0 && n >= 0) {
        link_fill(l);
        do {
            link_send(l);
            r = wire_flush(&l->wire);
        } while (r == 0 && !l->wire.write_waits && l->window > 0 && !list_is_empty(&l->sending));
    }
    if (r == 0 && n < 0)
        r = (int)n;
    if (r < 0)
        link_lost(l, r == -ECONNRESET ? "closed by the peer" : strerror(-r));
    else if (l->leaving && l->n_open == 0)
        link_lost(l, "GOAWAY");
}

/* One address has some 28,000 ports for one destination: 127.0.0.0/8 has more of them. */
static void bind_source(int fd, const struct net_addr *to, uint32_t i)
{
    const struct sockaddr_in *dst = (const struct sockaddr_in *)&to->sa;
    const uint32_t any_loopback = 127u << 24;
    struct sockaddr_in from = {.sin_family = AF_INET};
    const int one = 1;

    if (to->sa.ss_family != AF_INET || ntohl(dst->sin_addr.s_addr) >> 24 != 127)
        return;
    from.sin_addr.s_addr = htonl(any_loopback + 1 + i / CONNECTIONS_PER_SOURCE);
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
    (void)bind(fd, (const struct sockaddr *)&from, sizeof(from)); /* else: connect() chooses */
}

static int link_open(struct link *l, struct load *load, struct err *err)
{
    const struct saturate_conf *conf = load->conf;
    const uint32_t i = (uint32_t)(l - load->links);
    const struct timeval limit = {.tv_sec = CONNECT_S};
    const int fd = socket(conf->to.sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    uint32_t places = 16;
    int r;

    if (fd < 0)
        return err_set(err, -errno, "socket: %s", strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (i >= CONNECTIONS_PER_SOURCE)
        bind_source(fd, &conf->to, i);
    if (connect(fd, (const struct sockaddr *)&conf->to.sa, conf->to.sa_len) != 0) {
        r = err_set(err, -errno, "connect to %s: %s", conf->to.text, strerror(errno));
        close(fd);
        return r;
    }
    fcntl(fd, F_SETFL, O_NONBLOCK);
    while (places < conf->n_streams * TABLE_SPREAD)
        places *= 2;
    l->load = load;
    l->calls = xcalloc(places, sizeof(*l->calls));
    l->mask = places - 1;
    l->n_streams = conf->n_streams;
    l->next_id = 1;
    l->window = l->stream_window = 65535; /* RFC 9113 6.9.2 */
    list_init(&l->sending);
    hpack_in_init(&l->hpack);
    r = wire_open(&l->wire, fd, load->epoll, err);
    if (r == 0 && conf->tls != NULL)
        r = wire_start_tls(&l->wire, conf->tls, conf->tls_host, &load->slabs, err);
    if (r < 0)
        return r;
    wire_put_greeting(&l->wire, true);
    load->n_live++;
    r = wire_flush(&l->wire);
    return r == 0 ? 0 : err_set(err, r, "%s: %s", conf->to.text, strerror(-r));
}

static void link_fini(struct link *l)
{
    if (l->load == NULL)
        return; /* never opened */
    wire_close(&l->wire);
    hpack_in_fini(&l->hpack);
    free(l->calls);
}

/* --- the run --- */

static void load_wait(struct load *load, int timeout_ms)
{
    struct epoll_event events[EVENTS];
    const int n = epoll_wait(load->epoll, events, EVENTS, timeout_ms);

    load->now_us = clock_mono_us();
    for (int i = 0; i < n; i++) {
        struct link *l = container_of(events[i].data.ptr, struct link, wire);

        if (l->wire.fd >= 0)
            link_turn(l);
    }
}

static double own_cpu_us(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e6 +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

struct marks {
    uint64_t at_us, n_reads, n_writes;
    double own_us, pids_us;
};

static struct marks load_mark(const struct load *load)
{
    struct marks m = {.at_us = load->now_us,
                      .own_us = own_cpu_us(),
                      .pids_us = cpu_time_us(load->conf->pids, load->conf->n_pids)};

    for (uint32_t i = 0; i < load->conf->n_connections; i++) {
        m.n_reads += load->links[i].wire.n_reads;
        m.n_writes += load->links[i].wire.n_writes;
    }
    return m;
}

static bool load_is_over(const struct load *load, uint64_t until_us)
{
    return load->n_live == 0 || load->now_us >= until_us || atomic_load(load->conf->stop) ||
           load->n_ended >= load->conf->max_calls;
}

static uint64_t after(uint64_t now_us, uint64_t us)
{
    return us == UINT64_MAX ? UINT64_MAX : now_us + us;
}

static void load_run(struct load *load)
{
    const struct saturate_conf *conf = load->conf;
    struct saturate_result *r = load->result;
    uint64_t until_us = after(load->now_us, conf->warm_up_us);
    struct marks from, to;

    while (conf->warm_up_us > 0 && !load_is_over(load, until_us))
        load_wait(load, 100);
    if (conf->warm_up_us > 0 && r->n_connections_lost == 0) { /* else: part of what is told */
        memset(r, 0, sizeof(*r));
        histogram_init(&r->latency_us);
    }
    from = load_mark(load);
    until_us = after(load->now_us, conf->duration_us);
    while (!load_is_over(load, until_us))
        load_wait(load, 100);
    to = load_mark(load);
    r->elapsed_s = (double)(to.at_us - from.at_us) / 1e6;
    r->own_cpu_us = to.own_us - from.own_us;
    r->pids_cpu_us = to.pids_us - from.pids_us;
    r->n_reads = to.n_reads - from.n_reads;
    r->n_writes = to.n_writes - from.n_writes;
}

/* Open and idle: for measuring what that costs the other side. */
static void load_hold(struct load *load)
{
    const uint64_t until_us = load->now_us + load->conf->hold_us;

    fprintf(stderr, "holding %u connections\n", load->n_live);
    while (load->n_live > 0 && load->now_us < until_us && !atomic_load(load->conf->stop))
        load_wait(load, 100);
}

/* What is in flight at the end is not measured, but a call that never ends is told. */
static void load_drain(struct load *load)
{
    struct saturate_result *r = load->result;
    const struct saturate_result measured = *r;
    const uint64_t until_us = load->now_us + DRAIN_US;

    load->stopping = true;
    while (load->n_live > 0 && load->n_ended < load->n_started && load->now_us < until_us)
        load_wait(load, 100);
    *r = measured;
    r->n_unfinished = load->n_started - load->n_ended;
}

int saturate_run(const struct saturate_conf *conf, struct saturate_result *ret, struct err *err)
{
    struct load load = {.conf = conf, .result = ret};
    int r = 0;

    memset(ret, 0, sizeof(*ret));
    histogram_init(&ret->latency_us);
    slab_pool_init(&load.slabs);
    h2_limits_default(&load.limits);
    load.next_request_id = (uint64_t)getpid() << 40;
    load.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (load.epoll < 0)
        return err_set(err, -errno, "epoll_create1: %s", strerror(errno));
    load.links = xcalloc(conf->n_connections, sizeof(*load.links));
    load.now_us = clock_mono_us();
    for (uint32_t i = 0; i < conf->n_connections && r == 0; i++)
        r = link_open(&load.links[i], &load, err);
    if (r == 0) {
        load_run(&load);
        if (conf->hold_us > 0)
            load_hold(&load);
        load_drain(&load);
    }
    for (uint32_t i = 0; i < conf->n_connections; i++)
        link_fini(&load.links[i]);
    free(load.links);
    close(load.epoll);
    slab_pool_fini(&load.slabs);
    return r;
}
