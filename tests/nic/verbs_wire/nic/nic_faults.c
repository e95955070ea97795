/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults that a test injects while programs run (README.md has the words). The bytes of packets
 * that land late were read when they were sent, and reach the peer's memory whatever has become of
 * the sender, unless the peer has taken its queue pair away.
 */
#include "tests/nic/verbs_wire/nic/nic_delivery.h"

#include "tests/nic/verbs_wire/say.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAX_TEXT_BYTES 4096

/* ---- the text ------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    uint32_t kind; /* 0 = it has a value */
    size_t value;  /* its place in struct wire_faults */
} words[] = {
    {"down", WIRE_DOWN, 0},
    {"lose_out", WIRE_LOSE_OUT, 0},
    {"lose_in", WIRE_LOSE_IN, 0},
    {"lose_answers", WIRE_LOSE_ANSWERS, 0},
    {"only_answer", WIRE_ONLY_ANSWER, 0},
    {"no_flushes", WIRE_NO_FLUSHES, 0},
    {"unfenced", WIRE_UNFENCED, 0},
    {"hold", WIRE_HOLD, 0},
    {"late_ms", 0, offsetof(struct wire_faults, late_ms)},
    {"mbit_per_s", 0, offsetof(struct wire_faults, mbit_per_s)},
    {"gids", 0, offsetof(struct wire_faults, gid_rows)},
    {"rtr_ms", 0, offsetof(struct wire_faults, rtr_ms)},
    {"destroy_ms", 0, offsetof(struct wire_faults, destroy_ms)},
};

static void read_line(const struct nic *nic, const char *line, struct wire_faults *faults)
{
    char host[40] = "", word[40] = "";
    unsigned device = 0, value = 0;
    const size_t n_host = strcspn(nic->entry->host, "/");
    const int n = sscanf(line, "%39s %u %39s %u", host, &device, word, &value);
    if (n <= 0 || host[0] == '#')
        return;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]) && device < VM_MAX_DEVICES; i++) {
        if (strcmp(words[i].name, word) != 0 || n != (words[i].kind != 0 ? 3 : 4))
            continue;
        if (strlen(host) != n_host || strncmp(host, nic->entry->host, n_host) != 0)
            return;
        faults[device].kinds |= words[i].kind;
        if (words[i].kind == 0)
            memcpy((char *)&faults[device] + words[i].value, &value, sizeof(value));
        return;
    }
    wire_say("VERBS_WIRE_FAULTS: not \"HOST DEVICE FAULT [VALUE]\": %.60s", line);
}

static void confirm(const struct nic *nic, const char *path, const char *text, size_t n_bytes)
{
    char made[512], name[512];
    snprintf(name, sizeof(name), "%.400s.%.*s", path, (int)strcspn(nic->entry->host, "/"),
             nic->entry->host);
    snprintf(made, sizeof(made), "%.500s.new", name);
    const int fd = open(made, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, text, n_bytes) != (ssize_t)n_bytes || rename(made, name) != 0)
        wire_say("VERBS_WIRE_FAULTS: cannot write %.100s", name);
    if (fd >= 0)
        close(fd);
}

bool nic_look_for_faults(struct nic *nic)
{
    const char *path = getenv("VERBS_WIRE_FAULTS");
    struct wire_faults faults[VM_MAX_DEVICES] = {{.kinds = 0}};
    char text[MAX_TEXT_BYTES], copy[MAX_TEXT_BYTES];
    struct stat is;
    if (path == NULL || stat(path, &is) != 0 ||
        (is.st_ino == nic->faults_inode && is.st_mtim.tv_nsec == nic->faults_ns))
        return false;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n_bytes = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (n_bytes < 0)
        return false;
    nic->faults_inode = is.st_ino;
    nic->faults_ns = is.st_mtim.tv_nsec;
    text[n_bytes] = '\0';
    memcpy(copy, text, (size_t)n_bytes + 1);
    char *rest = copy;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;)
        read_line(nic, line, faults);
    memcpy(nic->entry->faults, faults, sizeof(faults));
    (void)__atomic_add_fetch(&nic->entry->n_fault_texts, 1, __ATOMIC_SEQ_CST);
    wire_futex_wake(&nic->entry->n_fault_texts);
    confirm(nic, path, text, (size_t)n_bytes);
    return true;
}

const struct wire_faults *nic_faults_of(const struct nic *nic, const struct wire_pair_entry *entry)
{
    const struct wire_process_entry *process = &nic->job.file->processes[entry->process];
    return &nic->job.file->nics[process->nic].faults[entry->device];
}

bool nic_loses(const struct nic *nic, const struct wire_pair_entry *from,
               const struct wire_pair_entry *to)
{
    return (nic_faults_of(nic, from)->kinds & (WIRE_DOWN | WIRE_LOSE_OUT)) != 0 ||
           (nic_faults_of(nic, to)->kinds & (WIRE_DOWN | WIRE_LOSE_IN)) != 0;
}

/* ---- late packets --------------------------------------------------------------------------- */

struct nic_late {
    struct nic_late *next; /* in the order of sending */
    struct wire_pair_entry *peer;
    uint32_t number, peer_number; /* of the two queue pairs */
    wire_owner peer_owner;
    uint32_t device;
    bool is_unfenced;
    bool is_held; /* until its port holds nothing more */
    uint64_t due_ns;
    struct nic_delivery delivery;
    struct wire_request request;
    unsigned char bytes[];
};

static bool is_behind_late(const struct nic *nic, const struct nic_pair *pair)
{
    for (const struct nic_late *late = nic->first_late; late != NULL; late = late->next)
        if (late->number == pair->number)
            return true;
    return false;
}

bool nic_is_late(const struct nic_delivery *delivery)
{
    const struct wire_faults *faults = nic_faults_of(delivery->nic, delivery->mine);
    const struct wire_request *request = delivery->request;
    return (faults->late_ms != 0 || (faults->kinds & (WIRE_ONLY_ANSWER | WIRE_HOLD)) != 0 ||
            is_behind_late(delivery->nic, delivery->pair)) &&
           request->way != WIRE_BY_RING && request->opcode != IBV_WR_RDMA_READ &&
           (delivery->kind == WIRE_PAYLOAD || delivery->kind == WIRE_WRITE_IMM) &&
           !nic_is_closed(delivery, delivery->mine) && !nic_is_closed(delivery, delivery->peer);
}

enum nic_verdict nic_send_late(struct nic_delivery *delivery)
{
    struct nic *nic = delivery->nic;
    const struct wire_faults *faults = nic_faults_of(nic, delivery->mine);
    struct nic_late **end = &nic->first_late;
    if ((faults->kinds & WIRE_ONLY_ANSWER) != 0)
        return NIC_DELIVERED;
    struct nic_late *late = calloc(1, sizeof(*late) + delivery->request->n_bytes);
    if (late == NULL)
        abort();
    late->peer = delivery->peer;
    late->number = delivery->pair->number;
    late->peer_number = delivery->peer->number;
    late->peer_owner = gyre_load_acquire_u64(&delivery->peer->owner);
    late->device = delivery->mine->device;
    late->is_held = (faults->kinds & WIRE_HOLD) != 0;
    late->is_unfenced = (faults->kinds & WIRE_UNFENCED) != 0;
    late->due_ns = wire_now_ns() + faults->late_ms * UINT64_C(1000000);
    late->delivery = *delivery;
    late->request = *delivery->request;
    late->delivery.request = &late->request;
    const enum nic_verdict verdict = nic_read_all(delivery, late->bytes);
    if (verdict != NIC_DELIVERED) {
        free(late);
        return verdict;
    }
    while (*end != NULL)
        end = &(*end)->next;
    *end = late;
    return NIC_DELIVERED;
}

/* Its queue pair may be gone, its region is not. */
static void write_unfenced(const struct nic_late *late)
{
    const struct iovec from = {(void *)(uintptr_t)late->bytes, late->request.n_bytes};
    const struct iovec to = {(void *)(uintptr_t)late->request.remote_address,
                             late->request.n_bytes};
    (void)!process_vm_writev(wire_pid_of(late->peer_owner), &from, 1, &to, 1, 0);
}

/* False: it waits. */
static bool land(struct nic *nic, struct nic_late *late)
{
    struct wire_pair_entry *peer = late->peer;
    struct nic_delivery *delivery = &late->delivery;
    bool has_landed = true;
    (void)wire_exchange(&peer->is_entered, (uint32_t)wire_pid_of(nic->job.owner));
    const uint32_t state = wire_load(&peer->state);
    if (gyre_load_acquire_u32(&peer->number) == late->peer_number &&
        peer->dest_number == late->number && (state == IBV_QPS_RTR || state == IBV_QPS_RTS)) {
        if (delivery->needs_receive &&
            (gyre_load_acquire_u64(&peer->n_receives) == peer->n_spent ||
             WIRE_MESSAGES == peer->n_messages - gyre_load_acquire_u64(&peer->n_taken)))
            has_landed = false;
        else if (nic_write_all(delivery, late->bytes) != NIC_DELIVERED)
            wire_say("%u late bytes could not be written", (unsigned)delivery->request->n_bytes);
        else if (delivery->needs_receive)
            nic_announce(delivery);
    } else if (late->is_unfenced) {
        write_unfenced(late);
    }
    (void)wire_exchange(&peer->is_entered, 0);
    return has_landed;
}

static bool is_first_of_pair(const struct nic *nic, const struct nic_late *late)
{
    const struct nic_late *other = nic->first_late;
    while (other->number != late->number)
        other = other->next;
    return other == late;
}

uint64_t nic_land_late(struct nic *nic)
{
    uint64_t next_ns = NIC_FOREVER;
    for (struct nic_late **at = &nic->first_late; *at != NULL;) {
        struct nic_late *late = *at;
        const bool is_held =
            late->is_held && (nic->entry->faults[late->device].kinds & WIRE_HOLD) != 0;
        const bool is_due = !is_held && late->due_ns <= wire_now_ns();
        if (is_due && is_first_of_pair(nic, late) && land(nic, late)) {
            *at = late->next;
            free(late);
            continue;
        }
        if (!is_held)
            next_ns = is_due ? 0 : late->due_ns < next_ns ? late->due_ns : next_ns;
        at = &late->next;
    }
    return next_ns;
}
