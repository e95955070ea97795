"""Healthy machines, and machines with one known cause of trouble each."""

from dataclasses import dataclass, field
from typing import Callable

import machines
from machines import Link, V1, V2, gid, limits


@dataclass
class Cause:
    """A machine with one thing wrong, and what `gyre doctor` must say about it."""
    machine: Callable
    check: str
    severity: str
    words: str  # in the finding
    remedy: str  # in its fix, with this machine's names
    also: tuple = ()  # checks that rightly complain about the same thing
    variables: dict = field(default_factory=dict)


HEALTHY = {name: getattr(machines, name) for name in
           ("laptop", "cloud_vm", "container", "bond_server", "roce_server", "gpu_server",
            "lone_gpu", "unused_ports", "bonded_roce", "virtual_functions",
            "eight_gpus")}


def changed(make, changes=None, without=()):
    """The machine with other files, and without those that begin so."""
    def build():
        machine = machines.without(make(), *without) if without else make()
        for path, content in (changes or {}).items():
            assert path in machine, f"{path} is a new file, not a changed one"
            machine[path] = content
        return machine
    return build


roce, gpu, lossless = machines.roce_server, machines.gpu_server, machines.lossless_server
FIRMWARE = "programs/mlxconfig -d 0000:18:00.0 query"
NIC = "sys/devices/pci0000:00/0000:00:01.0/0000:18:00.0"
GPU = "sys/devices/pci0000:00/0000:00:04.0/0000:40:00.0"
PORT = "sys/class/infiniband/mlx5_0/ports/1"
GROUP = "sys/fs/cgroup/user.slice/session-1.scope"
HOSTS = "127.0.0.1\tlocalhost\n127.0.1.1\tnode1.example.org node1"


def told_by_dcb():
    machine = roce()
    for netdev in ("eth1", "eth2"):
        machines.dcb(machine, netdev, pfc=(5,), dscp="40:5 48:6")
    return machine


def soft_roce():
    machine = machines.cloud_vm()
    machines.add_rdma(machine, "rxe0", netdev="ens3", rate="2.5 Gb/sec (1X SDR)",
                      gids=[(0, "fe80::5", V2), (1, "10.0.0.5", V2)])
    machine["sys/class/infiniband/rxe0/parent"] = "ens3"
    return machine


def only_link_local():
    machine = roce()
    for index in (2, 3):
        machine[f"{PORT}/gids/{index}"] = gid("::")
    return machine


def only_version_1():
    machine = roce()
    for index in (1, 3):
        machine[f"{PORT}/gids/{index}"] = gid("::")
    return machine


def only_ipv6():
    machine = machines.cloud_vm()
    machines.set_addresses(machine, ("ens3", "fd00::5/64"))
    return machine


def far_gpu():
    """Both adapters are near the first GPU, and the second one has none."""
    machine = gpu()
    machine["sys/devices/pci0000:00/0000:00:02.0/0000:19:00.0/numa_node"] = "0"
    return machine


def one_subnet():
    machine = roce()
    machines.set_addresses(machine, ("eth0", "10.0.0.1/24"), ("eth1", "192.168.1.1/24"),
                           ("eth2", "192.168.1.2/24"))
    machine["sys/class/infiniband/mlx5_1/ports/1/gids/3"] = gid("192.168.1.2")
    return machine


def bridge_only():
    machine = machines.cloud_vm()
    machines.add_interface(machine, "docker0", 3)
    machine["sys/class/net/docker0/bridge/bridge_id"] = "8000.024200000000"
    machines.set_addresses(machine, ("docker0", "172.17.0.1/16"))
    return machine


def redirecting_bridge():
    machine = gpu()
    machine["sys/devices/pci0000:00/0000:00:04.0/config"] = machines.bridge_config(0x001d)
    return machine


def translated():
    machine = gpu()
    machine[f"{GPU}/iommu_group"] = Link("../../../../kernel/iommu_groups/17")
    machine["sys/kernel/iommu_groups/17/type"] = "DMA-FQ"
    return machine


HOST_CAUSES = {
    "memlock_8_mib": Cause(changed(roce, {"proc/self/limits": limits("8388608")}),
                           "host.memlock", "fail", "8388608 bytes", "memlock unlimited\\n' '*' root"),
    "memlock_in_a_user_namespace": Cause(
        changed(roce, {"proc/self/limits": limits("65536"), "proc/self/uid_map": "0 100000 65536",
                       "proc/self/status": "CapEff:\t000001ffffffffff\nCpus_allowed_list:\t0-31"}),
        "host.memlock", "fail", "65536 bytes", "--ulimit memlock=-1"),
    "open_files": Cause(changed(roce, {"proc/self/limits": limits(nofile="60")}),
                        "host.nofile", "fail", "Max open files 60", "ulimit -n 65536"),
    "open_files_for_many_sockets": Cause(changed(roce, {"proc/self/limits": limits(nofile="70")}), "host.nofile", "fail",
                                         "1 ranks need about 82", "* - nofile 65536", variables={"GYRE_SOCKET_NSOCKS": "16"}),
    "shm_64_mib": Cause(
        changed(roce, {"proc/mounts": "shm /dev/shm tmpfs rw,nosuid,size=65536k 0 0"}),
        "host.shm", "warn", "64 MiB", "remount,size=50% /dev/shm"),
    "no_shm": Cause(changed(roce, {"proc/mounts": "proc /proc proc rw 0 0"}), "host.shm", "warn",
                    "nothing is mounted", "mount -t tmpfs tmpfs /dev/shm"),
    "container_memory": Cause(
        changed(machines.container, {"sys/fs/cgroup/memory.max": str(1 << 30),
                                     "sys/fs/cgroup/memory.current": str(900 << 20)}),
        "host.cgroup", "fail", "124 MiB", "docker run --memory"),
    "container_processes": Cause(changed(roce, {f"{GROUP}/pids.max": "100"}), "host.cgroup", "warn",
                                 "pids.max: 100", "--pids-limit=-1"),
    "container_processors": Cause(changed(roce, {f"{GROUP}/cpu.max": "50000 100000"}),
                                  "host.cgroup", "warn", "0.50 processors", "docker run --cpus"),
    "huge_pages": Cause(changed(roce, {"proc/meminfo": machines.meminfo(512, 200000)}),
                        "host.hugepages", "warn", "200000 pages", "vm.nr_hugepages=0"),
    "acs": Cause(redirecting_bridge, "host.acs", "warn", "0000:00:04.0 (control 001d)",
                 "setpci -s 0000:00:04.0 ECAP_ACS+0x6.w=0000"),
    "iommu": Cause(translated, "host.iommu", "warn", "0000:40:00.0", "iommu=pt"),
    "pci_errors": Cause(changed(gpu, {f"{GPU}/aer_dev_fatal": "DLP 2\nTOTAL_ERR_FATAL 2"}),
                        "host.pci_errors", "warn", "TOTAL_ERR_FATAL 2", "dmesg | grep -i aer"),
    "far_interrupts": Cause(
        changed(roce, {f"proc/irq/{i}/smp_affinity_list": "16-31" for i in range(40, 44)}),
        "host.irq", "warn", "those near the adapter are 0-15", "smp_affinity_list"),
    "numa_balancing": Cause(changed(gpu, {"proc/sys/kernel/numa_balancing": "1"}),
                            "host.numa_balancing", "warn", "numa_balancing: 1", "kernel.numa_balancing=0"),
    "debians_hosts": Cause(changed(roce, {"etc/hosts": HOSTS}), "host.hostname", "warn",
                           "node1 is 127.0.1.1", "give node1 its address"),
    "master_is_loopback": Cause(changed(roce, {"etc/hosts": HOSTS}), "host.hostname", "warn",
                                "MASTER_ADDR is this name. gyre copes", "set MASTER_ADDR", variables={"MASTER_ADDR": "node1"}),
    "slow_clock": Cause(
        changed(roce, {"sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet"}),
        "host.clock", "warn", "hpet", "clocksource=tsc"),
}

NET_CAUSES = {
    "interface_misspelt": Cause(roce, "net.interfaces", "fail", "GYRE_SOCKET_IFNAME=bond0", "unset the variable",
                                variables={"GYRE_SOCKET_IFNAME": "bond0"}),
    "interface_without_link": Cause(
        changed(roce, {"sys/class/net/eth0/operstate": "down"}), "net.interfaces", "fail",
        "no link", "plug in the cable", also=("net.link",), variables={"NCCL_SOCKET_IFNAME": "eth0"}),
    "container_bridge": Cause(bridge_only, "net.interfaces", "warn", "docker0",
                              "ip link set dev ens3 up; ip addr add A.B.C.D/24 dev ens3"),
    "only_loopback": Cause(changed(roce, {"sys/class/net/eth%d/flags" % i: "0x1002"
                                          for i in range(3)}),
                           "net.interfaces", "warn", "only loopback", "ip link set dev eth0 up;",
                           also=("net.ipv4", "rdma.gid")),
    "no_ipv4": Cause(only_ipv6, "net.ipv4", "warn", "no IPv4 address", "A.B.C.D/24 dev ens3, or"),
    "cable_out": Cause(changed(roce, {"sys/class/net/eth2/operstate": "down"}), "net.link", "warn",
                       "eth2", "ip link set dev eth2 down"),
    "half_duplex": Cause(changed(machines.laptop, {"sys/class/net/enp0s31f6/duplex": "half"}),
                         "net.link", "warn", "half", "ethtool -s enp0s31f6 autoneg on"),
    "slow_interface": Cause(changed(roce, {"sys/class/net/eth0/speed": "1000"},
                                    without=("sys/class/infiniband", "dev/infiniband")), "net.speed", "warn",
                            "GYRE_SOCKET_IFNAME=eth1", "export GYRE_SOCKET_IFNAME=eth1", also=("rdma.devices",)),
    "mtu_1500": Cause(changed(roce, {"sys/class/net/eth0/mtu": "1500"}), "net.mtu", "warn",
                      "mtu: 1500 at 200 Gbit/s", "ip link set dev eth0 mtu 9000"),
    "vlan_larger_than_bond": Cause(
        changed(machines.bond_server, {"sys/class/net/bond0/mtu": "1500"}), "net.mtu", "fail",
        "bond0 below it has 1500", "ip link set dev bond0 mtu 9000"),
    "bond_with_a_port_down": Cause(
        changed(machines.bond_server, {"proc/net/bonding/bond0": machines.bonding("up", "down")}),
        "net.bond", "warn", "1 of 2 ports", "cat /proc/net/bonding/bond0 calls"),
    "small_buffers": Cause(changed(roce, {"proc/sys/net/ipv4/tcp_rmem": "4096 87380 212992"}),
                           "net.buffers", "warn", "212992 bytes", "net.ipv4.tcp_rmem='4096 131072 67108864'"),
    "few_ports": Cause(changed(roce, {"proc/sys/net/ipv4/ip_local_port_range": "50000 50100"}),
                       "net.ports", "warn", "50000 to 50100", "ip_local_port_range='32768 60999'"),
    "damaged_frames": Cause(changed(roce, {"sys/class/net/eth1/statistics/rx_crc_errors": "812"}),
                            "net.errors", "warn", "rx_crc_errors: 812", "replace the cable"),
    "one_subnet": Cause(one_subnet, "net.same_subnet", "warn", "192.168.1.2/24", "a subnet of its own"),
}

RDMA_CAUSES = {
    "soft_roce": Cause(soft_roce, "rdma.devices", "warn", "rxe0", "GYRE_IB_HCA=^rxe0 ", also=("rdma.mtu",)),
    "rdma_driver_not_loaded": Cause(changed(roce, without=("sys/class/infiniband", "dev/infiniband")),
                               "rdma.devices", "warn", "modprobe mlx5_ib", "modprobe mlx5_ib"),
    "no_device_files": Cause(changed(roce, without=("dev/infiniband",)), "rdma.device_files", "fail",
                             "/dev/infiniband/uverbs0", "--device /dev/infiniband"),
    "port_down": Cause(changed(roce, {f"{PORT}/state": "1: DOWN"}), "rdma.ports", "warn",
                       "1: DOWN", "ip link set dev eth1 up"),
    "no_subnet_manager": Cause(
        changed(gpu, {f"sys/class/infiniband/mlx5_{i}/ports/1/state": "2: INIT" for i in (0, 1)}),
        "rdma.ports", "fail", "opensm", "systemctl start opensm", also=("rdma.hca",)),
    "adapter_misspelt": Cause(roce, "rdma.hca", "fail", "mlx5_0:1", "name a port of the list",
                              variables={"NCCL_IB_HCA": "mlxl5_0"}),
    "one_lane": Cause(changed(gpu, {f"{PORT}/rate": "100 Gb/sec (1X NDR)"}), "rdma.rate", "warn",
                      "1 of 4 lanes", "mlxlink -d mlx5_0"),
    "slower_port": Cause(changed(roce, {f"{PORT}/rate": "25 Gb/sec (1X EDR)"}), "rdma.rate", "warn",
                         "25 Gb/sec", "GYRE_IB_HCA=^mlx5_0:1"),
    "gid_index_0": Cause(roce, "rdma.gid", "fail", "RoCE v1", "unset NCCL_IB_GID_INDEX", also=("job.harmful",),
                         variables={"NCCL_IB_GID_INDEX": "0"}),
    "gid_index_of_another_host": Cause(roce, "rdma.gid", "fail", "IB_GID_INDEX=5",
                                       "unset GYRE_IB_GID_INDEX and NCCL_IB_GID_INDEX",
                                       also=("job.harmful",),
                                       variables={"NCCL_IB_GID_INDEX": "5"}),
    "only_link_local": Cause(only_link_local, "rdma.gid", "warn", "link-local", "ip addr add A.B.C.D/24 dev eth1"),
    "only_version_1": Cause(only_version_1, "rdma.gid", "fail", "RoCE v1", "cma_roce_mode -d mlx5_0 -m 2"),
    "gid_of_another_namespace": Cause(
        changed(roce, without=(f"{PORT}/gid_attrs/types", f"{PORT}/gid_attrs/ndevs")), "rdma.gid",
        "fail", "another network namespace", "ip addr add A.B.C.D/24 dev", also=("rdma.mtu",)),
    "roce_mtu": Cause(changed(roce, {"sys/class/net/eth1/mtu": "1500"}), "rdma.mtu", "warn",
                      "packets of 1024 bytes", "ip link set dev eth1 mtu 9000"),
    "pcie_x2": Cause(changed(roce, {f"{NIC}/current_link_width": "2"}), "rdma.pcie", "warn",
                     "x2 at 32 GT/s", "slot with all lanes"),
    "pcie_generation": Cause(changed(roce, {f"{NIC}/current_link_speed": "8.0 GT/s PCIe"}),
                             "rdma.pcie", "warn", "x16 at 8 GT/s", "LnkSta"),
    "firmware": Cause(changed(roce, {"sys/class/infiniband/mlx5_1/fw_ver": "28.35.2000"}),
                      "rdma.firmware", "warn", "28.35.2000", "mlxfwmanager"),
    "lost_packets": Cause(changed(roce, {f"{PORT}/hw_counters/local_ack_timeout_err": "90210"}),
                          "rdma.counters", "warn", "local_ack_timeout_err: 90210", "mlnx_qos -i eth1"),
    "flapping_link": Cause(changed(roce, {f"{PORT}/counters/link_downed": "37"}), "rdma.flaps",
                           "warn", "37 times", "leave GYRE_IB_GID_INDEX unset"),
    "no_pfc": Cause(
        changed(roce, {"ethtool/eth1": "     rx_prio3_pause: 0\n     rx_discards_phy: 700000"}),
        "rdma.congestion", "warn", "PFC is off", "mlnx_qos -i eth1 --trust dscp --pfc 0,0,0,1"),
    "no_ecn": Cause(
        changed(roce, {"ethtool/eth1": "     rx_prio3_pause: 5000000\n     rx_discards_phy: 0",
                       f"{PORT}/hw_counters/np_cnp_sent": "0",
                       f"{PORT}/hw_counters/rp_cnp_handled": "0"}),
        "rdma.congestion", "warn", "PFC works alone", "/sys/class/net/eth1/ecn/roce_np/enable/3"),
    "pfc_of_another_priority": Cause(lossless, "rdma.qos", "warn", "into priority 0, and PFC is on for priority 3",
                                     "export GYRE_IB_TC=106"),
    "class_without_trust": Cause(lambda: machines.set_qos(roce(), trust="pcp"), "rdma.qos", "warn",
                                 "GYRE_IB_TC=106 (DSCP 26) has no effect", "mlnx_qos -i eth1 --trust dscp", variables={"GYRE_IB_TC": "106"}),
    "class_without_pfc": Cause(lambda: machines.set_qos(roce(), pfc=()), "rdma.qos", "warn",
                               "priority 3, and PFC is off for all", "mlnx_qos -i eth1 --trust dscp --pfc 0,0,0,1", variables={"NCCL_IB_TC": "106"}),
    "class_without_ecn": Cause(changed(lossless, {"sys/class/net/eth1/ecn/roce_np/enable/3": "0"}), "rdma.qos", "warn",
                               "roce_np off, roce_rp on for priority 3",
                               "echo 1 > /sys/class/net/eth1/ecn/roce_np/enable/3", variables={"GYRE_IB_TC": "106"}),
    "class_of_another_map": Cause(told_by_dcb, "rdma.qos", "warn", "(DSCP 26) puts RoCE into priority 3, and PFC is on "
                                  "for priority 5", "export GYRE_IB_TC=162", variables={"GYRE_IB_TC": "106"}),
    "firmware_without_ecn": Cause(changed(lossless, {FIRMWARE: machines.mlxconfig(mask="0")}), "rdma.settings", "warn",
                                  "ROCE_CC_PRIO_MASK_P1 is 0",
                                  "mlxconfig -d 0000:18:00.0 set ROCE_CC_PRIO_MASK_P1=255", variables={"GYRE_IB_TC": "106"}),
    "firmware_without_roce": Cause(changed(lossless, {FIRMWARE: machines.mlxconfig(roce="ROCE_DISABLE(1)")}),
                                   "rdma.settings", "warn", "RoCE is off", "set ROCE_CONTROL=2", variables={"GYRE_IB_TC": "106"}),
    "port_becomes_infiniband": Cause(changed(lossless, {FIRMWARE: machines.mlxconfig(link="IB(1)")}), "rdma.settings",
                                     "warn", "becomes InfiniBand", "set LINK_TYPE_P1=2", variables={"GYRE_IB_TC": "106"}),
    "no_peermem": Cause(
        changed(gpu, {"proc/driver/nvidia/version": machines.CLOSED_DRIVER}), "rdma.peermem", "warn",
        "modprobe nvidia-peermem", "modprobe nvidia-peermem"),
    "adapter_left_out": Cause(gpu, "rdma.gpu_distance", "warn", "nearest RDMA port, mlx5_0,",
                              "bind the rank to the NUMA node",
                              variables={"NCCL_IB_HCA": "=mlx5_0"}),
    "far_adapter": Cause(far_gpu, "rdma.gpu_distance", "warn", "0000:41:00.0", "gyre topo"),
}



def nouveau():
    machine = machines.without(gpu(), "proc/driver/nvidia", "dev/nvidia", "sys/module/nvidia")
    machine[f"{GPU}/driver"] = Link("../../../../bus/pci/drivers/nouveau")
    return machine


def toolkit(machine, version):
    machine["usr/local/cuda/version.json"] = ('{\n   "cuda" : {\n      "name" : "CUDA SDK",\n      "version" : '
                                              f'"{version}"\n   }}\n}}')
    return machine


def old_driver():
    machine = toolkit(gpu(), "13.0.1")
    machine["proc/driver/nvidia/version"] = machines.OPEN_DRIVER.replace("580.65.06", "550.54.14")
    return machine


def xid(number, text):
    return changed(gpu, {"dev/kmsg": "6,1,0,-;Linux version 6.1.0\n4,900,0,-;NVRM: Xid "
                                     f"(PCI:0000:40:00): {number}, pid=77, {text}"})


def one_processor():
    return changed(roce, {"proc/self/status": "CapEff:\t0000000000000000\nCpus_allowed_list:\t3"})()


GPU_CAUSES = {
    "driver_not_loaded": Cause(
        changed(gpu, without=("proc/driver/nvidia", "dev/nvidia", "sys/module/nvidia")),
        "gpu.driver", "fail", "modprobe nvidia", "modprobe nvidia", also=("rdma.peermem",)),
    "nouveau": Cause(nouveau, "gpu.driver", "fail", "blacklist nouveau", "blacklist nouveau", also=("rdma.peermem",)),
    "toolkit_newer_than_driver": Cause(  # a build with CUDA says the same of its own version
        old_driver, "gpu.toolkit", "warn", "CUDA 13.0 needs driver 580 or newer, and 550.54",
        "install driver 580 or newer", also=("gpu.driver",)),
    "toolkit_folder_misspelt": Cause(gpu, "gpu.toolkit", "warn", "there is no such folder", "unset CUDA_HOME",
                                     variables={"CUDA_HOME": "/usr/local/cuda-99"}),
    "no_gpu_files": Cause(changed(gpu, without=("dev/nvidia",)), "gpu.device_files", "fail",
                          "docker run --gpus all", "docker run --gpus all"),
    "no_uvm": Cause(changed(gpu, without=("dev/nvidia-uvm",)), "gpu.device_files", "fail",
                    "/dev/nvidia-uvm", "nvidia-modprobe -u"),
    "gpu_x8": Cause(changed(gpu, {f"{GPU}/current_link_width": "8"}), "gpu.pcie", "warn",
                    "x8, could be x16", "seat the GPU again"),
    "fallen_off_the_bus": Cause(xid(79, "GPU has fallen off the bus."), "gpu.xid", "fail",
                                "fallen off the bus", "nvidia-smi -r"),
    "program_fault": Cause(xid(31, "MMU Fault"), "gpu.xid", "warn", "MMU Fault", "list of XID errors"),
}

JOB_CAUSES = {
    "slurm_of_two_hosts": Cause(roce, "job.launcher", "warn", "one process runs", "srun --mpi=pmix gyre doctor",
                                variables={"SLURM_JOB_NUM_NODES": "2"}),
    "bound_to_one_processor": Cause(one_processor, "job.binding", "warn", "--bind-to none", "mpirun --bind-to none"),
    "gyre_variable_misspelt": Cause(roce, "job.variables", "fail", "did you mean GYRE_IB_HCA?", "gyre env",
                                    variables={"GYRE_IB_HCAS": "mlx5_0"}),
    "nccl_variable_misspelt": Cause(roce, "job.variables", "warn", "did you mean NCCL_IB_HCA?", "correct the name",
                                    variables={"NCCL_IB_HCAS": "mlx5_0"}),
    "illegal_value": Cause(roce, "job.variables", "fail", "GYRE_IB_TC=999", "as the message says",
                           variables={"GYRE_IB_TC": "999"}),
    "nccl_illegal_value": Cause(roce, "job.variables", "warn", "NCCL_IB_TC=999 is ignored",
                                "give it a value of gyre env",
                                variables={"NCCL_IB_TC": "999"}),
    "p2p_disabled": Cause(roce, "job.harmful", "warn", "NCCL_P2P_DISABLE=1", "unset NCCL_P2P_DISABLE",
                          variables={"NCCL_P2P_DISABLE": "1"}),
    "shm_disabled": Cause(roce, "job.harmful", "warn", "NCCL_SHM_DISABLE=1", "unset NCCL_SHM_DISABLE",
                          variables={"NCCL_SHM_DISABLE": "1"}),
    "ib_disabled": Cause(roce, "job.harmful", "warn", "TCP is used", "unset NCCL_IB_DISABLE",
                         variables={"NCCL_IB_DISABLE": "1"}),
    "traffic_class_5": Cause(roce, "job.harmful", "warn", "DSCP 1, ECN bits 01", "unset NCCL_IB_TC",
                             variables={"NCCL_IB_TC": "5"}),
    "timeout_of_minutes": Cause(roce, "job.harmful", "warn", "after 120 s", "unset NCCL_IB_TIMEOUT",
                                variables={"NCCL_IB_TIMEOUT": "22"}),
    "loopback_chosen": Cause(roce, "job.harmful", "warn", "loopback", "unset NCCL_SOCKET_IFNAME", also=("net.interfaces",),
                             variables={"NCCL_SOCKET_IFNAME": "lo"}),
    "no_topology_file": Cause(roce, "job.variables", "warn", "no such file, or no permission to read it; gyre goes on",
                              "correct the path",
                              variables={"NCCL_TOPO_FILE": "/nonexistent/topo.xml"}),
    "no_tuning_file": Cause(roce, "job.variables", "fail", "GYRE_TUNING_FILE=/nonexistent: there is no such file",
                            "correct the path",
                            variables={"GYRE_TUNING_FILE": "/nonexistent"}),
    "no_folder_for_the_log": Cause(roce, "job.variables", "warn", "there is no such folder", "correct the path",
                                   variables={"NCCL_DEBUG_FILE": "/nonexistent/log.txt"}),
    "gpus_hidden": Cause(gpu, "job.harmful", "warn", "hides all GPUs", "unset CUDA_VISIBLE_DEVICES",
                         variables={"CUDA_VISIBLE_DEVICES": ""}),
}

# Set-ups that are well with these variables: what they leave out is not judged.
HEALTHY_WITH = {
    "rdma_off_on_purpose": (changed(roce, {f"{PORT}/state": "1: DOWN",
                                           "sys/class/infiniband/mlx5_1/ports/1/state": "1: DOWN"}),
                            {"NCCL_IB_DISABLE": "1"}),
    "no_files_without_rdma": (changed(roce, {f"sys/class/infiniband/mlx5_{i}/ports/1/state": "1: DOWN" for i in (0, 1)},
                                      without=("dev/infiniband",)), {"GYRE_NET": "Socket"}),
    "slower_port_left_out": (changed(roce, {f"{PORT}/rate": "25 Gb/sec (1X EDR)"}), {"GYRE_IB_HCA": "^mlx5_0:1"}),
    "slow_interface_beside_rails": (changed(roce, {"sys/class/net/eth0/speed": "1000"}), {}),
    "port_down_left_out": (changed(roce, {f"{PORT}/state": "1: DOWN"}), {"NCCL_IB_HCA": "mlx5_1"}),
    "lossy_port_left_out": (changed(roce, {f"{PORT}/hw_counters/local_ack_timeout_err": "90210",
                                           f"{PORT}/counters/link_downed": "37"}), {"NCCL_IB_HCA": "=mlx5_1"}),
    "soft_roce_left_out": (soft_roce, {"GYRE_IB_HCA": "^rxe0"}),
    "lossless_with_its_class": (lossless, {"GYRE_IB_TC": "106"}),
    "pfc_told_by_dcb": (told_by_dcb, {"NCCL_IB_TC": "162"}),
    "lossy_with_ecn": (lambda: machines.set_qos(roce(), pfc=()), {}),
    "firmware_of_a_port_left_out": (changed(lossless, {FIRMWARE: machines.mlxconfig(mask="0")}),
                                    {"GYRE_IB_TC": "106", "GYRE_IB_HCA": "=mlx5_1"}),
    "rdma_off_by_its_name": (roce, {"GYRE_IB_DISABLE": "1"}),
    "sockets_by_their_name": (roce, {"GYRE_NET": "Socket"}),
    "toolkit_that_fits": (lambda: toolkit(gpu(), "12.4.20240301"), {}),
    "cable_out_of_an_interface_left_out": (changed(roce, {"sys/class/net/eth2/operstate": "down"}),
                                           {"GYRE_IB_HCA": "=mlx5_0", "GYRE_SOCKET_IFNAME": "=eth0"}),
    "frames_damaged_where_no_job_sends": (changed(roce, {"sys/class/net/eth2/statistics/rx_crc_errors": "812"}),
                                          {"GYRE_IB_HCA": "=mlx5_0", "GYRE_SOCKET_IFNAME": "=eth0"}),
    "irqs_and_errors_of_an_adapter_left_out": (
        changed(roce, {f"{NIC}/aer_dev_fatal": "DLP 2\nTOTAL_ERR_FATAL 2",
                       **{f"proc/irq/{i}/smp_affinity_list": "16-31" for i in range(40, 44)}}),
        {"GYRE_IB_HCA": "=mlx5_1", "GYRE_SOCKET_IFNAME": "=eth0"}),
    "one_subnet_but_one_rail": (one_subnet, {"GYRE_IB_HCA": "=mlx5_0", "GYRE_SOCKET_IFNAME": "=eth0"}),
    "ipv6_as_asked": (only_ipv6, {"NCCL_SOCKET_FAMILY": "AF_INET6"}),
    "hidden_gpu_at_x8": (changed(gpu, {f"{GPU}/current_link_width": "8",
                                       f"{GPU}/aer_dev_fatal": "DLP 2\nTOTAL_ERR_FATAL 2"}),
                         {"CUDA_VISIBLE_DEVICES": "1"}),
    "far_adapter_left_out": (gpu, {"GYRE_NET_GDR_LEVEL": "SYS"}),
}

CAUSES = {**HOST_CAUSES, **NET_CAUSES, **RDMA_CAUSES, **GPU_CAUSES, **JOB_CAUSES}
assert len(CAUSES) == sum(map(len, (HOST_CAUSES, NET_CAUSES, RDMA_CAUSES, GPU_CAUSES, JOB_CAUSES)))


# What the last of several ranks has and the others do not, by check: files, severity, words.
SECOND_HOST = {"proc/sys/kernel/hostname": "node2",
               "etc/hosts": "127.0.0.1\tlocalhost\n10.0.0.2\tnode2"}
ROCE_DIFFERENCES = {
    "job.kernel": ({"proc/sys/kernel/osrelease": "5.15.0-91-generic"}, "warn",
                   "rank 2 (node2): 5.15.0-91-generic"),
    "job.mtu": ({"sys/class/net/eth0/mtu": "4200"}, "fail", "rank 2 (node2): 4200"),
    "job.firmware": ({f"sys/class/infiniband/mlx5_{i}/fw_ver": "20.31.1014" for i in (0, 1)},
                     "warn", "20.31.1014"),
    "job.rate": ({f"sys/class/infiniband/mlx5_{i}/ports/1/rate": "100 Gb/sec (4X EDR)"
                  for i in (0, 1)}, "warn", "100,100 Gbit/s"),
    "job.gid": ({f"sys/class/infiniband/mlx5_{i}/ports/1/gids/{index}": gid("::")
                 for i in (0, 1) for index in (2, 3)}, "fail", "RoCE v2 link-local"),
}
GPU_DIFFERENCES = {
    "job.driver": ({"proc/driver/nvidia/version": machines.OPEN_DRIVER.replace("580.65", "575.57")},
                   "warn", "575.57.06"),
}

# Files without which a check cannot say that all is well.
DECISIVE = {
    "proc/self/limits": "host.memlock",
    "proc/mounts": "host.shm",
    "proc/meminfo": "host.hugepages",
    "etc/hosts": "host.hostname",
    "proc/self/cgroup": "host.cgroup",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "host.clock",
    "proc/sys/net/ipv4/tcp_rmem": "net.buffers",
    "proc/sys/net/ipv4/ip_local_port_range": "net.ports",
    "sys/class/net/eth0/mtu": "net.mtu",
    f"{PORT}/state": "rdma.ports",
    f"{PORT}/rate": "rdma.rate",
    f"{PORT}/gids/3": "rdma.gid",
    f"{NIC}/current_link_width": "rdma.pcie",
    "sys/class/infiniband/mlx5_0/fw_ver": "rdma.firmware",
    f"{PORT}/hw_counters/local_ack_timeout_err": "rdma.counters",
    f"{PORT}/counters/link_downed": "rdma.flaps",
    "sys/devices/pci0000:00/0000:00:01.0/config": "host.acs",
    "proc/irq/40/smp_affinity_list": "host.irq",
}
