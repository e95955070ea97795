# SPDX-License-Identifier: Apache-2.0
"""`gyre compare` (bench/gyre.c starts it and prints its help): ways to carry out a collective, held against the first
of them over many launches of fresh processes.

    python3 bench/python/compare.py TOOLS_FOLDER --coll all_reduce --candidates ring,tree --out DIR [options]

A launch runs each candidate in a process together with the first one, in turns: A X Y Y X A. The samples of a launch
are one file, so an interrupted comparison goes on where it stopped. compare_search.py finds the best settings of a
library, compare_stats.py judges. Python's own library is enough."""
import argparse
import hashlib
import json
import os
import random
import re
import shlex
import sys
import tempfile
import time
from dataclasses import dataclass, field

import compare_stats as stats
from report import amount, count
from report_runs import HERE, RunError, finish
from report_sources import SourceError, csv_text, read_json, say_written, write_whole

SCHEMA_VERSION = 1
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
BENCH_OF = {"all_reduce": "allreduce", "all_gather": "allgather", "reduce_scatter": "reducescatter",
            "all_to_all": "alltoall", "broadcast": "broadcast", "reduce": "reduce", "gather": "gather",
            "scatter": "scatter"}
ENGINES = ("nccl", "mpi")
SEARCHED = {"nccl-best": "nccl", "gyre-best": "gyre"}
KEPT = ("coll", "candidates", "bytes", "ranks", "launch", "device", "type", "bench", "batch", "search_minutes",
        "nccl_lib")  # options that must be the same when a comparison goes on
COLUMNS = ("coll", "bytes", "candidate", "launches", "samples", "median_us", "lo_us", "hi_us", "p10_us", "p90_us",
           "min_us", "busbw_gbytes_per_s", "ratio", "ratio_lo", "ratio_hi", "p", "p_holm", "verdict")
SYNC = "ranks start each turn together (barrier); a sample ends when its calls are done on the rank; the longest " \
       "over the ranks counts"


@dataclass(frozen=True)
class Setup:
    """How a process must be started for a candidate, and the word of --compare-algos that names it there."""
    word: str
    file: str = ""          # of --algo-file
    pinned: tuple = ()      # options of the compared engine: --nccl-algo Ring
    variables: tuple = ()   # (name, value) for the whole process

    @property
    def engine(self):
        return self.word if self.word in ENGINES else ""

    def fits(self, other):
        """Can one process run both?"""
        return self.variables == other.variables and \
            (not self.file or not other.file or self.file == other.file) and \
            (not self.engine or not other.engine or (self.engine, self.pinned) == (other.engine, other.pinned))


@dataclass
class Process:
    """One start of a bench: some candidates at some sizes. names: candidate -> its setup."""
    names: dict
    sizes: list = field(default_factory=list)

    def command(self, tools, options, path, rounds=2):
        setups = list(dict.fromkeys(self.names.values()))
        engine = next((setup for setup in setups if setup.engine), None)
        file = next((setup.file for setup in setups if setup.file), "")
        words = [os.path.join(tools, BENCH_OF[options.coll]), "-g", str(options.ranks), "-n", str(options.batch),
                 "--device", options.device, "-d", options.type, "--compare-algos",
                 ",".join(setup.word for setup in setups), "--sizes", ",".join(map(str, self.sizes)),
                 "--rounds", str(rounds), "--json", path]
        if file:
            words += ["--algo-file", file]
        if engine is not None:
            words += ["--compare", engine.engine, *engine.pinned]
            words += ["--nccl-lib", options.nccl_lib] if options.nccl_lib and engine.engine == "nccl" else []
        return [*words, *shlex.split(options.bench)]

    def run(self, tools, options, rounds=2):
        """The report of the bench, with the command and the seconds that it took. RunError if it failed."""
        variables = [f"{name}={value}" for name, value in next(iter(self.names.values())).variables]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "bench.json")
            command = self.command(tools, options, path, rounds)
            started = time.monotonic()
            finish([([*shlex.split(options.launch), *(["env", *variables] if variables else []), *command], {})],
                   options.seconds)
            try:
                report = read_json(path)
            except SourceError as error:
                raise RunError(f"the bench left no report on this machine: {error}") from error
        shown = shlex.join([*variables, os.path.basename(command[0]), *command[1:]]).replace(path, "bench.json")
        return {"command": shown, "seconds": round(time.monotonic() - started, 3), "report": report}


def sizes_of(text):
    """8:1G in factors of 4, or a list with commas."""
    def one(word):
        match = re.fullmatch(r"(\d+)([KMG]?)", word)
        if match is None:
            raise argparse.ArgumentTypeError(f"{text}: {word} is no size; expected 8:1G or 8,64K,1M")
        return int(match[1]) * UNITS[match[2]]
    if ":" not in text:
        return list(dict.fromkeys(one(word) for word in text.split(",")))
    first, last = map(one, text.split(":", 1))
    if not 0 < first <= last:
        raise argparse.ArgumentTypeError(f"{text}: the first size is 1 or more and at most the last one")
    found = []
    while first <= last:
        found.append(first)
        first *= 4
    return found


def candidates_of(text):
    names = text.split(",")
    if len(names) < 2 or len(set(names)) != len(names) or not all(names):
        raise argparse.ArgumentTypeError(f"{text}: name at least two candidates, each once")
    return names


def make_parser():
    """The options, whose help is in bench/gyre.c."""
    parser = argparse.ArgumentParser(prog="gyre compare", add_help=False, allow_abbrev=False,
                                     usage="gyre compare --coll NAME --candidates LIST --out DIR [options] "
                                     "(gyre compare --help)")
    parser.add_argument("--coll", choices=sorted(BENCH_OF), required=True)
    parser.add_argument("--candidates", type=candidates_of, required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("-g", "--ranks", type=count, default=2)
    parser.add_argument("--launch", default="")
    parser.add_argument("--bytes", type=sizes_of, default=sizes_of("1K:16M"))
    parser.add_argument("--launches", type=count, default=10)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--search-minutes", type=amount, default=10)
    parser.add_argument("--device", choices=("auto", "host", "cuda"), default="auto")
    parser.add_argument("--type", default="float")
    parser.add_argument("--batch", type=count, default=1)
    parser.add_argument("--nccl-lib", default="")
    parser.add_argument("--bench", default="")
    parser.add_argument("--seconds", type=amount, default=600)
    parser.add_argument("--against")
    return parser


# ---- before the first launch -------------------------------------------------------------------

def say(text):
    print(f"gyre compare: {text}", file=sys.stderr, flush=True)


def proof_of(tools, setup, options, n_ranks):
    """Hash and proof of a candidate's programs. RunError if they are wrong."""
    if setup.word in (*ENGINES, "gyre"):
        return {}
    name, _, _ = setup.word.partition("@")
    shape = ["--file", setup.file] if setup.file else \
        ["--algo", name, "--coll", options.coll, "--ranks", str(n_ranks)]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "proof.json")
        output = finish([([os.path.join(tools, "schedule"), *shape, "--verify", "--json", path], {})], options.seconds,
                        accepts_failure=True)
        refused = re.search(r"^# refused.*", output, re.M)
        if refused or not os.path.exists(path):
            raise RunError(refused.group(0)[2:] if refused else output.strip().split("\n")[-1])
        proofs = read_json(path)["proofs"]
    text = "\n".join(line for line in output.split("\n") if not line.startswith("#"))
    return {"programs_sha256": hashlib.sha256(text.encode()).hexdigest(),
            "proved": all(proof["proved"] for proof in proofs), "same_bits": True}


def prove_and_try(tools, options):
    """The candidates that can run: name -> setup, what is known of each, and why others cannot. A candidate is proved
    and runs once at the least size before anything is timed."""
    setups, facts, refused = {}, {}, {}
    for name in options.candidates:
        word = SEARCHED.get(name, name)
        setup = Setup("file", file=os.path.realpath(word[5:])) if word.startswith("file:") else Setup(word)
        try:
            report = Process({name: setup}, [min(options.bytes)]).run(tools, options, 1)["report"]
            n_ranks = report["settings"]["ranks"]
            facts[name] = {"setup": setup.__dict__, "is_searched": name in SEARCHED,
                           "version": report["settings"].get("reference") if setup.engine else report["gyre_version"],
                           **proof_of(tools, setup, options, n_ranks)}
            setups[name] = setup
            facts["ranks"] = n_ranks
        except RunError as error:
            refused[name] = str(error)
            say(f"{name} is left out: {error}")
    if options.candidates[0] in refused:
        raise SourceError(f"{options.candidates[0]}, which the others are held against, cannot run: "
                          f"{refused[options.candidates[0]]}")
    if len(setups) < 2:
        raise SourceError("nothing is left to compare with " + options.candidates[0])
    return setups, facts, refused


def open_plan(tools, options):
    """The plan of the comparison: a new one, or that of the folder, if it is of the same comparison."""
    path = os.path.join(options.out, "plan.json")
    kept = {key: getattr(options, key) for key in KEPT}
    if os.path.exists(path):
        plan = read_json(path)
        if plan.get("schema_version") != SCHEMA_VERSION or not isinstance(plan.get("options"), dict):
            raise SourceError(f"{path}: is not the plan of a comparison")
        other = next((key for key in KEPT if plan["options"].get(key) != kept[key]), None)
        if other is None and options.seed not in (None, plan["seed"]):
            other, plan["options"]["seed"], kept["seed"] = "seed", plan["seed"], options.seed
        if other is not None:
            raise SourceError(f"{path} is of another comparison: its {other} is {plan['options'].get(other)}, not "
                              f"{kept[other]}; name another --out")
        return plan
    from compare_search import search
    setups, facts, refused = prove_and_try(tools, options)
    plan = {"schema_version": SCHEMA_VERSION, "options": kept, "command": ["gyre", "compare", *sys.argv[2:]],
            "seed": options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 31),
            "ranks": facts.pop("ranks"), "facts": facts, "refused": refused, "searched": {},
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    plan["setups"] = {name: {str(size): setup.__dict__ for size in options.bytes} for name, setup in setups.items()}
    for name in setups:
        if name in SEARCHED:
            found, trials = search(tools, options, SEARCHED[name])
            plan["searched"][name] = trials
            plan["setups"][name] = {str(size): setup.__dict__ for size, setup in found.items()}
    os.makedirs(options.out, exist_ok=True)
    write_whole(path, json.dumps(plan, indent=1) + "\n")
    return plan


# ---- launches ----------------------------------------------------------------------------------

def setup_from(value):
    """A setup of a plan's JSON."""
    return Setup(value["word"], value["file"], tuple(value["pinned"]), tuple(map(tuple, value["variables"])))


def processes_of(plan, sizes, dice):
    """The processes of a launch, in shuffled order. The first candidate runs in each process that it fits into, and
    in one of its own for the rest."""
    names = list(plan["setups"])
    first, groups = names[0], {}
    for size in sizes:
        placed = []  # processes of this size: name -> setup
        for name in dice.sample(names[1:], len(names) - 1):
            setup = setup_from(plan["setups"][name][str(size)])
            for process in placed:
                if all(setup.fits(other) and setup.word != other.word for other in process.values()):
                    process[name] = setup
                    break
            else:
                placed.append({name: setup})
        base = setup_from(plan["setups"][first][str(size)])
        is_alone = False
        for process in placed:
            if all(base.fits(other) and base.word != other.word for other in process.values()):
                process[first] = base
            else:
                is_alone = True
        for process in [*placed, *([{first: base}] if is_alone else [])]:
            key = tuple(sorted(process.items(), key=lambda item: item[0]))
            groups.setdefault(key, (process, []))[1].append(size)
    found = [Process(dict(dice.sample(list(process.items()), len(process))), of_sizes)
             for process, of_sizes in groups.values()]
    dice.shuffle(found)
    return found


def cases_of(process, number, report):
    """The samples of a process, by candidate and size."""
    name_of = {setup.word: name for name, setup in process.names.items()}
    is_host = report["settings"]["device"] == "host"
    for row in report["contenders"]:
        n_turns = len(row["turns_us"])
        samples = row["samples_us"]
        of_turn = len(samples) // n_turns
        yield {"candidate": name_of[row["algorithm"]], "process": number, "bytes": row["bytes"],
               "dtype": row.get("type", ""), "protocol": row.get("protocol", ""), "channels": row.get("channels"),
               "calls_in_sample": row["calls_in_sample"],
               # In host memory calls do not end one by one: most are short and a few long, so the mean counts.
               "us": sum(row["turns_us"]) / n_turns if is_host else stats.median(samples),
               "turns": [{"us": us, "samples_ns": [round(1e3 * value) for value in
                                                   samples[turn * of_turn:(turn + 1) * of_turn]]}
                         for turn, us in enumerate(row["turns_us"])]}


def hosts_of(options):
    """The facts of each host. Launchers at times mix the lines of two processes: then all are asked again, five times
    at most. RunError if no line could be read."""
    words = [*shlex.split(options.launch), sys.executable, "-B", os.path.join(HERE, "machine_facts.py")]
    hosts = {}
    for _ in range(5):
        is_whole = True
        for line in finish([(words, {})], options.seconds).splitlines():
            try:
                facts = json.loads(line) if line.startswith("{") else None
            except json.JSONDecodeError:
                is_whole = False
                continue
            if facts is not None:
                hosts[facts["host"]] = facts
        if is_whole:
            break
    else:
        say("the launcher mixes the lines of processes: the statement may lack a host")
    if not hosts:
        raise RunError(f"no process of {shlex.join(words)} printed what its host is")
    return list(hosts.values())


def run_launch(tools, options, plan, number):
    """Runs all processes of one launch. A process that fails is recorded; the others count."""
    dice = random.Random(f"{plan['seed']}:{number}")
    sizes = dice.sample(options.bytes, len(options.bytes))
    processes = processes_of(plan, sizes, dice)
    launch = {"schema_version": SCHEMA_VERSION, "launch": number, "seed": plan["seed"], "coll": options.coll,
              "op": "sum", "n": plan["ranks"], "in_place": False, "sync": SYNC,
              "order": [{"candidates": list(process.names), "sizes": process.sizes} for process in processes],
              "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), 
              "hosts": hosts_of(options),
              "processes": [], "cases": [], "failures": []}
    for at, process in enumerate(processes):
        try:
            done = process.run(tools, options)
            launch["cases"] += cases_of(process, at, done["report"])
            done["report"] = {key: value for key, value in done["report"].items() if key != "contenders"}
            launch["processes"].append(done)
        except RunError as error:
            launch["failures"].append({"candidates": list(process.names), "sizes": process.sizes, "why": str(error)})
            say(f"launch {number}: {', '.join(process.names)} failed: {error}")
    return launch


# ---- the result --------------------------------------------------------------------------------

def row_of(launches, plan, first, name, size):
    """A line of the summary, still without p_holm and verdict; None if the candidate was never timed there."""
    cases = [case for launch in launches for case in launch["cases"]
             if (case["candidate"], case["bytes"]) == (name, size)]
    if not cases:
        return None
    times = [case["us"] for case in cases]
    samples = [value / 1e3 for case in cases for turn in case["turns"] for value in turn["samples_ns"]]
    edges = stats.interval(times) or (None, None)
    n = plan["ranks"]
    factor = {"all_reduce": 2 * (n - 1) / n, "broadcast": 1, "reduce": 1}.get(plan["options"]["coll"], (n - 1) / n)
    row = {"coll": plan["options"]["coll"], "bytes": size, "candidate": name, "samples": len(samples),
           "launches": len(times), "median_us": stats.median(times), "lo_us": edges[0], "hi_us": edges[1],
           "p10_us": stats.quantile(samples, 0.1), "p90_us": stats.quantile(samples, 0.9), "min_us": min(samples),
           "busbw_gbytes_per_s": size / stats.median(times) / 1e3 * factor}
    if name != first:
        pairs = []  # (candidate, first candidate) of each launch that has both: of the same process if they ran in one
        for launch in launches:
            mine, theirs = ([case for case in launch["cases"] if (case["candidate"], case["bytes"]) == (one, size)]
                            for one in (name, first))
            if mine and theirs:
                beside = next((case for case in theirs if case["process"] == mine[0]["process"]), theirs[0])
                pairs.append((mine[0]["us"], beside["us"]))
        row.update(stats.compare(pairs) if pairs else {"ratio": None, "ratio_lo": None, "ratio_hi": None, "p": None})
    return row


def summarize(plan, launches):
    """The summary: a row for each size and candidate, p corrected over all of them."""
    names = list(plan["setups"])
    sizes = sorted({case["bytes"] for launch in launches for case in launch["cases"]})
    rows = [row for size in sizes for name in names
            if (row := row_of(launches, plan, names[0], name, size)) is not None]
    tested = [row for row in rows if row.get("p") is not None]
    for row, p_holm in zip(tested, stats.holm([row["p"] for row in tested])):
        row["p_holm"] = p_holm
    for row in rows:
        if row.get("ratio") is not None:
            row["verdict"] = stats.judge(row)
    return {"schema_version": SCHEMA_VERSION, "kind": "gyre compare", "first": names[0], "seed": plan["seed"],
            "command": plan["command"], "launches": len(launches), "ranks": plan["ranks"], "refused": plan["refused"],
            "collective": plan["options"]["coll"], "facts": plan["facts"], "searched": plan["searched"],
            "failures": [failure for launch in launches for failure in launch["failures"]], "hosts": launches[-1]["hosts"],
            "settings": plan["options"], "rows": rows}


def print_summary(summary):
    print(f"# {summary['collective']} of {summary['ranks']} ranks: {summary['launches']} launches, seed "
          f"{summary['seed']}\n# ratio: time over that of {summary['first']} in the same launch, below 1 is faster; "
          f"median and interval of 95 %\n#{'size':>11} {'candidate':<20} {'us':>10} {'ratio':>7} {'low':>7} {'high':>7} {'p':>9}  verdict")
    for row in summary["rows"]:
        line = f"{row['bytes']:>12} {row['candidate'][-20:]:<20} {row['median_us']:>10.2f}"
        if row.get("ratio") is not None:
            edges = [f"{row[key]:.3f}" if row[key] is not None else "-" for key in ("ratio_lo", "ratio_hi")]
            p = f"{row['p_holm']:.2g}" if row.get("p_holm") is not None else "-"
            line += f" {row['ratio']:>7.3f} {edges[0]:>7} {edges[1]:>7} {p:>9}  {row['verdict']}"
        print(line)
    for name, why in summary["refused"].items():
        print(f"# left out: {name}: {why}")
    if summary["failures"]:
        print(f"# {len(summary['failures'])} processes failed; the files of the launches say why")
    if summary["launches"] < stats.LEAST_LAUNCHES:
        print(f"# no verdicts: they need {stats.LEAST_LAUNCHES} launches or more")


def print_repeat(summary, folder):
    """How the ratios agree with an earlier comparison's."""
    earlier = read_json(os.path.join(folder, "summary.json"))
    if earlier.get("kind") != "gyre compare" or earlier["first"] != summary["first"]:
        raise SourceError(f"{folder}: is no comparison with {summary['first']}")
    n, n_overlap, (gap, row) = stats.repeat(summary["rows"], earlier["rows"])
    if n == 0:
        raise SourceError(f"{folder}: it has no interval of a size and candidate of this comparison")
    print(f"# against {folder}: {n_overlap} of {n} intervals overlap" +
          (f"; the farthest, {row['candidate']} at {row['bytes']} B, is {100 * gap:.2g} % away" if gap > 0 else ""))


def compare(tools, options):
    """Runs the launches that are missing. Returns the paths of the result."""
    plan = open_plan(tools, options)
    launches = []
    for number in range(1, options.launches + 1):
        path = os.path.join(options.out, f"launch_{number:03}.json")
        if os.path.exists(path):
            launches.append(read_json(path))
            continue
        say(f"launch {number} of {options.launches}")
        launches.append(run_launch(tools, options, plan, number))
        write_whole(path, json.dumps(launches[-1]) + "\n")
    summary = summarize(plan, launches)
    if not summary["rows"]:
        raise SourceError(f"{options.out}: nothing could be timed: {summary['failures'][0]['why']}")
    paths = [os.path.join(options.out, name) for name in ("summary.json", "summary.csv")]
    write_whole(paths[0], json.dumps(summary, indent=1) + "\n")
    write_whole(paths[1], csv_text(COLUMNS, (
        {key: "" if value is None else f"{value:.6g}" if isinstance(value, float) else value for key, value in row.items()}
        for row in summary["rows"])))
    print_summary(summary)
    if options.against:
        print_repeat(summary, options.against)
    return paths


def main():
    tools, options = sys.argv[1], make_parser().parse_args(sys.argv[2:])

    def write():
        try:
            return compare(tools, options)
        except RunError as error:
            raise SourceError(str(error)) from error
    return say_written("compare", write)


if __name__ == "__main__":
    sys.exit(main())
