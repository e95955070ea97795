#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""rails.py leaves no namespace and no process when it is told to end, while it makes its hosts or measures.

    tests/lab/test_rails_ended.py BUILD_DIR

Exit status: 0 good, 1 not, 77 this machine cannot run it.
"""
import os
import signal
import subprocess
import sys
import time


def namespaces_of(pid):
    """The network namespaces that the rails.py of this process made."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return [line.split()[0] for line in listed.splitlines() if line.startswith("rails%d" % pid)]


def pids_in(names):
    """The processes in these namespaces."""
    return [pid for name in names
            for pid in subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()]


def wait_until(process, is_so):
    """Wait until it is so, or the process has ended."""
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and process.poll() is None and not is_so():
        time.sleep(0.05)


def check_end(build, number, is_far_enough):
    """Start rails.py, and end it when it is far enough."""
    rails = os.path.join(os.path.dirname(os.path.realpath(__file__)), "rails.py")
    process = subprocess.Popen([rails, build, "--without-mpi", "--sizes", "1M:64M"], stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
    wait_until(process, lambda: is_far_enough(namespaces_of(process.pid)))
    names = namespaces_of(process.pid)
    pids = pids_in(names)
    process.send_signal(number)
    errors = process.communicate(timeout=100)[1]
    if process.returncode == 77:
        print(errors.strip())
        raise SystemExit(77)
    assert names, "it ended before it had a namespace: " + errors
    assert process.returncode == 128 + number, (process.returncode, errors)
    assert not namespaces_of(process.pid), namespaces_of(process.pid)
    deadline = time.monotonic() + 20
    while any(os.path.exists("/proc/" + pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(os.path.exists("/proc/" + pid) for pid in pids), pids


check_end(sys.argv[1], signal.SIGTERM, lambda names: len(names) >= 1)
check_end(sys.argv[1], signal.SIGTERM, lambda names: len(pids_in(names)) >= 6)
check_end(sys.argv[1], signal.SIGHUP, lambda names: len(pids_in(names)) >= 6)
