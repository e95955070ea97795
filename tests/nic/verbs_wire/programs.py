#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs of others over the stand-in RDMA device, and the life of its NIC process.

    tests/nic/verbs_wire/programs.py BUILD_DIR [CASE...]

A case is a function case_*; its docstring is a sentence that is true when it passes. Exit status: 0, 1 if a
case failed, 77 if nothing can run here. perftest and ibverbs-utils are Debian's packages of these names.
"""
import ctypes
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../support"))
from cases import Failed, Skipped, cases_of, check, run_cases

SKIPPED = 77
LIMIT_S = 60

# What NCCL 2.28 looks up by dlvsym, as its warnings and public sources name it.
NCCL_SYMBOLS = {"IBVERBS_1.1": """ibv_get_device_list ibv_free_device_list ibv_get_device_name ibv_open_device
ibv_close_device ibv_get_async_event ibv_ack_async_event ibv_query_device ibv_query_port ibv_query_gid
ibv_query_qp ibv_alloc_pd ibv_dealloc_pd ibv_reg_mr ibv_dereg_mr ibv_create_cq ibv_destroy_cq ibv_create_qp
ibv_modify_qp ibv_destroy_qp ibv_fork_init ibv_event_type_str""", "IBVERBS_1.0": """ibv_create_comp_channel
ibv_destroy_comp_channel""", "IBVERBS_1.8": "ibv_reg_mr_iova2", "IBVERBS_1.10": "ibv_query_ece ibv_set_ece",
                "IBVERBS_1.12": "ibv_reg_dmabuf_mr"}

# Opens the first device, says so, and stays until its input ends.
OPENER = """
import ctypes, sys
verbs = ctypes.CDLL("libibverbs.so.1")
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
verbs.ibv_open_device.restype = ctypes.c_void_p
devices = verbs.ibv_get_device_list(None)
print("open" if verbs.ibv_open_device(ctypes.c_void_p(devices[0])) else "closed", flush=True)
sys.stdin.read()
"""


class Rig:
    def __init__(self, build):
        self.verbs = f"{build}/tests/verbs"
        self.n_jobs = 0

    def job(self, **variables):
        """The environment of a new job."""
        drop = ("GYRE_", "NCCL_", "VERBS_WIRE_", "LD_PRELOAD")
        env = {k: v for k, v in os.environ.items() if not k.startswith(drop)}
        self.n_jobs += 1
        return {**env, "LD_LIBRARY_PATH": self.verbs, **variables,
                "VERBS_WIRE_JOB": f"programs-{os.getpid()}-{self.n_jobs}"}

    def opener(self, env):
        return subprocess.Popen([sys.executable, "-c", OPENER], env=env, text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def nics_of(env):
    """Process numbers of the job's NICs."""
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as file:
                words = file.read().decode(errors="replace").split("\0")
        except OSError:
            continue
        if words[0].endswith("/verbs_nic") and env["VERBS_WIRE_JOB"] in words[1:2]:
            found.append(int(path.split("/")[2]))
    return found


def wait_until_gone(env):
    """Until the job has no NIC and no file."""
    path = f"/dev/shm/verbs_wire.{os.geteuid()}.{env['VERBS_WIRE_JOB']}"
    until = time.monotonic() + LIMIT_S
    while (nics_of(env) or os.path.exists(path)) and time.monotonic() < until:
        time.sleep(0.02)
    check(not nics_of(env), f"NICs {nics_of(env)} stay")
    check(not os.path.exists(path), f"{path} stays")


def pair(rig, program, options, **variables):
    """Runs the two ends of a program on two hosts, and returns what they print."""
    if shutil.which(program) is None:
        raise Skipped(f"{program} is not installed")
    env = rig.job(**variables)
    port = str(20000 + os.getpid() % 12000 + rig.n_jobs)
    words = [program, "-d", "wire0", "-p", port, *options.split()]
    server = subprocess.Popen(words, env={**env, "VERBS_WIRE_HOST": "1"}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        until = time.monotonic() + LIMIT_S
        while not is_listening(int(port)) and server.poll() is None:
            check(time.monotonic() < until, f"{program} does not listen")
            os.sched_yield()
        done = subprocess.run([*words, "127.0.0.1"], env={**env, "VERBS_WIRE_HOST": "2"}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S)
        check(done.returncode == 0, f"{program}: {done.stdout[-1500:]}")
        out = server.communicate(timeout=LIMIT_S)[0]
        check(server.returncode == 0, f"{program}, the server: {out[-1500:]}")
        return done.stdout
    finally:
        server.kill()
        server.wait()


def is_listening(port):
    """Is there a TCP socket in state LISTEN (0A)?"""
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        if os.path.exists(path) and re.search(rf":{port:04X} \S+ 0A ", open(path).read()):
            return True
    return False


def case_symbols(rig):
    """every function that NCCL looks up is there in the version that NCCL asks for"""
    verbs = ctypes.CDLL(f"{rig.verbs}/libibverbs.so.1")
    find = ctypes.CDLL(None).dlvsym
    find.restype = ctypes.c_void_p
    find.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
    for version, names in NCCL_SYMBOLS.items():
        for name in names.split():
            check(find(verbs._handle, name.encode(), version.encode()), f"no {name} {version}")
    check(not find(verbs._handle, b"ibv_reg_mr", b"IBVERBS_1.8"), "any version is found")


def case_one_nic(rig):
    """of programs that open devices at the same time, one starts the NIC of their host"""
    env = rig.job()
    openers = [rig.opener(env) for _ in range(6)]
    try:
        check([opener.stdout.readline() for opener in openers] == ["open\n"] * 6, "not all are open")
        check(len(nics_of(env)) == 1, f"NICs {nics_of(env)}")
        other = rig.opener({**env, "GYRE_HOSTID": "another"})
        openers.append(other)
        check(other.stdout.readline() == "open\n" and len(nics_of(env)) == 2, f"{nics_of(env)}")
    finally:
        for opener in openers:
            opener.communicate()
    wait_until_gone(env)


def case_killed(rig):
    """the NIC and the file of a job go when all its programs were killed"""
    env = rig.job()
    openers = [rig.opener(env) for _ in range(2)]
    check([opener.stdout.readline() for opener in openers] == ["open\n"] * 2, "not all are open")
    check(len(nics_of(env)) == 1, f"NICs {nics_of(env)}")
    for opener in openers:
        opener.send_signal(signal.SIGKILL)
        opener.wait()
    wait_until_gone(env)


def case_devices(rig):
    """ibv_devinfo shows two ports whose speed fits the rate"""
    if shutil.which("ibv_devinfo") is None:
        raise Skipped("ibv_devinfo is not installed")
    env = rig.job(VERBS_WIRE_GBIT="wire0=200;wire1=40")
    out = subprocess.run(["ibv_devinfo", "-v"], env=env, text=True, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, timeout=LIMIT_S).stdout
    check(out.count("PORT_ACTIVE") == 2 and "::ffff:10.77.1.1" in out, out)
    # 50 Gbit/s on 4 lanes; 10 Gbit/s on 4 lanes.
    check("50.0 Gbps" in out and "10.0 Gbps" in out and out.count("4X") == 2, out)


def case_latency(rig):
    """a message of ibv_rc_pingpong takes at least the latency that is set, each way"""
    out = pair(rig, "ibv_rc_pingpong", "-g 3 -n 20", VERBS_WIRE_US="3000")
    found = re.search(r"= ([\d.]+) usec/iter", out)
    check(found and float(found[1]) >= 2 * 3000, out)


def case_rates(rig):
    """ib_write_bw, ib_send_bw and ib_read_bw get no more than the rate that is set"""
    for program, gbit, n in (("ib_write_bw", 1, 200), ("ib_write_bw", 10, 1000), ("ib_send_bw", 2, 200),
                             ("ib_read_bw", 2, 200)):
        options = f"-x 3 -s 65536 -n {n} -F --report_gbits"
        out = pair(rig, program, options, VERBS_WIRE_GBIT=str(gbit))
        row = re.search(r"^ *65536 +\d+ +[\d.]+ +([\d.]+)", out, re.M)
        check(row, out)
        print(f"     {program} at {gbit} Gbit/s: {row[1]} Gbit/s")
        check(0 < float(row[1]) <= gbit * 1.02, out)


def main():
    rig = Rig(os.path.realpath(sys.argv[1]))
    if not os.path.exists(f"{rig.verbs}/verbs_nic"):
        print("built without RDMA")
        return SKIPPED
    cases = cases_of(globals())
    failed, skipped = run_cases([cases[name] for name in sys.argv[2:] or cases], rig)
    if skipped and not failed:
        print(skipped[0])
        return SKIPPED
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
