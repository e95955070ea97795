# SPDX-License-Identifier: Apache-2.0
"""`gyre reproduce` (bench/gyre.c starts it and prints its help): claims of papers, worked out again.

    python3 bench/python/reproduce.py TOOLS_FOLDER [options] [NAME...]

A figure is a file of figures/: PAPER, CLAIM, INEQUALITY (fixed before anything is worked out), EVIDENCE (what kind
of result it is), MINUTES, and run(), which returns a Result. Its first line says whether the claim showed."""
import argparse
import importlib
import os
import sys

from report import find_python
from report_sources import csv_text, say_written, write_whole

FOLDER = os.path.join(os.path.dirname(os.path.realpath(__file__)), "figures")
NEEDED = ("matplotlib",)


def names():
    return sorted(name[:-3].replace("_", "-") for name in os.listdir(FOLDER)
                  if name.endswith(".py") and name != "result.py")


def figure(name):
    sys.path[:0] = [FOLDER] if FOLDER not in sys.path else []
    return importlib.import_module(name.replace("-", "_"))


def first_line(result):
    if result.cannot:
        return f"*cannot be tested here: {result.cannot}*"
    return f"*{'showed' if result.showed else 'did not show'}*: {result.found}"


def chart(module, name, result):
    """The bytes of the chart, or None where matplotlib is missing or there is nothing to draw."""
    if not result.curves:
        return None
    try:
        import report_charts
    except ImportError:
        return None
    curves = [report_charts.Curve(label, *zip(*points), style=report_charts.LIMIT if label.startswith("bound")
                                  else report_charts.PREDICTED) for label, points in result.curves.items()]
    return report_charts.draw_file(curves, f"{name}: {module.PAPER}", result.y_label, "svg", result.x_label)


def page(module, name, result, has_chart):
    cells = [[f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row] for row in result.rows]
    lines = [first_line(result), "", f"# {name}", "", f"- Paper: {module.PAPER}", f"- Claim: {module.CLAIM}",
             f"- What counts as shown, fixed before: {module.INEQUALITY}", f"- Kind of evidence: {module.EVIDENCE}",
             f"- Command: `gyre reproduce {name}`", ""]
    lines += [f"![{name}]({name}.svg)", ""] if has_chart else \
        ["No chart: matplotlib is missing (`gyre plot --install`).", ""] if result.curves else []
    if result.rows:
        lines += [f"| {' | '.join(row)} |" for row in [result.columns, ["---"] * len(result.columns), *cells]]
    return "\n".join(lines) + "\n"


def reproduce(tools, name, folder):
    """Returns the paths that were written."""
    module = figure(name)
    result = module.run(tools)
    print(f"{name}: {first_line(result)}", flush=True)
    path = os.path.join(folder, name)
    picture = chart(module, name, result)
    written = {".csv": csv_text(result.columns, ([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row]
                                                  for row in result.rows)),
               ".md": page(module, name, result, picture is not None)}
    if picture is not None:
        written[".svg"] = picture
    for ending, data in written.items():
        write_whole(path + ending, data)
    return [path + ending for ending in written]


def main():
    parser = argparse.ArgumentParser(prog="gyre reproduce", add_help=False, allow_abbrev=False,
                                     usage="gyre reproduce [--output FOLDER] [NAME...] (gyre reproduce --help)")
    parser.add_argument("names", nargs="*")
    parser.add_argument("-o", "--output", default=".")
    tools, options = sys.argv[1], parser.parse_args(sys.argv[2:])
    if not options.names:
        for name in names():
            print(f"{name:<14} {figure(name).PAPER}: {figure(name).CLAIM}")
        return 0
    unknown = [name for name in options.names if name != "all" and name not in names()]
    if unknown:
        parser.error(f"there is no figure {unknown[0]}; there are: all, {', '.join(names())}")
    python = find_python(NEEDED)
    if python not in (None, sys.executable):
        os.execv(python, [python, "-B", *sys.argv])

    def write():
        os.makedirs(options.output, exist_ok=True)
        return [path for name in (names() if "all" in options.names else options.names)
                for path in reproduce(tools, name, options.output)]
    return say_written("reproduce", write)


if __name__ == "__main__":
    sys.exit(main())
