/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nic/ib_rig.h"

#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"
#include "tests/support/check.h"

#include <sched.h>

const struct vm_device ib_rig_one_nic[] = {
    {.name = "mem0",
     .n_ports = 1,
     .ports = {{.state = IBV_PORT_ACTIVE,
                .active_mtu = IBV_MTU_4096,
                .max_msg_bytes = 1 << 30,
                .gids = {{"fe80::5054:ff:fe77:1", 1},
                         {"fe80::5054:ff:fe77:1", 2},
                         {"10.0.0.1", 1},
                         {"10.0.0.1", 2}}}}},
    {.name = NULL},
};

void ib_rig_load_params(struct ib_rig *rig, char **environment)
{
    static char *nothing[] = {NULL};
    CHECK_OK(gyre_params_from(environment != NULL ? environment : nothing, &rig->params));
}

/* With spec.far, pairs of an even and an odd rank are far. */
static struct gyre_fifo_size size_of(const struct ib_rig *rig, int a, int b)
{
    return gyre_fifo_size_of(&rig->spec, (a + b) % 2 != 0);
}

void ib_rig_describe_far(struct ib_rig *rig, struct gyre_fifo_size far)
{
    rig->spec.far = far;
    for (int r = 0; r < rig->n_ranks; r++) {
        for (int p = 0; p < rig->n_ranks; p++)
            rig->ranks[r].is_far[p] = (r + p) % 2 != 0;
        rig->ranks[r].config.spec = rig->spec;
        rig->ranks[r].config.is_far = rig->ranks[r].is_far;
    }
}

void ib_rig_describe(struct ib_rig *rig, int n_ranks, uint32_t n_fifos, uint32_t slot_bytes)
{
    rig->n_ranks = n_ranks;
    rig->spec = (struct gyre_fifo_spec){.n_fifos = n_fifos, .depth = IB_RIG_DEPTH};
    rig->spec.slot_bytes[GYRE_PROTO_SIMPLE] = slot_bytes;
    CHECK_OK(gyre_device_host.open(-1, &rig->device));
    for (int r = 0; r < n_ranks; r++) {
        struct ib_rig_end *end = &rig->ranks[r];
        const size_t n = (size_t)n_ranks * n_fifos * 2;
        rig->infos[r].rank = (uint32_t)r;
        snprintf(rig->infos[r].host_name, sizeof(rig->infos[r].host_name), "host%d", r);
        gyre_fault_init(&end->fault);
        end->connectors = calloc(n, sizeof(*end->connectors));
        end->published = calloc(n, sizeof(*end->published));
        end->consumed = calloc(n, sizeof(*end->consumed));
        int n_peers = 0;
        for (int p = 0; p < n_ranks; p++)
            if (p != r)
                end->peers[n_peers++] = (uint16_t)p;
        end->config = (struct gyre_transport_config){
            .device = rig->device,
            .params = &rig->params,
            .rank = r,
            .n_ranks = n_ranks,
            .infos = rig->infos,
            .peers = end->peers,
            .n_peers = n_peers,
            .spec = rig->spec,
            .traffic_class = -1,
            .service_level = -1,
            .fault = &end->fault,
        };
    }
}

gyre_status ib_rig_connect(struct ib_rig *rig)
{
    unsigned char *blobs = NULL;
    size_t offsets[IB_RIG_MAX_RANKS + 1] = {0};
    gyre_status status = GYRE_SUCCESS;
    for (int r = 0; r < rig->n_ranks && status == GYRE_SUCCESS; r++) {
        void *blob = NULL;
        size_t n_bytes = 0;
        status = gyre_transport_ib.open(&rig->ranks[r].config, &rig->ranks[r].transport, &blob,
                                        &n_bytes);
        if (status != GYRE_SUCCESS)
            break;
        blobs = realloc(blobs, offsets[r] + n_bytes);
        memcpy(blobs + offsets[r], blob, n_bytes);
        if (r == 0 && rig->spoil != NULL)
            rig->spoil(blobs + offsets[r]);
        offsets[r + 1] = offsets[r] + n_bytes;
        free(blob);
    }
    for (int r = 0; r < rig->n_ranks && status == GYRE_SUCCESS; r++)
        status =
            gyre_transport_ib.connect(rig->ranks[r].transport, blobs, offsets,
                                      gyre_now_ns() + 20000000000ULL, rig->ranks[r].connectors);
    free(blobs);
    return status;
}

void ib_rig_prepare(struct ib_rig *rig, int n_ranks, uint32_t n_fifos, uint32_t slot_bytes)
{
    CHECK(vm_install(rig->devices != NULL ? rig->devices : ib_rig_one_nic));
    ib_rig_load_params(rig, rig->environment);
    ib_rig_describe(rig, n_ranks, n_fifos, slot_bytes);
}

void ib_rig_open(struct ib_rig *rig, int n_ranks, uint32_t n_fifos, uint32_t slot_bytes)
{
    ib_rig_prepare(rig, n_ranks, n_fifos, slot_bytes);
    CHECK_OK(ib_rig_connect(rig));
}

void ib_rig_close(struct ib_rig *rig)
{
    char cause[GYRE_CAUSE_MAX_BYTES];
    snprintf(cause, sizeof(cause), "%s", gyre_cause());
    for (int r = 0; r < rig->n_ranks; r++) {
        struct ib_rig_end *end = &rig->ranks[r];
        if (end->transport != NULL)
            gyre_transport_ib.close(end->transport);
        gyre_fault_fini(&end->fault);
        free(end->connectors);
        free(end->published);
        free(end->consumed);
    }
    gyre_device_host.close(rig->device);
    memset(rig, 0, sizeof(*rig));
    CHECK_MSG(vm_uninstall(), "something was not destroyed");
    gyre_set_cause(cause);
}

bool ib_rig_has_fault(const struct ib_rig *rig)
{
    for (int r = 0; r < rig->n_ranks; r++)
        if (gyre_fault_is_raised(&rig->ranks[r].fault))
            return true;
    return false;
}

unsigned char ib_rig_byte(int from, int to, uint32_t fifo, uint64_t step, size_t i)
{
    return (unsigned char)(from * 67 + to * 31 + (int)fifo * 13 + (int)(step * 7) + (int)(i * 3));
}

bool ib_rig_send(struct ib_rig *rig, int from, int to, uint32_t fifo, uint32_t n_bytes)
{
    struct ib_rig_end *end = &rig->ranks[from];
    const uint32_t index = gyre_connector_index(&rig->spec, (uint32_t)to, fifo, true);
    const struct gyre_connector *connector = &end->connectors[index];
    const uint64_t step = end->published[index];
    if (step - gyre_load_acquire_u64(&connector->credit->head[0]) >= IB_RIG_DEPTH)
        return false;
    unsigned char *slot = connector->slots[0] + (step % IB_RIG_DEPTH) * connector->slot_bytes;
    for (uint32_t i = 0; i < n_bytes; i++)
        slot[i] = ib_rig_byte(from, to, fifo, step, i);
    gyre_store_relaxed_u64(&connector->inbox->slot_info[step % IB_RIG_DEPTH],
                           gyre_slot_info(n_bytes, (uint32_t)step * 3 + fifo));
    end->published[index] = step + 1;
    gyre_store_release_u64(&connector->inbox->tail[0], step + 1);
    return true;
}

bool ib_rig_receive(struct ib_rig *rig, int from, int to, uint32_t fifo, uint32_t n_bytes)
{
    struct ib_rig_end *end = &rig->ranks[to];
    const uint32_t index = gyre_connector_index(&rig->spec, (uint32_t)from, fifo, false);
    const struct gyre_connector *connector = &end->connectors[index];
    const uint64_t step = end->consumed[index];
    if (gyre_load_acquire_u64(&connector->inbox->tail[0]) <= step)
        return false;
    const uint64_t info = gyre_load_relaxed_u64(&connector->inbox->slot_info[step % IB_RIG_DEPTH]);
    CHECK_MSG(info == gyre_slot_info(n_bytes, (uint32_t)step * 3 + fifo),
              "%d->%d fifo %u step %" PRIu64 ": slot_info 0x%" PRIx64, from, to, fifo, step, info);
    const unsigned char *slot = connector->slots[0] + (step % IB_RIG_DEPTH) * connector->slot_bytes;
    for (uint32_t i = 0; i < n_bytes; i++)
        if (slot[i] != ib_rig_byte(from, to, fifo, step, i)) {
            CHECK_MSG(false, "%d->%d fifo %u step %" PRIu64 " byte %u is %u", from, to, fifo, step,
                      i, slot[i]);
            break;
        }
    end->consumed[index] = step + 1;
    gyre_store_release_u64(&connector->credit->head[0], step + 1);
    return true;
}

/* Of a pair whose slots hold `most` bytes. */
static uint32_t step_bytes(uint32_t most, uint64_t step)
{
    const uint32_t sizes[] = {8, 0, 248, 249, 1, most, 256, most / 2 + 1, 100, most - 1};
    const uint32_t n_bytes = sizes[step % GYRE_ARRAY_LENGTH(sizes)];
    return n_bytes < most ? n_bytes : most;
}

uint32_t ib_rig_step_bytes(const struct ib_rig *rig, uint64_t step)
{
    return step_bytes(rig->spec.slot_bytes[GYRE_PROTO_SIMPLE], step);
}

bool ib_rig_send_all(struct ib_rig *rig, uint64_t n_slots)
{
    const uint64_t until_ns = gyre_now_ns() + 60000000000ULL;
    uint64_t n_left = 0;
    uint64_t goal = 0;
    uint64_t start_sent[IB_RIG_MAX_RANKS][IB_RIG_MAX_RANKS][16];
    uint64_t start_got[IB_RIG_MAX_RANKS][IB_RIG_MAX_RANKS][16];
    for (int a = 0; a < rig->n_ranks; a++)
        for (int b = 0; b < rig->n_ranks; b++)
            for (uint32_t f = 0; f < size_of(rig, a, b).n_fifos; f++) {
                goal += a != b ? n_slots : 0;
                start_sent[a][b][f] =
                    rig->ranks[a].published[gyre_connector_index(&rig->spec, (uint32_t)b, f, true)];
                start_got[a][b][f] =
                    rig->ranks[b].consumed[gyre_connector_index(&rig->spec, (uint32_t)a, f, false)];
            }
    for (n_left = goal; n_left > 0;) {
        bool has_moved = false;
        for (int a = 0; a < rig->n_ranks; a++)
            for (int b = 0; b < rig->n_ranks; b++)
                for (uint32_t f = 0; f < size_of(rig, a, b).n_fifos && a != b; f++) {
                    const uint32_t most = size_of(rig, a, b).slot_bytes;
                    const uint64_t sent =
                        rig->ranks[a]
                            .published[gyre_connector_index(&rig->spec, (uint32_t)b, f, true)];
                    const uint64_t got =
                        rig->ranks[b]
                            .consumed[gyre_connector_index(&rig->spec, (uint32_t)a, f, false)];
                    if (sent < start_sent[a][b][f] + n_slots)
                        has_moved |= ib_rig_send(rig, a, b, f, step_bytes(most, sent));
                    if (got < start_got[a][b][f] + n_slots &&
                        ib_rig_receive(rig, a, b, f, step_bytes(most, got))) {
                        has_moved = true;
                        n_left--;
                    }
                }
        if (!has_moved && (ib_rig_has_fault(rig) || gyre_now_ns() > until_ns))
            return false;
        if (!has_moved)
            sched_yield();
    }
    return true;
}
