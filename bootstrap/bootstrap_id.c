/* SPDX-License-Identifier: Apache-2.0
 *
 * The unique id. It is made together with the rendezvous server that it names, and checked before a
 * rank connects to that server.
 */
#include "bootstrap/bootstrap_server.h"

#include "core/base/util.h"

#include <string.h>
#include <time.h>

static uint64_t id_checksum(const struct gyre_id_layout *layout)
{
    return gyre_hash(GYRE_HASH_INIT, layout, offsetof(struct gyre_id_layout, checksum));
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
    layout.checksum = id_checksum(&layout);
    memcpy(id_out->bytes, &layout, sizeof(layout));
    return GYRE_SUCCESS;
}

gyre_status gyre_id_read(const gyre_unique_id *id, struct gyre_id_layout *layout_out)
{
    memcpy(layout_out, id->bytes, sizeof(*layout_out));
    if (layout_out->magic != GYRE_ID_MAGIC || layout_out->checksum != id_checksum(layout_out))
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
