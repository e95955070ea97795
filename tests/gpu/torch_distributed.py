#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own tests of torch.distributed, on gyre's libnccl.so.2 and on the NCCL that PyTorch came with.

    tests/gpu/torch_distributed.py BUILD_DIR [TEST...] [--jobs N] [--seconds S] [--json FILE] [--engines gyre,nccl]

The tests are those of the installed wheel (torch.testing._internal.distributed.distributed_test, backend
nccl, two ranks, a GPU each). Several run at once. What fails then is tried again alone, because these
tests have time limits of their own, and the last outcome counts. A test that NCCL passes and gyre does
not is exit status 1; without PyTorch or two GPUs the exit status is 77. `--engines gloo` tries this
script without GPUs.
"""
import argparse
import collections
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time

N_RANKS = 2
LIMIT_S = 120  # of one test
TESTS = "torch.testing._internal.distributed.distributed_test"
NAME_BYTES = 128  # workers take names of this length from one pipe


def run_rank(variables, run, *arguments, **keywords):
    os.environ.update(variables)
    run(*arguments, **keywords)


def make_tests():
    """The class of PyTorch's tests, as its own test_distributed_spawn.py makes it. The ranks are forks of a
    server that has loaded PyTorch: that takes longer than most tests."""
    from torch.testing._internal.distributed import distributed_test

    class Tests(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._spawn_processes()

        def _spawn_processes(self):
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload([TESTS])
            variables = dict(os.environ)
            self._start_processes(lambda target, args, **more: context.Process(
                target=run_rank, args=(variables, target, *args), **more))

    Tests.__qualname__ = "Tests"  # the ranks find the class by its name
    return Tests


if "BACKEND" in os.environ:  # in a worker, and in the ranks that it starts
    Tests = make_tests()


def run_worker(results):
    """Runs the tests whose names come from standard input; a line of JSON each."""
    import unittest
    with open(results, "a", encoding="utf-8") as file:
        while name := os.read(0, NAME_BYTES).decode().strip():
            result, begin = unittest.TestResult(), time.monotonic()
            Tests(name).run(result)
            problems = result.failures + result.errors
            outcome = "failed" if problems else "skipped" if result.skipped else "passed"
            text = problems[0][1] if problems else result.skipped[0][1] if result.skipped else ""
            print(json.dumps({"test": name, "outcome": outcome, "seconds": round(time.monotonic() - begin, 1),
                              "text": text[-3000:]}), file=file, flush=True)


def environment(engine, build, logs):
    more = {"BACKEND": "gloo" if engine == "gloo" else "nccl", "WORLD_SIZE": str(N_RANKS),
            "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": str(LIMIT_S), "OMP_NUM_THREADS": "1",
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}  # the server must not touch CUDA before it forks
    if engine == "gyre":
        # libtorch_cuda.so finds its own libnccl through RPATH, so gyre's is preloaded as well.
        paths = [f"{build}/nccl", build] + list(filter(None, [os.environ.get("LD_LIBRARY_PATH")]))
        more |= {"LD_LIBRARY_PATH": ":".join(paths), "LD_PRELOAD": f"{build}/nccl/libnccl.so.2",
                 "GYRE_DEBUG": "INFO", "GYRE_DEBUG_FILE": f"{logs}/gyre.%p.log"}
    return os.environ | more


class Workers:
    """Processes that run the tests of one engine, and {test: {"outcome", "text"}}."""

    def __init__(self, engine, names, n_jobs, build, logs):
        self.names, self.files, self.processes = names, [], []
        self.todo, names_end = os.pipe()
        os.write(names_end, b"".join(name.encode().ljust(NAME_BYTES) for name in names))
        os.close(names_end)
        for job in range(min(n_jobs, len(names))):
            self.files.append(f"{logs}/{engine}-{len(names)}-{job}.json")
            with open(self.files[-1] + ".log", "ab") as log:
                self.processes.append(subprocess.Popen(
                    [sys.executable, os.path.abspath(__file__), build, "--worker", self.files[-1]], cwd=logs,
                    env=environment(engine, build, logs), stdin=self.todo, stdout=log, stderr=log,
                    start_new_session=True))

    def wait(self, until):
        """At `until` no further test begins; those that run have their own limits."""
        while time.monotonic() < until and any(process.poll() is None for process in self.processes):
            time.sleep(0.2)
        while os.read(self.todo, NAME_BYTES):
            pass
        os.close(self.todo)
        for process in self.processes:
            try:
                process.wait(2 * LIMIT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
        outcomes = {name: {"outcome": "not run", "text": ""} for name in self.names}
        for path in filter(os.path.exists, self.files):
            with open(path, encoding="utf-8") as file:
                outcomes |= {line.pop("test"): line for line in map(json.loads, file)}
        return outcomes


def run_engines(engines, names, n_jobs, until, build, logs):
    """{engine: outcomes}; all engines at once, then what failed, one test of each engine at a time."""
    workers = {engine: Workers(engine, names, n_jobs, build, logs) for engine in engines}
    outcomes = {engine: workers[engine].wait(until) for engine in engines}
    again = {engine: [name for name in names if outcomes[engine][name]["outcome"] == "failed"] for engine in engines}
    for engine in engines:
        print(f"{engine:5} {len(again[engine])} failed at first:", *again[engine], flush=True)
    while any(again.values()) and time.monotonic() < until:
        alone = {engine: Workers(engine, [again[engine].pop()], 1, build, logs) for engine in engines if again[engine]}
        for engine, worker in alone.items():
            outcomes[engine] |= worker.wait(until)
    for engine in engines:
        counts = collections.Counter(result["outcome"] for result in outcomes[engine].values())
        print(f"{engine:5}", *(f"{counts[how]:4} {how}" for how in ("passed", "skipped", "failed", "not run")),
              flush=True)
    return outcomes


def list_tests(engine, build):
    """The names of all tests but for those that this backend and number of ranks leave out."""
    done = subprocess.run([sys.executable, os.path.abspath(__file__), build, "--list"],
                          env=environment(engine, build, os.devnull), stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.split()


def why_not(engines, build):
    """The reason why nothing can run here; None if there is none."""
    try:
        import torch
        import expecttest  # noqa: F401, PyTorch's tests need it
    except (ImportError, OSError) as error:
        return f"no PyTorch with its tests here: {error}"
    n_gpus = torch.cuda.device_count()
    if "gloo" not in engines and n_gpus < N_RANKS:
        return f"{n_gpus} GPUs that PyTorch sees, {N_RANKS} are needed"
    if "gyre" in engines and not os.path.exists(f"{build}/nccl/libnccl.so.2"):
        return f"no {build}/nccl/libnccl.so.2: build first"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("tests", nargs="*", metavar="TEST")
    parser.add_argument("--engines", default="gyre,nccl")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 4),
                        help="tests of an engine at once")
    parser.add_argument("--seconds", type=float, default=3600, help="after these no test begins")
    parser.add_argument("--json", help="all outcomes, with the text of what failed")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--list", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_intermixed_args()
    if options.worker:
        run_worker(options.worker)
        return 0
    if options.list:
        print("\n".join(name for name in dir(Tests) if name.startswith("test_") and
                        not getattr(getattr(Tests, name), "__unittest_skip__", False)))
        return 0
    build, engines = os.path.abspath(options.build), options.engines.split(",")
    reason = why_not(engines, build)
    if reason:
        print(f"skipped: {reason}")
        return 77
    all_names = list_tests(engines[-1], build)
    names = options.tests or all_names
    unknown = set(names) - set(all_names)
    if unknown:
        parser.error(f"no such test for {N_RANKS} ranks: {' '.join(sorted(unknown))}")
    logs = tempfile.mkdtemp(prefix="torch-distributed-")
    print(f"{len(names)} tests of {TESTS}, logs in {logs}", flush=True)
    outcomes = run_engines(engines, names, options.jobs, time.monotonic() + options.seconds, build, logs)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(outcomes, file, indent=1)
    n_worse = 0
    for name in names:
        found = {engine: outcomes[engine][name] for engine in engines}
        if {result["outcome"] for result in found.values()} in ({"passed"}, {"skipped"}):
            continue
        n_worse += found.get("nccl", {}).get("outcome") == "passed"
        for engine, result in found.items():
            last_line = (result["text"].strip().splitlines() or [""])[-1][:300]
            print(f"{name}: {engine}: {result['outcome']} {last_line}")
    if "gyre" in engines and not any(b"GYRE INFO communicator " in read(f"{logs}/{name}")
                                     for name in os.listdir(logs) if name.startswith("gyre.")):
        print("FAILED: gyre made no communicator")
        return 1
    return 1 if n_worse else 0


def read(path):
    with open(path, "rb") as file:
        return file.read()


if __name__ == "__main__":
    sys.exit(main())
