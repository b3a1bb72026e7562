#!/usr/bin/env bash
# Copies a directory between two hosts 50 ms apart over a link that loses one packet in a hundred, by `strandway copy` and by rsync.
#
#   sudo examples/copy/run.sh              100 MB in 1,001 files
#   sudo examples/copy/run.sh DIRECTORY    one of yours
#
# The hosts are network namespaces of this machine, joined by a delay line of 500 Mb/s (long_link.toml); packets have 1,500 bytes
# for both. `--rate` is a tenth below the line's rate, which leaves room for headers. Everything is removed at the end. STRANDWAY is the
# program to run, by default a release build; RSYNC_SECONDS is the time limit of rsync, by default 30.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd -P)
seconds=${RSYNC_SECONDS:-30}
name=copy$$
# shellcheck source=../fabric.sh
. "$here/../fabric.sh"

source=${1:-}
if [ -z "$source" ]; then
    source=$work/data
    mkdir -p "$source/small"
    head -c 90000000 /dev/urandom >"$source/large"
    head -c 10000000 /dev/urandom >"$work/pieces"
    split -b 10000 -a 4 -d "$work/pieces" "$source/small/"
fi
source=$(cd "$source" && pwd)
bytes=$(find "$source" -type f -printf '%s\n' | awk '{ all += $1 } END { print all + 0 }')
echo "$source: $(find "$source" -type f | wc -l) files, $bytes bytes"

"$strandway" fabric up "$here/long_link.toml" --name "$name" --quiet
# `ip netns exec` becomes the program that it runs, so that this script can end it.
on_h0=(ip netns exec "$name-h0")
on_h1=(ip netns exec "$name-h1")

echo
echo "strandway copy:"
mkdir "$work/strandway" "$work/rsync"
"${on_h1[@]}" "$strandway" copy --serve "$work/strandway" --node "$nodes/h1.toml" --payload 1344 --rate 450Mbps --once --quiet &
"${on_h0[@]}" "$strandway" copy "$source/." h1: --node "$nodes/h0.toml" --payload 1344 --rate 450Mbps
wait
diff -r "$source" "$work/strandway" && echo "the two directories are alike"

echo
if ! command -v rsync >/dev/null; then
    echo "rsync is not here: apt install rsync"
    exit 0
fi
echo "rsync -a over TCP with CUBIC, without encryption, for at most $seconds s:"
# Programs that do not use micro segments need plain routes.
route() {
    ip -n "$name-$1" -6 route add "$2" via "$3" dev "$4" mtu 1500 congctl cubic
}
h0=fcbb:bb00:1:8001::/64 h1=fcbb:bb00:2:8001::/64
route h0 $h1 fe80::1 p0
route t0-p0-0 $h1 fe80::4001 u0
route t0-p0-1 $h0 fe80::4001 u0
route h1 $h0 fe80::2 p0
printf '[copy]\npath = %s\nread only = no\nuse chroot = no\nuid = root\ngid = root\n' "$work/rsync" >"$work/rsyncd.conf"
"${on_h1[@]}" rsync --daemon --no-detach --config "$work/rsyncd.conf" --port 8730 &
sleep 1
began=$(date +%s.%N)
"${on_h0[@]}" timeout "$seconds" rsync -a --inplace --port 8730 "$source/." 'rsync://[fcbb:bb00:2:8001::]/copy/' 2>/dev/null || true
took=$(awk "BEGIN { print $(date +%s.%N) - $began }")
arrived=$(find "$work/rsync" -type f -printf '%s\n' | awk '{ all += $1 } END { print all + 0 }')
awk -v bytes="$bytes" -v arrived="$arrived" -v took="$took" 'BEGIN {
    printf "%.1f MB of %.1f MB in %.1f s, %.1f Mb/s", arrived / 1e6, bytes / 1e6, took, arrived * 8 / took / 1e6
    if (arrived < bytes && arrived > 0) printf "; all of it would take about %.0f s", bytes * took / arrived
    printf "\n"
}'
