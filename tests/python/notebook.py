#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the code of docs/examples/notebook.ipynb, cell by cell in one interpreter, without Jupyter.

    tests/python/notebook.py BUILD_DIR SOURCE_DIR
        every cell must run and print what the notebook shows
    tests/python/notebook.py BUILD_DIR SOURCE_DIR --write     puts what the cells print into the notebook

Pictures are not compared, and neither is the text of a cell with the tag "figures": predicted times change
with the cost model. Exits 77 without NumPy.
"""
import ast
import contextlib
import io
import json
import os
import sys

from common import need_package, skip, use_package_of

NAME = os.path.join("docs", "examples", "notebook.ipynb")


def lines_of(text):
    return text.splitlines(keepends=True)


def run_cell(source, names):
    """Returns the outputs of a cell, in the notebook's format: what was printed, then the last value."""
    tree = ast.parse(source)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)
        value = eval(compile(last, "cell", "eval"), names) if last is not None else None
    outputs = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": lines_of(printed.getvalue())})
    if value is not None:
        data = {"text/plain": lines_of(repr(value))}
        if hasattr(value, "_repr_svg_"):
            data["image/svg+xml"] = lines_of(value._repr_svg_())
        outputs.append({"data": data, "metadata": {}, "output_type": "display_data"})
    return outputs


def text_of(outputs):
    """What a reader can compare: the text, without pictures."""
    return "".join("".join(out.get("text", out.get("data", {}).get("text/plain", []))) for out in outputs)


def run(notebook, is_written):
    names = {"__name__": "__main__"}
    n_run = 0
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] != "code":
            continue
        n_run += 1
        try:
            outputs = run_cell("".join(cell["source"]), names)
        except Exception as error:
            if "built without json-c" in str(error):
                skip("the programs were built without json-c")
            raise AssertionError(f"cell {number} fails:\n{''.join(cell['source'])}") from error
        if is_written:
            cell["outputs"], cell["execution_count"] = outputs, n_run
        elif "figures" in cell["metadata"].get("tags", []):
            assert bool(text_of(outputs)) == bool(text_of(cell["outputs"])), f"cell {number}"
        else:
            found, due = text_of(outputs), text_of(cell["outputs"])
            assert found == due, f"cell {number} prints\n{found}\nbut the notebook shows\n{due}\n(--write changes it)"
    assert n_run >= 5, "the notebook has lost its code"
    return n_run


def main():
    need_package("numpy", "python3-numpy")
    use_package_of(sys.argv[1])
    path = os.path.join(sys.argv[2], NAME)
    with open(path, encoding="utf-8") as file:
        notebook = json.load(file)
    is_written = sys.argv[3:] == ["--write"]
    n_run = run(notebook, is_written)
    if is_written:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(notebook, file, indent=1, ensure_ascii=False)
            file.write("\n")
    print(f"{n_run} cells ran")


if __name__ == "__main__":
    main()
