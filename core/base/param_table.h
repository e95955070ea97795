/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of the table of variables; included by param.h and param.c with X defined, hence no
 * include guard. X(id, type, flags, default, lowest, highest, unit, words, help)
 */
/* clang-format off */
#define NCCL GYRE_PARAM_NCCL
#define PLAN GYRE_PARAM_PLAN
#define IDLE GYRE_PARAM_IDLE
X(DEBUG, GYRE_PARAM_CHOICE, NCCL, "WARN", 0, 0, "", "NONE VERSION WARN ERROR INFO ABORT TRACE", "how much is logged")
X(DEBUG_SUBSYS, GYRE_PARAM_STRING, NCCL, "", 0, 0, "", "", "which parts log at INFO and below: INIT,COLL,P2P,SHM,NET,GRAPH,TUNING,ENV,ALLOC,CALL,PROXY,BOOTSTRAP,REG,DESTROY or ALL; ^ inverts")
X(DEBUG_FILE, GYRE_PARAM_STRING, NCCL, "", 0, 0, "", "", "log to this file instead of stderr; %h = host, %p = pid")
X(HOSTID, GYRE_PARAM_STRING, NCCL, "", 0, 0, "", "", "ranks with the same text count as one host; lets one machine stand for several")
X(BOOTSTRAP_TIMEOUT, GYRE_PARAM_INT, 0, "120", 1, 86400, "s", "", "longest time that communicator set-up and tear-down may take")
X(SOCKET_IFNAME, GYRE_PARAM_STRING, NCCL, "", 0, 0, "", "", "network interfaces to use: [^][=]name,... (prefixes unless =; ^ excludes)")
X(SOCKET_FAMILY, GYRE_PARAM_CHOICE, NCCL, "", 0, 0, "", "AF_INET AF_INET6", "address family of sockets")
X(SOCKET_NSOCKS, GYRE_PARAM_INT, 0, "2", 1, 16, "", "", "TCP connections of one pair of ranks")
X(NET, GYRE_PARAM_CHOICE, NCCL|PLAN, "", 0, 0, "", "IB Socket", "transport between hosts; a forced one that does not work is an error")
X(TRANSPORT, GYRE_PARAM_CHOICE, PLAN, "", 0, 0, "", "p2p shm ib socket", "the only transport to use, inside hosts too")
X(P2P_DISABLE, GYRE_PARAM_BOOL, NCCL|PLAN, "0", 0, 1, "", "", "no direct addressing between ranks")
X(P2P_LEVEL, GYRE_PARAM_STRING, NCCL|PLAN, "", 0, 0, "", "", "farthest path for direct GPU access: LOC NVL PIX PXB PHB SYS or 0..5")
X(SHM_DISABLE, GYRE_PARAM_BOOL, NCCL|PLAN, "0", 0, 1, "", "", "no shared memory between processes")
X(IB_DISABLE, GYRE_PARAM_BOOL, NCCL|PLAN, "0", 0, 1, "", "", "no RDMA")
X(IB_HCA, GYRE_PARAM_STRING, NCCL, "", 0, 0, "", "", "RDMA devices: [^][=]name[:port],... (prefixes unless =; ^ excludes)")
X(IB_GID_INDEX, GYRE_PARAM_STRING, NCCL, "", 0, 0, "", "", "GID index, for all devices (3) or per device (mlx5_0=3,mlx5_1=5); unset = chosen by rules")
X(IB_ADDR_FAMILY, GYRE_PARAM_CHOICE, NCCL, "", 0, 0, "", "AF_INET AF_INET6", "family that the chosen GID must have")
X(IB_ADDR_RANGE, GYRE_PARAM_STRING, NCCL, "", 0, 0, "", "", "address/prefix that the chosen GID must lie in")
X(IB_ROCE_VERSION_NUM, GYRE_PARAM_INT, NCCL, "2", 1, 2, "", "", "RoCE version of the chosen GID")
X(IB_TC, GYRE_PARAM_INT, NCCL, "", 0, 255, "", "", "traffic class: the whole ToS byte (DSCP x 4 + ECN bits)")
X(IB_FIFO_TC, GYRE_PARAM_INT, NCCL, "", 0, 255, "", "", "traffic class of control messages")
X(IB_SL, GYRE_PARAM_INT, NCCL, "", 0, 15, "", "", "service level")
X(IB_PKEY, GYRE_PARAM_INT, NCCL, "0", 0, 65535, "", "", "index into the partition key table")
X(IB_TIMEOUT, GYRE_PARAM_INT, NCCL, "17", 1, 31, "", "", "acknowledgement timeout: 4.096 us x 2^t")
X(IB_RETRY_CNT, GYRE_PARAM_INT, NCCL, "6", 0, 7, "", "", "retries before a peer counts as gone")
X(IB_QPS_PER_CONNECTION, GYRE_PARAM_INT, NCCL|PLAN, "1", 1, 16, "", "", "queue pairs of one connection; slots are striped")
X(IB_CONNECT, GYRE_PARAM_CHOICE, PLAN, "bootstrap", 0, 0, "", "bootstrap rdmacm", "how queue pairs are brought up: by what ranks tell each other, or by the kernel's rdma_cm")
X(IB_PCI_RELAXED_ORDERING, GYRE_PARAM_INT, NCCL, "2", 0, 2, "", "", "0 never, 1 always, 2 where supported")
X(NET_GDR_LEVEL, GYRE_PARAM_STRING, NCCL, "", 0, 0, "", "", "farthest GPU-NIC path for GPUDirect RDMA: LOC PIX PXB PHB SYS or 0..5")
X(NET_GDR_READ, GYRE_PARAM_BOOL, NCCL, "", 0, 1, "", "", "NICs may also read from GPU memory")
X(NET_GDR_FENCE, GYRE_PARAM_INT, 0, "2", 0, 2, "", "", "read through the NIC before a slot that it wrote is given to the GPU: 0 never, 1 always, 2 for GPUs before Hopper")
X(CROSS_NIC, GYRE_PARAM_INT, NCCL|PLAN, "2", 0, 2, "", "", "may NICs of different rails be connected: 0 no, 1 yes (first to first), 2 only where no rail is common")
X(ALGO, GYRE_PARAM_STRING, NCCL|PLAN, "", 0, 0, "", "", "only these algorithms: [^]ring,tree,direct,twoshot,... optionally per collective (all_reduce:ring;...)")
X(PROTO, GYRE_PARAM_STRING, NCCL|PLAN, "", 0, 0, "", "", "only these protocols: [^]simple,ll,ll128,lamport (lamport: sums of floating point)")
X(PATH, GYRE_PARAM_STRING, PLAN, "", 0, 0, "", "", "only these ways of results into receive buffers: [^]staged,placed,copy_engine; the latter two in windows")
X(TUNING_FILE, GYRE_PARAM_STRING, 0, "", 0, 0, "", "", "host device: choose by prediction with the constants in this file, which build/bench/tune measures and writes; the constants must be the same on all ranks")
X(MIN_NCHANNELS, GYRE_PARAM_INT, NCCL|PLAN, "", 1, 64, "", "", "fewest channels")
X(MAX_NCHANNELS, GYRE_PARAM_INT, NCCL|PLAN, "", 1, 64, "", "", "most channels")
X(BUFFSIZE, GYRE_PARAM_BYTES, NCCL|PLAN, "", 4096, 67108864, "bytes", "", "slot memory of one connection (all its slots)")
X(SMS, GYRE_PARAM_INT, PLAN, "", 1, 1024, "", "", "CUDA: most thread blocks of one collective")
X(LAUNCH_OVERLAP, GYRE_PARAM_BOOL, 0, "1", 0, 1, "", "", "CUDA graphs, Hopper and later: a call that follows another of its communicator is put on the GPU while that one ends (programmatic dependent launch)")
X(BLOCK_PLACEMENT, GYRE_PARAM_BOOL, 0, "1", 0, 1, "", "", "CUDA, Hopper: blocks of large calls run on multiprocessors that share the way out of the GPU evenly; not with GYRE_SMS")
X(TOPO_FILE, GYRE_PARAM_STRING, NCCL, "", 0, 0, "", "", "read the topology from this XML file")
X(TOPO_DUMP_FILE, GYRE_PARAM_STRING, NCCL, "", 0, 0, "", "", "write the detected topology to this XML file")
X(CHECK, GYRE_PARAM_CHOICE, PLAN, "", 0, 0, "", "calls", "calls: compare every call over all ranks before any data moves")
X(TIMEOUT, GYRE_PARAM_INT, 0, "0", 0, 86400000, "ms", "", "an operation that takes longer fails; 0 = never")
X(STALL_WARN, GYRE_PARAM_INT, 0, "10", 1, 86400, "s", "", "warn who is behind when an operation makes no progress for this long")
X(NCCL_FALLBACK, GYRE_PARAM_STRING, 0, "", 0, 0, "", "", "path of a real libnccl.so.2 that gyre's hands calls to which it does not have")
#undef NCCL
#undef PLAN
#undef IDLE
/* clang-format on */
