# SPDX-License-Identifier: Apache-2.0
"""Programs of gyre as Python values: reads and writes their text (docs/schedule.md), and has them proved."""
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass, field

STEP = re.compile(r"(chunk \d+|chunks [-\d]+(?: by [\d/]+)?): (.+) -> (.+?)((?: final| with_next)*)$")


class Refused(Exception):
    """A file cannot be read or expressed; the text says where and why."""


@dataclass
class Step:
    """chunks: "3", or a range as the text has it. Operands are texts: "in 3", "from 2/1"."""
    chunks: str
    inputs: list
    outputs: list
    flags: str = ""

    @property
    def first(self):
        return int(re.match(r"\d+", self.chunks)[0])

    @property
    def n_chunks(self):
        ends = re.match(r"(\d+)-(\d+)", self.chunks)
        if ends is None:
            return 1
        span, rule = int(ends[2]) - int(ends[1]) + 1, re.search(r"by (\d+)(?:/(\d+))?$", self.chunks)
        if rule is None:
            return span
        stride, run = int(rule[1]), int(rule[2] or 1)
        return sum((i % stride) < run for i in range(span))

    def text(self):
        return f"  chunk{'s' if '-' in self.chunks else ''} {self.chunks}: {' + '.join(self.inputs)} -> " \
               f"{', '.join(self.outputs)}{self.flags}\n"


@dataclass
class Programs:
    """One variant of a shape. ranks: for each rank a list of workers, each a list of steps."""
    name: str
    coll: str
    root: int = 0
    n_chunks: int = 1
    depth: int = 2
    max_range: int = 1
    ranks: list = field(default_factory=list)

    @property
    def lanes(self):
        found = [0]
        for step in self.steps():
            found += [int(ref.partition("/")[2] or 0) for ref in step.inputs + step.outputs]
        return max(found) + 1

    @property
    def is_vector(self):
        return self.coll in ("all_reduce", "broadcast", "reduce")

    def steps(self):
        return (step for workers in self.ranks for steps in workers for step in steps)

    def text(self):
        lanes, words = self.lanes, f" range {self.max_range}" if self.max_range > 1 else ""
        return "".join(
            f"program {self.name} {self.coll}\nranks {len(self.ranks)} rank {rank} root {self.root} chunks "
            f"{self.n_chunks} lanes {lanes} depth {self.depth}{words}\n" +
            "".join(f"worker {number}\n" + "".join(step.text() for step in steps)
                    for number, steps in enumerate(steps for steps in workers if steps)) + "end\n"
            for rank, workers in enumerate(self.ranks))


def parse(text):
    """The shapes of a text, in its order."""
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] == "program" and len(words) == 3:
            name, coll = words[1:]
        elif words[0] == "ranks":
            head = dict(zip(words[::2], map(int, words[1::2])))
            if head["rank"] == 0:
                found.append(Programs(name, coll, head["root"], head["chunks"], head["depth"], head.get("range", 1)))
            found[-1].ranks.append([])
        elif words[0] == "worker":
            found[-1].ranks[-1].append([])
        elif words[0] != "end":
            match = STEP.match(line.strip())
            if match is None:
                raise Refused(f"line {number}: is no step of a program: {line.strip()}")
            found[-1].ranks[-1][-1].append(Step(match[1].split(" ", 1)[1], match[2].split(" + "), match[3].split(", "),
                                                match[4]))
    return found


def verify(tools, text):
    """None if all programs of the text are proved, in place and out of place; else the reason."""
    with tempfile.NamedTemporaryFile("w", suffix=".gyre", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        done = subprocess.run([os.path.join(tools, "schedule"), "--file", file.name, "--rank", "0", "--verify"],
                              capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    reasons = re.findall(r"^# (refused.*|step .*)$", done.stdout, re.M)
    return ": ".join(reasons) or done.stderr.replace(file.name, "the programs").strip()
