/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the input of the rules in ib_gid.h: the GID table of a port.
 */
#include "transport/ib/ib_device.h"

#include "core/foundation/base/log.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* The VLAN of an interface; 0 = none. VLAN interfaces have names such as "eth0.100" by default, and
 * /proc/net/vlan/<name> exists for every VLAN interface, whatever its name. */
static uint16_t vlan_of(const char *netdev)
{
    char path[64];
    unsigned id = 0;
    snprintf(path, sizeof(path), "/proc/net/vlan/%s", netdev);
    FILE *stream = fopen(path, "re");
    if (stream == NULL)
        return 0;
    char line[128];
    if (fgets(line, sizeof(line), stream) != NULL) {
        const char *at = strstr(line, "VID:");
        if (at != NULL)
            id = (unsigned)strtoul(at + 4, NULL, 10);
    }
    fclose(stream);
    return (uint16_t)id;
}

static bool is_down(const char *netdev)
{
    struct ifreq request;
    memset(&request, 0, sizeof(request));
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", netdev);
    const bool down = ioctl(fd, SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_UP) == 0;
    close(fd);
    return down;
}

static void set_netdev(struct gyre_ib_gid_row *row, const char *netdev)
{
    const size_t length = strlen(netdev);
    /* No interface has a longer name, and a name that is cut off may be another interface's. */
    if (length == 0 || length >= sizeof(row->netdev))
        return;
    memcpy(row->netdev, netdev, length + 1);
    row->vlan = vlan_of(row->netdev);
    row->is_netdev_down = is_down(row->netdev);
}

/* A word of sysfs; false if the file cannot be read (EINVAL for an empty slot). */
static bool read_attr(const struct ibv_context *context, uint8_t port, const char *what,
                      uint32_t index, char *text_out, size_t text_bytes)
{
    char path[IBV_SYSFS_PATH_MAX + 64];
    snprintf(path, sizeof(path), "%s/ports/%u/gid_attrs/%s/%u", context->device->ibdev_path, port,
             what, index);
    FILE *stream = fopen(path, "re");
    if (stream == NULL)
        return false;
    const bool is_read = fgets(text_out, (int)text_bytes, stream) != NULL;
    fclose(stream);
    if (is_read)
        text_out[strcspn(text_out, "\n")] = '\0';
    return is_read;
}

static void warn_if_full(const struct ibv_context *context, uint8_t port, int n)
{
    if (n == GYRE_IB_MAX_GIDS)
        GYRE_WARN("NET/IB : %s:%u: only the first %d GIDs are looked at", context->device->name,
                  port, n);
}

static gyre_status table_by_sysfs(const struct gyre_verbs *verbs, struct ibv_context *context,
                                  uint8_t port, struct gyre_ib_gid_row *rows_out, int *n_out)
{
    struct ibv_port_attr attr;
    int n = 0;
    const int error = gyre_verbs_query_port(verbs, context, port, &attr);
    if (error != 0)
        return gyre_fail_errno(error, "%s:%u: ibv_query_port", context->device->name, port);
    for (int i = 0; i < attr.gid_tbl_len && n < GYRE_IB_MAX_GIDS; i++) {
        union ibv_gid gid;
        char word[32];
        if (verbs->query_gid(context, port, i, &gid) != 0 ||
            gyre_ib_gid_classify(gid.raw) == GYRE_IB_GID_ZERO)
            continue;
        struct gyre_ib_gid_row *row = &rows_out[n++];
        memset(row, 0, sizeof(*row));
        row->index = (uint32_t)i;
        memcpy(row->raw, gid.raw, sizeof(row->raw));
        if (read_attr(context, port, "types", row->index, word, sizeof(word)))
            row->type = strstr(word, "v2") != NULL ? GYRE_IB_GID_ROCE_V2 : GYRE_IB_GID_ROCE_V1;
        if (read_attr(context, port, "ndevs", row->index, word, sizeof(word)))
            set_netdev(row, word);
    }
    warn_if_full(context, port, n);
    *n_out = n;
    return GYRE_SUCCESS;
}

gyre_status gyre_ib_gid_table(const struct gyre_verbs *verbs, struct ibv_context *context,
                              uint8_t port, struct gyre_ib_gid_row *rows_out, int *n_out)
{
    struct ibv_gid_entry *entries = NULL;
    ssize_t n_entries = -1;
    /* This call returns the valid rows of all ports of the device. Type, interface and address of a
     * row belong together even if the table changes meanwhile. Kernels before 5.10 do not have the
     * call. */
    if (verbs->query_gid_table != NULL) {
        entries = calloc(4 * GYRE_IB_MAX_GIDS, sizeof(*entries));
        if (entries == NULL)
            return gyre_fail_errno(ENOMEM, "%s: GID table", context->device->name);
        n_entries =
            verbs->query_gid_table(context, entries, 4 * GYRE_IB_MAX_GIDS, 0, sizeof(*entries));
    }
    if (n_entries < 0) {
        free(entries);
        return table_by_sysfs(verbs, context, port, rows_out, n_out);
    }
    int n = 0;
    for (ssize_t i = 0; i < n_entries && n < GYRE_IB_MAX_GIDS; i++) {
        char netdev[IF_NAMESIZE] = "";
        if (entries[i].port_num != port)
            continue;
        struct gyre_ib_gid_row *row = &rows_out[n++];
        memset(row, 0, sizeof(*row));
        row->index = entries[i].gid_index;
        row->type =
            entries[i].gid_type == IBV_GID_TYPE_ROCE_V2 ? GYRE_IB_GID_ROCE_V2 : GYRE_IB_GID_ROCE_V1;
        memcpy(row->raw, entries[i].gid.raw, sizeof(row->raw));
        if (entries[i].ndev_ifindex != 0 && if_indextoname(entries[i].ndev_ifindex, netdev) == NULL)
            row->type = GYRE_IB_GID_UNREADABLE; /* the interface is in another namespace */
        set_netdev(row, netdev);
    }
    free(entries);
    warn_if_full(context, port, n);
    *n_out = n;
    return GYRE_SUCCESS;
}
