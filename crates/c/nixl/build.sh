#!/bin/sh
# Builds libplugin_STRANDWAY.so from this directory's sources and libstrandway.a, which
# `cargo build --profile wheel -p strandway-c` makes.
#
#   crates/c/nixl/build.sh target/wheel/libstrandway.a plugins/libplugin_STRANDWAY.so
set -eu
here=$(cd "$(dirname "$0")" && pwd)
exports=$(mktemp)
trap 'rm -f "$exports"' EXIT
echo '{ global: nixl_plugin_init; nixl_plugin_fini; local: *; };' > "$exports"
${CXX:-g++} -std=c++20 -O2 -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden \
    -I"$here/../include" "$here/plugin.cpp" "$here/state.cpp" "$here/settings.cpp" \
    -s -Wl,--version-script="$exports" "$1" -lpthread -ldl -lm -o "$2"
