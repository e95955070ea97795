/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ib/ib_device.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/thread.h"

#include <ctype.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* libibverbs lists the devices under its own lock. A fork waits, or the child could inherit it
 * taken. */
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;

GYRE_WATCH_FORKS(&list_lock, NULL)

const char *const gyre_ib_distance_names[] = {"LOC", "PIX", "PXB", "PHB", "SYS"};

static void resolve(const char *link, char *path_out, size_t path_bytes, int *numa_node_out)
{
    char file[320];
    char *real = realpath(link, NULL);
    snprintf(path_out, path_bytes, "%s", real != NULL ? real : "");
    snprintf(file, sizeof(file), "%s/numa_node", real != NULL ? real : "");
    FILE *stream = real != NULL ? fopen(file, "re") : NULL;
    if (stream == NULL || fscanf(stream, "%d", numa_node_out) != 1)
        *numa_node_out = -1;
    if (stream != NULL)
        fclose(stream);
    free(real);
}

void gyre_ib_pci_path(const char *bus_id, char *path_out, size_t path_bytes, int *numa_node_out)
{
    char link[64] = "/sys/bus/pci/devices/";
    const size_t used = strlen(link);
    size_t i = 0;
    for (; bus_id[i] != '\0' && used + i < sizeof(link) - 1; i++)
        link[used + i] = gyre_text_lower(bus_id[i]);
    link[used + i] = '\0';
    if (i == 0)
        link[0] = '\0';
    resolve(link, path_out, path_bytes, numa_node_out);
}

enum gyre_ib_distance gyre_ib_distance(const char *path_a, int numa_a, const char *path_b,
                                       int numa_b)
{
    if (path_a[0] == '\0' || path_b[0] == '\0' || strcmp(path_a, path_b) == 0)
        return GYRE_IB_DISTANCE_LOC;
    /* /sys/devices/pci0000:17/0000:17:01.0/0000:18:00.0 */
    size_t common = 0;
    for (size_t i = 0; path_a[i] != '\0' && path_a[i] == path_b[i]; i++)
        if (path_a[i + 1] == '/' || path_a[i + 1] == '\0')
            if (path_b[i + 1] == '/' || path_b[i + 1] == '\0')
                common = i + 1;
    int n_shared = 0;
    for (size_t i = 0; i < common; i++)
        n_shared += path_a[i] == '/';
    int n_below_a = 0;
    int n_below_b = 0;
    for (const char *c = path_a + common; *c != '\0'; c++)
        n_below_a += *c == '/';
    for (const char *c = path_b + common; *c != '\0'; c++)
        n_below_b += *c == '/';
    /* Shared: sys, devices, pciDDDD:BB, then bridges. A switch is two of them, so two devices
     * behind one differ in two components each. */
    if (n_shared > 3)
        return n_below_a <= 2 && n_below_b <= 2 ? GYRE_IB_DISTANCE_PIX : GYRE_IB_DISTANCE_PXB;
    if (n_shared == 3 || (numa_a >= 0 && numa_a == numa_b))
        return GYRE_IB_DISTANCE_PHB;
    return GYRE_IB_DISTANCE_SYS;
}

gyre_status gyre_ib_parse_distance(const char *text, enum gyre_ib_distance *distance_out)
{
    /* The legacy numbers; 0 = never. */
    static const enum gyre_ib_distance legacy[] = {GYRE_IB_DISTANCE_LOC, GYRE_IB_DISTANCE_PIX,
                                                   GYRE_IB_DISTANCE_PXB, GYRE_IB_DISTANCE_PHB,
                                                   GYRE_IB_DISTANCE_SYS, GYRE_IB_DISTANCE_SYS};
    if (isdigit((unsigned char)text[0]) && text[1] == '\0' && text[0] <= '5') {
        *distance_out = legacy[text[0] - '0'];
        return GYRE_SUCCESS;
    }
    for (int i = 0; i <= (int)GYRE_IB_DISTANCE_SYS; i++) {
        if (gyre_text_same(text, gyre_ib_distance_names[i])) {
            *distance_out = (enum gyre_ib_distance)i;
            return GYRE_SUCCESS;
        }
    }
    if (gyre_text_same(text, "P2C") || gyre_text_same(text, "PXN")) {
        *distance_out = GYRE_IB_DISTANCE_PXB;
        return GYRE_SUCCESS;
    }
    return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "\"%s\": legal are LOC PIX PXB PHB SYS or 0..5",
                     text);
}

/* InfiniBand specification 1.4, table 155 (PortInfo). */
static uint32_t port_gbit_per_s(const struct ibv_port_attr *attr)
{
    static const struct {
        uint32_t code;
        uint32_t mbit;
    } speeds[] = {{1, 2500},   {2, 5000},   {4, 10000},  {8, 10000},
                  {16, 14000}, {32, 25000}, {64, 50000}, {128, 100000}};
    static const struct {
        uint32_t code;
        uint32_t lanes;
    } widths[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
    uint32_t mbit = 0;
    uint32_t lanes = 0;
    for (size_t i = 0; i < sizeof(speeds) / sizeof(speeds[0]); i++)
        if (attr->active_speed == speeds[i].code)
            mbit = speeds[i].mbit;
    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++)
        if (attr->active_width == widths[i].code)
            lanes = widths[i].lanes;
    return mbit * lanes / 1000;
}

struct scan_notes {
    const char *hca;
    char seen[300];
    int n_too_many;
};

static void note(struct scan_notes *notes, const char *name, int port, const char *why)
{
    gyre_text_append(notes->seen, sizeof(notes->seen), "%s%s:%d %s",
                     notes->seen[0] != '\0' ? ", " : "", name, port, why);
}

static void scan_port(struct gyre_ib_scan *scan, const struct gyre_ib_hca_rule *rule,
                      struct ibv_device *device, struct ibv_context *context, uint8_t number,
                      struct scan_notes *notes)
{
    struct ibv_port_attr attr;
    const char *widened;
    if (gyre_verbs_query_port(scan->verbs, context, number, &attr) != 0) {
        note(notes, device->name, number, "cannot be queried");
        return;
    }
    if (!gyre_ib_hca_takes(rule, device->name, number, &widened)) {
        char why[64];
        snprintf(why, sizeof(why), "is left out by %s", notes->hca);
        note(notes, device->name, number, why);
        return;
    }
    if (attr.state != IBV_PORT_ACTIVE) {
        note(notes, device->name, number, "is not active");
        return;
    }
    const bool is_roce = attr.link_layer == IBV_LINK_LAYER_ETHERNET;
    if (!is_roce && attr.link_layer != IBV_LINK_LAYER_INFINIBAND) {
        note(notes, device->name, number, "is neither InfiniBand nor Ethernet");
        return;
    }
    if (scan->n_ports == GYRE_IB_MAX_PORTS) {
        notes->n_too_many++;
        return;
    }
    if (widened != NULL)
        GYRE_WARN("%s: \"%s\" is a prefix and %s device %s as well; write =%s for that device "
                  "only",
                  notes->hca, widened, rule->is_inverted ? "excludes" : "takes", device->name,
                  widened);
    struct gyre_ib_port *port = &scan->ports[scan->n_ports++];
    *port = (struct gyre_ib_port){
        .device = device,
        .port = number,
        .is_roce = is_roce,
        .active_mtu = attr.active_mtu,
        .max_msg_bytes = attr.max_msg_sz,
        .lid = attr.lid,
        .gbit_per_s = port_gbit_per_s(&attr),
    };
    char link[IBV_SYSFS_PATH_MAX + 8];
    snprintf(port->name, sizeof(port->name), "%s", device->name);
    snprintf(link, sizeof(link), "%s/device", device->ibdev_path);
    resolve(link, port->pci_path, sizeof(port->pci_path), &port->numa_node);
}

static int compare_ports(const void *a, const void *b)
{
    const struct gyre_ib_port *x = a;
    const struct gyre_ib_port *y = b;
    const int by_path = strcmp(x->pci_path, y->pci_path);
    const int by_name = strcmp(x->name, y->name);
    return by_path != 0 ? by_path : by_name != 0 ? by_name : (int)x->port - (int)y->port;
}

gyre_status gyre_ib_scan_open(const struct gyre_params *params, struct gyre_ib_scan *scan)
{
    struct gyre_ib_hca_rule rule;
    struct scan_notes notes = {.hca = gyre_param_called(params, GYRE_PARAM_IB_HCA)};
    int n_devices = 0;
    memset(scan, 0, sizeof(*scan));
    const gyre_status parsed = gyre_ib_hca_parse(gyre_param_text(params, GYRE_PARAM_IB_HCA), &rule);
    if (parsed != GYRE_SUCCESS) {
        gyre_fail_context(parsed, "%s", notes.hca);
        GYRE_TRY(gyre_param_forgive(params, GYRE_PARAM_IB_HCA, parsed));
        (void)gyre_ib_hca_parse("", &rule);
    }
    GYRE_TRY(gyre_verbs_load(&scan->verbs));
    pthread_mutex_lock(&list_lock);
    scan->list = scan->verbs->get_device_list(&n_devices);
    const int error_number = errno;
    pthread_mutex_unlock(&list_lock);
    errno = error_number;
    if (scan->list == NULL && errno != ENOSYS && errno != 0)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "no RDMA devices: ibv_get_device_list: %s",
                         gyre_text_error(errno));
    for (int i = 0; i < n_devices && scan->list != NULL; i++) {
        struct ibv_device_attr attr;
        struct ibv_device *device = scan->list[i];
        struct ibv_context *context = scan->verbs->open_device(device);
        if (context == NULL) {
            note(&notes, device->name, 0, gyre_text_error(errno));
            continue;
        }
        if (scan->verbs->query_device(context, &attr) == 0)
            for (int number = 1; number <= (int)attr.phys_port_cnt; number++)
                scan_port(scan, &rule, device, context, (uint8_t)number, &notes);
        else
            note(&notes, device->name, 0, "cannot be queried");
        scan->verbs->close_device(context);
    }
    if (scan->n_ports == 0) {
        gyre_ib_scan_close(scan);
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "no usable RDMA port%s%s",
                         n_devices > 0 ? ": " : ": there is no RDMA device",
                         n_devices > 0 ? notes.seen : "");
    }
    if (notes.n_too_many > 0)
        GYRE_WARN(
            "NET/IB : %d RDMA ports are looked at, and %d more are not; name those to use in %s",
            scan->n_ports, notes.n_too_many, notes.hca);
    qsort(scan->ports, (size_t)scan->n_ports, sizeof(scan->ports[0]), compare_ports);
    return GYRE_SUCCESS;
}

void gyre_ib_scan_close(struct gyre_ib_scan *scan)
{
    if (scan->list != NULL)
        scan->verbs->free_device_list(scan->list);
    scan->list = NULL;
}

const char *gyre_ib_scan_to_text(const struct gyre_ib_scan *scan, char *text_out, size_t text_bytes)
{
    text_out[0] = '\0';
    for (int i = 0; i < scan->n_ports; i++)
        gyre_text_append(text_out, text_bytes, "%s[%d]%s:%u/%s", i > 0 ? " " : "", i,
                         scan->ports[i].name, scan->ports[i].port,
                         scan->ports[i].is_roce ? "RoCE" : "IB");
    return text_out;
}

static void set_netdev(struct gyre_ib_gid_row *row, const char *netdev)
{
    char path[64], line[128];
    const size_t length = strlen(netdev);
    if (length == 0 || length >= sizeof(row->netdev))
        return;
    memcpy(row->netdev, netdev, length + 1);
    /* It exists for VLANs of every name. */
    snprintf(path, sizeof(path), "/proc/net/vlan/%s", netdev);
    FILE *stream = fopen(path, "re");
    if (stream != NULL) {
        const char *at = fgets(line, sizeof(line), stream) != NULL ? strstr(line, "VID:") : NULL;
        if (at != NULL)
            row->vlan = (uint16_t)strtoul(at + 4, NULL, 10);
        fclose(stream);
    }
    struct ifreq request;
    memset(&request, 0, sizeof(request));
    memcpy(request.ifr_name, netdev, length + 1);
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    row->is_netdev_down =
        ioctl(fd, SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_UP) == 0;
    close(fd);
}

/* False if unreadable (EINVAL for an empty slot). */
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
    *n_out = n;
    return GYRE_SUCCESS;
}

gyre_status gyre_ib_gid_table(const struct gyre_verbs *verbs, struct ibv_context *context,
                              uint8_t port, struct gyre_ib_gid_row *rows_out, int *n_out)
{
    struct ibv_gid_entry *entries = NULL;
    ssize_t n_entries = -1;
    int n = 0;
    /* Consistent even if the table changes. Since Linux 5.10. */
    if (verbs->query_gid_table != NULL) {
        entries = calloc(4 * GYRE_IB_MAX_GIDS, sizeof(*entries));
        if (entries == NULL)
            return gyre_fail_errno(ENOMEM, "%s: GID table", context->device->name);
        n_entries =
            verbs->query_gid_table(context, entries, 4 * GYRE_IB_MAX_GIDS, 0, sizeof(*entries));
    }
    const gyre_status status =
        n_entries < 0 ? table_by_sysfs(verbs, context, port, rows_out, &n) : GYRE_SUCCESS;
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
            row->type = GYRE_IB_GID_UNREADABLE; /* of another namespace */
        set_netdev(row, netdev);
    }
    free(entries);
    GYRE_TRY(status);
    if (n == GYRE_IB_MAX_GIDS)
        GYRE_WARN("NET/IB : %s:%u: only the first %d GIDs are looked at", context->device->name,
                  port, n);
    *n_out = n;
    return GYRE_SUCCESS;
}
