#!/bin/sh
# Writes the man pages of gyre and its commands, from what they print with --help.
#   sh cmake/man_pages.sh FOLDER VERSION PROGRAM...      PROGRAM... starts gyre (an emulator may stand first)
set -eu
folder=$1
version=$2
shift 2
awk_file=$(dirname "$0")/man_page.awk

# page NAME SUMMARY ARGUMENT...: the page of `gyre ARGUMENT...`
page() {
    name=$1
    summary=$2
    shift 2
    "$gyre" "$@" --help | awk -v name="$name" -v command="gyre${1:+ $*}" -v version="$version" \
        -v summary="$summary" -f "$awk_file" | gzip -9n >"$folder/$name.1.gz.new"
    mv "$folder/$name.1.gz.new" "$folder/$name.1.gz"
}

# One word that starts gyre, however many words that takes.
gyre=$folder/start_gyre
{
    echo '#!/bin/sh'
    printf 'exec'
    printf " '%s'" "$@"
    echo ' "$@"'
} >"$gyre"
chmod +x "$gyre"

page gyre "collectives for GPUs and hosts: measure, check, explain"
"$gyre" --help | awk '/^commands:/ { rows = 1; next } rows && /^  [a-z]/ { print }' |
    while read -r command summary; do
        case $command in
        bench)
            for bench in $("$gyre" bench --help | sed -n 's/^names: //p'); do
                page "gyre-bench-$bench" "measure the collective $bench" bench "$bench"
            done
            ;;
        version) ;;
        *) page "gyre-$command" "${summary%%: *}" "$command" ;;
        esac
    done
rm "$gyre"
