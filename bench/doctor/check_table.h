/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of the table of checks; included with X defined, hence no include guard.
 * X(group, name, title): the id is group.name, the function is bench_check_<group>_<name>(), the
 * section of docs/doctor.md has the id as its heading. Ids are stable: scripts look for them.
 */
/* clang-format off */
X(host, memlock, "locked memory, which RDMA needs")
X(host, nofile, "open files that a process may have")
X(host, shm, "size of /dev/shm")
/* clang-format on */
