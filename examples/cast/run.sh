#!/usr/bin/env bash
# Casts a file to three hosts at once with `strandway cast`, and takes one of the two planes down during the cast.
#
#   sudo examples/cast/run.sh          60 MB of random bytes
#   sudo examples/cast/run.sh FILE     one of yours
#
# The hosts are network namespaces of this machine, each with a port of 100 Mb/s in each of two planes (two_planes.toml). Everything is
# removed at the end. STRANDWAY is the program to run, by default a release build.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd -P)
name=cast$$
# shellcheck source=../fabric.sh
. "$here/../fabric.sh"

source=${1:-}
if [ -z "$source" ]; then
    source=$work/weights
    head -c 60000000 /dev/urandom >"$source"
fi
"$strandway" fabric up "$here/two_planes.toml" --name "$name" --quiet
for host in 1 2 3; do
    mkdir "$work/h$host"
    ip netns exec "$name-h$host" "$strandway" cast --receive "$work/h$host" --node "$nodes/h$host.toml" --once --quiet &
    receivers="${receivers:-} $!"
done
(
    sleep 2
    "$strandway" fabric fail plane:p1 --name "$name"
) &
ip netns exec "$name-h0" "$strandway" cast "$source" --to h1 --to h2 --to h3 --node "$nodes/h0.toml"
# shellcheck disable=SC2086
wait $receivers
for host in 1 2 3; do
    cmp "$source" "$work/h$host/$(basename "$source")" && echo "h$host has it, byte for byte"
done
