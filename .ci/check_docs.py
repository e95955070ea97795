#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rules of the pages: README.md, CHANGELOG.md and docs/**/*.md.

- No line is longer than 110 columns, but for the reports in docs/examples, which a program wrote.
- Every link leads to a file of the tree. `[text](../core/engine/call/batch.c#enqueue)` also names a symbol:
  the file must define `launch`, on a line that begins in the first column, as definitions do. A link
  to a page may name one of its headings.
- Every path from the root of the tree, in text, in code and after `gyre` commands, exists; so does a
  file that is named without its folder, such as `launch.c`.
- Every `name()` and every `gyre_...` in backticks occurs in the sources.
- Every page that a comment of a source file names exists.
- Commands exist as written: programs below build/bench, subcommands of gyre, and their options in the
  sources of bench; scripts that begin a command can be executed; the head of a script names the script
  by its path from the root.

Run by check_tree.py, and by itself:
    python3 .ci/check_docs.py [root]
"""

import os
import re
import subprocess
import sys

MOST_COLUMNS = 110
MADE_BY_PROGRAMS = {"docs/examples/report.md", "docs/examples/report_two_gpus.md"}
FOLDERS = "core|transport|kernels|algorithms|bootstrap|bench|tests|docs|cmake|\\.ci"
# Not after a letter, "/" or ".": build/bench/allreduce and ./bench/allreduce are built files. Not
# after ":" either: COMMIT:docs/... is in the history.
PATH = re.compile(rf"(?<![\w/.~:-])((?:{FOLDERS})/[\w./*-]*[\w*/])(?:#(\w+))?")
FILE = re.compile(r"^[\w-]+\.(?:c|h|cu|cuh|py|sh|cmake|md)$")
LINK = re.compile(r"\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)", re.M)
NAME = re.compile(r"`(gyre_\w+|\w+(?=\(\)))(?:\(\))?`")
SOURCE = (".c", ".h", ".cu", ".cuh", ".cmake", "CMakeLists.txt")
# A command of gyre up to its end: not into a comment, a pipe or the words behind a quotation mark.
COMMAND = re.compile(r"(?:(?:build|\.)/bench/(\w+)|(?<![\w/.-])gyre (?=[a-z]+ --?\w))([^\n`#|;&'\"()]*)")
PROGRAM_OF_OTHERS = re.compile(r"(?:\brun\b|\s)-- .*")
COMMENT = re.compile(r"/\*.*?\*/", re.S)


def run_git(root, *arguments):
    return subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True,
                          check=True).stdout


class Tree:
    """The files of the tree, and what the sources among them define."""

    def __init__(self, root):
        self.root = root
        listed = run_git(root, "ls-files", "-co", "--exclude-standard").split("\n")
        self.files = {p for p in listed if p and os.path.exists(os.path.join(root, p))}
        self.folders = set()
        for path in self.files:
            while path := os.path.dirname(path):
                self.folders.add(path)
        self.names = {os.path.basename(p) for p in self.files}
        self.texts = {}
        self.words = None
        self.options = None

    def text(self, path):
        if path not in self.texts:
            with open(os.path.join(self.root, path), encoding="utf-8") as file:
                self.texts[path] = file.read()
        return self.texts[path]

    def has(self, path):
        path = path.rstrip("/")
        if "*" in path:
            pattern = re.compile(re.escape(path).replace(r"\*", "[^/]*") + "$")
            return any(pattern.match(p) for p in self.files)
        return path in self.files or path in self.folders

    def defines(self, path, symbol):
        code = COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), self.text(path))
        word = re.escape(symbol)
        # A kernel's name follows its launch bounds, on a line of its own.
        kernel = rf"^\s+{word}\(const __grid_constant__"
        return re.search(rf"^[^\s/].*\b{word}\b|^\s*(?:def|class) {word}\b|^{word}\b|{kernel}",
                         code, re.M) is not None

    def knows(self, option):
        """Is it an option of a program in bench?"""
        if self.options is None:
            texts = [self.text(p) for p in self.files
                     if p.startswith("bench/") and p.endswith((".c", ".h", ".py"))]
            self.options = set(re.findall(r'"([a-z][\w-]+)"|--([a-z][\w-]+)', "\n".join(texts)))
            self.options = {word for pair in self.options for word in pair}
        return option in self.options

    def uses(self, word):
        if self.words is None:
            self.words = set()
            for path in self.files:
                if path.endswith((".c", ".h", ".cu", ".cuh", ".txt", ".cmake", ".in")):
                    self.words |= set(re.findall(r"\b[A-Za-z_]\w+", self.text(path)))
        return word in self.words


def slug(heading):
    """The name that a heading of a page has in links."""
    heading = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip().lower())
    return re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")


def check_link(tree, page, target):
    """What is wrong with a link; None if nothing is."""
    if re.match(r"[a-z]+:", target):
        return None
    path, _, symbol = target.partition("#")
    path = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
    if not tree.has(path):
        return f"links to {path}, which does not exist"
    if not symbol:
        return None
    if path.endswith(".md"):
        headings = re.findall(r"^#+ (.*)$", tree.text(path), re.M)
        return None if symbol in map(slug, headings) else f"{path} has no heading #{symbol}"
    return None if tree.defines(path, symbol) else f"{path} does not define {symbol}"


def check_words(tree, text):
    """Yields (position, what is wrong)."""
    for match in PATH.finditer(text):
        path, symbol = match.groups()
        if not tree.has(path):
            yield match.start(), f"{path} does not exist"
        elif symbol and path in tree.files and not path.endswith(".md") \
                and not tree.defines(path, symbol):
            yield match.start(), f"{path} does not define {symbol}"
    for match in re.finditer(r"`([^`\n]+)`", text):
        if FILE.match(match.group(1)) and match.group(1) not in tree.names:
            yield match.start(), f"there is no file {match.group(1)}"
    for match in NAME.finditer(text):
        if not tree.uses(match.group(1)):
            yield match.start(), f"{match.group(1)} is not in the sources"


def check_commands(tree, text):
    """Yields (position, what is wrong)."""
    text = text.replace("\\\n", "  ")  # as long as before
    for match in COMMAND.finditer(text):
        program, rest = match.groups()
        words = PROGRAM_OF_OTHERS.sub("", rest).split()
        is_collective = "bench/collective.c" in tree.files and f'"{program}"' in tree.text("bench/collective.c")
        if program not in (None, "gyre") and f"bench/{program}.c" not in tree.files and not is_collective:
            yield match.start(), f"there is no program build/bench/{program}"
        elif program in (None, "gyre") and words and re.fullmatch("[a-z-]+", words[0]) \
                and f'"{words[0]}"' not in tree.text("bench/gyre.c"):
            yield match.start(), f"there is no command gyre {words[0]}"
        for option in re.findall(r"(?<![\w-])--([a-z][\w-]+)", " ".join(words)):
            if not tree.knows(option):
                yield match.start(), f"no program of bench has --{option}"
    for match in re.finditer(r"^    (?:\$ )?(?:\w+=\S* )*((?:tests|bench|cmake|\.ci)/[\w/.]+)", text, re.M):
        path = os.path.join(tree.root, match.group(1))
        if os.path.isfile(path) and not os.access(path, os.X_OK):
            yield match.start(), f"{match.group(1)} cannot be executed"


def check_heads(tree, complain):
    for path in sorted(tree.files):
        if not path.endswith((".py", ".sh")) and not os.access(os.path.join(tree.root, path), os.X_OK):
            continue
        name = re.escape(os.path.basename(path))
        for number, line in enumerate(tree.text(path).split("\n")[:40], 1):
            if re.match(rf"(?:#  +|  +)(?:[A-Z_]+=\S+ +)*{name}(?= |$)", line):
                complain(f"{path}:{number}", f"this command is {path} from the root")


def check_page(tree, page, complain):
    text = tree.text(page)
    for number, line in enumerate(text.split("\n"), 1):
        if page not in MADE_BY_PROGRAMS and len(line) > MOST_COLUMNS:
            complain(f"{page}:{number}", f"{len(line)} columns; {MOST_COLUMNS} are allowed")

    def complain_at(position, what):
        complain(f"{page}:{text.count(chr(10), 0, position) + 1}", what)

    for match in LINK.finditer(text):
        what = check_link(tree, page, match.group(1) or match.group(2))
        if what is not None:
            complain_at(match.start(), what)
    # What a link leads to was looked at; addresses of other sites are no paths of ours.
    words = re.sub(r"\]\([^)\s]+\)|^\[[^\]]+\]: \S+|https?://\S+",
                   lambda m: " " * len(m.group(0)), text, flags=re.M)
    for check in (check_words, check_commands):
        for position, what in check(tree, words):
            complain_at(position, what)


def check_comments(tree, complain):
    for path in sorted(tree.files):
        if not path.endswith(SOURCE):
            continue
        for match in re.finditer(r"(?<![\w/.:-])docs/[\w./-]+\.\w+", tree.text(path)):
            if not tree.has(match.group(0)):
                line = tree.text(path).count("\n", 0, match.start()) + 1
                complain(f"{path}:{line}", f"{match.group(0)} does not exist")


def check_docs(root, complain):
    """Returns how many pages there are. @complain: gets the place and what is wrong."""
    tree = Tree(root)
    check_comments(tree, complain)
    check_heads(tree, complain)
    pages = sorted(p for p in tree.files if p.endswith(".md")
                   and (p.startswith("docs/") or p in ("README.md", "CHANGELOG.md")))
    for page in pages:
        check_page(tree, page, complain)
    return len(pages)


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..")
    problems = []
    try:
        run_git(root, "rev-parse")
    except (FileNotFoundError, subprocess.CalledProcessError):
        print("skipped: not a git checkout")
        return 77
    n_pages = check_docs(root, lambda where, what: problems.append(f"{where}: {what}"))
    for problem in problems:
        print(problem)
    print(f"check_docs: {n_pages} pages, {len(problems)} violations")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
