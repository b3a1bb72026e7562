# The common part of the examples between network namespaces. Source it with `name` (of the fabric) and `here` (the example's
# folder) set.
#
# It sets `strandway` (the program to run: STRANDWAY, by default a release build), `work` (a folder of its own) and `nodes` (the folder of
# the node files). At its end the script removes everything that it has started, built or written.
# shellcheck shell=bash disable=SC2154
if [ "$(id -u)" != 0 ]; then
    echo "this makes network namespaces: run it as root" >&2
    exit 2
fi
strandway=${STRANDWAY:-}
if [ -z "$strandway" ]; then
    cargo build --release --manifest-path "$here/../../Cargo.toml" -p strandway-cli
    strandway=${CARGO_TARGET_DIR:-$here/../../target}/release/strandway
fi
work=$(mktemp -d)
nodes=/run/strandway/$name
cleanup() {
    jobs -p | xargs -r kill 2>/dev/null || true
    wait || true
    "$strandway" fabric down --name "$name" >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
