#!/bin/bash
# Replaces the tables of a fabric's switches by FRR: frr.sh ROOT NAME EXPORT. ROOT is the root of a system with FRR 10.3 or
# later (/ for this one), NAME a fabric of namespaces that is up, EXPORT the folder of `strandway fabric export --to frr`.
# frr.sh ROOT NAME stop ends the processes.
set -euo pipefail
root=${1%/} name=$2 export=$3
inside() { nsenter --net="/run/netns/$name-$1" -- "${@:2}"; }
if [ "$export" = stop ]; then
    for file in "$root/run/frr/$name"-*/*.pid; do
        [ ! -e "$file" ] || kill "$(cat "$file")" 2>/dev/null || true
    done
    rm -rf "$root/run/frr/$name"-* "$root/etc/frr/$name"-* "$root/var/lib/frr/$name"-*
    exit
fi
for conf in "$export"/t*/frr.conf; do
    switch=$(basename "$(dirname "$conf")")
    space=$name-$switch
    mkdir -p "$root/run/frr/$space" "$root/etc/frr/$space" "$root/var/lib/frr/$space"
    cp "$conf" "$root/etc/frr/$space/frr.conf"
    touch "$root/etc/frr/$space/vtysh.conf"
    chroot "$root/" chown -R frr:frr "/run/frr/$space" "/etc/frr/$space" "/var/lib/frr/$space"
    # Nothing of ours stays but the cables and their neighbours.
    for device in $(inside "$switch" ip -o link show | sed 's/^[0-9]*: \([^@:]*\).*/\1/'); do
        case $device in
        [hud][0-9]*) inside "$switch" ip -6 route flush dev "$device" proto boot ;;
        esac
    done
    inside "$switch" ip link del sid0
    inside "$switch" ip -6 route flush type blackhole
    inside "$switch" ip -6 -batch "$export/$switch/links.ip"
    for daemon in mgmtd zebra staticd; do
        inside "$switch" chroot "$root/" "/usr/lib/frr/$daemon" -d -N "$space" \
            >"$root/run/frr/$space/$daemon.said" 2>&1 || { cat "$root/run/frr/$space/$daemon.said" >&2; exit 1; }
    done
    said=$root/run/frr/$space/said
    # The daemons that have just started lock the configuration for moments.
    for ((left = 20; left >= 0; left--)); do
        inside "$switch" chroot "$root/" vtysh -N "$space" -b >"$said" 2>&1 && ! grep -qiE '^%|unknown command|failure' "$said" && break
        [ "$left" -gt 0 ] || { cat "$said" >&2; exit 1; }
        sleep 0.1
    done
done
