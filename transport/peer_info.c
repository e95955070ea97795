/* SPDX-License-Identifier: Apache-2.0
 *
 * Collects the description of a rank that all others get before transports are chosen.
 */
#include "core/base/util.h"
#include "transport/p2p_memory.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* One random number per process, because pids repeat between namespaces and hosts. Process-wide
 * by its meaning: ranks that draw the same number may use each other's pointers. A forked child is
 * another process, hence the pid beside it. */
static pthread_mutex_t process_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t process_id; /* under process_lock */
static pid_t process_pid;   /* whose id that is; under process_lock */

static gyre_status get_process_id(uint64_t *id_out)
{
    gyre_status status = GYRE_SUCCESS;
    pthread_mutex_lock(&process_lock);
    if (process_pid != getpid()) {
        status = gyre_random_bytes(&process_id, sizeof(process_id));
        process_pid = status == GYRE_SUCCESS ? getpid() : 0;
    }
    *id_out = process_id;
    pthread_mutex_unlock(&process_lock);
    return status;
}

static uint32_t count_interfaces(const struct gyre_params *params)
{
    struct gyre_sock_interface addresses[GYRE_MAX_INTERFACES];
    const char *ifname = gyre_param_text(params, GYRE_PARAM_SOCKET_IFNAME);
    int n = 0;
    /* If no interface fits, the code that needs one reports the error. */
    if (strchr(ifname, ',') == NULL ||
        gyre_sock_list_addresses(params, addresses, &n) != GYRE_SUCCESS)
        return 1;
    return (uint32_t)gyre_sock_spread(addresses, n, ifname, 0, 1);
}

gyre_status gyre_peer_info_fill(const struct gyre_params *params, struct gyre_device *device,
                                int rank, struct gyre_peer_info *info_out)
{
    struct gyre_peer_info info;
    memset(&info, 0, sizeof(info));
    info.rank = (uint32_t)rank;
    info.pid = (uint32_t)getpid();
    info.uid = (uint32_t)geteuid();
    GYRE_TRY(gyre_host_hash(gyre_param_text(params, GYRE_PARAM_HOSTID), &info.host_hash));
    GYRE_TRY(get_process_id(&info.process_id));
    if (gethostname(info.host_name, sizeof(info.host_name) - 1) != 0 && errno != ENAMETOOLONG)
        return gyre_fail_errno(errno, "gethostname");
    struct stat stats;
    if (stat("/proc/self/ns/pid", &stats) == 0)
        info.pid_namespace = stats.st_ino;
    else if (errno != ENOENT) /* without /proc there is no shm, and nothing else is missing */
        return gyre_fail_errno(errno, "stat(/proc/self/ns/pid)");
    GYRE_TRY(device->ops->info(device, &info.device));
    info.path_level = GYRE_PEER_PATH_UNKNOWN;
    info.n_interfaces = count_interfaces(params);
    gyre_transport_ib_probe(params, &info);
    *info_out = info;
    return GYRE_SUCCESS;
}

void gyre_peer_info_measure(const struct gyre_topo *topo, const struct gyre_peer_info *mine,
                            struct gyre_peer_info *peer)
{
    peer->path_level = GYRE_PEER_PATH_UNKNOWN;
    if (mine->host_hash != peer->host_hash || mine->device.kind != GYRE_DEVICE_CUDA ||
        peer->device.kind != GYRE_DEVICE_CUDA)
        return;
    const int32_t from = gyre_topo_find_bus_id(topo, mine->device.pci_bus_id);
    const int32_t to = gyre_topo_find_bus_id(topo, peer->device.pci_bus_id);
    if (from >= 0 && to >= 0)
        peer->path_level = (uint32_t)gyre_topo_level_between(topo, from, to);
#ifdef GYRE_WITH_CUDA
    /* Without NVML's help nothing is known of NVLinks; native atomics between GPUs need one. */
    if (topo->n_links == 0 && gyre_p2p_cuda_has_native_atomics(mine, peer))
        peer->path_level = GYRE_TOPO_NVL;
#endif
}
