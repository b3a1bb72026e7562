#!/usr/bin/env bash
# Runs a command in one of two network namespaces that two links of 1 Gb/s join, the planes; as root.
#
#   bench/planes.sh COMMAND...
#
# The command finds STRANDWAY_IFNAME, its own address on the first plane in BENCH_HERE, and in BENCH_PEER the words that run a program in
# the other namespace. RATE (1gbit) is that of a link. The namespaces are removed at the end.
set -euo pipefail
name=planes$$
cleanup() {
    ip netns del "$name-a" 2>/dev/null || true
    ip netns del "$name-b" 2>/dev/null || true
}
trap cleanup EXIT
for host in a b; do
    ip netns add "$name-$host"
    ip -n "$name-$host" link set lo up
done
for plane in 0 1; do
    ip -n "$name-a" link add "plane$plane" type veth peer name "plane$plane" netns "$name-b"
    for host in a b; do
        number=$([ $host = a ] && echo 1 || echo 2)
        ip -n "$name-$host" addr add "10.0.$plane.$number/24" dev "plane$plane"
        ip -n "$name-$host" link set "plane$plane" up
        tc -n "$name-$host" qdisc add dev "plane$plane" root tbf rate "${RATE:-1gbit}" burst 128kb limit 512kb
    done
done
export STRANDWAY_IFNAME=plane0,plane1 BENCH_HERE=10.0.0.1 BENCH_PEER="ip netns exec $name-b"
ip netns exec "$name-a" "$@"
