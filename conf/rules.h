/* conf/rules.h - what a string in a config may look like.
 *
 * Called by: field tables (conf_rule_fn), and the verbs for addresses on the command line.
 * Thread:    any. No names are resolved here: a rule needs no network.
 *
 * Each returns NULL when the rule holds, else the rule in words, to follow the quoted value.
 */
#ifndef CONF_RULES_H
#define CONF_RULES_H

const char *conf_rule_name(const char *text);     /* of a model, version, label, node, queue */
const char *conf_rule_file(const char *text);     /* name of a file in models/ */
const char *conf_rule_endpoint(const char *text); /* host:port, [ipv6]:port, unix:/path */
const char *conf_rule_listen(const char *text);   /* the same, port 0 allowed */
const char *conf_rule_admin(const char *text);    /* the same, or empty: none */
const char *conf_rule_host(const char *text);     /* name or numeric address, or empty */
const char *conf_rule_service(const char *text);  /* package.Service, or "*" */
const char *conf_rule_argument(const char *text); /* of a replica's command: known {words} only */

#endif
