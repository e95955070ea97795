#!/bin/bash
# Lesson 13: two ranks over two stand-in NICs each (build/tests/verbs); the first NIC of host 1 goes down in the middle
# of the calls. Prints what gyre says of it, and the bench's count of wrong results.
folder=$(mktemp -d)
export GYRE_FAILOVER=1 GYRE_DEBUG=INFO GYRE_DEBUG_SUBSYS=NET VERBS_WIRE_JOB=rail$$ VERBS_WIRE_FAULTS=$folder/faults
: >"$folder/faults"
mpirun -np 2 tests/nic/verbs_wire/rank build gyre bench allreduce -b 256K -e 256K -n 20000 >"$folder/out" 2>&1 &
until grep -q GB/s "$folder/out"; do sleep 0.1; done # the calls have begun
echo "host1 0 down" >"$folder/new" && mv "$folder/new" "$folder/faults"
wait
grep -i "failover\|rails now\|Out of bounds" "$folder/out"
rm -r "$folder"
