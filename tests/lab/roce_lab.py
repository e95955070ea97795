# SPDX-License-Identifier: Apache-2.0
"""Virtual machines that are joined by a true RoCEv2 wire (Soft-RoCE, the kernel's rdma_rxe).

Each machine is QEMU under plain emulation, so neither KVM nor root is needed on the wire side. It
boots Debian's stock kernel with a small initramfs, mounts this machine's root file system read-only
through 9p, puts a tmpfs over it and runs sshd in it: the machines run the very binaries that stand
here, and what they write is gone when they are. Two machines are joined by a pair of sockets, one for
each rail (eth0 with rxe0, eth1 with rxe1, ...); more machines by a QEMU without a machine that is
nothing but a hub.
"""
import ctypes
import glob
import os
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../bench/python"))
from rails_net import clean_up_when_told_to_end  # noqa: F401, for the programs that use this lab
from report_runs import free_port  # noqa: E402

MODULES = ("virtio_pci virtio_net crc32_generic ib_uverbs rdma_rxe rdma_ucm 9pnet_virtio 9p "
           "overlay sch_netem sch_prio cls_u32 act_gact 8021q").split()
SUBNET = "10.77.0"  # of the first rail; 10.77.R of rail R
SUBNET6 = "fd77::"
GUEST_DIR = "/etc/gyre-lab"

STAGE1 = r"""#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs dev /dev; $b mount -t proc proc /proc; $b mount -t sysfs sys /sys
for m in MODULES; do $b modprobe $m || echo "lab: no module $m"; done
$b mkdir -p /host /rw /newroot
$b mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=512000 host /host || $b sh
$b mount -t tmpfs -o size=75% tmpfs /rw
$b mkdir -p /rw/up /rw/work
$b cp -a /overlay/. /rw/up/
$b mount -t overlay overlay -o lowerdir=/host,upperdir=/rw/up,workdir=/rw/work /newroot || $b sh
for d in dev proc sys; do $b mkdir -p /newroot/$d; $b mount --move /$d /newroot/$d; done
exec $b switch_root /newroot GUEST_DIR/init
"""

STAGE2 = r"""#!/bin/sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
for word in $(cat /proc/cmdline); do case $word in lab.*=*) eval "lab_${word#lab.}";; esac; done
mkdir -p /dev/pts /dev/shm /run /tmp
n=0
while IFS= read -r kept; do
    n=$((n+1)); mkdir -p /lab-kept/$n; mount --bind "$kept" /lab-kept/$n || echo "lab: no $kept"
done <GUEST_DIR/kept
mount -t devpts devpts /dev/pts; mount -t tmpfs tmpfs /dev/shm; mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp; chmod 1777 /tmp /dev/shm; mkdir -p /run/sshd
n=0
while IFS= read -r kept; do
    n=$((n+1)); mkdir -p "$kept"; mount --move /lab-kept/$n "$kept"
done <GUEST_DIR/kept
mkdir -p /lab; mount -t 9p -o rw,trans=virtio,version=9p2000.L,cache=none,msize=512000 lab /lab
hostname vm$lab_id
ip link set lo up
ip link set eth$lab_rails name mgmt0; ip addr add 10.0.2.15/24 dev mgmt0; ip link set mgmt0 up
ip link set eth0 mtu $lab_mtu; sysctl -qw net.ipv6.conf.eth0.accept_dad=0
[ $lab_ipv4 = 0 ] || ip addr add SUBNET.$lab_id/24 dev eth0
ip link set eth0 up
[ $lab_ipv6 = 0 ] || ip addr add SUBNET6$lab_id/64 dev eth0 nodad
for i in $(seq 100); do [ "$(cat /sys/class/net/eth0/carrier 2>/dev/null)" = 1 ] && break; sleep 0.05; done
ulimit -l unlimited
rdma link add rxe0 type rxe netdev eth0 || echo "lab: rdma link add failed"
r=1
while [ $r -lt $lab_rails ]; do
    ip link set eth$r mtu $lab_mtu; ip addr add 10.77.$r.$lab_id/24 dev eth$r; ip link set eth$r up
    rdma link add rxe$r type rxe netdev eth$r || echo "lab: rdma link add failed"
    r=$((r+1))
done
/usr/sbin/sshd -f GUEST_DIR/sshd_config -E /lab/sshd.log
for i in $(seq 100); do grep -qs ACTIVE /sys/class/infiniband/rxe0/ports/1/state && break; sleep 0.05; done
echo "lab: $(cat /sys/class/infiniband/rxe0/ports/1/state 2>&1)"
other=$((lab_id == 1 ? lab_n : 1))
[ $lab_ipv4 = 0 ] && to=SUBNET6$other || to=SUBNET.$other
for i in $(seq 10); do busybox ping -c 1 -W 1 $to >/dev/null 2>&1 && echo "lab: reaches $to" && break; done
echo "lab: READY"
while :; do sleep 1000; done
"""

SSHD_CONFIG = """Port 22
HostKey GUEST_DIR/host_key
AuthorizedKeysFile GUEST_DIR/id.pub
StrictModes no
UsePAM no
UseDNS no
PermitRootLogin yes
PasswordAuthentication no
AcceptEnv GYRE_* NCCL_* UCX_* OMPI_*
MaxStartups 100
Subsystem sftp internal-sftp
"""

SSH_OPTIONS = ("-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR "
               "-o BatchMode=yes -o ConnectTimeout=20 -o GSSAPIAuthentication=no").split()


# Programs that the lab starts, and Debian's packages that have them.
PACKAGES = {"qemu-system-x86_64": "qemu-system-x86", "busybox": "busybox-static",
            "ssh": "openssh-client", "ssh-keygen": "openssh-client", "sshd": "openssh-server",
            "ip": "iproute2", "rdma": "iproute2", "dpkg-deb": "dpkg", "tshark": "tshark"}
ONLY_SOME_CASES = {"tshark"}
# The driver of Soft-RoCE in user space, which is no program.
RXE_DRIVER = "/usr/lib/*/libibverbs/librxe-rdmav*.so"


class Unavailable(Exception):
    """This machine cannot run the lab; the text says why. The caller skips."""


def missing_packages(optional=()):
    """Names of Debian packages that the lab needs and that are not installed."""
    missing = {package for name, package in PACKAGES.items()
               if name not in optional and find_tool(name) is None}
    # busybox runs before the machine has a dynamic linker.
    busybox = find_tool("busybox")
    if busybox is not None and b"ld-linux" in read(busybox)[:4096]:
        missing.add("busybox-static")
    if not glob.glob(RXE_DRIVER):
        missing.add("ibverbs-providers")
    return sorted(missing)


def check_installed():
    missing = missing_packages(ONLY_SOME_CASES)
    if missing:
        raise Unavailable(f"the lab needs what is not installed: apt-get install {' '.join(missing)}")


def folders_to_keep(folders):
    """Of these folders, those that a machine's own /tmp and /run would hide; none within another."""
    kept = []
    for folder in sorted({os.path.realpath(folder) for folder in folders}):
        if folder.startswith(("/dev/", "/proc/", "/sys/")):
            raise Unavailable(f"{folder} is not there on the virtual machines, which have a /dev, "
                              "/proc and /sys of their own: move it elsewhere")
        is_within = any(folder.startswith(outer + "/") for outer in kept)
        if folder.startswith(("/tmp/", "/run/")) and not is_within:
            kept.append(folder)
    return kept


def cache_dir():
    base = os.environ.get("GYRE_LAB_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "gyre-lab")
    os.makedirs(base, exist_ok=True)
    return base


def find_tool(name):
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def tool(name):
    path = find_tool(name)
    if path is None:
        raise Unavailable(f"{name} is not installed: apt-get install {PACKAGES[name]}")
    return path


def kernel():
    """The unpacked kernel package: (vmlinuz, folder of its modules). Downloaded once; it never
    touches the running system."""
    found = glob.glob(os.path.join(cache_dir(), "kernel", "boot", "vmlinuz-*-amd64"))
    if not found:
        tool("dpkg-deb")
        text = subprocess.run(["apt-cache", "depends", "linux-image-amd64"], text=True,
                              capture_output=True).stdout
        names = [l.split()[-1] for l in text.splitlines() if "Depends: linux-image" in l]
        if not names:
            raise Unavailable("apt knows no linux-image-amd64 (run apt-get update)")
        with tempfile.TemporaryDirectory(dir=cache_dir()) as scratch:
            got = subprocess.run(["apt-get", "download", "-qq", names[0]], cwd=scratch, text=True,
                                 capture_output=True)
            debs = glob.glob(scratch + "/*.deb")
            if not debs:
                raise Unavailable(f"apt-get download {names[0]} failed: {got.stderr.strip()[-200:]}")
            subprocess.run(["dpkg-deb", "-x", debs[0], scratch + "/kernel"], check=True)
            shutil.rmtree(os.path.join(cache_dir(), "kernel"), ignore_errors=True)
            os.rename(scratch + "/kernel", os.path.join(cache_dir(), "kernel"))
        found = glob.glob(os.path.join(cache_dir(), "kernel", "boot", "vmlinuz-*-amd64"))
    release = os.path.basename(found[0])[len("vmlinuz-"):]
    return found[0], os.path.join(cache_dir(), "kernel", "lib", "modules", release)


def cpio(entries):
    """A "newc" archive (Documentation/driver-api/early-userspace/buffer-format.rst). entries: name
    -> (mode, bytes); folders first."""
    out = bytearray()

    def add(name, mode, body):
        head = b"070701" + b"".join(b"%08X" % v for v in (
            add.inode, mode, 0, 0, 1, 0, len(body), 0, 0, 0, 0, len(name) + 1, 0))
        out.extend(head + name.encode() + b"\0")
        out.extend(b"\0" * (-len(out) % 4))
        out.extend(body)
        out.extend(b"\0" * (-len(out) % 4))
        add.inode += 1
    add.inode = 1
    folders = set()
    for name in entries:
        parts = name.split("/")[:-1]
        folders.update("/".join(parts[:i + 1]) for i in range(len(parts)))
    for name in sorted(folders | {"dev", "proc", "sys"}):
        add(name, stat.S_IFDIR | 0o755, b"")
    for name, (mode, body) in entries.items():
        add(name, stat.S_IFREG | mode, body)
    add("TRAILER!!!", 0, b"")
    return bytes(out)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def module_closure(modules_dir, names):
    """The files of these modules and of all that they need, by the "depends=" words that each .ko
    carries (no depmod needed); and the names that there are no files for."""
    paths = {os.path.basename(p)[:-3].replace("-", "_"): p
             for p in glob.glob(modules_dir + "/kernel/**/*.ko", recursive=True)}
    ordered, seen = [], set()

    def visit(name):
        name = name.replace("-", "_")
        if name in seen or name not in paths:
            return
        seen.add(name)
        blob = read(paths[name])
        at = blob.find(b"\0depends=")
        words = blob[at + 9:blob.index(b"\0", at + 1)].decode() if at >= 0 else ""
        for word in [w for w in words.split(",") if w]:
            visit(word)
        ordered.append((name, paths[name]))
    for name in names:
        visit(name)
    missing = [n for n in names if n.replace("-", "_") not in paths]
    return ordered, missing


def base_initramfs(modules_dir):
    """busybox and the kernel modules; the same for every run, so it is kept."""
    busybox = tool("busybox")
    release = os.path.basename(modules_dir)
    path = os.path.join(cache_dir(), f"initramfs-{release}-3.cpio")
    if os.path.exists(path):
        return path
    ordered, missing = module_closure(modules_dir, MODULES)
    needed = {"virtio_pci", "virtio_net", "rdma_rxe", "9p", "overlay"} & set(missing)
    if needed:
        raise Unavailable(f"kernel {release} has no {' '.join(sorted(needed))}")
    entries = {"bin/busybox": (0o755, read(busybox))}
    root = f"lib/modules/{release}"
    for name, ko in ordered:
        entries[root + ko[len(modules_dir):]] = (0o644, read(ko))
    for name in ("modules.builtin", "modules.order"):
        if os.path.exists(f"{modules_dir}/{name}"):
            entries[f"{root}/{name}"] = (0o644, read(f"{modules_dir}/{name}"))
    # modprobe reads "file: what it needs, deepest last"
    index = {name: ko[len(modules_dir) + 1:] for name, ko in ordered}
    lines = []
    for name, ko in ordered:
        needs = [index[n] for n, _ in module_closure(modules_dir, [name])[0] if n != name]
        lines.append(f"{index[name]}: {' '.join(reversed(needs))}".rstrip())
    entries[f"{root}/modules.dep"] = (0o644, "\n".join(lines).encode() + b"\n")
    stage1 = STAGE1.replace("MODULES", " ".join(MODULES)).replace("GUEST_DIR", GUEST_DIR)
    entries["init"] = (0o755, stage1.encode())
    scratch = f"{path}.{os.getpid()}"
    with open(scratch, "wb") as f:
        f.write(cpio(entries))
    os.rename(scratch, path)
    return path


def end_with_parent():
    """Should this process be killed without a chance to clean up, its machines go too."""
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Result:
    def __init__(self, name, status, out, seconds):
        self.name, self.status, self.out, self.seconds = name, status, out, seconds


class Lab:
    """N machines vm1..vmN; use with `with`. Every process started here ends with it. They see this
    machine's files but have a /tmp and a /run of their own, in which only the current folder, this
    checkout and the folders in `keep` are."""

    def __init__(self, n_vms=2, mtu=1500, ipv4=True, ipv6=True, rails=1, smp=1, memory_mib=1024,
                 pcap=None, out=None, verbose=False, keep=()):
        if rails > 1 and n_vms != 2:
            raise ValueError("only two machines have several rails")
        self.n_vms, self.mtu, self.ipv4, self.ipv6, self.rails = n_vms, mtu, ipv4, ipv6, rails
        self.smp, self.memory_mib, self.pcap, self.verbose = smp, memory_mib, pcap, verbose
        self.names = [f"vm{i + 1}" for i in range(n_vms)]
        self.out = out
        checkout = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..")
        self.keep = folders_to_keep([os.getcwd(), checkout, *keep])
        self.dir = None
        self.processes = {}
        self.ssh_ports = {}

    # ---- life

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self, limit_s=120):
        check_installed()
        qemu, keygen = tool("qemu-system-x86_64"), tool("ssh-keygen")
        vmlinuz, modules_dir = kernel()
        base = base_initramfs(modules_dir)
        began = time.monotonic()
        self.dir = tempfile.mkdtemp(prefix="gyre-lab.")
        for key in ("id", "host_key"):
            subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-C", "gyre-lab", "-f",
                            f"{self.dir}/{key}"], check=True)
        initrd = f"{self.dir}/initrd"
        with open(initrd, "wb") as f:
            f.write(read(base))
            f.write(cpio(self.overlay()))
        wires = self.wires(qemu)
        for i, name in enumerate(self.names):
            self.boot(qemu, vmlinuz, initrd, i, name, wires[i])
        for name in self.names:
            self.wait_ready(name, began + limit_s)
            self.put_devices_first(name)
        self.start_seconds = time.monotonic() - began

    def stop(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()
        if self.dir:
            if self.out:
                os.makedirs(self.out, exist_ok=True)
                for name in self.names:
                    for log in glob.glob(f"{self.dir}/{name}.console") + glob.glob(
                            f"{self.dir}/{name}/*"):
                        if os.path.isfile(log):
                            shutil.copy(log, f"{self.out}/{name}.{os.path.basename(log)}"
                                        .replace(f"{name}.{name}", name))
            shutil.rmtree(self.dir, ignore_errors=True)
            self.dir = None

    # ---- pieces of start

    def overlay(self):
        def text(words):
            return words.replace("GUEST_DIR", GUEST_DIR).replace("SUBNET6", SUBNET6).replace(
                "SUBNET", SUBNET).encode()
        lines = ["127.0.0.1 localhost", "::1 localhost"]
        for i, name in enumerate(self.names):
            if self.ipv4:
                lines.append(f"{SUBNET}.{i + 1} {name}")
            if self.ipv6:
                lines.append(f"{SUBNET6}{i + 1} {name if not self.ipv4 else name + '-6'}")
        client = f"Host *\n  IdentityFile {GUEST_DIR}/id\n" + "".join(
            f"  {word.replace('=', ' ')}\n" for word in SSH_OPTIONS if word != "-o")
        mca = ("oob_tcp_if_include = eth0\nbtl_tcp_if_include = eth0\nplm_rsh_no_tree_spawn = 1\n"
               "btl = self,vader,tcp\npml = ob1\nmpi_yield_when_idle = 1\nrmaps_base_oversubscribe = 1\n")
        files = {
            f"{GUEST_DIR}/init": (0o755, text(STAGE2)),
            f"{GUEST_DIR}/sshd_config": (0o644, text(SSHD_CONFIG)),
            f"{GUEST_DIR}/host_key": (0o600, read(f"{self.dir}/host_key")),
            f"{GUEST_DIR}/id": (0o600, read(f"{self.dir}/id")),
            f"{GUEST_DIR}/id.pub": (0o644, read(f"{self.dir}/id.pub")),
            f"{GUEST_DIR}/kept": (0o644, "".join(f"{folder}\n" for folder in self.keep).encode()),
            f"{GUEST_DIR}/hostfile": (0o644, "".join(f"{n} slots=8\n"
                                                     for n in self.names).encode()),
            "/etc/hosts": (0o644, "\n".join(lines).encode() + b"\n"),
            "/etc/ssh/ssh_config": (0o644, client.encode()),
            "/etc/openmpi/openmpi-mca-params.conf": (0o644, mca.encode()),
        }
        return {"overlay" + name: body for name, body in files.items()}

    def wires(self, qemu):
        """The -netdev arguments of each machine's eth0, eth1, ... Datagrams: QEMU 7.2's "stream" wire
        can stand still for good, in both directions, after some 80,000 small packets."""
        def dgram(name, local, remote):
            return (f"dgram,id={name},local.type=unix,local.path={self.dir}/{local},"
                    f"remote.type=unix,remote.path={self.dir}/{remote}")
        if self.n_vms == 2:
            return [[dgram(f"wire{rail}", f"wire{rail}{own}", f"wire{rail}{other}")
                     for rail in range(self.rails)] for own, other in ("ab", "ba")]
        args = [qemu, "-M", "none", "-nodefaults", "-display", "none", "-monitor", "none"]
        for i in range(self.n_vms):
            args += ["-netdev", dgram(f"s{i}", f"hub{i}", f"wire{i}"),
                     "-netdev", f"hubport,id=h{i},hubid=0,netdev=s{i}"]
        self.spawn("hub", args)
        return [[dgram("wire0", f"wire{i}", f"hub{i}")] for i in range(self.n_vms)]

    def boot(self, qemu, vmlinuz, initrd, i, name, wires):
        os.mkdir(f"{self.dir}/{name}")
        self.ssh_ports[name] = free_port()
        words = {"id": i + 1, "n": self.n_vms, "mtu": self.mtu, "ipv4": int(self.ipv4),
                 "ipv6": int(self.ipv6), "rails": self.rails}
        cmdline = "console=ttyS0 quiet panic=-1 mitigations=off nokaslr " + " ".join(
            f"lab.{k}={v}" for k, v in words.items())
        nics = [word for rail, wire in enumerate(wires) for word in (
            "-netdev", wire, "-device", f"virtio-net-pci,netdev=wire{rail},"
            f"mac=52:54:00:77:{rail:02x}:{i + 1:02x},host_mtu=9000,romfile=,id=nic{rail}")]
        args = [qemu, "-name", f"{name},debug-threads=on", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", str(self.smp), "-m",
                str(self.memory_mib), "-nodefaults", "-no-user-config", "-display", "none",
                "-no-reboot", "-kernel", vmlinuz, "-initrd", initrd, "-append", cmdline,
                "-serial", f"file:{self.dir}/{name}.console",
                "-monitor", f"unix:{self.dir}/{name}.monitor,server=on,wait=off",
                *nics,
                "-netdev", f"user,id=mgmt,restrict=on,hostfwd=tcp:127.0.0.1:{self.ssh_ports[name]}-:22",
                "-device", "virtio-net-pci,netdev=mgmt,romfile=",
                "-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,"
                "multidevs=remap",
                "-virtfs", f"local,path={self.dir}/{name},mount_tag=lab,security_model=none",
                "-object", "rng-random,id=rng,filename=/dev/urandom", "-device",
                "virtio-rng-pci,rng=rng"]
        if self.pcap and i == 0:
            args += ["-object", f"filter-dump,id=dump,netdev=wire0,file={os.path.abspath(self.pcap)}"]
        self.spawn(name, args)

    def spawn(self, name, args):
        log = open(f"{self.dir}/{name}.qemu", "wb")
        self.processes[name] = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=log,
                                                stderr=log, start_new_session=True,
                                                preexec_fn=end_with_parent)
        log.close()

    def put_devices_first(self, name):
        """A guest that polls keeps a processor here to itself, and its own wire would wait for a
        time slice: make the threads that emulate processors yield to the one that moves packets. Not
        by much, because other programs of this machine would starve them."""
        tasks = f"/proc/{self.processes[name].pid}/task"
        for thread in os.listdir(tasks):
            if read(f"{tasks}/{thread}/comm").startswith(b"CPU "):
                os.setpriority(os.PRIO_PROCESS, int(thread), 5)

    def console(self, name):
        path = f"{self.dir}/{name}.console"
        return read(path).decode(errors="replace") if os.path.exists(path) else ""

    def wait_ready(self, name, until):
        while "lab: READY" not in self.console(name):
            if self.processes[name].poll() is not None:
                words = read(f"{self.dir}/{name}.qemu").decode(errors="replace")[-300:]
                raise Unavailable(f"QEMU of {name} ended: {words.strip()}")
            if time.monotonic() > until:
                raise Unavailable(f"{name} did not come up; its console ends with:\n"
                                  + self.console(name)[-1500:])
            time.sleep(0.05)
        if "ACTIVE" not in self.console(name):
            raise Unavailable(f"rxe0 of {name} is not ACTIVE: {self.console(name)[-800:]}")
        if "reaches" not in self.console(name):
            raise Unavailable(f"{name} does not reach the others")

    # ---- use

    def ssh(self, name, tty=False):
        return ["ssh", "-F", "/dev/null", "-i", f"{self.dir}/id", "-p", str(self.ssh_ports[name]),
                *SSH_OPTIONS, *(["-t"] if tty else []), "root@127.0.0.1"]

    def command(self, words, cwd=None, env=None):
        """A shell line that runs these words in the same folder as here."""
        if not isinstance(words, str):
            words = words[0] if len(words) == 1 else shlex.join(words)
        sets = "".join(f"export {k}={shlex.quote(v)}; " for k, v in (env or {}).items())
        return f"cd {shlex.quote(cwd or os.getcwd())} && {{ {sets}{words}\n}}"

    def on(self, name, words, cwd=None, env=None, limit_s=120):
        """Run on one machine; stdout and stderr together. Never raises for a failing command."""
        began = time.monotonic()
        process = subprocess.Popen([*self.ssh(name), self.command(words, cwd, env)], text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, errors="replace")
        try:
            out, _ = process.communicate(timeout=limit_s)
            status = process.returncode
        except subprocess.TimeoutExpired:
            process.kill()
            out, _ = process.communicate()
            status = 124
        return Result(name, status, out, time.monotonic() - began)

    def on_all(self, words, names=None, **options):
        """The same on several machines at once; results in their order."""
        names = names or self.names
        results = [None] * len(names)

        def one(i):
            results[i] = self.on(names[i], words, **options)
        threads = [threading.Thread(target=one, args=(i,)) for i in range(len(names))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return results

    def mpirun_words(self, words, np=None, options=(), env=None):
        """mpirun over all machines, to be run on vm1."""
        exports = [w for k, v in (env or {}).items() for w in ("-x", f"{k}={v}")]
        hosts = ["--hostfile", f"{GUEST_DIR}/hostfile"] if "-H" not in options else []
        return ["mpirun", "--allow-run-as-root", *hosts, "--map-by", "node", "-np",
                str(np or self.n_vms), *exports, *options, *words]

    def shell(self, name):
        """A session that is opened now, to run lines in later: what a loaded emulated processor
        takes seconds for is the opening. Write lines to .stdin and flush."""
        return subprocess.Popen([*self.ssh(name), "sh"], text=True, stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def monitor(self, name, line):
        """One line to QEMU's monitor, e.g. "set_link nic0 off"."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(5)
            s.connect(f"{self.dir}/{name}.monitor")
            s.sendall(line.encode() + b"\n")
            time.sleep(0.1)

    def power_cut(self, name):
        """The machine is gone between two instructions."""
        self.processes[name].kill()
        self.processes[name].wait()
