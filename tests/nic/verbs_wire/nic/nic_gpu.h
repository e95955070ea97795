/* SPDX-License-Identifier: Apache-2.0
 *
 * The GPUs that this NIC process uses, each in its primary context here, and copies by them. By
 * ordinal of this process.
 */
#ifndef GYRE_TESTS_WIRE_NIC_GPU_H
#define GYRE_TESTS_WIRE_NIC_GPU_H

#include <stdbool.h>
#include <stdint.h>

/** nic_gpu_begin - copies will name this host memory: whole pages, kept until the process ends. */
void nic_gpu_begin(void *memory, uint64_t n_bytes);

/** nic_gpu_end - end the resident kernels, so that this process can end. */
void nic_gpu_end(void);

/** nic_gpu_find - the GPU with this UUID; -1: none, and that was said. */
int nic_gpu_find(const unsigned char *uuid);

/** nic_gpu_push, nic_gpu_pop - make a GPU's context current. False: it failed, and was said. */
bool nic_gpu_push(int ordinal);
void nic_gpu_pop(void);

/** nic_gpu_pause - end the resident kernels until the next copies. Before calls of the driver that
 * may wait until a GPU has no work. */
void nic_gpu_pause(void);

/** nic_gpu_let_reach - let copies on a GPU reach memory of another one directly. Without that the
 * driver takes them through host memory, so a failure is no error. */
void nic_gpu_let_reach(int ordinal, int other);

/** nic_gpu_has_kernel - whether copies of this length are made by a resident kernel on this GPU. */
bool nic_gpu_has_kernel(int ordinal, uint64_t n_bytes);

/** nic_gpu_move - copy on a GPU, and return when the bytes are in place. For a copy by the kernel
 * both addresses are in the GPU's context or in the host memory of nic_gpu_begin(). False: it
 * failed, and was said. */
bool nic_gpu_move(int ordinal, uint64_t to, uint64_t from, uint64_t n_bytes);

/** nic_gpu_move_by_driver - the same without the kernel. */
bool nic_gpu_move_by_driver(int ordinal, uint64_t to, uint64_t from, uint64_t n_bytes);

/** nic_gpu_n_by_kernel - copies by resident kernels so far. */
uint64_t nic_gpu_n_by_kernel(void);

#endif
