#include "loadtest/wire.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/xalloc.h"

#define IOV_AT_MOST 64

/* --- the socket --- */

static int wire_watch(struct wire *w, int op, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.ptr = w};

    return epoll_ctl(w->epoll, op, w->fd, &e) == 0 ? 0 : -errno;
}

int wire_open(struct wire *w, int fd, int epoll, struct err *err)
{
    const int one = 1;
    int r;

    *w = (struct wire){.fd = fd, .epoll = epoll};
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)); /* a UNIX socket has none */
    w->in = xcalloc(1, WIRE_IN_BYTES);
    w->out_cap = 2 * (size_t)WIRE_OUT_BYTES;
    w->out = xcalloc(1, w->out_cap);
    r = wire_watch(w, EPOLL_CTL_ADD, EPOLLIN);
    return r == 0 ? 0 : err_set(err, r, "epoll_ctl: %s", strerror(-r));
}

int wire_start_tls(struct wire *w, struct tls_ctx *ctx, const char *host, struct slab_pool *slabs,
                   struct err *err)
{
    outq_init(&w->sealed, slabs);
    w->cipher = xcalloc(1, WIRE_IN_BYTES);
    w->tls = tls_new(ctx, host, &w->sealed);
    return tls_handshake(w->tls, err) < 0 ? err->code : 0;
}

void wire_close(struct wire *w)
{
    if (w->tls != NULL) {
        w->tls = tls_free(w->tls);
        outq_fini(&w->sealed);
        free(w->cipher);
    }
    if (w->fd >= 0)
        close(w->fd);
    w->fd = -1;
    free(w->in);
    free(w->out);
    w->in = w->out = NULL;
}

static long wire_read_socket(struct wire *w, uint8_t *to, size_t room)
{
    const ssize_t n = read(w->fd, to, room);

    w->n_reads++;
    if (n == 0)
        return -ECONNRESET;
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    return n;
}

/* The plaintext of so much ciphertext that it fits, with a record that was cut short before. */
static long wire_read_tls(struct wire *w)
{
    const size_t room = WIRE_IN_BYTES - w->in_len, before = w->in_len;
    const long n = wire_read_socket(w, w->cipher, room - TLS_RECORD_BYTES);
    ssize_t r = 0;

    if (n <= 0)
        return n;
    tls_feed(w->tls, w->cipher, (size_t)n);
    if (!w->tls_done) {
        r = tls_handshake(w->tls, NULL);
        w->tls_done = r > 0;
    }
    while (w->tls_done &&
           (r = tls_read(w->tls, w->in + w->in_len, WIRE_IN_BYTES - w->in_len, NULL)) > 0)
        w->in_len += (size_t)r;
    if (w->tls_done && r == 0)
        return -ECONNRESET;
    return r < 0 && r != -EAGAIN ? (long)r : (long)(w->in_len - before);
}

long wire_read(struct wire *w)
{
    long n;

    memmove(w->in, w->in + w->in_from, w->in_len - w->in_from); /* part of a frame */
    w->in_len -= w->in_from;
    w->in_from = 0;
    if (w->tls != NULL)
        return wire_read_tls(w);
    n = wire_read_socket(w, w->in + w->in_len, WIRE_IN_BYTES - w->in_len);
    w->in_len += n > 0 ? (size_t)n : 0;
    return n;
}

int wire_next(struct wire *w, struct frame *f, const uint8_t **payload, size_t *len)
{
    const size_t left = w->in_len - w->in_from;

    if (left < FRAME_HEAD_BYTES)
        return 0;
    frame_read(f, w->in + w->in_from);
    if (f->len > FRAME_PAYLOAD_BYTES) /* we raise no SETTINGS_MAX_FRAME_SIZE */
        return -EPROTO;
    if (left < FRAME_HEAD_BYTES + f->len)
        return 0;
    *payload = w->in + w->in_from + FRAME_HEAD_BYTES;
    *len = f->len;
    w->in_from += FRAME_HEAD_BYTES + f->len;
    if ((f->type == FRAME_DATA || f->type == FRAME_HEADERS) && (f->flags & FRAME_PADDED) != 0 &&
        !frame_unpad(f, payload, len))
        return -EPROTO;
    if (f->type == FRAME_HEADERS && (f->flags & FRAME_HAS_PRIORITY) != 0) {
        if (*len < 5)
            return -EPROTO;
        *payload += 5;
        *len -= 5;
    }
    return 1;
}

uint8_t *wire_put(struct wire *w, size_t len)
{
    uint8_t *p;

    if (w->out_len + len > w->out_cap) {
        memmove(w->out, w->out + w->out_from, w->out_len - w->out_from);
        w->out_len -= w->out_from;
        w->out_from = 0;
        while (w->out_len + len > w->out_cap)
            w->out_cap *= 2;
        w->out = xrealloc(w->out, w->out_cap, 1);
    }
    p = w->out + w->out_len;
    w->out_len += len;
    return p;
}

size_t wire_queued(const struct wire *w)
{
    return w->out_len - w->out_from + (w->tls != NULL ? w->sealed.bytes : 0);
}

static int wire_seal(struct wire *w)
{
    while (w->tls_done && w->out_from < w->out_len) {
        const size_t left = w->out_len - w->out_from;
        const size_t n = left < TLS_RECORD_BYTES ? left : TLS_RECORD_BYTES;
        const int r = tls_write(w->tls, w->out + w->out_from, n, NULL);

        if (r < 0)
            return r;
        w->out_from += n;
    }
    return 0;
}

static ssize_t wire_write(struct wire *w)
{
    struct iovec iov[IOV_AT_MOST];
    struct msghdr m = {.msg_iov = iov};
    ssize_t n;

    w->n_writes++;
    if (w->tls == NULL) {
        n = send(w->fd, w->out + w->out_from, w->out_len - w->out_from, MSG_NOSIGNAL);
        w->out_from += n > 0 ? (size_t)n : 0;
        return n;
    }
    m.msg_iovlen = (size_t)outq_iov(&w->sealed, iov, IOV_AT_MOST);
    n = sendmsg(w->fd, &m, MSG_NOSIGNAL);
    if (n > 0)
        outq_sent(&w->sealed, (size_t)n);
    return n;
}

int wire_flush(struct wire *w)
{
    bool waits;
    int r = 0;

    if (w->tls != NULL && (r = wire_seal(w)) < 0)
        return r;
    waits = wire_queued(w) > 0 && (w->tls == NULL || w->sealed.bytes > 0);
    if (waits && wire_write(w) < 0 && errno != EAGAIN && errno != EINTR)
        return -errno;
    if (w->out_from == w->out_len)
        w->out_from = w->out_len = 0;
    waits = w->tls == NULL ? w->out_len > 0 : w->sealed.bytes > 0;
    if (waits == w->write_waits)
        return 0;
    w->write_waits = waits;
    return wire_watch(w, EPOLL_CTL_MOD, waits ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

/* --- frames that are the same on both sides --- */

static uint8_t *put_setting(uint8_t *p, uint16_t id, uint32_t value)
{
    *p++ = (uint8_t)(id >> 8);
    *p++ = (uint8_t)id;
    return frame_write_u32(p, value);
}

void wire_put_greeting(struct wire *w, bool is_client)
{
    uint8_t *p;

    if (is_client)
        memcpy(wire_put(w, FRAME_MAGIC_BYTES), FRAME_MAGIC, FRAME_MAGIC_BYTES);
    p = wire_put(w, FRAME_HEAD_BYTES + 12);
    p = frame_write(p, 12, FRAME_SETTINGS, 0, 0);
    p = put_setting(p, SETTING_INITIAL_WINDOW_SIZE, WIRE_WINDOW);
    if (is_client)
        put_setting(p, SETTING_ENABLE_PUSH, 0);
    else
        put_setting(p, SETTING_MAX_CONCURRENT_STREAMS, 100000);
    p = frame_write(wire_put(w, FRAME_HEAD_BYTES + 4), 4, FRAME_WINDOW_UPDATE, 0, 0);
    frame_write_u32(p, WIRE_WINDOW - 65535);
}

void wire_put_settings_ack(struct wire *w)
{
    frame_write(wire_put(w, FRAME_HEAD_BYTES), 0, FRAME_SETTINGS, FRAME_ACK, 0);
}

void wire_put_pong(struct wire *w, const uint8_t *payload)
{
    memcpy(frame_write(wire_put(w, FRAME_HEAD_BYTES + 8), 8, FRAME_PING, FRAME_ACK, 0), payload, 8);
}

void wire_put_window(struct wire *w, size_t data_bytes)
{
    w->owed_window += (uint32_t)data_bytes;
    if (w->owed_window < WIRE_WINDOW / 2)
        return;
    frame_write_u32(frame_write(wire_put(w, FRAME_HEAD_BYTES + 4), 4, FRAME_WINDOW_UPDATE, 0, 0),
                    w->owed_window);
    w->owed_window = 0;
}

/* --- header blocks --- */

#define TABLE_BYTES    4096u /* RFC 9113 6.5.2: what every peer starts with */
#define FIRST_DYNAMIC  62u   /* RFC 7541 appendix A has 61 entries */
#define MAX_ONE_BYTE   126u  /* an index that fits into its first byte */
#define STRING_AT_MOST 8u    /* bytes of a length */

static uint8_t *put_string(uint8_t *p, const char *s, size_t len)
{
    if (len < 127) {
        *p++ = (uint8_t)len;
    } else { /* RFC 7541 5.1, prefix of 7 bits */
        size_t v = len - 127;

        *p++ = 127;
        for (; v >= 128; v >>= 7)
            *p++ = (uint8_t)(0x80 | (v & 0x7f));
        *p++ = (uint8_t)v;
    }
    memcpy(p, s, len);
    return p + len;
}

static uint8_t *put_field(uint8_t *p, uint8_t how, const struct h2_field *f)
{
    *p++ = how;
    p = put_string(p, f->name, f->name_len);
    return put_string(p, f->value, f->value_len);
}

uint8_t *wire_put_literal(uint8_t *p, const struct h2_field *f)
{
    return put_field(p, 0x00, f);
}

/* RFC 7541 appendix A: whole fields of the static table that gRPC uses. */
static uint8_t static_index(const struct h2_field *f)
{
    static const struct {
        struct h2_field field;
        uint8_t index;
    } known[] = {
        {H2_FIELD_INIT(":method", "POST"), 3},
        {H2_FIELD_INIT(":scheme", "http"), 6},
        {H2_FIELD_INIT(":scheme", "https"), 7},
        {H2_FIELD_INIT(":status", "200"), 8},
    };

    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        const struct h2_field *k = &known[i].field;

        if (k->name_len == f->name_len && k->value_len == f->value_len &&
            memcmp(k->name, f->name, k->name_len) == 0 &&
            memcmp(k->value, f->value, k->value_len) == 0)
            return known[i].index;
    }
    return 0;
}

static size_t field_most(const struct h2_field *f)
{
    return 1 + 2 * STRING_AT_MOST + f->name_len + f->value_len;
}

/* at: fields inserted before this block; total: after all blocks. */
static int block_make(struct wire_block *b, const struct h2_field *fields, size_t n, bool index,
                      uint32_t *at, uint32_t total)
{
    uint8_t *first = b->first, *rest = b->rest;

    if (!index)
        *first++ = 0x20; /* RFC 7541 4.2: the table is now empty */
    for (size_t i = 0; i < n; i++) {
        const uint8_t known = static_index(&fields[i]);

        if ((size_t)(first - b->first) + field_most(&fields[i]) > sizeof(b->first))
            return -E2BIG;
        if (known != 0) {
            *first++ = *rest++ = 0x80 | known;
        } else if (index) {
            first = put_field(first, 0x40, &fields[i]);
            *rest++ = (uint8_t)(0x80 | (FIRST_DYNAMIC + (total - 1 - (*at)++)));
        } else {
            first = wire_put_literal(first, &fields[i]);
            rest = wire_put_literal(rest, &fields[i]);
        }
    }
    b->first_len = (size_t)(first - b->first);
    b->rest_len = (size_t)(rest - b->rest);
    b->was_sent = false;
    return 0;
}

int wire_block_make(struct wire_block *const *blocks, const struct h2_field *const *fields,
                    const size_t *n_fields, size_t n, bool may_index)
{
    size_t bytes = 0;
    uint32_t total = 0, at = 0;
    int r = 0;

    for (size_t b = 0; b < n; b++) {
        for (size_t i = 0; i < n_fields[b]; i++) {
            const struct h2_field *f = &fields[b][i];

            if (static_index(f) != 0)
                continue;
            bytes += (size_t)f->name_len + f->value_len + 32;
            total++;
        }
    }
    may_index = may_index && bytes <= TABLE_BYTES && FIRST_DYNAMIC + total <= MAX_ONE_BYTE;
    for (size_t b = 0; b < n && r == 0; b++)
        r = block_make(blocks[b], fields[b], n_fields[b], may_index, &at, total);
    return r;
}

const uint8_t *wire_block_next(struct wire_block *b, size_t *ret_len)
{
    const uint8_t *p = b->was_sent ? b->rest : b->first;

    *ret_len = b->was_sent ? b->rest_len : b->first_len;
    b->was_sent = true;
    return p;
}
