#!/bin/sh
# Builds libplugin_STRANDWAY.so from this directory's sources, with libstrandway.a in it, which
# `cargo build --profile wheel -p strandway-c` makes:
#
#   crates/c/nixl/build.sh target/wheel/libstrandway.a plugins/libplugin_STRANDWAY.so
#
# or for the Python package, whose extension has the library: in its folder `plugins`, before the wheel is built. Such
# a plug-in works in programs that are Python or have it in them.
#
#   crates/c/nixl/build.sh --python crates/python/strandway/plugins/libplugin_STRANDWAY.so
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo '{ global: nixl_plugin_init; nixl_plugin_fini; local: *; };' > "$work/exports"
compile() {
    ${CXX:-g++} -std=c++20 -O2 -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden \
        -I"$here/../include" "$here/plugin.cpp" "$here/state.cpp" "$here/settings.cpp" \
        -s -Wl,--version-script="$work/exports" "$@"
}
if [ "$1" = --python ]; then
    mkdir -p "$(dirname "$2")"
    # An empty library with the extension's name: the real one is a folder above the plug-in.
    ${CXX:-g++} -shared -x c++ /dev/null -Wl,-soname,_lab.abi3.so -o "$work/_lab.abi3.so"
    compile -Wl,--no-as-needed "$work/_lab.abi3.so" -Wl,--as-needed -Wl,-rpath,'$ORIGIN/..' -lpthread -o "$2"
else
    compile "$1" -lpthread -ldl -lm -o "$2"
fi
