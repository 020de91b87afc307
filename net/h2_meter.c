#include "net/h2_meter.h"

#include <string.h>

#define MAX_EMPTY_DATA    1000u /* as the native engine has them */
#define MAX_EMPTY_CONTS   4u
#define SHORT_BLOCK_BYTES 4096u
#define SHORT_FACTOR      32u
#define MAX_BLOCK_BYTES   (128u * 1024)

void meter_init(struct meter *m, enum h2_role role)
{
    *m = (struct meter){.n_magic = role == H2_SERVER ? FRAME_MAGIC_BYTES : 0};
}

static const char *fault(struct h2 *h, enum h2_fault what, const char *why)
{
    h->fault = what;
    return why;
}

static const char *pay(struct h2 *h, enum budget_cost cost)
{
    return h2_is_spent(h, budget_take_frame(&h->budget, &h->limits, cost, h2_now(h)))
               ? fault(h, H2_FAULT_FRAMES, "too many frames that carry nothing")
               : NULL;
}

/* A frame that the engine answers. */
static const char *pay_answered(struct h2 *h, enum budget_cost cost)
{
    if (++h->n_answers > h->limits.answers_to_end)
        return fault(h, H2_FAULT_ANSWERS, "too many answers wait for the peer");
    return pay(h, cost);
}

static const char *on_ping(struct h2 *h)
{
    if (h2_is_spent(h, budget_take_ping(&h->budget, &h->limits, h->n_streams, h2_now(h))))
        return fault(h, H2_FAULT_PINGS, "too_many_pings");
    return pay_answered(h, COST_ANSWERED);
}

static const char *on_data(struct meter *m, struct h2 *h)
{
    if (m->frame.len > 0 || (m->frame.flags & FRAME_END_STREAM) != 0) {
        m->empty_data = 0;
        return NULL;
    }
    if (++m->empty_data > MAX_EMPTY_DATA)
        return fault(h, H2_FAULT_FRAMES, "empty DATA frames");
    return pay(h, COST_LIGHT);
}

static const char *on_continuation(struct meter *m, struct h2 *h)
{
    const uint32_t frames = h->limits.max_header_frames;

    if (m->frame.len == 0 && ++m->block_empty > MAX_EMPTY_CONTS)
        return fault(h, H2_FAULT_HEADERS, "empty CONTINUATION frames");
    if (++m->block_frames > frames &&
        (m->block_bytes > SHORT_BLOCK_BYTES || m->block_frames > SHORT_FACTOR * frames))
        return fault(h, H2_FAULT_HEADERS, "header block has no end");
    return NULL;
}

static const char *on_head(struct meter *m, struct h2 *h)
{
    const struct frame *f = &m->frame;

    switch (f->type) {
    case FRAME_DATA:
        return on_data(m, h);
    case FRAME_HEADERS:
        m->in_block = true;
        m->block_bytes = f->len;
        m->block_frames = m->block_empty = 0;
        return NULL;
    case FRAME_CONTINUATION:
        m->block_bytes += f->len;
        if (h->role == H2_SERVER && m->block_bytes > MAX_BLOCK_BYTES) /* as native_pass_block */
            return fault(h, H2_FAULT_HEADERS, "header block has no end");
        return on_continuation(m, h);
    case FRAME_RST_STREAM: /* on_end counts it */
        return NULL;
    case FRAME_SETTINGS:
        if ((f->flags & FRAME_ACK) != 0)
            return NULL;
        if (m->settings_seen)
            return pay_answered(h, COST_SETTINGS);
        m->settings_seen = true;
        return NULL;
    case FRAME_PING:
        return (f->flags & FRAME_ACK) != 0 ? pay(h, COST_LIGHT) : on_ping(h);
    default: /* WINDOW_UPDATE, PRIORITY, GOAWAY, and those that the engine ignores */
        return pay(h, COST_LIGHT);
    }
}

/* The frame's payload is complete. Returns whether something taken as a whole ended with it. */
static bool on_end(struct meter *m)
{
    const bool block = m->frame.type == FRAME_HEADERS || m->frame.type == FRAME_CONTINUATION;

    if (block && (m->frame.flags & FRAME_END_HEADERS) != 0)
        m->in_block = false;
    if (m->frame.type == FRAME_RST_STREAM)
        m->rsts++;
    return !m->in_block;
}

static bool is_whole_type(const struct frame *f)
{
    return f->type != FRAME_DATA && f->type <= FRAME_CONTINUATION;
}

const char *meter_feed(struct meter *m, struct h2 *h, const uint8_t *p, size_t len)
{
    const uint8_t *const end = p + len;
    const char *why = NULL;
    bool whole = false;

    while (p < end && why == NULL) {
        uint32_t *const want = m->n_magic > 0 ? &m->n_magic : &m->left;
        size_t take = (size_t)(end - p);

        if (*want > 0) { /* preface or payload: step over it */
            take = take < *want ? take : *want;
            *want -= (uint32_t)take;
            whole |= m->left == 0 && want == &m->left && on_end(m);
        } else {
            take = take < FRAME_HEAD_BYTES - m->n_head ? take : FRAME_HEAD_BYTES - m->n_head;
            memcpy(m->head + m->n_head, p, take);
            m->n_head += (uint32_t)take;
            if (m->n_head == FRAME_HEAD_BYTES) {
                m->n_head = 0;
                frame_read(&m->frame, m->head);
                m->left = m->frame.len;
                why = on_head(m, h);
                whole |= !is_whole_type(&m->frame) || (m->left == 0 && on_end(m));
            }
        }
        p += take;
    }
    h2_note_unfinished(h, whole,
                       m->n_head > 0 || m->in_block || (m->left > 0 && is_whole_type(&m->frame)));
    return why;
}
