#!/bin/bash
# gyre doctor between two hosts that are network namespaces: an MTU that only one side has, a firewall
# that drops TCP, one that drops UDP, and a healthy network.
#
#   tests/doctor/path.sh BUILD_DIR
#
# Exits 77 with the reason where this machine cannot run it.
set -u

build=$(cd "$1" && pwd) || exit 2
netns=$(cd "$(dirname "$0")/../lab" && pwd)/netns.sh
out=$(mktemp) || exit 2
trap 'rm -f "$out"' EXIT
n_failed=0

[ -x "$build/bench/gyre" ] || { echo "skipped: $build/bench/gyre is not built" >&2; exit 77; }

# Rules of routing take the place of a firewall, as not every kernel has netfilter: packets that come
# in and match are thrown away. The table of local addresses must come after them. TCP and UDP are given as
# numbers, 6 and 17: a minimal system has no /etc/protocols (package netbase).
drop='ip rule add pref 20 lookup local && ip rule del pref 0 && ip rule add pref 10 iif $LAB_IFNAME'

# Run the two checks with a preparation on host 0 and one on host 1. A finding must match.
expect() { # title, preparation 0, preparation 1, severity, id, words, [words of the fix]
    local doctor="RANK=\$LAB_HOST LOCAL_RANK=0 WORLD_SIZE=2 MASTER_PORT=29512 timeout 100 \
        $build/bench/gyre doctor --only $5 >$out.\$LAB_HOST; [ \$? -le 3 ]"
    "$netns" "{ $2; } && { $doctor; }" "{ $3; } && { $doctor; }"
    local result=$?
    [ $result -ne 77 ] || exit 77 # netns.sh said why
    cat "$out.0" "$out.1" >"$out"
    rm -f "$out.0" "$out.1"
    if [ $result -eq 0 ] && grep -Eq "^ +$4 +$5 .*$6" "$out" && grep -Eq "${7:-.}" "$out"; then
        echo "ok   $1"
    else
        echo "FAIL $1: exit status $result, no \"$4 $5 ... $6\" (${7:-}) in:"
        cat "$out"
        n_failed=$((n_failed + 1))
    fi
}

expect 'on a healthy network the largest packets pass' : : \
    ok job.path_mtu '2 pairs of hosts.*the smallest limit is 1500 bytes'
expect 'an MTU that only one host has is a failure, and the sender is named' \
    'ip link set dev $LAB_IFNAME mtu 9000' : \
    fail job.path_mtu 'packets of 9000 bytes.*does has 1500 bytes.*Nobody tells' \
    'fix: .*ip link set dev [a-z0-9]+ mtu 9000 on .*, ip link set dev [a-z0-9]+ mtu 9000 on '
expect 'on a healthy network TCP and UDP pass' : : \
    ok job.firewall 'TCP connections and UDP packets pass'
expect 'a firewall that drops TCP is named' \
    "$drop ipproto 6 dport 30000-65000 blackhole" : \
    fail job.firewall 'TCP to .*a firewall drops.*UDP passes'
expect 'a firewall that drops UDP alone is named' \
    "$drop ipproto 17 blackhole" : \
    warn job.firewall 'passes, UDP does not'
exit $((n_failed > 0))
