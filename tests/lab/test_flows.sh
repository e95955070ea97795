#!/bin/bash
# Data connections between two hosts (network namespaces, netns.sh) that lose their way, or have to
# find one:
#   - one connection is dropped by the network while the health link lives: an error within seconds
#   - a stopped rank whose receive window is full for longer than that: no error
#   - an interface with a second subnet that the other host has no route to: it works
#   - a rank that may use nothing but loopback: an error at once that names the interfaces
#
#   tests/lab/test_flows.sh BUILD_DIR
#
# Exits 77 with the reason where this machine cannot run it.
set -u

build=$(cd "$1" && pwd) || exit 2
lab=$(cd "$(dirname "$0")" && pwd)
skip() { echo "skipped: $1" >&2; exit 77; }
[ -x "$build/bench/allreduce" ] || skip "$build/bench/allreduce is not built"
command -v ss >/dev/null || skip "no ss (apt-get install iproute2)"
command -v ps >/dev/null || skip "no ps (apt-get install procps)"
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

fail() {
    echo "FAILED: $1" >&2
    tail -n 20 "$dir"/log.* >&2
    exit 1
}

# What every host's command begins with. start runs a bench in the background (GYRE_NET says that
# sockets are meant), wait_for waits at most 30 s until a shell condition holds.
prelude="export WORLD_SIZE=2 MASTER_PORT=29512 LOCAL_RANK=0 GYRE_NET=Socket GYRE_DEBUG=INFO
wait_for() { for _ in \$(seq 300); do eval \"\$1\" && return 0; sleep 0.1; done; return 1; }
start() {
    timeout -k 5 120 $build/bench/allreduce --device host \"\$@\" >$dir/log.\$RANK 2>&1 &
    rank_pid=\$!
}
is_connected() { grep -q 'were connected' $dir/log.\$RANK; }
finish() { wait \$rank_pid; echo \$? >$dir/status.\$RANK; }
skip() { echo \"skipped: \$1\" >&2; exit 77; }"

# Both commands run; what they say is in log.0, log.1, status.0 and status.1.
on_two_hosts() { # name, commands
    rm -f "$dir"/log.* "$dir"/status.* "$dir"/is_*
    echo "== $1"
    "$lab/netns.sh" "$prelude
$2" "$prelude
$3"
    local result=$?
    [ $result -ne 77 ] || exit 77
    [ $result -eq 0 ] || fail "$1: exit status $result"
}

expect() { # name, rank, words
    grep -q -- "$3" "$dir/log.$2" || fail "$1: rank $2 does not say \"$3\""
}

expect_status() { # name, status of ranks 0 and 1
    local seen
    seen=$(cat "$dir/status.0" "$dir/status.1" | tr '\n' ' ')
    [ "$seen" = "$2 $2 " ] || fail "$1: exit statuses $seen"
}

# Host 1 no longer takes in packets of one connection, nor lets any out; others pass. Rules for
# routes do it in every kernel. The local table is looked up first of all: it moves back. TCP is given as 6: a
# minimal system has no /etc/protocols (package netbase).
name="a dropped connection is an error"
on_two_hosts "$name" "export RANK=0 GYRE_SOCKET_NSOCKS=2; start -b 4M -e 4M -n 1000000; finish" "
export RANK=1 GYRE_SOCKET_NSOCKS=2; start -b 4M -e 4M -n 1000000
wait_for is_connected || exit 1
listens=\$(grep -o 'Using \[0\]eth0:[0-9.]*:[0-9]*' $dir/log.1 | grep -o '[0-9]*\$')
remote=\$(ss -tnH state established \"sport = :\$listens\" | awk '{ print \$4; exit }')
ip rule add pref 100 lookup local && ip rule del pref 0 || skip 'this kernel has no rules for routes'
ip rule add pref 1 ipproto 6 sport \${remote##*:} blackhole || skip 'no rules for ports'
ip rule add pref 2 ipproto 6 dport \${remote##*:} blackhole || skip 'no rules for ports'
began=\$SECONDS
finish
echo \"both ranks ended \$((SECONDS - began)) s after the connection was dropped\"
[ \$((SECONDS - began)) -lt 40 ]"
expect_status "$name" 1
for rank in 0 1; do
    expect "$name" $rank \
        "no acknowledgement from rank [01] (lab-host[01], pid [0-9]*, 10.77.0.[12]:[0-9]*) for"
    expect "$name" $rank "over socket eth0 (connection [12] of 2)"
    expect "$name" $rank "a firewall or one network path drops this connection"
done

# Longer than the silence that counts as an error. The window is full when the kernel's timer of the
# connection is the one that probes it. A rank that is stopped when its peer has nothing to send does
# not get there, so it goes on and is stopped again.
name="a stopped rank with a full window is no error"
small="sysctl -qw net.ipv4.tcp_rmem='4096 8192 8192' || skip 'tcp_rmem cannot be set'
start -b 2M -e 2M -n 60 -w 1
wait_for is_connected || exit 1"
on_two_hosts "$name" "
export RANK=0
$small
wait_for \"[ -e $dir/is_stopped ] && ss -tnoH state established | grep -q persist\" ||
    { echo 'no window is full'; exit 1; }
touch $dir/is_full
finish" "
export RANK=1
$small
bench_pid=\$(ps -o pid= --ppid \$rank_pid | tr -d ' ')
for _ in \$(seq 10); do
    kill -STOP \$bench_pid && touch $dir/is_stopped || exit 1
    for _ in \$(seq 20); do [ -e $dir/is_full ] && break 2; sleep 0.1; done
    rm $dir/is_stopped
    kill -CONT \$bench_pid
done
[ -e $dir/is_full ] || exit 1
sleep 20
kill -CONT \$bench_pid
finish"
expect_status "$name" 0

# Rank 0 connects. The second subnet comes first on the interface of rank 1.
name="a second subnet without a route does no harm"
on_two_hosts "$name" "
ip addr del 10.77.0.1/24 dev eth0; ip addr add 172.20.9.1/16 dev eth0
ip addr add 10.77.0.1/24 dev eth0
export RANK=1 MASTER_ADDR=10.77.0.2; start -b 1M -e 1M -n 5; finish" "
export RANK=0 MASTER_ADDR=10.77.0.2; start -b 1M -e 1M -n 5; finish"
expect_status "$name" 0
expect "$name" 1 "NET/Socket : Using \[0\]eth0:10.77.0.1:[0-9]* \[1\]eth0:172.20.9.1:"

name="loopback alone is refused between hosts"
on_two_hosts "$name" "export RANK=0; start -b 8 -e 8; finish" "
export RANK=1 GYRE_SOCKET_IFNAME=lo; start -b 8 -e 8; finish"
expect_status "$name" 1
for rank in 0 1; do
    expect "$name" $rank "rank 1 (lab-host1) has only loopback addresses"
    expect "$name" $rank "its interfaces: .*eth0 (10.77.0.2"
done
echo "all flows behave"
