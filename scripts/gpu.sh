#!/usr/bin/env bash
# Tries, or measures, how a real GPU is shared.
#
#   scripts/gpu.sh test|bench [USER@MACHINE]
#
# With a machine named, the programs are built here and carried there by ssh: it
# needs the GPU's driver, no compiler. Without a GPU it says so and ends well.
# GPU settings (compute mode, MIG) are left as they are.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
what=${1:-}
host=${2:-}
case $what in
  test | bench) ;;
  *) sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2 ;;
esac

say() { printf 'gpu-%s: %s\n' "$what" "$*"; }

# Built where cargo is; a folder that was carried has its programs beside the script.
here=$(dirname "${BASH_SOURCE[0]}")
if [ -x "$here/gpu-trial" ]; then
  programs=$here
else
  export PATH=$PATH:$HOME/.cargo/bin
  (cd "$root" && cargo build --release -p dormouse-gpu-preload -p dormouse-gpu-trial)
  programs=${CARGO_TARGET_DIR:-$root/target}/release
fi

if [ -n "$host" ]; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  cp "$programs/gpu-trial" "$programs/libdormouse_gpu.so" "${BASH_SOURCE[0]}" "$folder"
  say "carrying the programs to $host"
  tar -C "$folder" -c . | ssh "$host" 'rm -rf dormouse-gpu && mkdir dormouse-gpu && tar -x -C dormouse-gpu'
  exec ssh "$host" "dormouse-gpu/gpu.sh $what"
fi

if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L >/dev/null 2>&1; then
  say "SKIPPED: this machine has no NVIDIA GPU: nothing was tried. Name one that has: make gpu-$what HOST=user@machine"
  exit 0
fi
say "on $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n1)"
exec "$programs/gpu-trial" "$what" "$programs/libdormouse_gpu.so"
