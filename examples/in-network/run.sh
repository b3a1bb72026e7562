#!/usr/bin/env bash
# Two jobs of four workers add up gradients by one switch that has few slots: under ESA, ATP and SwitchML.
#
#   sudo examples/in-network/run.sh            32 slots, buffers of 4 MiB
#   sudo SLOTS=256 SIZE=16M RUNS=9 examples/in-network/run.sh
#
# The hosts and the switch are network namespaces of this machine; hosts have ports of 100 Mb/s (eight_hosts.toml).
# `strandway switch` runs in the namespace of the leaf, so all its traffic passes each host's port once in each direction.
# Job 1 has priority 200, job 2 has 100; only ESA uses priorities. While jobs run, the switch is asked ten times a second how
# many slots each job holds: these are the bars at the end. Everything is removed at the end. STRANDWAY is the program to
# run, by default a release build.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd -P)
name=innet$$
slots=${SLOTS:-32} size=${SIZE:-4M} runs=${RUNS:-5}
# shellcheck source=../fabric.sh
. "$here/../fabric.sh"

"$strandway" fabric up "$here/eight_hosts.toml" --name "$name" --quiet
leaf=$name-t0-p0-0
# An address of the leaf's own, to which its hosts have a route.
address=fcbb:bb00:7ff::1
ip -n "$leaf" addr add "$address/128" dev lo nodad
head -c 32 /dev/urandom >"$work/key1"
head -c 32 /dev/urandom >"$work/key2"
printf 'h%s\n' 0 2 4 6 >"$work/ranks1"
printf 'h%s\n' 1 3 5 7 >"$work/ranks2"

for system in esa atp switchml; do
    ip netns exec "$leaf" "$strandway" switch --listen "$address" --system "$system" --slots "$slots" \
        --job "1=$work/key1" --job "2=$work/key2" --socket "$work/socket" >"$work/$system.log" &
    switch=$!
    for _ in $(seq 50); do [ -S "$work/socket" ] && break; sleep 0.1; done
    ranks=
    for job in 1 2; do
        for rank in 0 1 2 3; do
            host=$(sed -n "$((rank + 1))p" "$work/ranks$job")
            ip netns exec "$name-$host" "$strandway" perf collective all-reduce --algorithm in-network --switch "$address" \
                --job "$job" --job-key "$work/key$job" --priority "$((300 - 100 * job))" --node "$nodes/$host.toml" \
                --ranks "$work/ranks$job" --rank "$rank" -b "$size" -e "$size" -n "$runs" -w 1 --no-multicast \
                --json "$work/$system.$job.$rank" >/dev/null &
            ranks="$ranks $!"
        done
    done
    while [ -n "$(jobs -r | grep 'perf collective' || true)" ]; do
        "$strandway" switch status --json --socket "$work/socket" >>"$work/$system.status" || true
        sleep 0.1
    done
    # shellcheck disable=SC2086
    wait $ranks
    "$strandway" switch status --json --socket "$work/socket" >"$work/$system.end"
    kill "$switch"
    wait "$switch" || true
done
python3 "$here/table.py" "$work" "$slots" "$size"
