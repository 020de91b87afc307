#include "gateway/ready.h"

bool ready_version(const struct snap_version *v)
{
    for (size_t i = 0; i < v->n_endpoints; i++) {
        if (v->endpoints[i]->state == ENDPOINT_READY)
            return true;
    }
    return false;
}

bool ready_model(const struct snap_model *m)
{
    for (size_t i = 0; i < m->n_versions; i++) {
        if (m->versions[i].weight > 0 && ready_version(&m->versions[i]))
            return true;
    }
    return false;
}

bool ready_any(const struct snapshot *s)
{
    for (size_t i = 0; s != NULL && i < s->n_models; i++) {
        if (ready_model(&s->models[i]))
            return true;
    }
    return false;
}
