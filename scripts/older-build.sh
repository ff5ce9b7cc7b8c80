#!/bin/sh
# Builds the older `dormouse` of `make upgrade-test` and prints its path: that of COMMIT, built once and kept by
# the commit's name, or else that of this tree.
set -eu
cd "$(dirname "$0")/.."
upgrade=$PWD/target/upgrade
if [ -z "${1:-}" ]; then
    cargo build --quiet -p dormouse
    mkdir -p "$upgrade/tree"
    cp "${CARGO_TARGET_DIR:-target}/debug/dormouse" "$upgrade/tree/dormouse"
    echo "$upgrade/tree/dormouse"
    exit
fi
commit=$(git rev-parse --short "$1^0")
if [ ! -x "$upgrade/$commit/debug/dormouse" ]; then
    sources=$upgrade/sources
    git worktree add --quiet --force --detach "$sources" "$commit" >&2
    (cd "$sources" && CARGO_TARGET_DIR=$upgrade/$commit cargo build --quiet -p dormouse >&2)
    git worktree remove --force "$sources"
fi
echo "$upgrade/$commit/debug/dormouse"
