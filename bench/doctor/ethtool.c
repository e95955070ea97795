/* SPDX-License-Identifier: Apache-2.0
 *
 * A network driver's own statistics, which sysfs does not show.
 */
#include "bench/doctor/rdma.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST_STATISTICS 65536

static int ask(int fd, const char *netdev, void *command)
{
    struct ifreq request;
    memset(&request, 0, sizeof(request));
    snprintf(request.ifr_name, sizeof(request.ifr_name), "%.15s", netdev);
    request.ifr_data = command;
    return ioctl(fd, SIOCETHTOOL, &request);
}

/* Prints names and numbers, which the kernel hands out in two calls. */
static enum bench_read format(int fd, const char *netdev, uint32_t n, char **text_out)
{
    struct ethtool_gstrings *names = calloc(1, sizeof(*names) + (size_t)n * ETH_GSTRING_LEN);
    struct ethtool_stats *numbers = calloc(1, sizeof(*numbers) + (size_t)n * sizeof(uint64_t));
    char *text = malloc((size_t)n * (ETH_GSTRING_LEN + 32) + 1);
    enum bench_read result = BENCH_READ_BROKEN;
    if (names == NULL || numbers == NULL || text == NULL)
        goto done;
    names->cmd = ETHTOOL_GSTRINGS;
    names->string_set = ETH_SS_STATS;
    names->len = n;
    numbers->cmd = ETHTOOL_GSTATS;
    numbers->n_stats = n;
    if (ask(fd, netdev, names) != 0 || ask(fd, netdev, numbers) != 0 || names->len > n)
        goto done;
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < names->len; i++)
        used += (size_t)sprintf(text + used, "     %.*s: %" PRIu64 "\n", ETH_GSTRING_LEN - 1,
                                (const char *)names->data + (size_t)i * ETH_GSTRING_LEN,
                                (uint64_t)numbers->data[i]);
    result = BENCH_READ_OK;
    *text_out = text;
    text = NULL;
done:
    free(names);
    free(numbers);
    free(text);
    return result;
}

/* The number of a driver's statistics; 0 if it has none. */
static uint32_t count(int fd, const char *netdev)
{
    struct ethtool_sset_info *sets = calloc(1, sizeof(*sets) + sizeof(uint32_t));
    uint32_t n = 0;
    if (sets == NULL)
        return 0;
    sets->cmd = ETHTOOL_GSSET_INFO;
    sets->sset_mask = 1ULL << ETH_SS_STATS;
    if (ask(fd, netdev, sets) == 0 && sets->sset_mask != 0)
        n = sets->data[0];
    free(sets);
    return n < MOST_STATISTICS ? n : 0;
}

enum bench_read bench_ethtool_read(const char *root, const char *netdev, char **text_out)
{
    char path[64];
    *text_out = NULL;
    if (root[0] != '\0') {
        snprintf(path, sizeof(path), "/ethtool/%.15s", netdev);
        return bench_read_all(root, path, text_out);
    }
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return BENCH_READ_BROKEN;
    const uint32_t n = count(fd, netdev);
    const enum bench_read result = n > 0 ? format(fd, netdev, n, text_out) : BENCH_READ_ABSENT;
    close(fd);
    return result;
}
