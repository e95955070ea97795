#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the wheel of gyre: the Python package gyre, with what `cmake --install` puts down in its folder tree.

    cmake/wheel/backend.py [--build-dir BUILD] [--output FOLDER]

Without --build-dir it first builds into build-wheel, without MPI and libxml2: a wheel must run where
those are missing. A finished build tree with them is refused. Where auditwheel is installed, it copies
libcrypto into the wheel and gives it its manylinux tag; otherwise the wheel's tag is linux.

It is also the build backend of pyproject.toml (PEP 517): `pip install ./cmake/wheel` runs it, on the
finished build tree that the variable BUILD_DIR names, if it is set. It needs nothing but Python's
own library.
"""

import argparse
import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
OPTIONS = ["-DCMAKE_BUILD_TYPE=Release", "-DGYRE_TESTS=OFF", "-DCMAKE_INSTALL_LIBDIR=lib",
           "-DGYRE_ONE_PROGRAM=ON", "-DGYRE_COMPRESS_KERNELS=ON",
           "-DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON", "-DCMAKE_DISABLE_FIND_PACKAGE_LibXml2=ON"]
# Every Linux has these, but for libcrypto, which auditwheel copies into the wheel.
ALLOWED = re.compile(r"lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|crypto|gyre)\.so|ld-linux")
LIBRARY, PROGRAM = "lib/libgyre.so.0", "libexec/gyre/one_program"  # below gyre/tree
DATE = (1980, 1, 1, 0, 0, 0)  # of every file, so that equal contents give equal wheels


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}")
    return done.stdout


def build():
    """Builds into build-wheel; returns that folder."""
    folder = os.path.join(ROOT, "build-wheel")
    run("cmake", "-S", ROOT, "-B", folder, *OPTIONS,
        *os.environ.get("CMAKE_OPTIONS", "").split())
    run("cmake", "--build", folder, "-j", str(os.cpu_count()))
    return folder


def cached(build_dir, name):
    """A value of CMake's cache."""
    with open(os.path.join(build_dir, "CMakeCache.txt"), encoding="utf-8") as file:
        found = re.search(rf"^{name}:\w+=(.*)$", file.read(), re.M)
    return found.group(1) if found else ""


def check_needed(path):
    """Refuses a program or library that needs what other machines may not have."""
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", path))
    strangers = [name for name in needed if not ALLOWED.match(name)]
    if strangers:
        sys.exit(f"{os.path.basename(path)} needs {', '.join(strangers)}, which a wheel cannot rely on; "
                 f"configure with {' '.join(OPTIONS)}")


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def replace_programs(build_dir, tree):
    """Replaces the programs by scripts that start one_program, where it was built, and the library by
    one that has the programs inside. Programs of their own would each carry the GPU kernels."""
    if not os.path.exists(os.path.join(build_dir, "wheel", PROGRAM)):
        return
    folder = os.path.join(tree, os.path.dirname(PROGRAM))
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if os.path.isfile(path) and is_elf(path):
            with open(path, "w", encoding="utf-8") as file:
                file.write(f'#!/bin/sh\nexec "$(dirname -- "$0")/one_program" {name} "$@"\n')
    for name in (PROGRAM, LIBRARY):
        run("strip", "-o", os.path.join(tree, name), os.path.join(build_dir, "wheel", name))


def install(build_dir, tree):
    """Installs into `tree` what the wheel carries."""
    if cached(build_dir, "CMAKE_INSTALL_LIBDIR") not in ("lib", ""):
        sys.exit(f"configure {build_dir} with -DCMAKE_INSTALL_LIBDIR=lib")
    with tempfile.TemporaryDirectory() as stage:
        # `cmake --install` would overwrite the list of files that `uninstall` of this tree removes.
        manifest = os.path.join(build_dir, "install_manifest.txt")
        kept = open(manifest, "rb").read() if os.path.exists(manifest) else None
        run("cmake", "--install", build_dir, "--prefix", stage, "--strip")
        if kept is None:
            os.remove(manifest)
        else:
            with open(manifest, "wb") as file:
                file.write(kept)
        # A wheel has no symbolic links, so of a library only the file that programs load is carried.
        # The package itself is the top of the wheel.
        shutil.copytree(os.path.join(stage, "libexec"), os.path.join(tree, "libexec"),
                        ignore=lambda folder, _: ["gyre"] if folder.endswith(os.path.join("gyre", "python")) else [])
        shutil.copytree(os.path.join(stage, "include"), os.path.join(tree, "include"))
        shutil.copytree(os.path.join(stage, "share", "gyre"), os.path.join(tree, "share", "gyre"))
        for library in (LIBRARY, "lib/gyre/nccl/libnccl.so.2"):
            os.makedirs(os.path.dirname(os.path.join(tree, library)), exist_ok=True)
            shutil.copy(os.path.join(stage, library), os.path.join(tree, library))
    replace_programs(build_dir, tree)
    for folder, _, names in os.walk(tree):
        for path in (os.path.join(folder, name) for name in names):
            if is_elf(path):
                check_needed(path)


def metadata(version):
    return (f"Metadata-Version: 2.1\nName: gyre\nVersion: {version}\n"
            "Summary: Collective engine for GPUs and hosts: libgyre, libnccl.so.2 and the command gyre\n"
            "License: Apache-2.0\nRequires-Python: >=3.8\n")


def write_wheel(files, path):
    """@files: archive name -> (bytes, mode)."""
    record_name = next(name for name in files if name.endswith("/WHEEL")).replace("/WHEEL", "/RECORD")
    rows = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for name in sorted(files):
            data, mode = files[name]
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.append(f"{name},sha256={digest},{len(data)}\n")
            entry = zipfile.ZipInfo(name, DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100000 | mode) << 16
            wheel.writestr(entry, data)
        entry = zipfile.ZipInfo(record_name, DATE)
        entry.external_attr = 0o100644 << 16
        wheel.writestr(entry, "".join(rows) + f"{record_name},,\n")


def collect(folder, prefix, files):
    for where, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".pyc"):
                continue
            path = os.path.join(where, name)
            with open(path, "rb") as file:
                mode = 0o755 if os.access(path, os.X_OK) else 0o644
                files[f"{prefix}/{os.path.relpath(path, folder)}"] = (file.read(), mode)


def repair(path, output):
    """Lets auditwheel copy in what manylinux does not promise, and name the tag."""
    tool = shutil.which("auditwheel", path=os.path.dirname(sys.executable) + ":" + os.environ["PATH"])
    if tool is None or shutil.which("patchelf") is None:
        print("no auditwheel with patchelf here: the wheel needs the libcrypto.so.3 of the machine",
              file=sys.stderr)
        return shutil.copy(path, output)
    with tempfile.TemporaryDirectory() as folder:
        run(tool, "repair", "--wheel-dir", folder, path)
        name, = os.listdir(folder)
        return shutil.copy(os.path.join(folder, name), output)


def make_wheel(build_dir, output):
    """Returns the path of the wheel."""
    version = cached(build_dir, "CMAKE_PROJECT_VERSION")
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    info = f"gyre-{version}.dist-info"
    files = {}
    with tempfile.TemporaryDirectory() as work:
        install(build_dir, os.path.join(work, "tree"))
        collect(os.path.join(ROOT, "bench", "python", "gyre"), "gyre", files)
        collect(os.path.join(work, "tree"), "gyre/tree", files)
        with open(os.path.join(ROOT, "LICENSE"), "rb") as file:
            files[f"{info}/LICENSE"] = (file.read(), 0o644)
        for name, text in (
                (f"{info}/METADATA", metadata(version)),
                (f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: gyre\nRoot-Is-Purelib: false\n"
                                  f"Tag: py3-none-{platform}\n"),
                (f"{info}/entry_points.txt", "[console_scripts]\ngyre = gyre:main\n")):
            files[name] = (text.encode(), 0o644)
        path = os.path.join(work, f"gyre-{version}-py3-none-{platform}.whl")
        write_wheel(files, path)
        os.makedirs(output, exist_ok=True)
        return repair(path, output)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """PEP 517's hook: returns the name of the wheel that it made in `wheel_directory`."""
    build_dir = os.environ.get("BUILD_DIR") or build()
    return os.path.basename(make_wheel(build_dir, wheel_directory))


def build_sdist(sdist_directory, config_settings=None):
    """PEP 517 wants this hook."""
    raise NotImplementedError("gyre has no source distribution: build from a checkout of its sources")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build-dir", help="a finished build tree; without it, build-wheel is built")
    parser.add_argument("--output", default=".", help="folder of the wheel")
    options = parser.parse_args()
    path = make_wheel(options.build_dir or build(), options.output)
    print(f"{path}: {os.path.getsize(path) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
