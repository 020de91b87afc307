#include "conf/process.h"

#include <errno.h>
#include <string.h>

#include "conf/rules.h"
#include "conf/tables.h"

#define PROCESS_BYTES_MAX (1024u * 1024)
#define PATH_BYTES_MAX    4095

static const char *log_level_rule(const char *text)
{
    static const char *const levels[] = {"error", "warn", "info", "debug"};

    for (size_t i = 0; i < ARRAY_LEN(levels); i++) {
        if (strcmp(text, levels[i]) == 0)
            return NULL;
    }
    return "is not one of: error, warn, info, debug";
}

static const struct conf_field process_fields[] = {
    CONF_LIST(struct process_conf, listeners, "listeners", .max = 64, .table = &conf_listener_table,
              .doc = "Where clients connect; see `listener`. Empty: 127.0.0.1:7070, cleartext."),
    CONF_STR(struct process_conf, admin, "admin", .max = 256, .rule = conf_rule_admin,
             .dflt_text = "127.0.0.1:7080", .doc = "Address of the admin interface. Empty: none."),
    CONF_STR(struct process_conf, state, "state", .min = 1, .max = PATH_BYTES_MAX,
             .dflt_text = "state",
             .doc = "Folder of the state: generations with their history, and `logs/` of "
                    "replicas and tasks. Jobs are not kept over a restart."),
    CONF_STR(struct process_conf, models, "models", .max = PATH_BYTES_MAX,
             .doc =
                 "Config folder that `penstock up` applies when it starts. Empty: the generation "
                 "that the state folder has."),
    CONF_JSON(struct process_conf, catalogue, "catalogue",
              .doc = "For `penstock gateway`: a whole config folder in this place, "
                     "{\"models\": {\"NAME.json\": {...}}}, instead of `models`. SIGHUP does not "
                     "read it again."),
    CONF_UINT(struct process_conf, workers, "workers", .unit = "threads", .max = 256,
              .doc = "Event loops. 0: one per core."),
    CONF_STR(struct process_conf, engine, "engine", .min = 1, .max = 32, .dflt_text = "native",
             .doc = "HTTP/2 engine: native, or session (on nghttp2's, the reference)."),
    CONF_STR(struct process_conf, log_level, "log_level", .dflt_text = "info", .max = 8,
             .rule = log_level_rule, .doc = "error, warn, info or debug."),
    CONF_UINT(struct process_conf, drain_s, "drain_s", .unit = "s", .max = 3600, .dflt = 30,
              .doc = "On SIGTERM running calls may take this long."),
    CONF_UINT(struct process_conf, max_streams, "max_streams", .unit = "calls", .min = 1,
              .max = 1000000, .dflt = 1000, .doc = "Calls in flight per client connection.",
              .why = "Aggregators put all their calls on one connection; the memory budget, not "
                     "this, bounds what they hold."),
    CONF_UINT(struct process_conf, max_connections, "max_connections", .unit = "connections",
              .min = 1, .max = 10000000, .dflt = 20000,
              .doc =
                  "Client connections in all. 512 of the descriptors that the process may have, or "
                  "half of them if that is less, are never given to clients.",
              .why = "20,000 idle ones are 80 MiB. Replicas need two descriptors each and worker."),
    CONF_UINT(struct process_conf, max_handshakes, "max_handshakes", .unit = "connections",
              .min = 1, .max = 10000, .dflt = 32,
              .doc = "TLS handshakes under way at once, per worker. Above it no connection is "
                     "accepted until one ends; who says nothing for a second, or needs over five, "
                     "makes room.",
              .why = "A handshake costs a millisecond and 40 KiB; calls that run come first."),
    CONF_UINT(struct process_conf, handshake_s, "handshake_s", .unit = "s", .min = 1, .max = 60,
              .dflt = 10,
              .doc = "A client that has not ended its TLS handshake, and without TLS has not sent "
                     "its preface and SETTINGS, by then is cut off.",
              .why = "Slowloris; a real client needs three round trips."),
    CONF_LIST(struct process_conf, tenants, "tenants", .max = 1000, .table = &conf_tenant_table,
              .doc = "Who clients are, by their certificates; see `tenant`."),
    CONF_UINT(struct process_conf, memory_mib, "memory_mib", .unit = "MiB", .min = 16,
              .max = 1048576, .dflt = 1024,
              .doc = "Memory budget of one worker: what calls hold, not the process as a whole.",
              .why = "Windows promise far more than there is: 1000 calls of 1 MiB on each "
                     "connection. See memory_*_percent for what happens near it."),
    CONF_OBJECT(struct process_conf, limits, "limits", .table = &conf_client_limits_table,
                .doc = "What a client may do; see `limits of clients`."),
    CONF_UINT(struct process_conf, upstream_connect_ms, "upstream_connect_ms", .unit = "ms",
              .min = 1, .max = 60000, .dflt = 1000,
              .doc = "A replica that takes no TCP connection for so long is passed over.",
              .why = "One round trip on a local network, and a lost SYN is sent again after 1 s."),
    CONF_UINT(struct process_conf, upstream_settings_ms, "upstream_settings_ms", .unit = "ms",
              .min = 1, .max = 60000, .dflt = 5000,
              .doc = "After that, for TLS and the first SETTINGS frame.",
              .why = "A server that is that slow to begin answers no call in time."),
    CONF_UINT(struct process_conf, upstream_no_streams_ms, "upstream_no_streams_ms", .unit = "ms",
              .max = 3600000, .dflt = 5000,
              .doc =
                  "A replica whose MAX_CONCURRENT_STREAMS is 0 for so long is out of use. 0: its "
                  "calls wait.",
              .why = "Longer than a server needs to change its mind; others can take its calls."),
    CONF_UINT(struct process_conf, upstream_ping_after_ms, "upstream_ping_after_ms", .unit = "ms",
              .max = 3600000, .dflt = 10000,
              .doc =
                  "A replica with calls that is silent for so long gets a PING; the third of one "
                  "silence, and each later one, waits 5 minutes, since gRPC servers close the "
                  "connection on more. 0: never.",
              .why = "Finds a machine that vanished long before TCP does."),
    CONF_UINT(struct process_conf, upstream_ping_timeout_ms, "upstream_ping_timeout_ms",
              .unit = "ms", .min = 1, .max = 600000, .dflt = 2000,
              .doc = "No answer to it for so long: the connection's calls end with UNAVAILABLE.",
              .why = "Many round trips; a stalled replica is noticed within 12 s."),
    CONF_END,
};
const struct conf_table conf_process_table = {
    .title = "penstock.json",
    .doc = "This process: where it listens, where its state lies. Read once, at the start.",
    .size = sizeof(struct process_conf),
    .fields = process_fields,
};

static void add_default_listener(struct process_conf *c)
{
    c->listeners = arena_alloc(&c->arena, sizeof(*c->listeners));
    check(c->listeners != NULL);
    c->listeners[0] =
        (struct listener_conf){.address = "127.0.0.1:7070", .cert = "", .key = "", .client_ca = ""};
    c->n_listeners = 1;
}

void process_conf_default(struct process_conf *c)
{
    memset(c, 0, sizeof(*c));
    arena_init(&c->arena, PROCESS_BYTES_MAX);
    conf_defaults(&conf_process_table, c);
    add_default_listener(c);
}

int process_conf_load(struct process_conf *c, const char *file, struct conf_problems *problems)
{
    struct conf_load l = {.arena = &c->arena};
    const size_t before = problems->n;

    memset(c, 0, sizeof(*c));
    arena_init(&c->arena, PROCESS_BYTES_MAX);
    json_t *const object = conf_parse_file(file, file, problems);

    if (object == NULL)
        return -EINVAL;
    conf_where_init(&l.where, problems, file);
    conf_load_object(&l, &conf_process_table, object, c);
    conf_check_listeners(&l.where, c);
    conf_check_tenants(&l.where, c);
    if (c->catalogue != NULL && strcmp(c->catalogue, "null") == 0)
        c->catalogue = NULL; /* as --print-config writes none */
    if (c->catalogue != NULL && c->models[0] != '\0')
        conf_problem_at(&l.where, "catalogue", "stands beside \"models\": give one of them");
    if (c->n_listeners == 0)
        add_default_listener(c);
    json_decref(object);
    return problems->n == before ? 0 : -EINVAL;
}

void process_conf_fini(struct process_conf *c)
{
    arena_fini(&c->arena);
    memset(c, 0, sizeof(*c));
}
