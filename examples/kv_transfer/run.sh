#!/usr/bin/env bash
# Moves a KV cache of 1 GiB between two hosts with NIXL, and cuts one of the two planes in the middle.
#
#   sudo NIXL_PYTHON=venv/bin/python examples/kv_transfer/run.sh          a Python with nixl-cu12 and numpy
#
# The hosts are network namespaces of this machine, joined by two links of 1 Gb/s, the planes. UCX moves the cache first, for
# comparison, without a cut. Everything is removed at the end. PLUGINS is a folder with libplugin_STRANDWAY.so; by default it is built.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd -P)
root=$(cd "$here/../.." && pwd -P)
python=${NIXL_PYTHON:-python3}
mebibytes=${MEBIBYTES:-1024}
name=kv$$
if [ "$(id -u)" != 0 ]; then
    echo "this makes network namespaces: run it as root" >&2
    exit 2
fi
if ! "$python" -c 'import nixl_cu12, numpy' 2>/dev/null; then
    echo "$python has no nixl_cu12 or no numpy: python3 -m venv venv && venv/bin/pip install --no-deps nixl-cu12 numpy, then" >&2
    echo "set NIXL_PYTHON=venv/bin/python" >&2
    exit 2
fi
work=$(mktemp -d)
cleanup() {
    jobs -p | xargs -r kill 2>/dev/null || true
    wait || true
    ip netns del "$name-prefill" 2>/dev/null || true
    ip netns del "$name-decode" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
plugins=${PLUGINS:-}
if [ -z "$plugins" ]; then
    cargo build --profile wheel --manifest-path "$root/Cargo.toml" -p strandway-c
    plugins=$work/plugins
    mkdir "$plugins"
    "$root/crates/c/nixl/build.sh" "${CARGO_TARGET_DIR:-$root/target}/wheel/libstrandway.a" "$plugins/libplugin_STRANDWAY.so"
fi
head -c 32 /dev/urandom >"$work/key"

for host in prefill decode; do
    ip netns add "$name-$host"
    ip -n "$name-$host" link set lo up
done
for plane in 0 1; do
    ip -n "$name-prefill" link add "plane$plane" type veth peer name "plane$plane" netns "$name-decode"
    for host in prefill decode; do
        number=$([ $host = prefill ] && echo 1 || echo 2)
        ip -n "$name-$host" addr add "10.0.$plane.$number/24" dev "plane$plane"
        ip -n "$name-$host" link set "plane$plane" up
        tc -n "$name-$host" qdisc add dev "plane$plane" root tbf rate 1gbit burst 128kb limit 512kb
    done
done

# One transfer of the whole cache: the backend, and the seconds after which plane 1 is cut.
move() {
    backend=$1 cut=$2
    rm -f "$work"/*.metadata "$work/begun"
    for host in prefill decode; do
        number=$([ $host = prefill ] && echo 1 || echo 2)
        if [ "$backend" = STRANDWAY ]; then
            export NIXL_PLUGIN_DIR=$plugins STRANDWAY_KEY_FILE=$work/key STRANDWAY_RATE=2
            export STRANDWAY_PLANES=10.0.0.$number,10.0.1.$number
        else
            unset NIXL_PLUGIN_DIR
            export UCX_TLS=tcp
        fi
        NIXL_LOG_LEVEL=ERROR ip netns exec "$name-$host" \
            "$python" "$here/kv.py" $host "$backend" "$work" "$mebibytes" &
        [ $host = decode ] && decode=$!
    done
    if [ -n "$cut" ]; then
        while [ ! -e "$work/begun" ]; do sleep 0.05; done
        sleep "$cut"
        date +%s.%N >"$work/cut"
        ip -n "$name-prefill" link set plane1 down
        echo "plane 1 is cut"
    fi
    wait "$decode"
    kill %% 2>/dev/null || true
    wait 2>/dev/null || true
}

move UCX ""
move STRANDWAY "${CUT:-2}"
