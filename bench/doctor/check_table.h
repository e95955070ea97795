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
X(host, cgroup, "memory, processes and processors that the control group leaves")
X(host, hugepages, "memory reserved for huge pages")
X(host, acs, "PCI bridges that redirect direct copies")
X(host, iommu, "address translation of GPUs and RDMA adapters")
X(host, pci_errors, "errors of PCI links")
X(host, irq, "interrupts of network adapters go to near processors")
X(host, numa_balancing, "pages that the kernel moves by itself")
X(host, hostname, "the host's own name is no loopback address")
X(host, clock, "a clock that is read fast")
X(net, interfaces, "the network interfaces that gyre uses, and why")
X(net, ipv4, "addresses that other hosts can route to")
X(net, link, "ports have a link")
X(net, speed, "the fastest interface is used")
X(net, mtu, "packet sizes")
X(net, bond, "ports of bonds")
X(net, buffers, "memory of TCP connections")
X(net, ports, "ports for connections")
X(net, errors, "damaged frames")
X(net, same_subnet, "each interface has a subnet of its own")
X(rdma, devices, "RDMA devices")
X(rdma, device_files, "RDMA devices can be opened")
X(rdma, ports, "state of RDMA ports")
X(rdma, hca, "the ports that GYRE_IB_HCA takes")
X(rdma, rate, "rates of RDMA ports")
X(rdma, gid, "the GID that each RoCE port uses, and why")
X(rdma, mtu, "packet sizes of RoCE")
X(rdma, pcie, "PCI links of RDMA adapters")
X(rdma, firmware, "firmware of RDMA adapters")
X(rdma, counters, "lost packets")
X(rdma, flaps, "links that went away")
X(rdma, congestion, "pause frames, congestion notifications and discards")
X(rdma, peermem, "RDMA into GPU memory")
X(rdma, gpu_distance, "distance between GPUs and RDMA adapters")
/* clang-format on */
