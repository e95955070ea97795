#!/bin/bash
# ctest, and before its summary the output of every test that failed and the reason of every test
# that was skipped.
#   cmake/ctest_with_reasons.sh BUILD_DIR [ctest options]
# Twice as many tests at once as there are processors, without an option -j: many mostly wait.
set -uo pipefail
build=$1
shift
"$(dirname "${BASH_SOURCE[0]}")/ctest_options.sh" "$@" || exit
cd "$build" || exit 1
export CTEST_PARALLEL_LEVEL=${CTEST_PARALLEL_LEVEL:-$((2 * $(nproc)))}
summary=$(mktemp)
trap 'rm -f "$summary"' EXIT
# The summary begins at "N% tests passed"; it is kept until the outputs and the reasons are out.
ctest --output-on-failure "$@" | awk -v summary="$summary" '
    /^[0-9]+% tests passed/ { ended = 1 }
    { if (ended) print > summary; else { print; fflush() } }'
status=${PIPESTATUS[0]}
# The summary names the tests that failed or did not run. A skipped test says why in its last line.
# Of a failed test the first lines hold a sanitizer's first report, and the last ones how it ended.
awk -v n_first=40 -v n_last=60 -v most_tests=10 -v most_columns=400 '
    function keep(line) { failures = failures substr(line, 1, most_columns) "\n" }
    function keep_failure(   i) {
        if (++n_failures > most_tests) {
            keep("failed: " name ": its output is in Testing/Temporary/LastTest.log")
            return
        }
        keep("failed: " name ": its output of " n_lines " lines:")
        for (i = 1; i <= n_lines; i++) {
            if (i <= n_first || i > n_lines - n_last)
                keep("    " lines[i])
            else if (i == n_first + 1)
                keep("    [" n_lines - n_first - n_last " lines left out]")
        }
    }
    FNR == NR && /^[ \t]+[0-9]+ - .* \(/ {
        if (/\((Skipped|Not Run)\)/) skipped[$3] = 1
        else if (!/\(Disabled\)/) failed[$3] = 1
    }
    FNR == NR { next }
    /^[0-9]+\/[0-9]+ Testing: / { name = $3; reason = ""; n_lines = 0; inside = 0 }
    /^<end of output>/ {
        sub(/^skipped: /, "", reason)
        if (name in skipped) print "skipped: " name ": " reason
        if (name in failed) keep_failure()
        inside = 0
    }
    inside && NF { reason = $0 }
    inside { lines[++n_lines] = $0 }
    /^Output:/ { inside = 1; getline; next }
    END { printf "%s", failures }
' "$summary" Testing/Temporary/LastTest.log 2>/dev/null
cat "$summary"
exit "$status"
