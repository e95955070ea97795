#!/bin/bash
# Refuses options that ctest does not know. ctest 3.22 of Ubuntu 22.04 ignores them without a word,
# and runs every test.
#   cmake/ctest_options.sh [ctest options]
set -euo pipefail
known=$(ctest --help | grep -oE '(^|[ ,])--?[A-Za-z][A-Za-z0-9-]*' | tr -d ' ,')
for word in "$@"; do
    case $word in
    --*) name=${word%%=*} ;;
    -?*) name=${word:0:2} ;; # a value may stand behind it: -j4
    *) continue ;;
    esac
    if ! grep -qxF -e "$name" <<<"$known"; then
        echo "$word: ctest has no option $name (ctest --help lists them)" >&2
        exit 2
    fi
done
