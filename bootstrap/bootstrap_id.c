/* SPDX-License-Identifier: Apache-2.0
 *
 * With COMM_ID an id names an address, where rank 0 hands out the id of its rendezvous server.
 */
#include "bootstrap/bootstrap_server.h"

#include "bootstrap/launch.h"
#include "core/foundation/base/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECKED_BYTES offsetof(struct gyre_id_layout, checksum)

/* Of everything before the checksum, which both layouts have at their end. */
static uint64_t checksum_of(const void *layout)
{
    return gyre_hash(GYRE_HASH_INIT, layout, CHECKED_BYTES);
}

gyre_status gyre_unique_id_create(const struct gyre_params *params, gyre_unique_id *id_out)
{
    struct gyre_id_layout layout;
    gyre_authenticate_prepare();
    memset(&layout, 0, sizeof(layout));
    layout.magic = GYRE_ID_MAGIC;
    layout.wire_version = GYRE_WIRE_VERSION;
    layout.created_unix_s = (uint64_t)time(NULL);
    GYRE_TRY(gyre_random_bytes(&layout.nonce, sizeof(layout.nonce)));
    GYRE_TRY(gyre_server_start(params, &layout));
    layout.checksum = checksum_of(&layout);
    memcpy(id_out->bytes, &layout, sizeof(layout));
    return GYRE_SUCCESS;
}

struct address_id {
    uint32_t magic;
    uint32_t wire_version;
    uint32_t port;
    char host[108];
    uint64_t checksum;
};
static_assert(sizeof(struct address_id) == GYRE_UNIQUE_ID_BYTES, "the id is 128 bytes");
static_assert(offsetof(struct address_id, checksum) == CHECKED_BYTES, "at its end");

#define ADDRESS_ID_MAGIC 0x5445454du /* "MEET" */

gyre_status gyre_unique_id_at_address(const struct gyre_params *params, gyre_unique_id *id_out)
{
    struct address_id at_address;
    const char *text = gyre_param_text(params, GYRE_PARAM_COMM_ID);
    const char *colon = strrchr(text, ':');
    const size_t n_host = colon == NULL ? 0 : (size_t)(colon - text);
    char *end = NULL;
    const long port = colon == NULL ? 0 : strtol(colon + 1, &end, 10);
    const bool is_bracketed = n_host > 2 && text[0] == '[' && text[n_host - 1] == ']';
    if (n_host == 0 || n_host >= sizeof(at_address.host) || end == colon + 1 || *end != '\0' ||
        port < 1 || port > 65535 || (!is_bracketed && memchr(text, ':', n_host) != NULL))
        return gyre_fail(
            GYRE_ERROR_INVALID_ARGUMENT,
            "%s=%s is neither host:port nor [IPv6 address]:port, with a port from 1 to "
            "65535 and a host of at most %zu characters",
            gyre_param_source(params, GYRE_PARAM_COMM_ID), text, sizeof(at_address.host) - 1);
    memset(&at_address, 0, sizeof(at_address));
    at_address.magic = ADDRESS_ID_MAGIC;
    at_address.wire_version = GYRE_WIRE_VERSION;
    at_address.port = (uint32_t)port;
    memcpy(at_address.host, text, n_host);
    at_address.checksum = checksum_of(&at_address);
    memcpy(id_out->bytes, &at_address, sizeof(at_address));
    return GYRE_SUCCESS;
}

gyre_status gyre_unique_id_settle(const struct gyre_params *params,
                                  const struct gyre_bootstrap_place *place, uint64_t timeout_ns,
                                  gyre_unique_id *id)
{
    struct address_id at_address;
    memcpy(&at_address, id->bytes, sizeof(at_address));
    at_address.host[sizeof(at_address.host) - 1] = '\0';
    if (at_address.magic != ADDRESS_ID_MAGIC || at_address.checksum != checksum_of(&at_address) ||
        at_address.wire_version != GYRE_WIRE_VERSION || place->rank < 0 ||
        place->rank >= place->n_ranks || place->n_ranks > GYRE_WIRE_MAX_RANKS)
        return GYRE_SUCCESS;
    const struct gyre_meet_place where = {.rank = place->rank,
                                          .n_ranks = place->n_ranks,
                                          .source =
                                              gyre_param_is_set(params, GYRE_PARAM_COMM_ID)
                                                  ? gyre_param_source(params, GYRE_PARAM_COMM_ID)
                                                  : "NCCL_COMM_ID",
                                          .address = at_address.host,
                                          .port = (int)at_address.port,
                                          .job = "",
                                          .timeout_ns = timeout_ns,
                                          .params = params,
                                          .fault = place->fault};
    struct gyre_meet meet;
    gyre_unique_id mine = {{0}};
    GYRE_FREED gyre_unique_id *all = calloc((size_t)place->n_ranks, sizeof(*all));
    if (all == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for %d ids", place->n_ranks);
    gyre_status status = GYRE_SUCCESS;
    if (place->rank == 0)
        status = gyre_unique_id_create(params, &mine);
    if (status == GYRE_SUCCESS)
        status = gyre_meet_open(&where, &meet);
    if (status == GYRE_SUCCESS) {
        status = gyre_meet_all_gather(&meet, &mine, sizeof(mine), all, gyre_now_ns() + timeout_ns);
        gyre_meet_close(&meet);
    }
    if (status == GYRE_SUCCESS)
        *id = all[0];
    return status == GYRE_SUCCESS ? status : gyre_fail_context(status, "init");
}

gyre_status gyre_id_read(const gyre_unique_id *id, struct gyre_id_layout *layout_out)
{
    memcpy(layout_out, id->bytes, sizeof(*layout_out));
    if (layout_out->magic != GYRE_ID_MAGIC || layout_out->checksum != checksum_of(layout_out))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "these 128 bytes are not a unique id: give every rank the bytes that "
                         "gyre_get_unique_id() wrote on one of them");
    if (layout_out->wire_version != GYRE_WIRE_VERSION)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "the unique id is of wire version %u, this library speaks %u: load the "
                         "same library on all ranks",
                         layout_out->wire_version, (unsigned)GYRE_WIRE_VERSION);
    return GYRE_SUCCESS;
}
