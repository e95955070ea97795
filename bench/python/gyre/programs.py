# SPDX-License-Identifier: Apache-2.0
"""Programs of a collective: built, read, proved, predicted and drawn. gyre.h has no functions for that, so the
commands `gyre schedule` and `gyre draw` do the work. docs/schedule.md explains the programs and their text."""
import collections
import contextlib
import json
import os
import re
import subprocess
import tempfile

from .errors import InvalidArgument, ProgramError, ProgramRefused
from .paths import program_path

Prediction = collections.namedtuple(
    "Prediction", "algorithm collective ranks bytes protocol channels tile_bytes time_us algbw_gbytes_per_s "
                  "busbw_gbytes_per_s busiest")
Prediction.__doc__ = "The predicted time of one call. Bandwidths as in docs/read_your_result.md."

_INPUT = re.compile(r"in \d+|out \d+|scratch \d+|(?:from|placed) \d+(?:/\d+)?")
_OUTPUT = re.compile(r"out \d+|scratch \d+|(?:to|into) \d+(?:/\d+)?")
_CHUNKS = re.compile(r"(\d+)(?:-(\d+)(?: by (\d+)(?:/(\d+))?)?)?")
_NAME = re.compile(r"(?:(?!->)[^\s#:,+/]){1,15}")  # a word of the text; gyre's limit is 15 bytes
_HEAD = re.compile(r"^\s*program (\S+) (\w+)\s*\n(?:\s*#.*\n|\s*\n)*\s*ranks (\d+)", re.M)


def _command(program, *arguments, allowed=(0,)):
    """Runs one of gyre's programs; returns (what it printed, what it printed as an error)."""
    done = subprocess.run([program_path(program), *map(str, arguments)], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode not in allowed:
        raise ProgramError((done.stderr or done.stdout).strip() or f"gyre {program} ended with {done.returncode}")
    return done.stdout, done.stderr.strip()


def _words(**options):
    """Options of a command; those that are None are left out."""
    return [word for name, value in options.items() if value is not None for word in (f"--{name}", value)]


def _json_of(program, *arguments, allowed=(0,)):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "result.json")
        _, error = _command(program, *arguments, "--json", path, allowed=allowed)
        try:
            with open(path, encoding="utf-8") as file:
                report = json.load(file)
        except FileNotFoundError:
            report = {}
        if not report.get("proofs") and not report.get("predictions"):
            raise ProgramError(error or f"gyre {program} wrote no result")
        return report


def _predictions(arguments, sizes, cost):
    sizes = [sizes] if isinstance(sizes, (int, str)) else sizes
    found = []
    for size in sizes:
        report = _json_of("schedule", "--predict", *arguments, "--bytes", size, "--cost", cost)
        found += [Prediction(*(row[name] for name in Prediction._fields)) for row in report["predictions"]]
    return found


def predict(collective, ranks=None, algorithm=None, bytes="1M", cost="h200", hosts=None, root=0, fabric=None):
    """Predicts the time of a built-in algorithm, or of all of them: a list of Prediction.
    @bytes: a size such as 4096 or "1M", a range "1K:1G" (in factors of 4), or a list of them.
    @cost: the machine: "host", "h200", or a file that `gyre tune` wrote.
    @hosts: "2x8" for 2 hosts of 8 ranks, and so on; else `ranks` of one host.
    @fabric: a file of switches and links (docs/fabric.md), which names the hosts, too."""
    return _predictions(_words(coll=collective, root=root, ranks=ranks, hosts=hosts, algo=algorithm, fabric=fabric), bytes,
                        cost)


class Verdict:
    """What the verifier found. True if the programs are proved, out of place and in place."""

    def __init__(self, proofs):
        self.proofs = proofs
        refused = [proof for proof in proofs if not proof["proved"]]
        self.is_proved = not refused
        self.finding = refused[0]["reason"] if refused else None

    def __bool__(self):
        return self.is_proved

    def __repr__(self):
        if not self:
            return f"refused: {self.finding}"
        return f"proved out of place and in place; depth {self.proofs[0]['min_depth']} is enough"


class Programs:
    """The programs of all ranks for one shape of a collective, in the text form. str() is that text."""

    def __init__(self, text, hosts=None):
        """@hosts: which ranks share a host, for pictures and predictions: "2x2", "0,0,1,1"."""
        found = _HEAD.search(text)
        if found is None:
            raise InvalidArgument("the text has no program: it begins with the lines \"program NAME COLLECTIVE\" "
                                  "and \"ranks N rank R root R chunks C lanes L depth D\"")
        self.name, self.collective, self.n_ranks = found[1], found[2], int(found[3])
        self._text = text
        self._hosts = _words(hosts=hosts)

    @classmethod
    def read(cls, path, hosts=None):
        """From a file."""
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        except UnicodeDecodeError as error:
            raise InvalidArgument(f"{path} is no text: {error}") from None
        return cls(text, hosts)

    @classmethod
    def of_algorithm(cls, algorithm, collective, ranks=None, hosts=None, root=0):
        """What a built-in algorithm emits."""
        arguments = _words(algo=algorithm, coll=collective, root=root, ranks=ranks, hosts=hosts)
        return cls(_command("schedule", *arguments)[0], hosts)

    def __str__(self):
        return self._text

    def __repr__(self):
        return f"<gyre.Programs: {self.name} {self.collective}, {self.n_ranks} ranks>"

    def _repr_svg_(self):
        return self.svg()

    @contextlib.contextmanager
    def _file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "programs.gyre")
            self.save(path)
            yield path

    def save(self, path):
        """Writes the text, for `--algo-file` of the benches and GYRE_ALGO_FILE."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._text)

    @contextlib.contextmanager
    def active(self):
        """Communicators that are made in the block use these programs where they fit. Their init proves them
        first, and fails with the finding if they are wrong. Changes the environment of the process."""
        before = os.environ.get("GYRE_ALGO_FILE")
        with self._file() as path:
            os.environ["GYRE_ALGO_FILE"] = path
            try:
                yield self
            finally:
                if before is None:
                    del os.environ["GYRE_ALGO_FILE"]
                else:
                    os.environ["GYRE_ALGO_FILE"] = before

    def rounds(self):
        """All ranks side by side, one line for each round."""
        with self._file() as path:
            return _command("schedule", "--file", path, "--rounds")[0]

    def verify(self):
        """Runs the verifier: a Verdict."""
        with self._file() as path:
            return Verdict(_json_of("schedule", "--file", path, "--verify", allowed=(0, 1))["proofs"])

    def prove(self):
        """Raises ProgramRefused, with the finding, unless the verifier accepts the programs."""
        verdict = self.verify()
        if not verdict:
            raise ProgramRefused(verdict.finding)
        return self

    def predict(self, bytes="1M", cost="h200"):
        """A list of Prediction; arguments as predict() of the module."""
        with self._file() as path:
            return _predictions(["--file", path, *self._hosts], bytes, cost)

    def draw(self, path, *options):
        """Writes a page or a picture, by the ending of `path`: .html, .svg or .json. A wrong program is
        drawn too, as far as it runs. @options: further ones of `gyre draw`, such as "--bytes", "1M"."""
        kind = os.path.splitext(path)[1][1:]
        if kind not in ("html", "svg", "json"):
            raise InvalidArgument(f"{path} ends with neither .html, .svg nor .json")
        with self._file() as programs:
            _command("draw", "--file", programs, *self._hosts, f"--{kind}", path, *options)

    def svg(self, *options):
        """The picture of the rounds, side by side, as text."""
        with self._file() as programs:
            return _command("draw", "--file", programs, *self._hosts, "--svg", "-", *options)[0]


class Builder:
    """Writes programs step by step.

        builder = gyre.Builder("mine", "all_reduce", n_ranks=2, n_chunks=1)
        for rank in range(2):
            builder.step(rank, 0, ["in 0"], [f"to {1 - rank}"])
            first, second = ("in 0", "from 1") if rank == 0 else ("from 0", "in 0")
            builder.step(rank, 0, [first, second], ["out 0"], final=True)
        builder.programs().prove()
    """

    def __init__(self, name, collective, n_ranks, n_chunks=1, depth=1, n_lanes=1, root=0):
        """@depth: slots of a FIFO. @n_lanes: sub-FIFOs of a pair of ranks. See docs/schedule.md."""
        if not _NAME.fullmatch(name) or len(name.encode()) > 15:
            raise InvalidArgument(f"{name!r} cannot name programs: a name has 1 to 15 bytes and no blank, "
                                  "'#', ':', ',', '+', '/' or '->'")
        self.name, self.collective, self.n_ranks = name, collective, n_ranks
        self._n_parts = n_chunks * (1 if collective in ("all_reduce", "broadcast", "reduce") else n_ranks)
        self._max_range = 1
        self._numbers = f"root {root} chunks {n_chunks} lanes {n_lanes} depth {depth}"
        self._workers = [collections.defaultdict(list) for _ in range(n_ranks)]

    def step(self, rank, chunk, inputs, outputs, final=False, with_next=False, worker=0):
        """Adds a step: outputs <- reduction of inputs. @chunk: its number, or a range as in the text form: "2-5",
        "0-11 by 8/4". Operands likewise: "in 0", "out 0", "scratch 0", "from 1", "to 1", "placed 1", "into 1";
        of a range they name the first chunk's."""
        if not 0 <= rank < self.n_ranks:
            raise InvalidArgument(f"rank {rank} is not one of {self.n_ranks} ranks")
        for operands, pattern, what in ((inputs, _INPUT, "an input"), (outputs, _OUTPUT, "an output")):
            for operand in operands:
                if not pattern.fullmatch(operand):
                    raise InvalidArgument(f"{operand!r} is not {what} of a step")
        found = _CHUNKS.fullmatch(str(chunk))
        if found is None:
            raise InvalidArgument(f"{chunk!r} is neither the number of a chunk nor a range such as 2-5 or 0-11 by 8/4")
        first, last, stride, run = (int(number or 0) for number in found.groups())
        span = (last - first) % self._n_parts + 1 if found[2] else 1
        n_moved = sum(at % stride < (run or 1) for at in range(span)) if stride else span
        self._max_range = max(self._max_range, n_moved)
        kind = "chunks" if n_moved > 1 else "chunk"
        words = [f"{kind} {chunk if n_moved > 1 else first}: {' + '.join(inputs)} -> {', '.join(outputs)}".rstrip()]
        words += ["final"] if final else []
        words += ["with_next"] if with_next else []
        self._workers[rank][worker].append(" ".join(words))

    def programs(self, hosts=None):
        """What was built."""
        lines, of_range = [], f" range {self._max_range}" if self._max_range > 1 else ""
        for rank, workers in enumerate(self._workers):
            lines += [f"program {self.name} {self.collective}",
                      f"ranks {self.n_ranks} rank {rank} {self._numbers}{of_range}"]
            for worker in sorted(workers):
                lines += [f"worker {worker}", *(f"  {step}" for step in workers[worker])]
            lines.append("end")
        return Programs("\n".join(lines) + "\n", hosts)
