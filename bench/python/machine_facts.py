# SPDX-License-Identifier: Apache-2.0
"""What a report of measurements says of a machine: hardware, software, settings and load. What cannot be read is
left out. Started as a program it prints one line of JSON, so that a launcher can ask every host."""
import glob
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys

GPU_FIELDS = ("name", "uuid", "pci.bus_id", "driver_version", "vbios_version", "memory.total", "power.limit",
              "clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem", "clocks_throttle_reasons.active",
              "ecc.mode.current", "mig.mode.current", "persistence_mode", "temperature.gpu")
PREFIXES = ("NCCL_", "GYRE_", "UCX_", "FI_", "OMPI_MCA_", "CUDA_", "OMP_")
SECONDS = 20


def read(path):
    """The text of a file of /proc or /sys, or ""."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def output_of(*command):
    if shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def processors():
    info = read("/proc/cpuinfo")
    names = re.findall(r"^model name\s*: (.*)$", info, re.M)
    sockets = set(re.findall(r"^physical id\s*: (\d+)$", info, re.M))
    flags = re.search(r"^flags\s*: (.*)$", info, re.M)
    return {"model": names[0] if names else platform.machine(), "processors": os.cpu_count(),
            "sockets": len(sockets) or 1, "allowed": len(os.sched_getaffinity(0)),
            "is_virtual": bool(flags and " hypervisor" in flags.group(1)),
            "governor": read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            "turbo_off": read("/sys/devices/system/cpu/intel_pstate/no_turbo"),
            "numa_nodes": len(glob.glob("/sys/devices/system/node/node[0-9]*")),
            "numa_balancing": read("/proc/sys/kernel/numa_balancing"),
            "huge_pages": read("/sys/kernel/mm/transparent_hugepage/enabled"),
            "mhz": [float(text) for text in re.findall(r"^cpu MHz\s*: ([\d.]+)$", info, re.M)[:4]]}


def gpus():
    """One entry for each GPU, and the matrix of links between them."""
    text = output_of("nvidia-smi", "--query-gpu=" + ",".join(GPU_FIELDS), "--format=csv,noheader")
    found = [dict(zip(GPU_FIELDS, (word.strip() for word in line.split(",")))) for line in text.splitlines()]
    return found, output_of("nvidia-smi", "topo", "-m") if found else ""


def nics():
    found = []
    for port in sorted(glob.glob("/sys/class/infiniband/*/ports/*")):
        device = os.path.dirname(os.path.dirname(port))
        found.append({"name": os.path.basename(device), "port": os.path.basename(port),
                      "model": read(f"{device}/board_id") or read(f"{device}/hca_type"),
                      "firmware": read(f"{device}/fw_ver"), "rate": read(f"{port}/rate"),
                      "state": read(f"{port}/state"), "layer": read(f"{port}/link_layer")})
    for path in sorted(glob.glob("/sys/class/net/*")):
        if os.path.exists(f"{path}/device") and read(f"{path}/operstate") == "up":
            found.append({"name": os.path.basename(path), "mbit_per_s": read(f"{path}/speed"),
                          "mtu": read(f"{path}/mtu"), "driver": os.path.basename(os.path.realpath(f"{path}/device/driver"))})
    return found


def facts():
    cards, links = gpus()
    release = re.search(r'^PRETTY_NAME="?([^"\n]*)', read("/etc/os-release"), re.M)
    memory = re.search(r"^MemTotal:\s*(\d+)", read("/proc/meminfo"), re.M)
    return {"host": socket.gethostname(), "system": release.group(1) if release else platform.system(),
            "kernel": platform.release(), "libc": " ".join(platform.libc_ver()), "python": platform.python_version(),
            "memory_bytes": int(memory.group(1)) << 10 if memory else None, "cpu": processors(), "gpus": cards,
            "gpu_links": links, "nics": nics(), "load": list(os.getloadavg()),
            "mpi": output_of("mpirun", "--version").split("\n")[0],
            "environment": {name: value for name, value in sorted(os.environ.items()) if name.startswith(PREFIXES)}}


if __name__ == "__main__":
    json.dump(facts(), sys.stdout)
    print()
