/* penstock/relay_tls.h - the options of `penstock relay` about TLS, and what they mean together.
 *
 * Owns:      nothing; strings are argv's.
 * Called by: relay.c.
 * Lifetime:  filled by args_parse, then relay_tls_check, then the rest.
 */
#ifndef PENSTOCK_RELAY_TLS_H
#define PENSTOCK_RELAY_TLS_H

#include "conf/process.h"
#include "penstock/args.h"

struct relay_tls {
    struct args_list cert, key, tenant;
    const char *client_ca, *client_auth, *min_tls;
    bool tenants_only;
    bool to_tls, to_no_verify;
    const char *to_ca, *to_cert, *to_key, *to_name;
};

/* The files, too. 0, EX_USAGE, or EXIT_FAILURE for a file, with the reason printed. */
int relay_tls_check(const struct relay_tls *t, const struct args_spec *spec);
/* Tenants of the process, and each listener's TLS; all in p's arena. */
void relay_tls_fill(const struct relay_tls *t, struct process_conf *p);
struct upstream_tls_conf relay_tls_upstream(const struct relay_tls *t);

#endif
