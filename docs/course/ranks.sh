#!/bin/bash
# Lesson 13: three ranks of a bench without end, each a process. Rank 1 gets a signal. Prints what ranks 0 and 2 say.
#   docs/course/ranks.sh KILL|STOP
folder=$(mktemp -d)
export WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + RANDOM % 10000))
for ((r = 0; r < WORLD_SIZE; r++)); do
    RANK=$r LOCAL_RANK=$r gyre bench allreduce -b 1M -e 1M -n 1000000 >"$folder/out.$r" 2>"$folder/err.$r" &
    pids[r]=$!
    disown
done
until grep -q GB/s "$folder/out.0"; do sleep 0.1; done # the calls have begun
begin=$(date +%s%N)
kill -"$1" "${pids[1]}"
for r in 0 2; do
    until grep -q "^allreduce: rank $r" "$folder/err.$r"; do sleep 0.05; done
    echo "rank $r has its error after $((($(date +%s%N) - begin) / 1000000)) ms"
done
kill -KILL "${pids[@]}" 2>"$folder/none"
cat "$folder"/err.[02]
rm -r "$folder"
