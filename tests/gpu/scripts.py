#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The scripts of this folder without a GPU: how run_clients judges its cases, and that a signal to compare,
run_clients or with_mps ends what the script started. Stand-ins take the place of Python, mpirun and MPS.

    tests/gpu/scripts.py [CASE...]
"""
import os
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "../support"))
from cases import cases_of, check, run_cases
from files import read_text, write_text

LIMIT_S = 100

# Answers as torch_clients.py, torchrun and the programs do; $JOB is what a job does.
PYTHON = """#!/bin/bash
case "$*" in
*--list*) echo first second ;;
*torch.distributed.run* | *_client.py*) eval "$JOB" ;;
esac
"""
MPS_CONTROL = """#!/bin/bash
[ "${1:-}" = -d ] || cat >>"$MPS_LOG"
"""
# One process that obeys, one that is in another session, one that ignores TERM. The last line of $PIDS is theirs.
STAY = """
sleep 600 & pids=$!
setsid sleep 600 & pids+=" $!"
bash -c 'trap "" TERM; while :; do sleep 1; done' & pids+=" $!"
echo $pids >>"$PIDS"
wait
"""


class Rig:
    def __init__(self, folder):
        self.folder, self.pids = folder, os.path.join(folder, "pids")
        self.mps_log = os.path.join(folder, "mps")
        for name, text in (("python", PYTHON), ("mpirun", "#!/bin/bash" + STAY),
                           ("nvidia-cuda-mps-control", MPS_CONTROL), ("nvidia-cuda-mps-server", "#!/bin/bash\n")):
            path = os.path.join(folder, name)
            write_text(path, text)
            os.chmod(path, 0o755)

    def environment(self, **variables):
        names = ("N", "VIA", "MODE", "CASES", "BACKENDS", "LIMIT", "GYRE_SHARE_GPU", "CUDA_MPS_PIPE_DIRECTORY")
        env = {name: value for name, value in os.environ.items() if name not in names}
        env.update(PATH=f"{self.folder}:{env['PATH']}", PYTHON=f"{self.folder}/python", PIDS=self.pids,
                   MPS_LOG=self.mps_log, BACKENDS="gloo", N="2", PATIENCE="2",
                   **variables)
        return env

    def clients(self, job, **variables):
        """What run_clients prints, and its exit status. @job: what each job does."""
        done = subprocess.run([f"{HERE}/run_clients", self.folder], env=self.environment(JOB=job, **variables),
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S)
        return done.stdout, done.returncode

    def end(self, command, **variables):
        """Sends TERM to a script when its command runs; everything must have ended when it has."""
        if os.path.exists(self.pids):
            os.unlink(self.pids)
        with subprocess.Popen(command, env=self.environment(**variables), stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as script:
            until = time.monotonic() + LIMIT_S
            while not (os.path.exists(self.pids) and os.path.getsize(self.pids)) and time.monotonic() < until:
                time.sleep(0.05)
            script.send_signal(signal.SIGTERM)
            status = script.wait(LIMIT_S)
        pids = read_text(self.pids).split()
        # What was killed may take a moment to go; what was not killed stays for LIMIT_S.
        until = time.monotonic() + LIMIT_S / 2
        while any(lives(pid) for pid in pids) and time.monotonic() < until:
            time.sleep(0.05)
        left = [pid for pid in pids if lives(pid)]
        for pid in left:
            os.kill(int(pid), signal.SIGKILL)
        check(len(pids) == 3, f"the command did not start: {pids}")
        check(status == 143, f"status {status}")
        check(not left, f"{len(left)} of {len(pids)} processes still run")


def lives(pid):
    try:
        return read_text(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def expect(output, status, wanted_status, *lines):
    check(status == wanted_status, f"status {status}: {output}")
    for line in lines:
        check(line in output, f"no \"{line}\": {output}")


def case_passed(rig):
    """a case that printed ok and ended with status 0 has passed"""
    expect(*rig.clients("echo first: ok; echo second: ok", CASES="first second"), 0, "2 passed, 0 failed, 0 skipped")


def case_status(rig):
    """a job that fails after its cases printed ok has failed"""
    expect(*rig.clients("echo first: ok; exit 3", CASES="first"), 1, "0 passed, 1 failed",
           'first: FAILED: its job ended with status 3, after it had printed "ok"')
    expect(*rig.clients("echo first: ok; echo second: ok; kill -SEGV $$", CASES="first second"), 1,
           "1 passed, 1 failed", "second: FAILED: its job ended with status 139")
    expect(*rig.clients("echo jax: ok; exit 1", CASES="jax"), 1, "0 passed, 1 failed")


def case_line(rig):
    """a case without a result has failed, whatever the status"""
    expect(*rig.clients("echo first: ok", CASES="first second"), 1, "1 passed, 1 failed",
           "second: FAILED: it printed no result, and its job ended with status 0")
    expect(*rig.clients("echo first: leaks 3 files; exit 1", CASES="first"), 1, "first: leaks 3 files")


def case_skipped(rig):
    """what cannot run is skipped with the reason, and nothing is claimed if that was all"""
    expect(*rig.clients("echo first: skipped: no package", CASES="first"), 77, "1 skipped")
    expect(*rig.clients("echo skipped: no such thing; exit 77", CASES="first"), 77, "first: skipped: no such thing")
    expect(*rig.clients("exit 1", CASES="jax cupy", VIA="nic"), 77, "2 skipped",
           "jax: skipped: one process is one host, and VIA=nic needs two")


def case_parts(rig):
    """run skips a step for which the build lacks a part"""
    build = os.path.join(rig.folder, "build")
    os.makedirs(os.path.join(build, "bench"))
    limits = os.path.join(build, "bench", "limits")
    write_text(limits, "#!/bin/sh\necho 'limits: --json: built without json-c; install it' >&2; exit 1\n")
    os.chmod(limits, 0o755)
    done = subprocess.run([f"{HERE}/run", build], env={**rig.environment(JOB=""), "N": "1"}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S)
    lines = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    results = {rest[:44].strip(): (word, rest[44:].strip()) for word, rest in filter(lambda l: len(l) == 2, lines)}
    check(results.get("limits of the machine") == ("skipped", "built without json-c"), done.stdout)
    check(results.get("the example of docs", ("",))[0] == "FAILED" and done.returncode == 1, done.stdout)


def case_unknown(rig):
    """a case that does not exist is refused by its name"""
    expect(*rig.clients("exit 1", CASES="first third"), 2, "no such case: third")


def case_with_mps(rig):
    """a signal to with_mps ends the command, and then MPS"""
    rig.end([f"{HERE}/with_mps", "bash", "-c", STAY])
    check(read_text(rig.mps_log) == "quit\n", "MPS was not ended")


def case_compare(rig):
    """a signal to compare ends the bench"""
    rig.end([f"{HERE}/compare", f"{rig.folder}/reports", rig.folder], DEVICE="host")


def case_run_clients(rig):
    """a signal to run_clients ends the job"""
    rig.end([f"{HERE}/run_clients", rig.folder], JOB=STAY, CASES="first")


def main():
    cases = cases_of(globals())
    with tempfile.TemporaryDirectory() as folder:
        failed, _ = run_cases([cases[name] for name in sys.argv[1:] or cases], Rig(folder))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
