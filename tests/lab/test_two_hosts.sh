#!/bin/bash
# Every bench over sockets between two hosts (network namespaces, netns.sh), two ranks on each,
# started as torchrun would. A bench checks every value that it moves and fails if one is wrong.
#
#   tests/lab/test_two_hosts.sh BUILD_DIR          all benches, plain link; all_reduce also with 1% loss
#   tests/lab/test_two_hosts.sh BUILD_DIR --rate   what 64 MiB all_reduce reaches through 1 Gbit/s, 1 ms round
#                                        trip, beside iperf3 in the same run; prints, judges nothing
#
# Exits 77 with the reason where this machine cannot run it.
set -u

build=$(cd "$1" && pwd) || exit 2
lab=$(cd "$(dirname "$0")" && pwd)
benches=(allreduce broadcast reduce allgather reducescatter sendrecv)
ranks_per_host=2

for bench in "${benches[@]}"; do
    if [ ! -x "$build/bench/$bench" ]; then
        echo "skipped: $build/bench/$bench is not built" >&2
        exit 77
    fi
done

# The command of one host: its ranks, all of which must succeed.
host_command() { # bench and its options
    cat <<COMMAND
failed=0 ranks=
for local_rank in $(seq -s ' ' 0 $((ranks_per_host - 1))); do
    RANK=\$((LAB_HOST * $ranks_per_host + local_rank)) LOCAL_RANK=\$local_rank \
    WORLD_SIZE=$((2 * ranks_per_host)) MASTER_PORT=29511 \
        timeout 120 $build/bench/$* &
    ranks="\$ranks \$!"
done
for rank in \$ranks; do wait \$rank || failed=\$?; done
exit \$failed
COMMAND
}

# Run on two hosts; skip when there can be none, stop at the first failure.
on_two_hosts() { # [netns.sh options] -- bench and its options
    local options=() command
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    command=$(host_command "$@")
    echo "== $* ${options[*]}"
    "$lab/netns.sh" "${options[@]}" "$command"
    local result=$?
    [ $result -eq 0 ] && return
    [ $result -eq 77 ] || echo "FAILED: $* ${options[*]}: exit status $result" >&2
    exit $result
}

if [ "${2:-}" = --rate ]; then
    command -v iperf3 >/dev/null || { echo "skipped: no iperf3" >&2; exit 77; }
    link=(--gbit 1 --delay-us 500)
    echo "== iperf3, one way, then 64 MiB all_reduce of one rank per host"
    ranks_per_host=1
    bench=$(host_command allreduce --device host -b 64M -e 64M -n 10 -w 2)
    "$lab/netns.sh" "${link[@]}" "iperf3 -s -1 >/dev/null; $bench" \
        "sleep 1; iperf3 -c \$LAB_PEER_IP -t 5 | grep receiver; $bench"
    exit $?
fi

for bench in "${benches[@]}"; do
    on_two_hosts -- "$bench" --device host -b 8 -e 4M -f 8 -n 5 -w 1
done
on_two_hosts --loss 1 --delay-us 100 -- allreduce --device host -b 8 -e 1M -f 64 -n 3 -w 1
echo "all benches passed on two hosts"
