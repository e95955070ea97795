"""Machines for `gyre doctor --root`: small trees of the files that a kernel would show. A machine is
a dict from a path to its content: text, bytes, Link(target) or None for an empty folder. The text is
what Linux 6.1 prints; the functions at the end change one thing of a healthy machine."""

import os


class Link(str):
    """A symbolic link to this target."""


def write(machine, root):
    for path, content in machine.items():
        whole = os.path.join(root, path)
        if content is None:
            os.makedirs(whole, exist_ok=True)
            continue
        os.makedirs(os.path.dirname(whole), exist_ok=True)
        if isinstance(content, Link):
            os.symlink(content, whole)
        elif isinstance(content, bytes):
            with open(whole, "wb") as file:
                file.write(content)
        else:
            with open(whole, "w", encoding="utf-8") as file:
                file.write(content + "\n")


def limits(memlock="unlimited", nofile="1048576"):
    return "\n".join([
        "Limit                     Soft Limit           Hard Limit           Units     ",
        "Max cpu time              unlimited            unlimited            seconds   ",
        f"Max open files            {nofile:<20} {nofile:<20} files     ",
        f"Max locked memory         {memlock:<20} {memlock:<20} bytes     ",
        "Max address space         unlimited            unlimited            bytes     "])


def host(name="node1", gib=256):
    """What every machine has."""
    return {
        "proc/self/limits": limits(),
        "proc/self/status": "Name:\tgyre\nCapEff:\t0000000000000000\nCpus_allowed_list:\t0-31",
        "proc/self/uid_map": "         0          0 4294967295",
        "proc/self/cgroup": "0::/user.slice/session-1.scope",
        "proc/mounts": "proc /proc proc rw,nosuid 0 0\n"
                       "tmpfs /dev/shm tmpfs rw,nosuid,nodev,inode64 0 0",
        "proc/meminfo": f"MemTotal:       {gib << 20} kB\nMemFree:        {gib << 19} kB\n"
                        f"MemAvailable:   {gib << 19} kB\nHugePages_Total:       0\n"
                        "HugePages_Free:        0\nHugepagesize:       2048 kB",
        "proc/sys/kernel/hostname": name,
    }


def roce_server():
    machine = host()
    machine["sys/class/infiniband/mlx5_0"] = None
    return machine


def gpu_server():
    return host("gpu1", 2048)
