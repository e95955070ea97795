"""Machines for `gyre doctor --root`: small trees of the files that a kernel would show. A machine is
a dict from a path to its content: text, bytes, Link(target) or None for an empty folder. The text is
what Linux 6.1 and the drivers print."""

import ipaddress
import os
import struct


class Link(str):
    """A symbolic link to this target."""


def write_one(root, path, content):
    whole = os.path.join(root, path)
    if content is None:
        os.makedirs(whole, exist_ok=True)
        return
    os.makedirs(os.path.dirname(whole), exist_ok=True)
    if isinstance(content, Link):
        os.symlink(content, whole)
    else:
        with open(whole, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode("latin-1") + b"\n")


class Disk:
    """A folder that shows one machine after the other. Only what differs is written."""

    def __init__(self, root):
        self.root = root
        self.shown = {}

    def remove(self, path):
        """The file, and folders that become empty: they would look like devices without files."""
        whole = os.path.join(self.root, path)
        if os.path.isdir(whole) and not os.path.islink(whole):
            if os.listdir(whole):
                return
            os.rmdir(whole)
        else:
            os.unlink(whole)
        while (whole := os.path.dirname(whole)) != self.root and not os.listdir(whole):
            os.rmdir(whole)

    def show(self, machine):
        for path, content in self.shown.items():
            if machine.get(path, 0) != content:
                self.remove(path)
        for path, content in machine.items():
            if self.shown.get(path, 0) != content:
                write_one(self.root, path, content)
        self.shown = dict(machine)
        return self.root


def without(machine, *prefixes):
    return {p: c for p, c in machine.items() if not p.startswith(prefixes)}


# ---- the host -------------------------------------------------------------------------------


def limits(memlock="unlimited", nofile="1048576"):
    return "\n".join([
        "Limit                     Soft Limit           Hard Limit           Units     ",
        "Max cpu time              unlimited            unlimited            seconds   ",
        f"Max open files            {nofile:<20} {nofile:<20} files     ",
        f"Max locked memory         {memlock:<20} {memlock:<20} bytes     ",
        "Max address space         unlimited            unlimited            bytes     "])


def meminfo(gib, hugepages=0):
    return (f"MemTotal:       {gib << 20} kB\nMemFree:        {gib << 19} kB\n"
            f"MemAvailable:   {gib << 19} kB\nSwapFree:              0 kB\n"
            f"HugePages_Total:   {hugepages}\nHugePages_Free:    {hugepages}\n"
            "Hugepagesize:       2048 kB")


def host(name="node1", gib=256, n_nodes=1):
    """What every machine has: 32 processors, memory, limits, loopback."""
    machine = {
        "proc/self/limits": limits(),
        "proc/self/status": "Name:\tgyre\nCapEff:\t0000000000000000\nCpus_allowed_list:\t0-31",
        "proc/self/uid_map": "         0          0 4294967295",
        "proc/self/cgroup": "0::/user.slice/session-1.scope",
        "proc/mounts": "proc /proc proc rw,nosuid 0 0\n"
                       "tmpfs /dev/shm tmpfs rw,nosuid,nodev,inode64 0 0",
        "proc/meminfo": meminfo(gib),
        "proc/version": "Linux version 6.1.0-18-amd64 (gcc-12) #1 SMP",
        "proc/sys/kernel/hostname": name,
        "proc/sys/kernel/osrelease": "6.1.0-18-amd64",
        "proc/sys/kernel/numa_balancing": "0",
        "proc/sys/net/ipv4/tcp_rmem": "4096\t131072\t6291456",
        "proc/sys/net/ipv4/tcp_wmem": "4096\t16384\t4194304",
        "proc/sys/net/ipv4/ip_local_port_range": "32768\t60999",
        "sys/fs/cgroup/user.slice/session-1.scope/pids.max": "max",
        "sys/fs/cgroup/user.slice/session-1.scope/cpu.max": "max 100000",
        "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc",
        "sys/devices/system/cpu/online": "0-31",
        "etc/hosts": f"127.0.0.1\tlocalhost\n10.0.0.1\t{name}",
    }
    per_node = 32 // n_nodes
    for node in range(n_nodes):
        cpus = f"{node * per_node}-{(node + 1) * per_node - 1}"
        machine[f"sys/devices/system/node/node{node}/cpulist"] = cpus
        machine[f"sys/devices/system/node/node{node}/cpumap"] = "ffffffff"
    add_interface(machine, "lo", 1, flags="0x9", mtu=65536, state="unknown")
    return machine


# ---- PCI ------------------------------------------------------------------------------------


def add_pci(machine, chain, vendor, kind, node=0, width=16, speed="32.0 GT/s PCIe", config=None):
    """The last function of a chain of bus ids, root port first. Its folder is returned."""
    where = "sys/devices/pci0000:00/" + "/".join(chain)
    bus_id = chain[-1]
    machine.update({
        f"sys/bus/pci/devices/{bus_id}": Link("../../../" + where[4:]),
        f"{where}/class": kind, f"{where}/vendor": vendor, f"{where}/numa_node": str(node),
        f"{where}/local_cpulist": f"{node * 16}-{node * 16 + 15}",
        f"{where}/current_link_width": str(width), f"{where}/max_link_width": str(width),
        f"{where}/current_link_speed": speed, f"{where}/max_link_speed": speed,
        f"{where}/aer_dev_fatal": "Undefined 0\nDLP 0\nTOTAL_ERR_FATAL 0",
        f"{where}/aer_dev_nonfatal": "Undefined 0\nTOTAL_ERR_NONFATAL 0",
        f"{where}/aer_dev_correctable": "RxErr 0\nBadTLP 0\nTOTAL_ERR_COR 0"})
    if config is not None:
        machine[f"{where}/config"] = config
    return where


def bridge_config(acs_control=0):
    """The configuration space of a bridge whose second extended capability is ACS."""
    config = bytearray(4096)
    struct.pack_into("<I", config, 0x100, 0x0001 | 1 << 16 | 0x148 << 20)
    struct.pack_into("<I", config, 0x148, 0x000d | 1 << 16)
    struct.pack_into("<HH", config, 0x148 + 4, 0x001f, acs_control)
    return bytes(config)


def add_bridge(machine, bus_id, node=0, acs_control=0):
    return add_pci(machine, [bus_id], "0x8086", "0x060400", node, config=bridge_config(acs_control))


# ---- the network ----------------------------------------------------------------------------


def add_interface(machine, name, index, flags="0x1003", mtu=1500, state="up", speed=None,
                  duplex="full", pci=None):
    folder = f"sys/class/net/{name}"
    machine.update({f"{folder}/ifindex": str(index), f"{folder}/flags": flags,
                    f"{folder}/mtu": str(mtu), f"{folder}/operstate": state})
    if speed is not None:
        machine[f"{folder}/speed"] = str(speed)
        machine[f"{folder}/duplex"] = duplex
    if pci is not None:
        machine[f"{folder}/device"] = Link(f"../../../bus/pci/devices/{pci}")
        for file in ("rx_crc_errors", "rx_frame_errors", "tx_carrier_errors"):
            machine[f"{folder}/statistics/{file}"] = "0"


def set_addresses(machine, *entries):
    """Addresses as (interface, "10.0.0.1/24"), the way `ip -o addr show` prints them."""
    lines = []
    for name, text in (("lo", "127.0.0.1/8"), ("lo", "::1/128"), *entries):
        index = machine[f"sys/class/net/{name}/ifindex"]
        kind = "inet6" if ":" in text else "inet"
        lines.append(f"{index}: {name:<10} {kind} {text} scope global {name}\\       valid_lft forever")
    machine["programs/ip -o addr show"] = "\n".join(lines)


def bonding(*states):
    text = ("Ethernet Channel Bonding Driver: v6.1.0\n\nBonding Mode: IEEE 802.3ad Dynamic link "
            "aggregation\nMII Status: up\n")
    for i, state in enumerate(states):
        text += f"\nSlave Interface: eth{i}\nMII Status: {state}\nSpeed: 25000 Mbps\n"
    return text


def add_irqs(machine, where, first, cpus):
    for irq in range(first, first + 4):
        machine[f"{where}/msi_irqs/{irq}"] = "msix"
        machine[f"proc/irq/{irq}/smp_affinity_list"] = cpus


# ---- RDMA -----------------------------------------------------------------------------------


def gid(address):
    """As sysfs prints it: eight groups of four digits."""
    address = ipaddress.ip_address(address)
    if address.version == 4:
        address = ipaddress.ip_address("::ffff:" + str(address))
    return address.packed.hex(":", 2)  # str() of such addresses differs from Python 3.13 on


def add_rdma(machine, device, pci=None, layer="Ethernet", netdev="", rate="200 Gb/sec (4X HDR)",
             gids=(), state="4: ACTIVE"):
    """gids: (index, address, type) of the rows that are not empty, all of `netdev`."""
    folder = f"sys/class/infiniband/{device}"
    port = f"{folder}/ports/1"
    number = device[-1]
    machine.update({
        f"{folder}/fw_ver": "28.39.1002", f"{folder}/board_id": "MT_0000000838",
        f"{port}/state": state, f"{port}/phys_state": "5: LinkUp" if "ACTIVE" in state else
        "3: Disabled", f"{port}/rate": rate, f"{port}/link_layer": layer,
        f"{port}/counters/port_xmit_packets": "123456789", f"{port}/counters/symbol_error": "0",
        f"{port}/counters/port_rcv_packets": "123456789", f"{port}/counters/link_downed": "1",
        f"{port}/hw_counters/local_ack_timeout_err": "0", f"{port}/hw_counters/packet_seq_err": "0",
        f"{port}/hw_counters/out_of_sequence": "3", f"{port}/hw_counters/np_cnp_sent": "1200",
        f"{port}/hw_counters/rp_cnp_handled": "900", f"{port}/hw_counters/roce_adp_retrans": "0",
        f"sys/class/infiniband_verbs/uverbs{number}/ibdev": device,
        f"dev/infiniband/uverbs{number}": "",
    })
    if pci is not None:
        machine[f"{folder}/device"] = Link(f"../../../bus/pci/devices/{pci}")
        where = machine[f"sys/bus/pci/devices/{pci}"].replace("../../../", "sys/")
        machine[f"{where}/infiniband/{device}"] = None
    for index in range(6):
        machine[f"{port}/gids/{index}"] = gid("::")
    for index, address, kind in gids:
        machine[f"{port}/gids/{index}"] = gid(address)
        machine[f"{port}/gid_attrs/types/{index}"] = kind
        machine[f"{port}/gid_attrs/ndevs/{index}"] = netdev


V1, V2 = "IB/RoCE v1", "RoCE v2"


def mlnx_qos(trust="dscp", pfc=(3,)):
    """What `mlnx_qos -i NETDEV` prints, with the driver's own map from DSCP to priorities."""
    lines = ["DCBX mode: OS controlled", f"Priority trust state: {trust}"]
    if trust == "dscp":
        lines += ["dscp2prio mapping:"] + [
            f"\tprio:{p} dscp:" + "".join(f"{d:02}," for d in range(8 * p + 7, 8 * p - 1, -1)) for p in range(8)]
    return "\n".join(lines + [
        "default priority:", "Receive buffer size (bytes): 130944,130944,0,0,0,0,0,0,max_buffer_size=262016",
        "Cable len: 7", "PFC configuration:", "\tpriority    0   1   2   3   4   5   6   7",
        "\tenabled     " + "   ".join(str(int(p in pfc)) for p in range(8)),
        "tc: 0 ratelimit: unlimited, tsa: vendor", "\t priority:  1"])


def dcb(machine, netdev, pfc, dscp):
    """What `dcb` of iproute2 prints of an interface. dscp: "40:5 48:6"; "" = no row."""
    machine[f"programs/dcb pfc show dev {netdev}"] = (
        "pfc-cap 8 macsec-bypass off delay 0 \nprio-pfc " +
        " ".join(f"{p}:{'on' if p in pfc else 'off'}" for p in range(8)) + " ")
    machine[f"programs/dcb -N app show dev {netdev}"] = f"default-prio 0 \ndscp-prio {dscp} " if dscp else \
        "default-prio 0 "


def mlxconfig(link="ETH(2)", mask="255", roce="DEVICE_DEFAULT(0)"):
    rows = {"SRIOV_EN": "True(1)", "ROCE_CONTROL": roce, "LINK_TYPE_P1": link, "ROCE_CC_PRIO_MASK_P1": mask,
            "CNP_DSCP_P1": "48"}
    return ("Device #1:\n----------\n\nDevice type:    ConnectX6DX\nDevice:         0000:18:00.0\n\n"
            "Configurations:                                     Next Boot\n" +
            "\n".join(f"        {name:<44}{value}" for name, value in rows.items()))


def set_qos(machine, **qos):
    """The priorities of both ports of roce_server(); ECN is on, as the driver sets it."""
    for netdev in ("eth1", "eth2"):
        machine[f"programs/mlnx_qos -i {netdev}"] = mlnx_qos(**qos)
        for part in ("roce_np", "roce_rp"):
            for priority in range(8):
                machine[f"sys/class/net/{netdev}/ecn/{part}/enable/{priority}"] = "1"
    return machine


def add_roce_rail(machine, i, node, rate="200 Gb/sec (4X HDR)"):
    """One adapter with its own subnet."""
    bus_id = f"0000:1{8 + i}:00.0"
    add_bridge(machine, f"0000:00:0{1 + i}.0", node)
    where = add_pci(machine, [f"0000:00:0{1 + i}.0", bus_id], "0x15b3", "0x020000", node)
    add_irqs(machine, where, 40 + 8 * i, f"{16 * node}-{16 * node + 15}")
    name = f"eth{1 + i}"
    add_interface(machine, name, 3 + i, mtu=9000, speed=int(rate.split()[0]) * 1000, pci=bus_id)
    add_rdma(machine, f"mlx5_{i}", bus_id, netdev=name, rate=rate, gids=[
        (0, f"fe80::{i + 1}", V1), (1, f"fe80::{i + 1}", V2),
        (2, f"192.168.{i + 1}.1", V1), (3, f"192.168.{i + 1}.1", V2)])
    machine[f"ethtool/{name}"] = ("NIC statistics:\n     rx_packets: 1\n     rx_prio3_pause: 17\n"
                                  "     tx_prio3_pause: 4\n     rx_prio3_discards: 0\n"
                                  "     rx_discards_phy: 0")
    return [(name, f"192.168.{i + 1}.1/24"), (name, f"fe80::{i + 1}/64")]


# ---- GPUs -----------------------------------------------------------------------------------

OPEN_DRIVER = ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n"
               "GCC version:  gcc version 12.2.0")
CLOSED_DRIVER = ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 2025\n"
                 "GCC version:  gcc version 12.2.0")


def add_gpus(machine, n, first_bridge=4):
    machine["proc/driver/nvidia/version"] = OPEN_DRIVER
    machine["sys/module/nvidia/version"] = "580.65.06"
    machine["sys/module/nvidia_uvm/refcnt"] = "2"
    machine["dev/kmsg"] = "6,1,0,-;Linux version 6.1.0-18-amd64\n6,2,0,-;nvidia: loading"
    for file in ("nvidiactl", "nvidia-uvm"):
        machine[f"dev/{file}"] = ""
    for i in range(n):
        node = i % 2 if n > 1 else 0
        port = f"0000:00:{first_bridge + i:02x}.0"
        bus_id = f"0000:{0x40 + i:02x}:00.0"
        add_bridge(machine, port, node)
        where = add_pci(machine, [port, bus_id], "0x10de", "0x030200", node)
        machine[f"{where}/driver"] = Link("../../../../bus/pci/drivers/nvidia")
        machine[f"dev/nvidia{i}"] = ""
        machine[f"proc/driver/nvidia/gpus/{bus_id}/information"] = \
            f"Model: \t\t NVIDIA H100\nDevice Minor: \t {i}\nGPU Excluded:\t No"


# ---- whole machines -------------------------------------------------------------------------


def laptop():
    machine = host("laptop", 16)
    machine["proc/self/limits"] = limits("8388608", "1024")
    add_pci(machine, ["0000:00:1f.6"], "0x8086", "0x020000")
    add_interface(machine, "enp0s31f6", 2, speed=1000, pci="0000:00:1f.6")
    add_interface(machine, "docker0", 3, flags="0x1003", state="down")
    machine["sys/class/net/docker0/bridge/bridge_id"] = "8000.024200000000"
    set_addresses(machine, ("enp0s31f6", "192.168.178.20/24"), ("docker0", "172.17.0.1/16"),
                  ("enp0s31f6", "fe80::1/64"))
    return machine


def cloud_vm():
    machine = host("vm", 8)
    add_interface(machine, "ens3", 2, mtu=1450, speed=-1, duplex="unknown", pci="0000:00:03.0")
    add_pci(machine, ["0000:00:03.0"], "0x1af4", "0x020000")
    machine["sys/devices/system/clocksource/clocksource0/current_clocksource"] = "kvm-clock"
    set_addresses(machine, ("ens3", "10.0.0.5/24"))
    return machine


def container():
    """A container with limits that are large enough."""
    machine = host("3f2a91", 512)
    machine["proc/self/cgroup"] = "0::/"
    machine["sys/fs/cgroup/memory.max"] = str(64 << 30)
    machine["sys/fs/cgroup/memory.current"] = str(1 << 30)
    machine["sys/fs/cgroup/pids.max"] = "32768"
    machine["sys/fs/cgroup/cpu.max"] = "800000 100000"
    machine["proc/mounts"] = "shm /dev/shm tmpfs rw,nosuid,nodev,noexec,size=8388608k 0 0"
    machine["etc/hosts"] = "127.0.0.1 localhost\n172.17.0.2\t3f2a91"
    add_interface(machine, "eth0", 2, speed=10000)
    set_addresses(machine, ("eth0", "172.17.0.2/16"))
    return machine


def bond_server():
    """A VLAN over a bond of two ports, as in many data centres."""
    machine = host("node7", 128, n_nodes=2)
    for i in range(2):
        bus_id = f"0000:0{1 + i}:00.0"
        where = add_pci(machine, [f"0000:00:0{1 + i}.0", bus_id], "0x8086", "0x020000")
        add_irqs(machine, where, 30 + 8 * i, "0-15")
        add_interface(machine, f"eth{i}", 2 + i, flags="0x1803", mtu=9000, speed=25000, pci=bus_id)
        machine[f"sys/class/net/eth{i}/master"] = Link("../bond0")
    add_interface(machine, "bond0", 4, flags="0x1403", mtu=9000, speed=50000)
    add_interface(machine, "bond0.100", 5, mtu=9000, speed=50000)
    machine["sys/class/net/bonding_masters"] = "bond0"
    machine["sys/class/net/bond0/bonding/mode"] = "802.3ad 4"
    machine["proc/net/bonding/bond0"] = bonding("up", "up")
    machine["proc/net/vlan/bond0.100"] = ("bond0.100  VID: 100\t REORDER_HDR: 1  dev->priv_flags: 1\n"
                                          "Device: bond0")
    set_addresses(machine, ("bond0.100", "10.1.0.7/24"))
    return machine


def roce_server():
    """Two rails of RoCE, and a port for everything else."""
    machine = host("node1", 512, n_nodes=2)
    add_pci(machine, ["0000:00:00.1"], "0x8086", "0x020000")
    add_interface(machine, "eth0", 2, speed=200000, mtu=9000, pci="0000:00:00.1")
    addresses = add_roce_rail(machine, 0, 0) + add_roce_rail(machine, 1, 1)
    set_addresses(machine, ("eth0", "10.0.0.1/24"), *addresses)
    return machine


def lossless_server():
    """PFC and ECN for priority 3, and the firmware as NVIDIA sends it."""
    machine = set_qos(roce_server())
    for i in (8, 9):
        machine[f"programs/mlxconfig -d 0000:1{i}:00.0 query"] = mlxconfig()
    return machine


def eight_gpus():
    """As a node of a cluster: eight GPUs, eight adapters of 400 Gbit/s with a GPU each, an interface for the rest."""
    machine = host("gpu8", 2048, n_nodes=2)
    add_pci(machine, ["0000:00:00.1"], "0x8086", "0x020000")
    add_interface(machine, "eth0", 2, speed=25000, mtu=9000, pci="0000:00:00.1")
    add_gpus(machine, 8, first_bridge=16)
    addresses = []
    for i in range(8):
        addresses += add_roce_rail(machine, i, i % 2, rate="400 Gb/sec (4X NDR)")
    set_addresses(machine, ("eth0", "10.0.0.1/24"), *addresses)
    return machine


def unused_ports():
    """A third adapter that nobody has enabled, and nothing is plugged into it."""
    machine = roce_server()
    add_interface(machine, "eth3", 9, flags="0x1002", state="down")
    add_rdma(machine, "mlx5_2", netdev="eth3", rate="40 Gb/sec (4X QDR)", state="1: DOWN",
             gids=[(0, "fe80::9", V1)])
    machine["sys/class/infiniband/mlx5_2/device"] = Link("../../../bus/pci/devices/0000:00:00.1")
    return machine


def bonded_roce():
    """One RDMA device over a bond of two ports. Row 0 of its table is empty, as the kernel leaves it."""
    machine = bond_server()
    add_rdma(machine, "mlx5_bond_0", "0000:01:00.0", netdev="bond0.100", rate="50 Gb/sec (2X HDR)",
             gids=[(3, "10.1.0.7", V2)])
    return machine


def virtual_functions(n=6):
    """Functions of an adapter for virtual machines, which nobody has enabled here."""
    machine = roce_server()
    for i in range(n):
        add_interface(machine, f"vf{i}", 20 + i, flags="0x1002", state="down")
        add_rdma(machine, f"mlx5_{10 + i}", netdev=f"vf{i}", state="1: DOWN", gids=[(0, f"fe80::{i + 9:x}", V1)])
        machine[f"sys/class/infiniband/mlx5_{10 + i}/device"] = Link("../../../bus/pci/devices/0000:18:00.0")
    return machine


def gpu_server():
    """Two GPUs, two adapters of InfiniBand, each near one of them."""
    machine = host("gpu1", 1024, n_nodes=2)
    add_pci(machine, ["0000:00:00.1"], "0x8086", "0x020000")
    add_interface(machine, "eth0", 2, speed=10000, pci="0000:00:00.1")
    add_gpus(machine, 2)
    for i in range(2):
        bus_id = f"0000:1{8 + i}:00.0"
        add_bridge(machine, f"0000:00:0{1 + i}.0", i)
        where = add_pci(machine, [f"0000:00:0{1 + i}.0", bus_id], "0x15b3", "0x020700", i)
        add_irqs(machine, where, 40 + 8 * i, f"{16 * i}-{16 * i + 15}")
        add_interface(machine, f"ib{i}", 3 + i, mtu=2044, speed=400000, pci=bus_id)
        add_rdma(machine, f"mlx5_{i}", bus_id, layer="InfiniBand", rate="400 Gb/sec (4X NDR)",
                 gids=[(0, f"fe80::{i + 1}", V1)])
    set_addresses(machine, ("eth0", "10.0.0.1/24"))
    return machine


def lone_gpu():
    """A workstation with one GPU of the closed driver and no RDMA."""
    machine = host("ws1", 64)
    machine["proc/self/limits"] = limits("8388608", "1024")
    add_pci(machine, ["0000:00:1f.6"], "0x8086", "0x020000")
    add_interface(machine, "eno1", 2, speed=2500, pci="0000:00:1f.6")
    add_gpus(machine, 1)
    machine["proc/driver/nvidia/version"] = CLOSED_DRIVER
    set_addresses(machine, ("eno1", "192.168.1.9/24"), ("eno1", "2001:db8::9/64"))
    return machine
