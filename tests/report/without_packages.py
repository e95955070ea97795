# SPDX-License-Identifier: Apache-2.0
"""Starts gyre report or gyre plot as on a machine where no Python has matplotlib and Jinja2.

    python3 tests/report/without_packages.py FOLDER_OF_BENCH_PYTHON COMMAND [arguments]
"""
import importlib
import sys

folder, name, *arguments = sys.argv[1:]
sys.path.insert(0, folder)
import report

report.has_packages = lambda python, needed: False
sys.argv = [f"{name}.py", "/no/tools", *arguments]
sys.exit(importlib.import_module(name).main())
