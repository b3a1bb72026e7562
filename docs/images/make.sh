#!/usr/bin/env bash
# Makes the pictures of the README anew: the pages that its commands write, as Chromium shows them.
#
#   docs/images/make.sh          needs chromium, and `cargo build --release` before it
set -euo pipefail
cd "$(dirname "$0")/../.."
strandway=$PWD/target/release/strandway
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The first HEIGHT pixels of a page, 1,400 wide.
picture() {
    local page=$1 height=$2 name=$3
    chromium --headless --no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync \
        --user-data-dir="$work/chromium" --hide-scrollbars --force-device-scale-factor=1 --virtual-time-budget=10000 \
        --window-size="1400,$height" --screenshot="docs/images/$name.png" "file://$page" >/dev/null 2>&1
}

(cd "$work" && ln -s "$OLDPWD/scenarios" scenarios && "$strandway" >/dev/null)
picture "$work/strandway-showcase.html" 1000 showcase
"$strandway" run scenarios/golden/job_link_down.toml --html "$work/iteration.html" >/dev/null
picture "$work/iteration.html" 1800 iteration
