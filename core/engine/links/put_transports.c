/* SPDX-License-Identifier: Apache-2.0
 *
 * The transports of put links. Each pair of ranks that a proxy serves gets one more FIFO in each
 * direction, by the kind of transport that the pair uses. They are transports of their own, because
 * plans divide all FIFOs of the communicator's transports among channels.
 */
#include "core/engine/links/links.h"

#include "core/foundation/base/util.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* All slots of a rank, of both directions, take this much at most where they are not of the least
 * size. */
#define BUDGET_BYTES   ((uint64_t)(16 << 20))
#define MIN_SLOT_BYTES ((uint64_t)4096)
#define MAX_SLOT_BYTES ((uint64_t)(128 << 10))

/* The same on all ranks. */
static struct gyre_fifo_spec make_spec(int n_ranks)
{
    struct gyre_fifo_spec spec = {.n_fifos = 1, .depth = GYRE_COMM_DEPTH};
    const uint64_t wanted_bytes = BUDGET_BYTES / (2 * spec.depth * (uint64_t)n_ranks);
    spec.slot_bytes[GYRE_PROTO_SIMPLE] = (uint32_t)gyre_max_u64(
        MIN_SLOT_BYTES,
        gyre_min_u64(MAX_SLOT_BYTES, wanted_bytes / MIN_SLOT_BYTES * MIN_SLOT_BYTES));
    return spec;
}

gyre_status gyre_put_transports_open(struct gyre_member *member, const struct gyre_links *links,
                                     struct gyre_put_transports *puts)
{
    const uint64_t deadline_ns = gyre_now_ns() + gyre_links_timeout_ns(member);
    struct gyre_links own = *links; /* with FIFOs of its own, beside the facts about ranks */
    gyre_status status = GYRE_SUCCESS;
    own.spec = make_spec(member->n_ranks);
    own.for_puts = true;
    own.is_far = NULL;
    own.connectors = calloc((size_t)member->n_ranks * 2, sizeof(*own.connectors));
    if (own.connectors == NULL)
        return gyre_fail_errno(ENOMEM, "put links of %d ranks", member->n_ranks);
    memset(own.transports, 0, sizeof(own.transports));
    for (int i = 0; gyre_transports[i] != NULL && status == GYRE_SUCCESS; i++)
        if (gyre_transports[i]->is_proxied)
            status = gyre_links_open_transport(member, &own, i, deadline_ns);
    memcpy(puts->transports, own.transports, sizeof(puts->transports));
    puts->connectors = own.connectors;
    puts->slot_bytes = own.spec.slot_bytes[GYRE_PROTO_SIMPLE];
    return status == GYRE_SUCCESS ? status : gyre_fail_context(status, "put links");
}

void gyre_put_transports_wake(const struct gyre_put_transports *puts)
{
    for (int i = 0; i < GYRE_MAX_TRANSPORTS; i++)
        if (puts->transports[i] != NULL)
            puts->transports[i]->ops->wake(puts->transports[i]);
}

void gyre_put_transports_close(struct gyre_put_transports *puts)
{
    for (int i = 0; i < GYRE_MAX_TRANSPORTS; i++)
        if (puts->transports[i] != NULL)
            puts->transports[i]->ops->close(puts->transports[i]);
    free(puts->connectors);
    memset(puts, 0, sizeof(*puts));
}
