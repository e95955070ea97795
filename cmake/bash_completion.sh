#!/bin/sh
# Writes the bash completion of gyre: commands, benches, and the options that each one's --help has.
#   sh cmake/bash_completion.sh FILE PROGRAM...      PROGRAM... starts gyre (an emulator may stand first)
set -eu
file=$1
shift

# The options that a --help names, in one line.
options() {
    "$@" --help | sed -n 's/^ \{1,6\}\(-[^ ].*\)/\1/p' | sed 's/  .*//' |
        grep -oE -e '--?[A-Za-z][A-Za-z_-]*' | sort -u | tr '\n' ' '
}

commands=$("$@" --help | awk '/^commands:/ { rows = 1; next } rows && /^  [a-z]/ { print $1 }')
benches=$("$@" bench --help | sed -n 's/^names: //p')
{
    cat <<'BASH'
# bash completion of gyre, made from its --help
_gyre()
{
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=
    if [ "$COMP_CWORD" -eq 1 ]; then
BASH
    echo "        words='$(echo "$commands" | tr '\n' ' ')--help --version'"
    echo '    elif [ "$COMP_CWORD" -eq 2 ] && [ "${COMP_WORDS[1]}" = bench ]; then'
    echo "        words='$benches --help'"
    cat <<'BASH'
    elif [ "${COMP_WORDS[1]}" = run ] || [[ $before == -* && $word != -* ]]; then
        compopt -o default # a program, or the value of an option: often a file
        return
    else
        case ${COMP_WORDS[1]} in
BASH
    for command in $commands; do
        case $command in
        bench) words=$(options "$@" bench allreduce) ;;
        run) continue ;;
        *) words=$(options "$@" "$command") ;;
        esac
        echo "        $command) words='$words' ;;"
    done
    cat <<'BASH'
        esac
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}
complete -F _gyre gyre
BASH
} >"$file.new"
mv "$file.new" "$file"
