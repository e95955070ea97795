/* SPDX-License-Identifier: Apache-2.0
 *
 * A wire between two network namespaces, for kernels without netem: a TUN device in each, and this
 * process carries packets between them with a rate, a delay and a loss. Devices hand over whole
 * TCP segments of up to 64 KiB (checksum and segmentation left undone, as a veth does), so one core
 * carries well over 1 Gbit/s.
 *
 *   wire NAMESPACE0 NAMESPACE1 DEVICE GBIT_PER_S DELAY_US LOSS_PERCENT
 *
 * Rate 0 = as fast as it goes. Rate, delay and loss act on each direction; a lost packet is a whole
 * segment. Prints "ready" when both devices exist; ends with its parent or by a signal.
 */
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <poll.h>
#include <sched.h>
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
#define QUEUE_PACKETS    4096 /* what does not fit is dropped, as a switch does */

struct packet {
    uint64_t due_ns;
    size_t n_bytes;
    unsigned char *bytes;
};

struct direction {
    int from_fd;
    int to_fd;
    uint64_t free_at_ns; /* when the wire has sent what it has accepted */
    uint32_t first, n;
    struct packet queue[QUEUE_PACKETS];
};

static double bytes_per_ns;
static uint64_t delay_ns;
static double loss;

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
    if (ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) != 0)
        die("TUNSETOFFLOAD");
    return fd;
}

static void take_in(struct direction *way)
{
    static unsigned char bytes[PACKET_MAX_BYTES];
    for (int i = 0; i < 64; i++) {
        const ssize_t n_read = read(way->from_fd, bytes, sizeof(bytes));
        if (n_read <= 0)
            return;
        if (way->n == QUEUE_PACKETS || drand48() * 100 < loss)
            continue;
        struct packet *packet = &way->queue[(way->first + way->n) % QUEUE_PACKETS];
        packet->bytes = malloc((size_t)n_read);
        if (packet->bytes == NULL)
            die("malloc");
        memcpy(packet->bytes, bytes, (size_t)n_read);
        packet->n_bytes = (size_t)n_read;
        const uint64_t now = now_ns();
        if (way->free_at_ns < now)
            way->free_at_ns = now;
        if (bytes_per_ns > 0)
            way->free_at_ns += (uint64_t)((double)n_read / bytes_per_ns);
        packet->due_ns = way->free_at_ns + delay_ns;
        way->n++;
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

int main(int argc, char **argv)
{
    static struct direction ways[2];
    if (argc != 7) {
        fprintf(stderr, "usage: %s NAMESPACE0 NAMESPACE1 DEVICE GBIT_PER_S DELAY_US LOSS_PERCENT\n",
                argv[0]);
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int fds[2] = {open_device(argv[1], argv[3]), open_device(argv[2], argv[3])};
    bytes_per_ns = atof(argv[4]) / 8;
    delay_ns = (uint64_t)(atof(argv[5]) * 1000);
    loss = atof(argv[6]);
    ways[0].from_fd = ways[1].to_fd = fds[0];
    ways[1].from_fd = ways[0].to_fd = fds[1];
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        uint64_t due = UINT64_MAX;
        for (int i = 0; i < 2; i++)
            if (ways[i].n > 0 && ways[i].queue[ways[i].first].due_ns < due)
                due = ways[i].queue[ways[i].first].due_ns;
        struct pollfd watched[2] = {{.fd = fds[0], .events = POLLIN},
                                    {.fd = fds[1], .events = POLLIN}};
        const uint64_t now = now_ns();
        const uint64_t wait_ns = due <= now ? 0 : due - now;
        const struct timespec wait = {(time_t)(wait_ns / 1000000000ULL),
                                      (long)(wait_ns % 1000000000ULL)};
        if (ppoll(watched, 2, due == UINT64_MAX ? NULL : &wait, NULL) < 0 && errno != EINTR)
            die("ppoll");
        for (int i = 0; i < 2; i++) {
            if (watched[i].revents != 0)
                take_in(&ways[i]);
            let_out(&ways[i]);
        }
    }
}
