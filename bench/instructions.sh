#!/usr/bin/env bash
# Instructions of the simulator per packet hop, by callgrind: the same on every machine with the same compiler. Prints a line of CSV per
# scenario: commit, scenario, instructions, hops, instructions per hop. Needs valgrind; takes some minutes.
#
#   bench/instructions.sh                         the release build of this checkout
#   STRANDWAY=FILE bench/instructions.sh          another build
#   bench/instructions.sh >> instructions.csv     over time: the nightly workflow does so
set -euo pipefail
cd "$(dirname "$0")/.."
strandway=${STRANDWAY:-target/release/strandway}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
commit=$(git rev-parse --short HEAD)

# Name, scenario and changes. Short runs: instructions per hop do not depend on their length.
measure() {
    local name=$1 file=$2 hops instructions
    shift 2
    "$strandway" run "$file" "$@" --threads 1 --quiet --json "$work/report.json"
    hops=$(sed -n 's/^ *"packet_hops": \([0-9]*\),*$/\1/p' "$work/report.json" | head -n 1)
    valgrind --tool=callgrind --trace-children=yes --callgrind-out-file="$work/callgrind.%p" "$strandway" run "$file" "$@" --threads 1 --quiet >"$work/log" 2>&1 ||
        { cat "$work/log"; return 1; }
    instructions=$(sed -n 's/^==[0-9]*== Collected : \([0-9]*\).*/\1/p' "$work/log" | sort -n | tail -n 1)
    echo "$commit,$name,$instructions,$hops,$(awk "BEGIN { printf \"%.2f\", $instructions / $hops }")"
}

measure perm1024 scenarios/bench/perm1024.toml --set workload.size="200 kB"
measure rocev2_pfc scenarios/bench/perm1024.toml --set workload.size="200 kB" --set profile.name=rocev2
measure mrc_8_planes scenarios/bench/perm1024.toml --set workload.size="200 kB" --set profile.name=mrc --set fabric.planes=8
