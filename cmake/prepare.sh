# Shared by bench/run, tests/run and .ci/run: installs what is missing with apt, configures and
# builds. To be sourced by bash, with `root` set to the top of the tree.
#
# With everything installed nothing here needs a network: each need is checked first.

say() { printf '\n== %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

have() { command -v "$1" >/dev/null 2>&1; }
have_mpi_header() { echo "#include <mpi.h>" | mpicc -E -x c - >/dev/null 2>&1; }
have_header() { echo "#include <$1>" | cc -E -x c - >/dev/null 2>&1; }

# need PACKAGE CHECK...: remember PACKAGE unless CHECK succeeds.
missing=()
need() {
    local package=$1
    shift
    "$@" || missing+=("$package")
}

# What the build needs, and what makes it complete: MPI, RDMA headers, JSON output, topology files.
need_build() {
    need gcc have cc
    need libc6-dev have_header stdio.h
    need cmake have cmake
    have ninja || need make have make
    need pkg-config have pkg-config
    need libssl-dev have_header openssl/hmac.h
    need libopenmpi-dev have_mpi_header # Debian 13's openmpi-bin has mpicc without it
    need openmpi-bin have mpirun
    need libjson-c-dev have_header json-c/json.h
    need libxml2-dev test -d /usr/include/libxml2
    need libibverbs-dev have_header infiniband/verbs.h
    need librdmacm-dev have_header rdma/rdma_cma.h
}

# Says why nothing can be installed here; says nothing where as_root works.
no_root() {
    [ "$(id -u)" -ne 0 ] || return 0
    if ! have sudo; then
        echo "not root and no sudo"
    elif ! sudo -n true 2>/dev/null && [ ! -t 0 ]; then
        echo "sudo wants a password and there is no terminal"
    fi
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

install_missing() {
    [ ${#missing[@]} -gt 0 ] || return 0
    have apt-get || die "no apt-get here; install what these packages hold: ${missing[*]}"
    # Checked here, because the output of the first apt-get is thrown away.
    local why
    why=$(no_root)
    [ -z "$why" ] || die "$why; install these packages first: ${missing[*]}"
    say "installing ${missing[*]}"
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -o Dpkg::Use-Pty=0 -qq)
    local install=("${apt[@]}" install -y --no-install-recommends "${missing[@]}")
    # Package lists may be absent (a fresh container) or stale: ask for new ones only then.
    if ! as_root "${install[@]}" >/dev/null 2>&1; then
        as_root "${apt[@]}" update
        as_root "${install[@]}" >/dev/null || die "apt-get could not install ${missing[*]}"
    fi
    missing=()
}

has_python_package() { { python3 -c "import $1" || /usr/bin/python3 -c "import $1"; } 2>/dev/null; }

# wish PACKAGE CHECK...: install PACKAGE unless CHECK succeeds; go on without it where that fails.
wish() {
    local package=$1
    shift
    "$@" && return
    (missing=("$package") && install_missing) || say "no $package: the tests that need it are skipped"
}

check_cmake() {
    local version
    version=$(cmake --version | sed -n 's/^cmake version \([0-9.]*\).*/\1/p')
    [ "$(printf '3.22\n%s\n' "$version" | sort -V | head -n 1)" = 3.22 ] ||
        die "CMake $version is too old, 3.22 is needed (Ubuntu 22.04, Debian 12 or newer have it)"
}

# The GPUs of this machine that can be used; 0 without a driver.
n_gpus() {
    { nvidia-smi -L 2>/dev/null || true; } | grep -c '^GPU ' || true
}

# -D options for CUDA: only where a driver is, for the GPU that is there.
cuda_options() {
    local capability arch
    if [ "$(n_gpus)" -gt 0 ] 2>/dev/null && { have nvcc || [ -x /usr/local/cuda/bin/nvcc ]; }; then
        capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d '. ')
        arch=$capability
        [ "$capability" = 90 ] && arch=90a
        echo "-DGYRE_CUDA=ON -DGYRE_CUDA_ARCHS=$arch"
    else
        [ "$(n_gpus)" -gt 0 ] 2>/dev/null &&
            printf 'note: GPUs but no nvcc: built for host memory only\n' >&2
        echo "-DGYRE_CUDA=OFF"
    fi
}

n_jobs() { nproc; }

# configure DIRECTORY [cmake options]: a directory that is configured keeps its settings.
configure() {
    local directory=$1 log=$1/configure.log
    shift
    mkdir -p "$directory"
    if [ -f "$directory/CMakeCache.txt" ] && [ $# -eq 0 ]; then
        cmake -S "$root" -B "$directory" >"$log" 2>&1 || { cat "$log" >&2; die "cmake failed"; }
        return
    fi
    local first=() # options that only a new directory takes
    if [ ! -f "$directory/CMakeCache.txt" ]; then
        have ninja && first+=(-G Ninja)
        [ -z "${CMAKE_C_COMPILER_LAUNCHER:-}" ] && have ccache &&
            first+=(-DCMAKE_{C,CXX,CUDA}_COMPILER_LAUNCHER=ccache)
    fi
    cmake -S "$root" -B "$directory" "${first[@]}" "$@" >"$log" 2>&1 ||
        { cat "$log" >&2; die "cmake failed"; }
    grep '^-- gyre:' "$log" >&2 || true
}

# build DIRECTORY [targets]: quiet unless it fails.
build() {
    local directory=$1 log=$1/build.log
    shift
    local targets=()
    [ $# -gt 0 ] && targets=(--target "$@")
    cmake --build "$directory" -j "$(n_jobs)" "${targets[@]}" >"$log" 2>&1 ||
        { tail -n 60 "$log" >&2; die "the build failed (all of it: $log)"; }
}

# OpenMPI refuses to run as root and with more ranks than cores unless told; both are usual here.
mpirun_options() {
    if [ "$(id -u)" -eq 0 ]; then
        export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    fi
    mpirun_flags=(--oversubscribe --bind-to none)
}
