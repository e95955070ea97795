# To be sourced by bash scripts that try gyre in a fresh system below a folder.

skip() { echo "skipped: $*"; exit 77; }

need_chroot() {
    [ "$(id -u)" -eq 0 ] || skip "not root, and a chroot needs root"
    command -v debootstrap >/dev/null || skip "no debootstrap (apt-get install debootstrap)"
    unshare --mount --pid --fork true 2>/dev/null || skip "no mount namespaces here"
}

UBUNTU_ARCHIVE=${UBUNTU_ARCHIVE:-http://archive.ubuntu.com/ubuntu}

# make_chroot SUITE FOLDER [options of debootstrap]: a minimal system; the log is FOLDER.log.
make_chroot() {
    local suite=$1 folder=$2
    shift 2
    local origin=()
    case $suite in
    jammy | noble)
        # Most of Ubuntu's packages that gyre needs are in universe. A debootstrap that is older than the
        # suite does not know it; Ubuntu's suites all share one script.
        set -- --components=main,universe "$@"
        origin=("$UBUNTU_ARCHIVE" /usr/share/debootstrap/scripts/gutsy)
        [ -e /usr/share/keyrings/ubuntu-archive-keyring.gpg ] || {
            echo "note: no ubuntu-archive-keyring: the signature of $suite is not checked" >&2
            set -- --no-check-gpg "$@"
        }
        ;;
    esac
    debootstrap --variant=minbase --include=ca-certificates "$@" "$suite" "$folder" "${origin[@]}" \
        >"$folder.log" 2>&1 || return 1
    cp /etc/resolv.conf "$folder/etc/resolv.conf"
    mkdir -p "$folder/dev/shm"
}

# in_chroot FOLDER COMMAND...: runs it as root in mount and process namespaces that end with it.
in_chroot() {
    local folder=$1
    shift
    # shellcheck disable=SC2016
    unshare --mount --pid --fork --kill-child sh -ec '
        mount --bind "$1" "$1" # ip netns changes how / is mounted, so it must be a mount point
        mount -t proc proc "$1/proc"
        mount --rbind /sys "$1/sys"
        mount -t tmpfs tmpfs "$1/dev/shm"
        folder=$1
        shift
        exec chroot "$folder" /usr/bin/env -i HOME=/root LC_ALL=C.UTF-8 TERM=dumb \
            PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
            DEBIAN_FRONTEND=noninteractive "$@"
    ' sh "$folder" "$@"
}
