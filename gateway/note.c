#include "gateway/note.h"

#include <stdlib.h>

#include "base/xalloc.h"
#include "gateway/worker.h"

struct note {
    enum { NOTE_OF_REQUEST, NOTE_OF_REPLY } kind;
    union {
        struct request_note request;
        struct reply_note reply;
    };
};

/* --- requests --- */

static void request_note_free(void *p)
{
    struct note *note = p;

    for (size_t i = 0; i < 2; i++)
        if (note->request.forward[i] != note->request.of)
            h2_set_unref(note->request.forward[i]);
    free((void *)(uintptr_t)note->request.head.fields);
    free(note);
}

static struct note *request_note_new(struct h2_set *set)
{
    struct note *note = xcalloc(1, sizeof(*note));
    struct h2_field *own = xcalloc(set->n + 1, sizeof(*own));

    memcpy(own, set->fields, set->n * sizeof(*own));
    note->kind = NOTE_OF_REQUEST;
    note->request.of = set;
    note->request.fault = request_read_fields(&note->request.head, own, set->n);
    return note;
}

static void request_note_look_up(struct request_note *n, struct worker *w)
{
    const struct paths_rules rules = worker_paths_rules(w);
    const struct h2_field *path = n->head.path;

    n->epoch = w->epoch;
    n->local = NULL;
    n->routed = false;
    if (path == NULL)
        return;

    const struct path_row *row = paths_find(&w->paths, &rules, path->value, path->value_len);

    n->local = row->local;
    n->path = row->route;
    if (n->path.service != NULL)
        n->path.service = path->value + 1; /* the set's, not the path that was asked with */
}

struct request_note *request_note_of(struct worker *w, struct h2_set *set)
{
    struct note *note;

    if (set == NULL)
        return NULL;
    if (set->note == NULL) {
        set->note = request_note_new(set);
        set->note_free = request_note_free;
    }
    note = set->note;
    if (note->kind != NOTE_OF_REQUEST)
        return NULL;
    if (note->request.epoch != w->epoch)
        request_note_look_up(&note->request, w);
    return &note->request;
}

/* Does the set's note hold this one? */
static bool set_holds(const struct h2_set *set, const struct h2_set *other)
{
    const struct note *note = set->note;

    return note != NULL && note->kind == NOTE_OF_REQUEST &&
           (note->request.forward[0] == other || note->request.forward[1] == other);
}

struct h2_set *request_note_forward(struct request_note *note, struct slab_pool *slabs, bool https)
{
    struct h2_field *fields;
    struct h2_set *set;

    if (note->forward[https] != NULL)
        return note->forward[https];
    fields = xcalloc(note->head.n + REQUEST_EXTRA_FIELDS, sizeof(*fields));
    set = h2_set_get(slabs, fields, request_base(&note->head, fields, https, true, false));
    free(fields);
    if (set == note->of) {
        h2_set_unref(set);
    } else if (set_holds(set, note->of)) {
        h2_set_unref(set); /* the table's newest: it lives through this turn */
        return set;
    }
    return note->forward[https] = set;
}

/* --- answers --- */

/* A length is no promise of ours: when the replica fails in the middle, we end its answer with
 * trailers. */
bool reply_field_stays(const struct h2_field *f)
{
    return !field_is_hop_by_hop(f) && !FIELD_IS(f, "content-length");
}

static int http_status_of(const struct h2_field *f)
{
    int status = 0;

    for (size_t d = 0; d < f->value_len && d < 3; d++) {
        if (f->value[d] < '0' || f->value[d] > '9')
            return 0;
        status = status * 10 + (f->value[d] - '0');
    }
    return status;
}

static bool status_is_plain(const struct h2_field *f)
{
    return grpc_status_parse(f->value, f->value_len) != GRPC_UNKNOWN ||
           (f->value_len == 1 && f->value[0] == '2');
}

static void reply_note_read(struct reply_note *note, const struct h2_field *fields, size_t n)
{
    const struct h2_field *type = NULL, *message = NULL;

    *note = (struct reply_note){.passes = true, .status = GRPC_UNKNOWN};
    for (size_t i = 0; i < n; i++) {
        const struct h2_field *f = &fields[i];

        if (FIELD_IS(f, ":status")) {
            note->http_status = http_status_of(f);
        } else if (FIELD_IS(f, "content-type")) {
            type = type == NULL ? f : type;
        } else if (FIELD_IS(f, "grpc-status")) {
            note->status_is_plain = !note->has_status && status_is_plain(f);
            note->has_status = true;
            note->status = grpc_status_parse(f->value, f->value_len); /* of several: the last */
        } else if (FIELD_IS(f, "grpc-message")) {
            message = f;
        } else if (FIELD_IS(f, "grpc-retry-pushback-ms")) {
            note->pushed_back = true;
        } else {
            note->passes &= reply_field_stays(f);
        }
    }
    note->is_grpc = note->http_status == 200 && type != NULL &&
                    grpc_content_type_is_ok(type->value, type->value_len);

    const char *text = message == NULL ? "" : message->value;
    const size_t len = message == NULL ? 0 : message->value_len;

    note->outcome = outcome_of_status((uint32_t)note->status, text, len, false);
    note->outcome_at_goaway = outcome_of_status((uint32_t)note->status, text, len, true);
}

static void reply_note_free(void *note)
{
    free(note);
}

const struct reply_note *reply_note_of(struct h2_set *set, const struct h2_field *fields, size_t n,
                                       struct reply_note *dst)
{
    struct note *note;

    if (set != NULL && set->n == n) {
        if (set->note == NULL) {
            set->note = note = xcalloc(1, sizeof(*note));
            set->note_free = reply_note_free;
            note->kind = NOTE_OF_REPLY;
            reply_note_read(&note->reply, fields, n);
        }
        note = set->note;
        if (note->kind == NOTE_OF_REPLY)
            return &note->reply;
    }
    reply_note_read(dst, fields, n);
    return dst;
}
