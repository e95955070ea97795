/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the packets that a NIC would send for each delivered request into a file that tcpdump and
 * tshark read, headers only. The payload is not kept, as with `tcpdump -s`.
 */
#include "tests/nic/verbs_wire/nic/nic.h"

#include "core/foundation/base/util.h"
#include "tests/nic/verbs_wire/say.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROCE_PORT     4791
#define ETHERNET      1           /* link type */
#define PCAP_MAGIC_NS 0xa1b23c4dU /* times in nanoseconds */
#define MOST_HEADERS  80
#define ICRC_BYTES    4

/* InfiniBand Architecture Specification, volume 1, table "OpCode field": reliable connections. */
enum { FIRST, MIDDLE, LAST, LAST_IMM, ONLY, ONLY_IMM, N_PLACES };
enum { OF_SENDS = 0, OF_WRITES = 6, READ_REQUEST = 12 };

struct packet {
    unsigned char bytes[MOST_HEADERS];
    uint32_t n;
};

static void put(struct packet *packet, uint64_t value, int n_bytes)
{
    for (int i = n_bytes - 1; i >= 0; i--)
        packet->bytes[packet->n++] = (unsigned char)(value >> 8 * i);
}

static void put_ethernet_and_ip(struct packet *packet, const struct wire_pair_entry *entry,
                                uint32_t ip_bytes)
{
    const unsigned char *from = &entry->local_gid.raw[12], *to = &entry->dest_gid.raw[12];
    uint32_t sum = 0;
    for (int i = 0; i < 2; i++) { /* addresses of the stand-in's own making */
        put(packet, 0x0200, 2);
        memcpy(&packet->bytes[packet->n], i == 0 ? to : from, 4);
        packet->n += 4;
    }
    put(packet, 0x0800, 2);
    const uint32_t begin = packet->n;
    put(packet, 0x45, 1);
    put(packet, entry->traffic_class, 1);
    put(packet, ip_bytes, 2);
    put(packet, 0x00004000, 4); /* not to be cut */
    put(packet, 0x4011, 2);     /* 64 hops, UDP */
    put(packet, 0, 2);
    memcpy(&packet->bytes[packet->n], from, 4);
    memcpy(&packet->bytes[packet->n + 4], to, 4);
    packet->n += 8;
    for (uint32_t i = begin; i < packet->n; i += 2)
        sum += (uint32_t)packet->bytes[i] << 8 | packet->bytes[i + 1];
    sum = (sum & 0xffff) + (sum >> 16);
    sum = ~(sum + (sum >> 16)) & 0xffff;
    packet->bytes[begin + 10] = (unsigned char)(sum >> 8);
    packet->bytes[begin + 11] = (unsigned char)sum;
}

static void write_packet(FILE *file, struct nic_pair *pair, const struct wire_request *request,
                         uint32_t place, uint32_t n_payload)
{
    const struct wire_pair_entry *entry = pair->entry;
    const bool is_read = request->opcode == IBV_WR_RDMA_READ;
    const bool is_write =
        request->opcode == IBV_WR_RDMA_WRITE || request->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    const bool has_reth =
        is_read || (is_write && (place == FIRST || place == ONLY || place == ONLY_IMM));
    const bool has_imm = place == LAST_IMM || place == ONLY_IMM;
    const uint32_t padding = (4 - n_payload % 4) % 4;
    const uint32_t udp_bytes =
        8U + 12 + (has_reth ? 16U : 0) + (has_imm ? 4U : 0) + n_payload + padding + ICRC_BYTES;
    struct packet packet = {.n = 0};
    struct timespec now;
    put_ethernet_and_ip(&packet, entry, 20 + udp_bytes);
    put(&packet, 0xc000 | (pair->number & 0x3fff), 2);
    put(&packet, ROCE_PORT, 2);
    put(&packet, udp_bytes, 2);
    put(&packet, 0, 2); /* no checksum */
    put(&packet, is_read ? READ_REQUEST : (uint32_t)(is_write ? OF_WRITES : OF_SENDS) + place, 1);
    put(&packet, padding << 4, 1);
    put(&packet, 0xffff, 2); /* partition */
    put(&packet, entry->dest_number, 4);
    put(&packet, (place >= LAST ? 1U << 31 : 0) | ((entry->sq_psn + pair->n_packets++) & 0xffffff),
        4);
    if (has_reth) {
        put(&packet, request->remote_address, 8);
        put(&packet, request->rkey, 4);
        put(&packet, request->n_bytes, 4);
    }
    if (has_imm)
        put(&packet, ntohl(request->imm), 4);
    (void)clock_gettime(CLOCK_REALTIME, &now);
    const uint32_t head[4] = {(uint32_t)now.tv_sec, (uint32_t)now.tv_nsec, packet.n,
                              14 + 20 + udp_bytes};
    (void)fwrite(head, sizeof(head), 1, file);
    (void)fwrite(packet.bytes, packet.n, 1, file);
}

static FILE *open_file(const struct nic *nic)
{
    const char *name = getenv("VERBS_WIRE_PCAP");
    char path[256];
    if (name == NULL)
        return NULL;
    const char *host = nic->entry->host; /* NAME/NUMBER */
    snprintf(path, sizeof(path), "%s.%.*s", name, (int)strcspn(host, "/"), host);
    FILE *file = fopen(path, "w");
    if (file == NULL)
        wire_say("VERBS_WIRE_PCAP: cannot write %.200s: %s", path, strerror(errno));
    const uint32_t head[6] = {PCAP_MAGIC_NS, 4U << 16 | 2, 0, 0, MOST_HEADERS, ETHERNET};
    if (file != NULL)
        (void)fwrite(head, sizeof(head), 1, file);
    return file;
}

void nic_capture(const struct nic *nic, struct nic_pair *pair, const struct wire_request *request)
{
    static FILE *file;
    static bool is_open;
    const uint32_t mtu = 128U << pair->entry->path_mtu;
    const bool has_imm =
        request->opcode == IBV_WR_RDMA_WRITE_WITH_IMM || request->opcode == IBV_WR_SEND_WITH_IMM;
    if (!is_open)
        file = open_file(nic);
    is_open = true;
    if (file == NULL)
        return;
    const uint32_t n_bytes = request->opcode == IBV_WR_RDMA_READ ? 0 : (uint32_t)request->n_bytes;
    for (uint32_t at = 0; at == 0 || at < n_bytes; at += mtu) {
        const bool is_first = at == 0, is_last = n_bytes - at <= mtu;
        const uint32_t place = !is_last   ? (is_first ? FIRST : MIDDLE)
                               : is_first ? (has_imm ? ONLY_IMM : ONLY)
                                          : (has_imm ? LAST_IMM : LAST);
        write_packet(file, pair, request, place, gyre_min_u32(n_bytes - at, mtu));
    }
    (void)fflush(file);
}
