/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nic/verbs_wire/client/client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Declared in rdma-core's private headers. */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index, int *type);
int ibv_read_sysfs_file(const char *folder, const char *file, char *text, size_t text_bytes);
const char *ibv_get_sysfs_path(void);
int ibv_dontfork_range(void *base, size_t n_bytes);
int ibv_dofork_range(void *base, size_t n_bytes);

static const char *word_of(const char *const *words, size_t n, int index)
{
    return index >= 0 && (size_t)index < n && words[index] != NULL ? words[index] : "unknown";
}

#define WORD_OF(words, index) word_of(words, sizeof(words) / sizeof((words)[0]), (int)(index))

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
    static const char *const words[] = {
        [IBV_WC_SUCCESS] = "success",
        [IBV_WC_LOC_LEN_ERR] = "local length error",
        [IBV_WC_LOC_QP_OP_ERR] = "local queue pair operation error",
        [IBV_WC_LOC_PROT_ERR] = "local protection error",
        [IBV_WC_WR_FLUSH_ERR] = "request flushed",
        [IBV_WC_REM_INV_REQ_ERR] = "remote invalid request",
        [IBV_WC_REM_ACCESS_ERR] = "remote access error",
        [IBV_WC_REM_OP_ERR] = "remote operation error",
        [IBV_WC_RETRY_EXC_ERR] = "retries exceeded",
        [IBV_WC_RNR_RETRY_EXC_ERR] = "receiver-not-ready retries exceeded",
        [IBV_WC_FATAL_ERR] = "fatal error",
    };
    return WORD_OF(words, status);
}

const char *ibv_event_type_str(enum ibv_event_type event)
{
    static const char *const words[] = {
        [IBV_EVENT_CQ_ERR] = "completion queue error", [IBV_EVENT_QP_FATAL] = "queue pair fatal",
        [IBV_EVENT_DEVICE_FATAL] = "device fatal",     [IBV_EVENT_PORT_ACTIVE] = "port active",
        [IBV_EVENT_PORT_ERR] = "port error",           [IBV_EVENT_GID_CHANGE] = "GID change",
    };
    return WORD_OF(words, event);
}

const char *ibv_port_state_str(enum ibv_port_state state)
{
    static const char *const words[] = {[IBV_PORT_NOP] = "no state change",
                                        [IBV_PORT_DOWN] = "down",
                                        [IBV_PORT_INIT] = "init",
                                        [IBV_PORT_ARMED] = "armed",
                                        [IBV_PORT_ACTIVE] = "active"};
    return WORD_OF(words, state);
}

const char *ibv_node_type_str(enum ibv_node_type type)
{
    return type == IBV_NODE_CA ? "InfiniBand channel adapter" : "unknown";
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
    /* A locally administered address and the device's number. */
    const uint8_t bytes[8] = {
        0x52, 0x54, 0, 0xff, 0xfe, 0, 0, (uint8_t)((struct wire_device *)(void *)device)->index};
    __be64 guid;
    memcpy(&guid, bytes, sizeof(guid));
    return guid;
}

int ibv_get_device_index(struct ibv_device *device)
{
    return (int)((struct wire_device *)(void *)device)->index;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
    (void)context;
    if (port != 1 || index != 0)
        return EINVAL;
    *pkey = 0xffff;
    return 0;
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
    (void)context;
    return port == 1 && pkey == 0xffff ? 0 : -1;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
                      struct ibv_gid_entry *entry, uint32_t flags, size_t entry_bytes)
{
    struct ibv_gid_entry entries[VM_MAX_GIDS * VM_MAX_PORTS];
    const ssize_t n =
        _ibv_query_gid_table(context, entries, VM_MAX_GIDS * VM_MAX_PORTS, flags, entry_bytes);
    for (ssize_t i = 0; i < n; i++)
        if (entries[i].port_num == port && entries[i].gid_index == index) {
            *entry = entries[i];
            return 0;
        }
    return n < 0 ? EINVAL : ENODATA; /* an empty row */
}

/* @type: 0 = RoCE version 1, 1 = version 2. */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index, int *type)
{
    struct ibv_gid_entry entry;
    const int error = _ibv_query_gid_ex(context, port, index, &entry, 0, sizeof(entry));
    if (error != 0) {
        errno = error;
        return -1;
    }
    *type = entry.gid_type == IBV_GID_TYPE_ROCE_V2;
    return 0;
}

const char *ibv_get_sysfs_path(void)
{
    return "/sys";
}

int ibv_read_sysfs_file(const char *folder, const char *file, char *text, size_t text_bytes)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", folder, file);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    const ssize_t n = text_bytes > 0 ? read(fd, text, text_bytes - 1) : -1;
    close(fd);
    if (n < 0)
        return -1;
    const size_t n_words = n > 0 && text[n - 1] == '\n' ? (size_t)n - 1 : (size_t)n;
    text[n_words] = '\0';
    return (int)n_words;
}

/* A fork changes nothing: memory is found by process and address when bytes move. */
int ibv_fork_init(void)
{
    return 0;
}

enum ibv_fork_status ibv_is_fork_initialized(void)
{
    return IBV_FORK_UNNEEDED;
}

int ibv_dontfork_range(void *base, size_t n_bytes)
{
    (void)base;
    (void)n_bytes;
    return 0;
}

int ibv_dofork_range(void *base, size_t n_bytes)
{
    (void)base;
    (void)n_bytes;
    return 0;
}
