"""Two hosts: network namespaces joined by the user-space wire of tests/lab/wire.c."""

import collections
import os
import re
import shutil
import subprocess
import time

DEVICE = "eth0"


def missing():
    """Why this machine can have no such network, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "no ip (apt-get install iproute2)"
    if not os.path.exists("/dev/net/tun"):
        return "no /dev/net/tun"
    name = f"gyf{os.getpid()}try"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode != 0:
        return "this machine lets nobody make network namespaces"
    # ip mounts /sys anew inside, which fails in a chroot whose / is not a mount point.
    entered = subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return None if entered.returncode == 0 else f"ip cannot use network namespaces: {entered.stderr.strip()}"


def ip(*words, check=True):
    subprocess.run(["ip", *words], check=check, capture_output=True)


def tcp_rows(pid):
    """The TCP sockets of a process's network: (local address, port, remote address, port, state,
    inode)."""
    rows = []
    with open(f"/proc/{pid}/net/tcp") as table:
        for line in list(table)[1:]:
            fields = line.split()
            ends = [(end.split(":")[0], int(end.split(":")[1], 16)) for end in fields[1:3]]
            rows.append((*ends[0], *ends[1], int(fields[3], 16), fields[9]))
    return rows


def sockets_of(pid):
    """The inodes of a process's sockets, as tcp_rows() has them."""
    inodes = set()
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            match = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{fd}"))
            if match:
                inodes.add(match[1])
    except OSError:
        pass  # the process or the descriptor has just gone
    return inodes


def address(host):
    return f"10.77.0.{host + 1}"


class Network:
    def __init__(self, wire_program, slot):
        self.names = [f"gyf{os.getpid()}s{slot}h{host}" for host in range(2)]
        self.wire = None
        try:
            for name in self.names:
                ip("netns", "add", name)
            self.wire = subprocess.Popen([wire_program, *self.names, DEVICE, "control"],
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            if self.wire.stdout.readline() != "ready\n":
                raise RuntimeError("the wire could not be laid")
            for host, name in enumerate(self.names):
                ip("-n", name, "link", "set", "lo", "up")
                ip("-n", name, "link", "set", DEVICE, "up")
                self.give_address(host)
            self.wait_for_carrier()
        except BaseException:
            self.close()
            raise

    def give_address(self, host):
        ip("-n", self.names[host], "addr", "replace", f"{address(host)}/24", "dev", DEVICE)

    def wait_for_carrier(self):
        """The kernel reports the carrier a moment later than it is there."""
        for name in self.names:
            for _ in range(200):
                shown = subprocess.run(["ip", "-n", name, "link", "show", DEVICE],
                                       capture_output=True, text=True).stdout
                if re.search(r"state (UP|UNKNOWN)", shown):
                    break
                time.sleep(0.02)

    def command(self, host):
        return ["ip", "netns", "exec", self.names[host]]

    def tell(self, line):
        """A line to the wire; returns when it is in force."""
        self.wire.stdin.write(line + "\n")
        self.wire.stdin.flush()
        self.wire.stdout.readline()

    def heal(self):
        """As it was in the beginning."""
        for line in ("loss 2 0", "corrupt 2 0", "duplicate 2 0", "delay 0", "port 2 0"):
            self.tell(line)
        for host, name in enumerate(self.names):
            ip("-n", name, "link", "set", DEVICE, "up")
            self.give_address(host)
        self.wait_for_carrier()

    def flows(self, pids):
        """The established connections between the hosts, (port, rank on host 0, rank on host 1):
        those of data, and those to the rendezvous, which is in rank 0's process. Rank 0 is
        connected to it by its own address, which tells its port. `port` is the one that no other
        connection has: all that a rank accepted share the port of its listening socket.
        @pids: by rank."""
        rows = [row for row in tcp_rows(pids[0]) if row[4] == 1]
        served = {port for row in rows if row[0] == row[2] for port in (row[1], row[3])}
        owners = [(sockets_of(pid), rank) for rank, pid in pids.items()]
        far = [row for pid in pids.values() for row in tcp_rows(pid) if row[4] == 1]
        between = [row for row in rows if row[0] != row[2]]
        uses = collections.Counter(port for row in between for port in (row[1], row[3]))
        flows = ([], [])
        for row in sorted(between):
            ends = [other for other in far if other[1] == row[3] and other[3] == row[1]]
            near_rank = [rank for inodes, rank in owners if row[5] in inodes]
            far_rank = [rank for inodes, rank in owners if ends and ends[0][5] in inodes]
            if near_rank and far_rank:
                port = min(row[3], row[1], key=lambda port: uses[port])
                flows[row[1] in served].append((port, near_rank[0], far_rank[0]))
        return flows

    def close(self):
        if self.wire is not None:
            self.wire.kill()
            self.wire.communicate()
        for name in self.names:
            ip("netns", "del", name, check=False)
