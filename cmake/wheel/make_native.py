#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes bench/python/gyre/native.py, gyre.h for ctypes: numbers, structures, functions.

    cmake/wheel/make_native.py            writes the file
    cmake/wheel/make_native.py --check    exit status 1, with the difference, if the file is not up to date

The file is part of the tree, so that the package needs neither a compiler nor gyre.h. It understands the
C that gyre.h is written in. A declaration that it does not understand is an error.
"""
import difflib
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HEADER = os.path.join(ROOT, "core", "gyre.h")
OUTPUT = os.path.join(ROOT, "bench", "python", "gyre", "native.py")
MOST_COLUMNS = 110

# Numbers in C: int, uint32_t, ...
PLAIN = {"bool": "c_bool", "int": "c_int", "unsigned": "c_uint", "double": "c_double", "size_t": "c_size_t",
         "char": "c_char", "uint8_t": "c_uint8", "uint32_t": "c_uint32", "uint64_t": "c_uint64"}
HEAD = '''# SPDX-License-Identifier: Apache-2.0
"""gyre.h for ctypes. Written by cmake/wheel/make_native.py; do not change it by hand."""
import ctypes
'''


class NotUnderstood(Exception):
    """A declaration of gyre.h that this script has no rule for."""


class Header:
    """What gyre.h declares."""

    def __init__(self, text):
        code = re.sub(r"/\*.*?\*/", " ", text, flags=re.S).replace("\\\n", " ")
        self.types = {}  # name in C -> expression in Python
        self.lines = []
        self.functions = []
        self.read_numbers(code)
        self.read_types(code)
        self.read_initialisers(code)
        self.read_functions(code)

    def read_numbers(self, code):
        for name, value in re.findall(r"^#define (GYRE_\w+)[ \t]+(\(?-?\d+\)?)[ \t]*$", code, re.M):
            self.lines.append(f"{name} = {value.strip('()')}")
        version, = re.findall(r"^#define GYRE_VERSION[ \t]+\((.*)\)[ \t]*$", code, re.M)
        self.lines.append(f"GYRE_VERSION = {version}")

    def read_types(self, code):
        declaration = re.compile(
            r"typedef enum (?P<enum>\w+) \{(?P<values>.*?)\}|typedef struct (?P<struct>\w+) \{(?P<fields>.*?)\}"
            r"|typedef struct \w+ (?P<opaque>\*?\w+);|typedef (?P<alias>void \*|unsigned )(?P<name>\w+);", re.S)
        found = list(declaration.finditer(code))
        if len(found) != len(re.findall(r"\btypedef\b", code)):
            raise NotUnderstood("a typedef")
        for match in found:
            if match["enum"]:
                self.types[match["enum"]] = "c_int"
                self.lines += ["", f"# enum {match['enum']}"]
                names, values = zip(*re.findall(r"(\w+) = (\d+)", match["values"]))
                self.lines += wrap("(", names, f") = ({', '.join(values)})")
            elif match["struct"]:
                self.add_struct(match["struct"], match["fields"])
            elif match["opaque"]:  # a handle: the type itself is only named behind a "*"
                self.types[match["opaque"].lstrip("*")] = "c_void_p" if "*" in match["opaque"] else None
            else:
                self.types[match["name"]] = "c_void_p" if "*" in match["alias"] else "c_uint"

    def add_struct(self, name, body):
        fields = []
        for field in filter(None, (part.strip() for part in body.split(";"))):
            pointer = re.fullmatch(r"(.*?)\(\*(\w+)\)\((.*)\)", field, re.S)
            if pointer:
                kinds = [self.type_of(pointer[1]), *self.kinds_of(pointer[3])]
                fields.append(f'("{pointer[2]}", CFUNCTYPE({", ".join(kinds)}))')
                continue
            match = re.fullmatch(r"(.*?)(\w+)(?:\[(\w+)\])?", field, re.S)
            kind = self.type_of(match[1])
            fields.append(f'("{match[2]}", {kind}{f" * {match[3]}" if match[3] else ""})')
        self.lines += ["", "", f"class {name}(ctypes.Structure):", f'    """struct {name}."""']
        self.lines += wrap("    _fields_ = [", fields, "]") + [""]
        self.types[name] = name

    def read_initialisers(self, code):
        self.lines.append("")
        for name, body in re.findall(r"^#define (GYRE_\w+_INIT)\s+\{(.*?)\}", code, re.M | re.S):
            values = [value.strip() for value in body.split(",")]
            values = [re.sub(r"sizeof\((\w+)\)", r"sizeof(\1)", value) for value in values]
            values = [{"NULL": "None", '""': 'b""'}.get(value, value) for value in values]
            self.lines += wrap(f"{name} = (", values)

    def read_functions(self, code):
        for match in re.finditer(r"^GYRE_API ([^;{]*?)(\w+)\(([^;]*)\);", code, re.M):
            returned, name, arguments = match.groups()
            self.functions.append((name, self.type_of(returned), self.kinds_of(arguments)))
        if len(self.functions) != len(re.findall(r"^GYRE_API\b", code, re.M)):
            raise NotUnderstood("a function")

    def kinds_of(self, arguments):
        """The expressions of Python for the types of a function's arguments."""
        parts = [] if arguments.strip() == "void" else arguments.split(",")
        return [self.type_of(re.sub(r"\w+\s*$", "", part)) for part in parts]

    def type_of(self, text):
        """The expression of Python for a type of C."""
        words = text.replace("*", " * ").split()
        stars = words.count("*")
        base = [word for word in words if word not in ("const", "*", "struct", "enum")]
        if len(base) != 1:
            raise NotUnderstood(text)
        name, = base
        if name == "char" and stars == 1:
            return "c_char_p" if "const" in words else "c_void_p"
        if name == "void" and stars == 0:
            return "None"
        if name == "void":
            kind, stars = "c_void_p", stars - 1
        elif name in PLAIN:
            kind = f"{PLAIN[name]}"
        elif name not in self.types:
            raise NotUnderstood(text)
        elif self.types[name] is None:
            kind, stars = "c_void_p", stars - 1
        else:
            kind = self.types[name]
        return "POINTER(" * stars + kind + ")" * stars

    def text(self):
        lines = [*self.lines, "", "# name: (what it returns, its arguments)", "FUNCTIONS = {"]
        for name, returned, kinds in self.functions:
            lines += wrap(f'    "{name}": ({returned}, [', kinds, "]),")
        used = sorted(set(re.findall(r"\b(?:CFUNCTYPE|POINTER|c_\w+|sizeof)\b", "\n".join(lines))))
        lines = [HEAD + "\n".join(wrap("from ctypes import (", used)), "", *lines]
        return re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines + ["}"])) + "\n"


def wrap(head, values, tail=")"):
    """One line, or as many as it takes."""
    line = head + ", ".join(values) + tail
    if len(line) <= MOST_COLUMNS:
        return [line]
    lines = []
    while values:
        n = len(values)
        indent = head if not lines else " " * len(head)
        while len(indent + ", ".join(values[:n])) + len(tail) > MOST_COLUMNS and n > 1:
            n -= 1
        lines.append(indent + ", ".join(values[:n]) + (tail if n == len(values) else ","))
        values = values[n:]
    return lines


def main():
    with open(HEADER, encoding="utf-8") as file:
        text = Header(file.read()).text()
    if sys.argv[1:] == ["--check"]:
        with open(OUTPUT, encoding="utf-8") as file:
            present = file.read()
        sys.stdout.writelines(difflib.unified_diff(present.splitlines(True), text.splitlines(True),
                                                   "native.py", "gyre.h"))
        return 0 if present == text else 1
    if sys.argv[1:]:
        sys.exit(__doc__)
    with open(OUTPUT, "w", encoding="utf-8") as file:
        file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
