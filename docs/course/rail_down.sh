#!/bin/bash
# Lesson 13: two ranks over two stand-in NICs each (build/tests/verbs); the first NIC of host 1 goes down in the middle
# of the calls. Prints what gyre says of it, and the bench's count of wrong results.
folder=$(mktemp -d)
export GYRE_FAILOVER=1 GYRE_DEBUG=INFO GYRE_DEBUG_SUBSYS=INIT,NET VERBS_WIRE_JOB=rail$$ VERBS_WIRE_FAULTS=$folder/faults
: >"$folder/faults"
mpirun -np 2 tests/nic/verbs_wire/rank build gyre bench allreduce -b 512 -e 2M -f 64 -n 40 -w 0 >"$folder/out" 2>&1 &
until grep -q "via NET/IB" "$folder/out" || ! kill -0 $!; do sleep 0.01; done # they are connected
echo "host1 0 down" >"$folder/new" && mv "$folder/new" "$folder/faults"
wait %1
grep -o "connection to rank.*runs again.*\|Out of bounds.*" "$folder/out"
rm -r "$folder"
