# SPDX-License-Identifier: Apache-2.0
"""Finds a Python that has the packages of gyre report or gyre plot, and installs them on request. This
file needs Python's own library alone."""
import os
import shutil
import subprocess
import sys
from collections import namedtuple

Package = namedtuple("Package", "pip debian")
PACKAGES = {"matplotlib": Package("matplotlib", "python3-matplotlib"),  # by the name of the module
            "jinja2": Package("Jinja2", "python3-jinja2")}
SYSTEM_PYTHON = "/usr/bin/python3"
PROBE_SECONDS = 60     # until an import of the packages has ended
INSTALL_SECONDS = 900  # for each step of --install


def venv_folder():
    """Where --install puts the packages."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(cache, "gyre", "report-venv")


def has_packages(python, needed):
    """Can this interpreter import all these packages?"""
    # Without the current folder: a folder there that is called matplotlib is not the package.
    code = "import sys; sys.path = [path for path in sys.path if path]; import " + ", ".join(needed)
    command = [python, "-c", code]
    try:
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              timeout=PROBE_SECONDS, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def install(command_name):
    """Makes the virtual environment, with the packages of all commands. Returns the exit status."""
    folder = venv_folder()
    python = os.path.join(folder, "bin", "python3")
    for command in ([sys.executable, "-m", "venv", folder],
                    [python, "-m", "pip", "install", "--quiet", *(package.pip for package in PACKAGES.values())]):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS,
                                  check=False)
            problem = (done.stderr or done.stdout).strip() if done.returncode != 0 else ""
        except (OSError, subprocess.TimeoutExpired) as error:
            problem = str(error)
        if problem:
            print(f"gyre {command_name} --install: {' '.join(command)} failed:\n{problem}\n"
                  "(on Debian and Ubuntu venv is in the package python3-venv)", file=sys.stderr)
            shutil.rmtree(folder, ignore_errors=True)  # a half-made one would be taken for whole
            return 1
    print(f"matplotlib and Jinja2 are in {folder}; remove that folder to undo this")
    return 0


def absent_text(command_name, needed):
    """What to do where no Python has the packages."""
    names = " and ".join(PACKAGES[module].pip for module in needed)
    return (f"gyre {command_name}: {names} {'are' if len(needed) > 1 else 'is'} needed, for gyre report and gyre "
            f"plot alone: run\n    apt-get install {' '.join(PACKAGES[module].debian for module in needed)}\n"
            f"or, without root, gyre {command_name} --install")


def go_to_python_with_packages(command_name, needed):
    """Returns if this interpreter has the packages; otherwise starts one that has them, with this
    script and its arguments. @needed: names of modules."""
    if has_packages(sys.executable, needed):
        return
    for python in (os.path.join(venv_folder(), "bin", "python3"), SYSTEM_PYTHON):
        if has_packages(python, needed):
            os.execv(python, [python, "-B", *sys.argv])
    sys.exit(absent_text(command_name, needed))
