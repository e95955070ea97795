/* SPDX-License-Identifier: Apache-2.0
 *
 * A wire between two network namespaces, for kernels without netem: a TUN device in each, between
 * which this process carries packets. Devices hand over whole TCP segments of up to 64 KiB
 * (checksum and segmentation left undone, as a veth does), so one core carries well over 1 Gbit/s.
 *
 *   wire NAMESPACE0 NAMESPACE1 DEVICE GBIT_PER_S DELAY_US LOSS_PERCENT
 *
 * Rate 0 = as fast as it goes. Rate, delay and loss act on each direction; a lost packet is a whole
 * segment. Prints "ready" when both devices exist; ends with its parent or by a signal.
 *
 *   wire NAMESPACE0 NAMESPACE1 DEVICE control
 *
 * starts as a perfect wire of single packets with checksums, and obeys lines on standard input,
 * each answered by "ok". WAY is 0 (from NAMESPACE0), 1 or 2 (both):
 *
 *   loss WAY PERCENT | corrupt WAY PERCENT | duplicate WAY PERCENT | delay US | port WAY NUMBER
 *
 * "port" loses that port's TCP packets as well, up to 16 ports; "port 2 0" forgets all.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define PACKET_MAX_BYTES (65536 + 64)
#define QUEUE_PACKETS    4096 /* the rest is dropped, as by a switch */

#define MAX_PORTS        16

struct packet {
    uint64_t due_ns;
    size_t n_bytes;
    unsigned char *bytes;
};

struct direction {
    int from_fd;
    int to_fd;
    uint64_t free_at_ns;                  /* when all accepted packets are sent */
    double loss, corruption, duplication; /* percent */
    int n_ports;
    unsigned ports[MAX_PORTS]; /* TCP ports whose packets are lost */
    uint32_t first, n;
    struct packet queue[QUEUE_PACKETS];
};

static double bytes_per_ns;
static uint64_t delay_ns;
static bool is_controlled;
static struct direction ways[2];

static void die(const char *what)
{
    fprintf(stderr, "wire: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

static int open_device(const char *namespace, const char *device)
{
    char path[128];
    snprintf(path, sizeof(path), "/run/netns/%s", namespace);
    const int netns_fd = open(path, O_RDONLY | O_CLOEXEC);
    if (netns_fd < 0 || setns(netns_fd, CLONE_NEWNET) != 0)
        die(path);
    close(netns_fd);
    const int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    struct ifreq request;
    memset(&request, 0, sizeof(request));
    request.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", device);
    if (fd < 0 || ioctl(fd, TUNSETIFF, &request) != 0)
        die("/dev/net/tun");
    /* Corruption needs finished checksums. */
    const unsigned offloads = is_controlled ? 0 : TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6;
    if (ioctl(fd, TUNSETOFFLOAD, offloads) != 0)
        die("TUNSETOFFLOAD");
    return fd;
}

static bool happens(double percent)
{
    return percent > 0 && drand48() * 100 < percent;
}

static bool has_lost_port(const struct direction *way, const unsigned char *bytes, size_t n_bytes)
{
    const unsigned char *ip = bytes + sizeof(struct virtio_net_hdr);
    if (way->n_ports == 0 || n_bytes < sizeof(struct virtio_net_hdr) + 20 || ip[0] >> 4 != 4 ||
        ip[9] != IPPROTO_TCP)
        return false;
    const unsigned char *tcp = ip + (ip[0] & 15) * 4;
    if (tcp + 4 > bytes + n_bytes)
        return false;
    const unsigned from = (unsigned)tcp[0] << 8 | tcp[1], to = (unsigned)tcp[2] << 8 | tcp[3];
    for (int i = 0; i < way->n_ports; i++)
        if (way->ports[i] == from || way->ports[i] == to)
            return true;
    return false;
}

static void enqueue(struct direction *way, const unsigned char *bytes, size_t n_bytes)
{
    if (way->n == QUEUE_PACKETS)
        return;
    struct packet *packet = &way->queue[(way->first + way->n) % QUEUE_PACKETS];
    packet->bytes = malloc(n_bytes);
    if (packet->bytes == NULL)
        die("malloc");
    memcpy(packet->bytes, bytes, n_bytes);
    packet->n_bytes = n_bytes;
    const uint64_t now = now_ns();
    if (way->free_at_ns < now)
        way->free_at_ns = now;
    if (bytes_per_ns > 0)
        way->free_at_ns += (uint64_t)((double)n_bytes / bytes_per_ns);
    packet->due_ns = way->free_at_ns + delay_ns;
    way->n++;
}

static void take_in(struct direction *way)
{
    static unsigned char bytes[PACKET_MAX_BYTES];
    for (int i = 0; i < 64; i++) {
        const ssize_t n_read = read(way->from_fd, bytes, sizeof(bytes));
        if (n_read <= 0)
            return;
        if (happens(way->loss) || has_lost_port(way, bytes, (size_t)n_read))
            continue;
        if (happens(way->corruption)) {
            /* Behind the IP header, under the receiver's TCP checksum. */
            const size_t n_bytes = (size_t)n_read;
            const size_t n_headers = sizeof(struct virtio_net_hdr) + 20;
            if (n_bytes > n_headers)
                bytes[n_headers + (size_t)lrand48() % (n_bytes - n_headers)] ^=
                    (unsigned char)(1 << lrand48() % 8);
        }
        enqueue(way, bytes, (size_t)n_read);
        if (happens(way->duplication))
            enqueue(way, bytes, (size_t)n_read);
    }
}

static void let_out(struct direction *way)
{
    const uint64_t now = now_ns();
    while (way->n > 0 && way->queue[way->first].due_ns <= now) {
        struct packet *packet = &way->queue[way->first];
        /* A full device drops, which TCP notices. */
        if (write(way->to_fd, packet->bytes, packet->n_bytes) < 0 && errno != EAGAIN &&
            errno != EIO && errno != EINVAL)
            die("write to a device");
        free(packet->bytes);
        way->first = (way->first + 1) % QUEUE_PACKETS;
        way->n--;
    }
}

static void obey_for(struct direction *way, const char *word, double value)
{
    if (strcmp(word, "loss") == 0)
        way->loss = value;
    else if (strcmp(word, "corrupt") == 0)
        way->corruption = value;
    else if (strcmp(word, "duplicate") == 0)
        way->duplication = value;
    else if (strcmp(word, "port") == 0 && value == 0)
        way->n_ports = 0;
    else if (strcmp(word, "port") == 0 && way->n_ports < MAX_PORTS)
        way->ports[way->n_ports++] = (unsigned)value;
}

/* The end of input ends the wire. */
static void read_control(void)
{
    static char line[256];
    static size_t n_line;
    char byte;
    ssize_t n_read;
    while ((n_read = read(STDIN_FILENO, &byte, 1)) == 1) {
        if (byte != '\n' && n_line < sizeof(line) - 1) {
            line[n_line++] = byte;
            continue;
        }
        line[n_line] = '\0';
        n_line = 0;
        char word[16];
        unsigned which = 0;
        double value = 0;
        if (sscanf(line, "delay %lf", &value) == 1)
            delay_ns = (uint64_t)(value * 1000);
        else if (sscanf(line, "%15s %u %lf", word, &which, &value) == 3)
            for (unsigned i = 0; i < 2; i++)
                if (which == i || which == 2)
                    obey_for(&ways[i], word, value);
        printf("ok\n");
        fflush(stdout);
    }
    if (n_read == 0)
        exit(0);
}

int main(int argc, char **argv)
{
    is_controlled = argc == 5 && strcmp(argv[4], "control") == 0;
    if (argc != 7 && !is_controlled) {
        fprintf(
            stderr,
            "usage: %s NAMESPACE0 NAMESPACE1 DEVICE (GBIT_PER_S DELAY_US LOSS_PERCENT | control)\n",
            argv[0]);
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int fds[2] = {open_device(argv[1], argv[3]), open_device(argv[2], argv[3])};
    if (is_controlled) {
        fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
    } else {
        bytes_per_ns = atof(argv[4]) / 8;
        delay_ns = (uint64_t)(atof(argv[5]) * 1000);
        ways[0].loss = ways[1].loss = atof(argv[6]);
    }
    ways[0].from_fd = ways[1].to_fd = fds[0];
    ways[1].from_fd = ways[0].to_fd = fds[1];
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        uint64_t due = UINT64_MAX;
        for (int i = 0; i < 2; i++)
            if (ways[i].n > 0 && ways[i].queue[ways[i].first].due_ns < due)
                due = ways[i].queue[ways[i].first].due_ns;
        struct pollfd watched[3] = {{.fd = fds[0], .events = POLLIN},
                                    {.fd = fds[1], .events = POLLIN},
                                    {.fd = is_controlled ? STDIN_FILENO : -1, .events = POLLIN}};
        const uint64_t now = now_ns();
        const uint64_t wait_ns = due <= now ? 0 : due - now;
        const struct timespec wait = {(time_t)(wait_ns / 1000000000ULL),
                                      (long)(wait_ns % 1000000000ULL)};
        if (ppoll(watched, 3, due == UINT64_MAX ? NULL : &wait, NULL) < 0 && errno != EINTR)
            die("ppoll");
        for (int i = 0; i < 2; i++)
            if (watched[i].revents != 0)
                take_in(&ways[i]);
        if (watched[2].revents != 0)
            read_control();
        for (int i = 0; i < 2; i++)
            let_out(&ways[i]);
    }
}
