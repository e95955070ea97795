#!/bin/bash
# Two hosts on one machine: network namespaces with host names of their own, joined by a veth pair,
# optionally with the rate, delay and loss of a real link. Runs a command on each and always cleans
# up. Needs root and ip; without them it exits 77. A link is shaped by netem or, in kernels without
# it, by wire.c (a C compiler and /dev/net/tun needed).
#
#   tests/lab/netns.sh [--gbit 1] [--delay-us 500] [--loss 1] [--wire] 'command' ['command of host 1']
#
# --gbit (per second), --delay-us and --loss (percent) act on each direction: --delay-us 500 is a
# round trip of 1 ms. --wire takes wire.c even where there is netem.
# A command runs under bash in the current directory and sees
#   LAB_HOST (0 or 1), LAB_IP, LAB_PEER_IP, LAB_IFNAME, MASTER_ADDR (host 0's address)
# Host 0's command starts first. The exit status is that of the first command that failed.
set -u

skip() {
    echo "skipped: $1" >&2
    exit 77
}

gbit=0 delay_us=0 loss=0 use_wire=0
while [ $# -gt 0 ]; do
    case $1 in
    --gbit | --delay-us | --loss)
        [ $# -ge 2 ] || { echo "$1 needs a value" >&2; exit 2; }
        option=${1#--}
        declare "${option//-/_}=$2"
        shift 2
        ;;
    --wire)
        use_wire=1
        shift
        ;;
    --*)
        echo "unknown option $1" >&2
        exit 2
        ;;
    *) break ;;
    esac
done
[ $# -ge 1 ] || { echo "usage: $0 [options] 'command' ['command of host 1']" >&2; exit 2; }
commands=("$1" "${2:-$1}")

[ "$(id -u)" = 0 ] || skip "network namespaces need root"
command -v ip >/dev/null || skip "no ip (apt-get install iproute2)"
command -v unshare >/dev/null || skip "no unshare (apt-get install util-linux)"
is_shaped=0
[ "$gbit $delay_us $loss" = "0 0 0" ] || is_shaped=1

# Names with our pid, so that runs side by side do not meet.
names=("lab$$a" "lab$$b")
pids=()
wire_pid=
wire_dir=
# shellcheck disable=SC2317 # runs from the trap
cleanup() {
    trap - EXIT INT TERM
    local host pid
    [ -z "$wire_pid" ] || kill "$wire_pid" 2>/dev/null
    for host in 0 1; do
        # Whatever still runs inside: only our commands and what they started.
        for pid in $(ip netns pids "${names[host]}" 2>/dev/null); do
            kill -9 "$pid" 2>/dev/null
        done
        ip netns del "${names[host]}" 2>/dev/null
    done
    [ -z "$wire_dir" ] || rm -rf "$wire_dir"
    wait 2>/dev/null
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

for host in 0 1; do
    ip netns add "${names[host]}" 2>/dev/null || skip "this machine lets nobody make network namespaces"
done

# eth0 on both hosts as a veth pair, shaped by netem if it is to be shaped.
join_by_veth() {
    local host shape=(limit 20000)
    no_veth=$(ip -n "${names[0]}" link add eth0 type veth peer name eth0 netns "${names[1]}" 2>&1) || return 1
    [ $is_shaped = 1 ] || return 0
    [ "$gbit" = 0 ] || shape+=(rate "$(awk "BEGIN { print $gbit * 1000 }")mbit")
    [ "$delay_us" = 0 ] || shape+=(delay "${delay_us}us")
    [ "$loss" = 0 ] || shape+=(loss "$loss%")
    for host in 0 1; do
        tc -n "${names[host]}" qdisc add dev eth0 root netem "${shape[@]}" 2>/dev/null && continue
        ip -n "${names[0]}" link del eth0
        return 1
    done
}

join_by_wire() {
    command -v cc >/dev/null || skip "no netem in this kernel, and no cc to build the wire"
    [ -e /dev/net/tun ] || skip "no netem in this kernel, and no /dev/net/tun"
    wire_dir=$(mktemp -d)
    cc -O2 -o "$wire_dir/wire" "$(dirname "$0")/wire.c" || exit 1
    mkfifo "$wire_dir/ready"
    "$wire_dir/wire" "${names[@]}" eth0 "$gbit" "$delay_us" "$loss" >"$wire_dir/ready" &
    wire_pid=$!
    read -r -t 10 <"$wire_dir/ready" || skip "the wire could not be laid"
}

if [ $use_wire = 1 ] || ! join_by_veth; then
    [ $is_shaped = 1 ] || [ $use_wire = 1 ] || skip "no veth pair could be made here: $no_veth"
    join_by_wire
fi
for host in 0 1; do
    ip -n "${names[host]}" addr add "10.77.0.$((host + 1))/24" dev eth0 || exit 1
    ip -n "${names[host]}" link set lo up || exit 1
    ip -n "${names[host]}" link set eth0 up || exit 1
done
# The kernel reports the carrier a moment later; until then a program may take eth0 for unplugged.
for host in 0 1; do
    for _ in $(seq 100); do
        ip -n "${names[host]}" link show eth0 | grep -Eq 'state (UP|UNKNOWN)' && continue 2
        sleep 0.05
    done
    echo "eth0 of host $host does not come up" >&2
    exit 1
done

for host in 0 1; do
    LAB_HOST=$host LAB_IP=10.77.0.$((host + 1)) LAB_PEER_IP=10.77.0.$((2 - host)) LAB_IFNAME=eth0 \
        MASTER_ADDR=10.77.0.1 ip netns exec "${names[host]}" unshare --uts \
        bash -c "hostname lab-host$host && $(printf '%s' "${commands[host]}")" &
    pids+=($!)
done
status=0
for pid in "${pids[@]}"; do
    wait "$pid"
    result=$?
    [ $status -ne 0 ] || status=$result
done
exit $status
