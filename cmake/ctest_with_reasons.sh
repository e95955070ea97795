#!/bin/bash
# ctest, and before its summary the reason of every test that was skipped.
#   ctest_with_reasons.sh BUILD_DIR [ctest options]
set -uo pipefail
build=$1
shift
cd "$build" || exit 1
summary=$(mktemp)
trap 'rm -f "$summary"' EXIT
# The summary begins at "N% tests passed"; it is kept until the reasons are out.
ctest --output-on-failure "$@" | awk -v summary="$summary" '
    /^[0-9]+% tests passed/ { ended = 1 }
    { if (ended) print > summary; else { print; fflush() } }'
status=${PIPESTATUS[0]}
# The summary names the tests that did not run; a test says why in its last line.
awk '
    FNR == NR { if (/\((Skipped|Not Run)\)$/) skipped[$3] = 1; next }
    /^[0-9]+\/[0-9]+ Testing: / { name = $3; reason = ""; inside = 0 }
    /^<end of output>/ {
        sub(/^skipped: /, "", reason)
        if (name in skipped) print "skipped: " name ": " reason
        inside = 0
    }
    inside && NF { reason = $0 }
    /^Output:/ { inside = 1; getline; next }
' "$summary" Testing/Temporary/LastTest.log 2>/dev/null
cat "$summary"
exit "$status"
