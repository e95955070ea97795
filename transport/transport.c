/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/transport.h"

#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"
#include "core/foundation/device/host_memory.h"
#include "transport/slab.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const struct gyre_transport_ops *const gyre_transports[] = {
    &gyre_transport_p2p, &gyre_transport_shm, &gyre_transport_ib, &gyre_transport_socket, NULL,
};

gyre_status gyre_transport_check(const struct gyre_transport_config *config)
{
    GYRE_TRY(gyre_fault_status(config->fault));
    return config->check_ranks != NULL ? config->check_ranks(config->check_context) : GYRE_SUCCESS;
}

void gyre_transport_no_wire(struct gyre_transport *transport, struct gyre_wire *wire_out)
{
    (void)transport;
    *wire_out = (struct gyre_wire){.round_trip_ns = 0};
}

bool gyre_transport_no_lines(const struct gyre_transport *transport)
{
    (void)transport;
    return false;
}

void gyre_transport_no_state(struct gyre_transport *transport, int rank, const void *state,
                             size_t n_bytes)
{
    (void)transport;
    (void)rank;
    (void)state;
    (void)n_bytes;
}

/* Ranks with the same number may use each other's pointers. It is random, because pids repeat
 * between namespaces and hosts, and a forked child draws its own. */
static pthread_mutex_t process_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t process_id; /* 0 = not drawn yet; under process_lock */

static void forget_id(void)
{
    process_id = 0;
}

GYRE_WATCH_FORKS(&process_lock, forget_id)

/* A VLAN, a bond, a port, and one more. */
#define MAX_INTERFACE_DEPTH 3

static bool has_hardware(const char *name, int depth)
{
    char path[80];
    bool found = false;
    snprintf(path, sizeof(path), "/sys/class/net/%.15s/device", name);
    if (access(path, F_OK) == 0)
        return true;
    snprintf(path, sizeof(path), "/sys/class/net/%.15s", name);
    DIR *folder = depth < MAX_INTERFACE_DEPTH ? opendir(path) : NULL;
    if (folder == NULL)
        return false;
    for (struct dirent *entry = readdir(folder); entry != NULL && !found; entry = readdir(folder))
        found =
            strncmp(entry->d_name, "lower_", 6) == 0 && has_hardware(entry->d_name + 6, depth + 1);
    closedir(folder);
    return found;
}

/* Mbit/s; 0 = unknown. @is_virtual_out: veth, a tunnel and the like. */
static uint32_t read_speed(const char *name, uint32_t *is_virtual_out)
{
    char path[80];
    int mbit_per_s = 0;
    *is_virtual_out = !has_hardware(name, 0);
    snprintf(path, sizeof(path), "/sys/class/net/%.15s/speed", name);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%d", &mbit_per_s) != 1)
        mbit_per_s = 0;
    fclose(file);
    return mbit_per_s > 0 ? (uint32_t)mbit_per_s : 0;
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
    pthread_mutex_lock(&process_lock);
    gyre_status status = GYRE_SUCCESS;
    while (process_id == 0 && status == GYRE_SUCCESS)
        status = gyre_random_bytes(&process_id, sizeof(process_id));
    info.process_id = process_id;
    pthread_mutex_unlock(&process_lock);
    GYRE_TRY(status);
    if (gethostname(info.host_name, sizeof(info.host_name) - 1) != 0 && errno != ENAMETOOLONG)
        return gyre_fail_errno(errno, "gethostname");
    struct stat stats;
    if (stat("/proc/self/ns/pid", &stats) == 0)
        info.pid_namespace = stats.st_ino;
    else if (errno != ENOENT) /* without /proc only shm is missing */
        return gyre_fail_errno(errno, "stat(/proc/self/ns/pid)");
    GYRE_TRY(device->ops->info(device, &info.device));
    info.path_level = GYRE_PEER_PATH_UNKNOWN;
    struct gyre_sock_interface addresses[GYRE_MAX_INTERFACES];
    const char *ifname = gyre_param_text(params, GYRE_PARAM_SOCKET_IFNAME);
    int n = 0;
    info.n_interfaces = 1;
    if (gyre_sock_list_addresses(params, addresses, &n) == GYRE_SUCCESS) {
        if (strchr(ifname, ',') != NULL)
            info.n_interfaces = (uint32_t)gyre_sock_spread(addresses, n, ifname, 0, 1);
        for (int i = 0; i < (info.n_interfaces > 1 ? n : 1); i++) {
            uint32_t is_virtual;
            const uint32_t mbit_per_s = read_speed(addresses[i].name, &is_virtual);
            if (i > 0 && (mbit_per_s == 0 || mbit_per_s >= info.net_mbit_per_s))
                continue;
            info.net_mbit_per_s = mbit_per_s;
            info.net_is_virtual = is_virtual;
            snprintf(info.net_name, sizeof(info.net_name), "%.15s", addresses[i].name);
        }
    }
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
    /* Without NVML no NVLink is known, but native atomics between GPUs need one. */
    if (topo->n_links == 0 && gyre_p2p_cuda_has_native_atomics(mine, peer))
        peer->path_level = GYRE_TOPO_NVL;
#endif
}

GYRE_STATIC_ASSERT(sizeof(struct gyre_shared_file) <= GYRE_SHARE_IPC_BYTES,
                   "travels in the handle");

gyre_status gyre_share_export(const struct gyre_peer_info *mine, bool to_processes, void *buffer,
                              struct gyre_share_handle *handle_out)
{
    struct gyre_share_handle handle;
    memset(&handle, 0, sizeof(handle));
    handle.address = (uint64_t)(uintptr_t)buffer;
    *handle_out = handle;
#ifdef GYRE_WITH_CUDA
    if (mine->device.kind == GYRE_DEVICE_CUDA)
        return gyre_share_export_cuda(to_processes, buffer, handle_out);
#endif
    struct gyre_shared_file file;
    if (gyre_host_memory_find(buffer, &file, &handle_out->offset_bytes)) {
        handle_out->allocation_bytes = file.n_bytes;
        memcpy(handle_out->ipc, &file, sizeof(file));
        return GYRE_SUCCESS;
    }
    if (!to_processes)
        return GYRE_SUCCESS;
    return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                     "other processes cannot address the host memory at %p of rank %u: allocate it "
                     "with gyre_mem_alloc (ncclMemAlloc), which gives such memory as long as less "
                     "than half of the process's descriptors are in use (ulimit -n)",
                     buffer, mine->rank);
}

gyre_status gyre_share_import(struct gyre_device *device, const struct gyre_peer_info *mine,
                              const struct gyre_peer_info *peer,
                              const struct gyre_share_handle *handle,
                              struct gyre_share_mapping *mapping_out)
{
    if (mine->host_hash != peer->host_hash)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "rank %u is on another host (%s)", peer->rank,
                         peer->host_name);
#ifdef GYRE_WITH_CUDA
    if (mine->device.kind == GYRE_DEVICE_CUDA)
        return gyre_share_import_cuda(device, mine, peer, handle, mapping_out);
#endif
    (void)device;
    const bool is_own = mine->process_id == peer->process_id;
    struct gyre_shared_file file;
    void *base = NULL;
    memcpy(&file, handle->ipc, sizeof(file));
    if (handle->allocation_bytes == 0 && is_own) {
        *mapping_out = (struct gyre_share_mapping){.address = (void *)(uintptr_t)handle->address};
        return GYRE_SUCCESS;
    }
    const gyre_status status = gyre_host_memory_acquire(&file, is_own, &base);
    if (status != GYRE_SUCCESS)
        return gyre_fail_context(status, "memory of rank %u", peer->rank);
    *mapping_out = (struct gyre_share_mapping){
        .address = (unsigned char *)base + handle->offset_bytes, .host_base = base};
    return GYRE_SUCCESS;
}

void gyre_share_release(struct gyre_share_mapping *mapping)
{
#ifdef GYRE_WITH_CUDA
    if (mapping->state != NULL)
        gyre_share_release_cuda(mapping->state);
#endif
    if (mapping->host_base != NULL)
        gyre_host_memory_release(mapping->host_base);
    memset(mapping, 0, sizeof(*mapping));
}
