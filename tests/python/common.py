# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Python package share: how they find it, how they skip, what a refusal is."""
import os
import subprocess
import sys

SYSTEM_PYTHON = "/usr/bin/python3"


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def use_package_of(build):
    """Makes `import gyre` find the package of a build folder, as PYTHONPATH=$PWD/build/python does."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.path.join(os.path.abspath(build), "python"))


def need_package(name, debian):
    """A package of Python, from this interpreter or from Debian's, which then starts the test again."""
    try:
        __import__(name)
        return
    except ImportError:
        pass
    if sys.executable != SYSTEM_PYTHON and subprocess.run(
            [SYSTEM_PYTHON, "-c", f"import {name}"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
        os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])
    skip(f"no Python here has {name} ({debian})")


def run_named(names):
    """The case_* function that the first argument names. @names: the module's globals()."""
    cases = {name[5:]: function for name, function in names.items() if name.startswith("case_")}
    if sys.argv[1] not in cases:
        sys.exit(f"{names['__doc__']}\ncases: {', '.join(cases)}")
    cases[sys.argv[1]]()
    print(f"{sys.argv[1]}: ok")


def refused(kind, words, function, *arguments, **keywords):
    """Checks that a call raises this exception, and that its text has all these words."""
    try:
        function(*arguments, **keywords)
    except kind as error:
        for word in words:
            assert word in str(error), (word, str(error))
        return error
    raise AssertionError(f"{words}: nothing was raised")
