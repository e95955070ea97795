#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What guides for clusters of RoCE machines ask an engineer to do or to write down, and what gyre prints for it.

    python3 tests/report/guides.py BENCH_DIR SOURCE_DIR [table]      table: prints the rows, too

The list was drawn up from four kinds of guides: setting up bare hosts (NVIDIA's NCCL documentation, Networking
Troubleshooting; hands-on articles on RDMA), a lecture on NCCL, a template of an optimization report, and running NCCL
over two RoCE hosts (NVIDIA's RoCE documentation, Juniper's appendices on NCCL tests). Every command that this machine
can run is run, and the words are looked for in what it prints; otherwise in a page whose own test runs it, or in a
recorded run. Exits 77 without matplotlib, Jinja2 or json-c.
"""
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, HERE)
import report as pages
from report import machines
from running import clean_environment

# name -> (variables, words); {x} stands for a file of the test's folder, and a name with a . is read, not run.
COMMANDS = {
    "roce": ({}, "gyre doctor --root {roce} --all"), "gpus": ({}, "gyre doctor --root {gpus} --all"),
    "bond": ({}, "gyre doctor --root {bond} --all"), "faults": ({}, "gyre doctor --root {faults} --quiet"),
    "expected": ({}, "gyre doctor --root {roce} --all --expect gpus=8,ports=2,rate=200,mtu=4096"),
    "lossless": ({"GYRE_IB_TC": "106"}, "gyre doctor --root {lossless} --only rdma.qos --all"),
    "tc 5": ({"NCCL_IB_TC": "5"}, "gyre doctor --root {roce} --only job"),
    "gid 0": ({"NCCL_IB_GID_INDEX": "0"}, "gyre doctor --root {roce} --only rdma"),
    "typo": ({"NCCL_IB_HAC": "mlx5_0"}, "gyre doctor --root {roce} --only job"),
    "emit": ({}, "gyre doctor --root {roce} --emit-env"), "doctor help": ({}, "gyre doctor --help"),
    "env": ({}, "gyre env"), "version": ({}, "gyre --version"), "topo": ({}, "gyre topo"),
    "bench": ({"GYRE_DEBUG": "INFO"}, "allreduce -g 2 -b 8 -e 64K -f 2 -n 2 -w 1"), "names": ({}, "gyre bench --help"),
    "tcp": ({"GYRE_DEBUG": "INFO", "GYRE_TRANSPORT": "socket"}, "allreduce -g 2 -b 8 -e 8 -n 1 -w 1"),
    "compare": ({}, "gyre compare --help"), "choice": ({}, "gyre explain-choice 1M --ranks 4 --machine h200"),
    "predict": ({}, "schedule --predict --coll all_reduce --hosts 2x8 --nic-rate 50 --bytes 1M"),
    "ring": ({}, "schedule --algo ring --coll all_reduce --ranks 4"),
    "prove": ({}, "schedule --verify --algo tree --coll all_reduce --ranks 8"),
    "bottleneck": ({}, "gyre bottleneck --model llama3-8b --tokens 4e6 --hosts 2x8 --nic-rate 50"),
    "tensor": ({}, "gyre bottleneck --model llama3-8b --tokens 4e6 --hosts 2x8 --nic-rate 50 --tensor 16"),
    "report": ({}, "gyre report --json TCP={tcp.json} --json RDMA={ib.json} --json NCCL={nccl.txt} --doctor {doctor.json} "
                   "--ddp {ddp.json} --env {env.sh} --limit 24 --step 14G --output {page}"),
    "faulty report": ({}, "gyre report --json {tcp.json} --doctor {faulty.json} --output {page}"),
    "scaling": ({}, "gyre report --json {2.json} --json {3.json} --output {page}"),
}
LAB, LAB_REPORT, TWO = "docs/examples/doctor/lab.txt", "docs/examples/report.md", "docs/examples/doctor/two_gpus.txt"
CLUSTER, RUN, READ = "docs/cluster.md", "docs/examples/cluster.txt", "docs/read_your_result.md"
UNTRIED = "the page shows it from documentation or sources; it was not run"
# (thing, where, words as a regular expression, what is missing: "" = whole)
GUIDES = {
    "setting up bare hosts": [
        ("every host has the same build", LAB, r"job\.version .*on all 2 ranks", ""),
        ("and the same kernel", LAB, r"job\.kernel .*on all 2 ranks", ""),
        ("the version of the software", "version", r"gyre .*0\.\d+\.\d+", ""),
        ("GPUs are on PCI", "gpus", r"gpu\.device_files .*2 GPUs can be opened", ""),
        ("the GPU driver's version", "gpus", r"gpu\.driver .*580\.65\.06", ""),
        ("the open or the closed driver", "gpus", r"gpu\.driver .*open", ""),
        ("the build can use the GPUs", "gpus", r"gpu\.build .*built with(out)? CUDA", ""),
        ("PCI link of each GPU", "gpus", r"gpu\.pcie .*x16 at 32 of 32 GT/s", ""),
        ("NVLink is up", TWO, r"gpu\.nvlink .*18 active NVLinks", ""),
        ("ECC errors of GPUs", TWO, r"gpu\.ecc .*0 corrected, 0 not", ""),
        ("Xid errors in the kernel's log", "gpus", r"gpu\.xid .*no Xid", ""),
        ("clocks and throttling", TWO, r"gpu\.clocks .*1980 of 1980 MHz", ""),
        ("peer copies work and are right", TWO, r"gpu\.pairs .*copies right", ""),
        ("GPU memory opens in a second process", TWO, r"gpu\.ipc .*read them right", ""),
        ("which interfaces there are", "roce", r"1\. eth0 10\.0\.0\.1/24, physical, 200 Gbit/s, MTU 9000", ""),
        ("the interface that TCP takes", "roce", r"net\.interfaces +eth0: chosen by rules", ""),
        ("cables have a link", "roce", r"net\.link .*every enabled port has a link", ""),
        ("speed of the interface", "roce", r"net\.speed .*200 Gbit/s", ""),
        ("MTU 9000 on the interface", "roce", r"net\.mtu .*9000", ""),
        ("MTU that stays after a start (netplan)", RUN, r"netplan generate[\s\S]*Name=ens1f0[\s\S]*MTUBytes=9000", ""),
        ("a jumbo packet passes whole (ping -M do)", LAB, r"job\.path_mtu .*pass whole", ""),
        ("bonds: ports and mode", "bond", r"net\.bond .*2 ports are up, IEEE 802\.3ad", ""),
        ("VLAN on a bond", "bond", r"bond0\.100", ""),
        ("one subnet a rail", "roce", r"net\.same_subnet .*no two interfaces share", ""),
        ("damaged frames", "roce", r"net\.errors .*no damaged frames", ""),
        ("TCP buffers (sysctl)", "roce", r"net\.buffers .*tcp_rmem", ""),
        ("port range for the firewall", "roce", r"net\.ports .*32768 to 60999", ""),
        ("the firewall lets TCP and UDP pass", LAB, r"job\.firewall .*TCP connections and UDP packets pass", ""),
        ("host names resolve to no loopback", "roce", r"host\.hostname .*10\.0\.0\.1", ""),
        ("ssh without a password", RUN, r"ssh -o BatchMode=yes b hostname\nb$", ""),
        ("a host file with slots", RUN, r"a slots=8", ""),
        ("mpirun reaches all hosts", RUN, r"sort \| uniq -c\n +8 a\n +8 b", ""),
        ("locked memory unlimited", "roce", r"host\.memlock .*unlimited", ""),
        ("and how to mend it for ever", "faults", r"host\.memlock[\s\S]*fix: .*limits\.d", ""),
        ("open files", "roce", r"host\.nofile .*1048576", ""),
        ("/dev/shm", "roce", r"host\.shm .*262144 MiB", ""),
        ("container limits", "roce", r"host\.cgroup .*262144 MiB can still be had", ""),
        ("NUMA balancing off", "gpus", r"host\.numa_balancing .*: 0", ""),
        ("interrupts near the adapter", "roce", r"host\.irq .*near them", ""),
        ("ACS of PCI bridges off", "roce", r"host\.acs .*none of 2 bridges redirects", ""),
        ("IOMMU", "roce", r"host\.iommu .*no address", ""),
        ("clocks of hosts agree", LAB, r"job\.clock_skew .*agree to within", ""),
        ("what should be there is there (8 GPUs, rate, MTU)", "expected", r"host\.expected +GPUs: .*0 GPUs, 8 were expected", ""),
    ],
    "two RoCE hosts": [
        ("RDMA devices, and their interfaces (ibdev2netdev)", "roce", r"rdma\.devices +mlx5_0:1: Ethernet, .*, eth1", ""),
        ("their firmware", "roce", r"rdma\.firmware .*28\.39\.1002", ""),
        ("the port is ACTIVE", "roce", r"rdma\.ports .*4: ACTIVE", ""),
        ("its rate", "roce", r"rdma\.rate .*200 Gb/sec \(4X HDR\)", ""),
        ("link layer Ethernet or InfiniBand", "gpus", r"rdma\.devices .*InfiniBand, 400 Gb/sec", ""),
        ("device files can be opened", "roce", r"rdma\.device_files .*2 devices can be opened", ""),
        ("PCI width and speed of the adapter", "roce", r"rdma\.pcie .*x16 at 32 GT/s", ""),
        ("the GID table (show_gids)", "roce", r"\[3\] 192\.168\.1\.1, RoCE v2, eth1: used", ""),
        ("which GID index, and why", "roce", r"\[1\] fe80::1, RoCE v2, eth1: would do, but row 3 is better", ""),
        ("a forced GID index is found wrong", "gid 0", r"NCCL_IB_GID_INDEX=0 forces a row", ""),
        ("GIDs of all hosts are of one kind", LAB, r"job\.gid .*RoCE v2 IPv4", ""),
        ("RoCE packet size (active_mtu)", "roce", r"rdma\.mtu .*packets of 4096 bytes", ""),
        ("the same MTU on all hosts", LAB, r"job\.mtu .*on all 2 ranks", ""),
        ("the same rate on all hosts", LAB, r"job\.rate .*on all 2 ranks", ""),
        ("which adapters are used (IB_HCA)", "roce", r"rdma\.hca .*every active port is used", ""),
        ("a misspelt variable is named", "typo", r"NCCL_IB_HAC", ""),
        ("traffic class 5 is DSCP 1", "tc 5", r"(?i)DSCP 1\b", ""),
        ("the traffic class and its DSCP", "env", r"GYRE_IB_TC .*DSCP x 4", ""),
        ("PFC on one priority", "lossless", r"priority 3; .*PFC on for it", ""),
        ("trust DSCP", "lossless", r"trust dscp", ""),
        ("ECN on the same priority", "lossless", r"roce_np on, roce_rp on", ""),
        ("pause frames and discards", "roce", r"rdma\.congestion .*21 pause frames, 0 thrown away", ""),
        ("congestion notifications", "roce", r"rdma\.congestion .*1200 congestion notifications sent, 900 handled", ""),
        ("settings of the switch", CLUSTER, r"on the switches", "a host cannot read them; the page says what to set"),
        ("lost packets and retries", "roce", r"rdma\.counters .*no losses", ""),
        ("and how they rise under a load", LAB, r"job\.rail_counters .*none of 12 counters", ""),
        ("flapping links", "roce", r"rdma\.flaps .*the links stay up", ""),
        ("nvidia_peermem or dma-buf", "gpus", r"rdma\.peermem .*dma-buf", ""),
        ("a GPU's memory is exported", TWO, r"gpu\.dmabuf .*exported as a dma-buf", ""),
        ("distance of GPU and adapter", "gpus", r"rdma\.gpu_distance .*PHB", ""),
        ("a raw RDMA bandwidth test (ib_write_bw)", LAB, r"job\.rails .*slowest: .* rxe1:1, 0\.0\d+ GB/s", ""),
        ("a raw TCP bandwidth test (iperf3)", LAB, r"job\.network .*slowest: .*, 0\.0\d+ GB/s", ""),
        ("TCP as baseline", "tcp", r"NET/Socket", ""),
        ("the log names the transport", "bench", r"via (P2P|SHM)", ""),
        ("the log says NET/IB : Using [0]DEVICE:1/RoCE", LAB_REPORT, r"NET/IB : Using \[0\]rxe0:1/RoCE", ""),
        ("the log says GDRDMA", CLUSTER, r"via NET/IB/0/GDRDMA", UNTRIED),
        ("one rank for each GPU over both hosts", LAB_REPORT, r"\| ranks \| 2 on a, b \|", ""),
        ("the interface is named to all ranks", "emit", r"export GYRE_SOCKET_IFNAME==eth0", ""),
    ],
    "a lecture on NCCL": [
        ("the collectives", "names", r"allreduce allgather alltoall broadcast gather reduce reducescatter", ""),
        ("a ring, step by step", "ring", r"chunk 0: from 3 \+ in 0 -> out 0, to 1 final", ""),
        ("a tree, proved right", "prove", r"# proved in place: depth 1", ""),
        ("why this algorithm was chosen", "choice", r"h200\.rows:\d+ +way all_reduce .*-> twoshot lamport", ""),
        ("latency and bandwidth of a size", "predict", r"^ +1048576 +\d+\.\d+ .*two_level_log", ""),
        ("busbw and its factor", READ, r"2 \(n-1\)/n", ""),
        ("sizes from bytes up, factor 2", "bench", r"^ +16 +4 +float", ""),
        ("data are checked", "bench", r"# Out of bounds values : 0 OK", ""),
        ("average bus bandwidth", "bench", r"# Avg bus bandwidth +: ", ""),
        ("warm-up and iterations", "bench", r"warmup iters: 1 iters: 2", ""),
        ("channels", "env", r"GYRE_MAX_NCHANNELS .*most channels", ""),
        ("protocols", "env", r"GYRE_PROTO .*simple,ll,ll128", ""),
        ("algorithm by variable", "env", r"GYRE_ALGO .*ring,tree", ""),
        ("levels of the log", "env", r"GYRE_DEBUG .*NONE VERSION WARN", ""),
        ("parts of the log", "env", r"GYRE_DEBUG_SUBSYS .*INIT,COLL", ""),
        ("time limits", "env", r"GYRE_TIMEOUT .*an operation that takes longer fails", ""),
        ("topology of the machine", "topo", r"CPU NUMA node 0[\s\S]*topology hash", ""),
        ("computation and communication of a step", "bottleneck", r"data parallel +\d+\.\d+ +\d+\.\d%", ""),
        ("the rule of thumb 0.3", "bottleneck", r"rule: ratio > 0\.3", ""),
        ("sharded training (FSDP)", "bottleneck", r"sharded \(FSDP\) +\d", ""),
        ("tensor parallel stays within a host", "tensor", r"finding: groups of 16 ranks reach over 2 hosts", ""),
        ("what overlap hides", "bottleneck", r"overlapped: of step", ""),
    ],
    "a report of an optimization": [
        ("transport detected", "report", r"^Transport: .* uses NET/IB/0/GDRDMA", ""),
        ("how far from the bound", "report", r"^Distance from the bound: it reaches \d+% of 24 GB/s", ""),
        ("what to change first", "report", r"^Change first: ", ""),
        ("key problems, with evidence and remedy", "faulty report", r"\| issue 1 \| host\.memlock[\s\S]*\| what mends it \| .*limits\.d", ""),
        ("impact in ms and %", "report", r"^\| TCP \| [\d.]+ \| [\d.]+ \| [\d.]+ \|", ""),
        ("results to 1 GiB", "report", r"^\| 1 GiB \|", ""),
        ("speed-up over TCP", "report", r"\| x TCP \|", ""),
        ("GPUDirect on and off", "report", r"^\| RDMA \| NET/IB/0/GDRDMA \| on \|", ""),
        ("variables before and after", "report", r"^\| NCCL_IB_TC \| unset \| 106 \|", ""),
        ("variables to export", "report", r"export GYRE_IB_HCA==mlx5_0:1", ""),
        ("the same from the doctor", "emit", r"export GYRE_IB_HCA==mlx5_0:1,mlx5_1:1", ""),
        ("PFC and ECN: why both", "report", r"^## PFC and ECN: why both", ""),
        ("DDP iterations", "report", r"^\| gyre \| 79\.50 \| 1\.89 \|", ""),
        ("log lines as evidence, warnings too", "report", r"NCCL WARN NET/IB : mlx5_3:1", ""),
        ("method, references, what was not measured", "report", r"^## Method[\s\S]*^## References[\s\S]*^## Not measured", ""),
        ("scaling efficiency over hosts", "scaling", r"^\| 3 \| 8 \| 110\.00 \| [\d.]+ \| 90\.9 \|", ""),
    ],
}
LEAST_WHOLE = 110


def outputs(directory, source, folder):
    """A function that gives what a command of COMMANDS prints, or a page of the sources."""
    for name, make in (("roce", machines.roce_server), ("gpus", machines.gpu_server), ("bond", machines.bonded_roce),
                       ("lossless", machines.lossless_server), ("faults", machines.roce_server)):
        machine = make()
        if name == "faults":
            machine.update({"proc/self/limits": machines.limits(memlock="8388608")})
        machines.Disk(os.path.join(folder, name)).show(machine)
    sizes = {1024 << 2 * i: 10 + (1024 << 2 * i) / 2000 for i in range(11)}
    pages.write(folder, "tcp.json", pages.bench_report({size: 8 * us for size, us in sizes.items()}, "NET/Socket/0"))
    pages.write(folder, "ib.json", pages.bench_report({size: us / 8 for size, us in sizes.items()}, "NET/IB/0/GDRDMA",
                                                      environment={"NCCL_IB_TC": "106"}))
    pages.write(folder, "nccl.txt", pages.NCCL_TEXT.format(name="all_reduce_perf").replace("8388.6", "83886").encode())
    pages.write(folder, "ddp.json", {"gloo": 150.2, "gyre": 79.5})
    pages.write(folder, "env.sh", b"export GYRE_IB_HCA==mlx5_0:1\n")
    os.makedirs(os.path.join(folder, "own"))
    os.rename(pages.doctor_of(directory, os.path.join(folder, "own"), machines.roce_server()),
              os.path.join(folder, "doctor.json"))
    subprocess.run([os.path.join(directory, "gyre"), "doctor", "--root", os.path.join(folder, "faults"), "--json",
                    os.path.join(folder, "faulty.json")], capture_output=True, env=clean_environment(), check=False)
    for n_hosts, us in ((2, 100.0), (3, 110.0)):
        value = pages.bench_report({1 << 20: us}, "NET/IB/0")
        value["places"] = [{"rank": rank, "host": f"h{rank}", "words": ""} for rank in range(n_hosts)]
        value["settings"]["ranks"] = 8
        pages.write(folder, f"{n_hosts}.json", value)
    known = {}

    def output(where):
        if where not in COMMANDS:
            return pages.read(source, where)
        if where not in known:
            variables, words = COMMANDS[where]
            program, *arguments = re.sub(r"\{(.*?)\}", lambda found: os.path.join(folder, found.group(1)), words).split()
            done = subprocess.run([os.path.join(directory, program), *arguments], capture_output=True, text=True,
                                  timeout=120, check=False, cwd=folder, env={**clean_environment(), **variables})
            if "needed, for gyre report" in done.stderr or "built without json-c" in done.stderr:
                print("skipped:", done.stderr)
                sys.exit(pages.SKIPPED)
            known[where] = done.stdout + done.stderr + (pages.read(folder, "page.md") if " report " in words else "")
        return known[where]
    return output


def main():
    directory, source = (os.path.realpath(path) for path in sys.argv[1:3])
    rows = [(guide, *row) for guide, things in GUIDES.items() for row in things]
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        output = outputs(directory, source, folder)
        for guide, thing, where, words, lacks in rows:
            if not re.search(words, output(where), re.M):
                wrong.append(f"{guide}: {thing}: {COMMANDS.get(where, where)} does not print {words}")
            if "table" in sys.argv[3:]:
                print(" | ".join((guide, thing, COMMANDS.get(where, ("", where))[1], words, lacks or "whole")))
    n_whole = sum(not lacks for *_, lacks in rows)
    print(f"{len(rows)} things: {n_whole} whole, {len(rows) - n_whole} in part")
    assert not wrong, "\n".join(wrong)
    assert n_whole >= LEAST_WHOLE and len({(guide, thing) for guide, thing, *_ in rows}) == len(rows), n_whole


if __name__ == "__main__":
    main()
