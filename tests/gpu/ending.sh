# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# For scripts that start commands and must not outlive them, nor leave them behind. To be sourced:
#   run_in_group COMMAND...   run it in a process group of its own; its exit status
#   end_group                 end the command that runs, for the script's EXIT trap
# A signal to the script (TERM, INT, HUP) ends the script, and so its command. The group and all processes below
# it get TERM; those that still live after patience_s seconds (PATIENCE of the environment) get KILL.
patience_s=${PATIENCE:-${patience_s:-10}}
group=

run_in_group() {
    local status=0
    # A background command without this redirection reads nothing.
    setsid "$@" <&0 &
    group=$!
    wait "$group" || status=$?
    group=
    return $status
}

# fields_of PID: state, parent and start time of a process, which nobody else has after it.
fields_of() {
    local line words
    { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
    read -ra words <<<"${line##*) }" # a name may contain anything
    echo "${words[0]} ${words[1]} ${words[19]}"
}

# processes_below PID: PID and its descendants, as PID:START.
processes_below() {
    local path pid state parent start all=() known=" $1 " n=0
    for path in /proc/[0-9]*; do
        pid=${path#/proc/}
        read -r state parent start <<<"$(fields_of "$pid")"
        [ -z "$state" ] || all+=("$pid $parent $start")
    done
    while [ "$n" -ne ${#known} ]; do
        n=${#known}
        while read -r pid parent start; do
            case $known in *" $pid "*) continue ;; *" $parent "*) known+="$pid " ;; esac
        done < <(printf '%s\n' "${all[@]}")
    done
    while read -r pid parent start; do
        case $known in *" $pid "*) echo "$pid:$start" ;; esac
    done < <(printf '%s\n' "${all[@]}")
}

# living PID:START...: the PIDs of those that still run.
living() {
    local one state parent start
    for one in "$@"; do
        read -r state parent start <<<"$(fields_of "${one%%:*}")"
        [ "$start" != "${one#*:}" ] || [ "$state" = Z ] || echo "${one%%:*}"
    done
}

end_group() {
    local processes pid i
    [ -n "$group" ] || return 0
    trap '' TERM INT HUP
    mapfile -t processes < <(processes_below "$group")
    # The group exists once setsid has run.
    kill -TERM -- "-$group" 2>/dev/null || kill -TERM "$group" 2>/dev/null || true
    for ((i = 0; i < patience_s * 10; i++)); do
        [ -n "$(living "${processes[@]}")" ] || break
        sleep 0.1
    done
    for pid in $(living "${processes[@]}"); do
        kill -KILL "$pid" 2>/dev/null || true
    done
    wait "$group" 2>/dev/null || true
    group=
}

trap 'exit 143' TERM
trap 'exit 130' INT
trap 'exit 129' HUP
trap end_group EXIT
