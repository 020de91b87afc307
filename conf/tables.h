/* conf/tables.h - the field tables of every config file, and what their loader needs beside them.
 *
 * Called by: conf/generation.c, conf/process.c, conf/reference.c. Inside conf/ only.
 * Thread:    any reader.
 */
#ifndef CONF_TABLES_H
#define CONF_TABLES_H

#include "conf/field.h"
#include "conf/load.h"
#include "conf/model.h"

/* models/NAME.json as written: labels and traffic still name versions by text. */
struct model_raw {
    struct model_conf conf;
    struct conf_pair *labels;
    size_t n_labels;
    struct conf_pair *traffic;
    size_t n_traffic;
};

extern const struct conf_table conf_model_table;         /* struct model_raw */
extern const struct conf_table conf_process_table;       /* struct process_conf */
extern const struct conf_table conf_client_limits_table; /* struct client_limits, in it */
/* conf/tls_fields.c */
extern const struct conf_table conf_listener_table;     /* struct listener_conf */
extern const struct conf_table conf_tenant_table;       /* struct tenant_conf */
extern const struct conf_table conf_upstream_tls_table; /* struct upstream_tls_conf */
struct process_conf;
/* Rules between keys, and the files: each is opened and read. where: the file's root. */
void conf_check_listeners(struct conf_where *where, const struct process_conf *c);
void conf_check_tenants(struct conf_where *where, const struct process_conf *c);
/* Rules between keys only: a generation is checked where its files need not be. where: the object.
 */
void conf_check_upstream_tls(struct conf_where *where, const struct upstream_tls_conf *t);

extern const struct conf_field conf_nodes_field;  /* MAP of struct node_conf in struct generation */
extern const struct conf_field conf_queues_field; /* MAP of struct queue_conf, same */

/* conf/model_check.c: resolve names (labels, traffic) and check what involves more than one key.
 * object: the file's JSON. loaded_clean: the tables found nothing; relations between numbers are
 * only checked then, so that one mistake makes one message. */
void model_finish(struct conf_load *l, struct model_raw *raw, json_t *object);
/* Over all models: names and services are unique. */
void models_check_together(struct generation *g, struct conf_problems *problems);

#endif
