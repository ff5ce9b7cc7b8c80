#!/usr/bin/env bash
# Makes the archive that a stranger unpacks and runs, and tries it in an empty folder.
#
#   scripts/release.sh [--binary FILE] [--library FILE] [--out FOLDER]
#
# Without --binary, `dormouse` is built, static: that takes as long as a cold optimised build. Without
# --library, libdormouse_gpu.so is built, which is small.
# The archive holds the binary, the library for parts of GPUs beside it, nats-server, completions,
# examples, the documents and all licences. The same sources give the same archive, byte by byte.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
tools=${DORMOUSE_TOOLS:-$root/.tools}
nats=${DORMOUSE_NATS_SERVER:-$tools/bin/nats-server}
binary='' library='' out=target/release-archive
die() { printf 'release: error: %s\n' "$*" >&2; exit 1; }
say() { printf 'release: %s\n' "$*"; }

while [ $# -gt 0 ]; do
  case $1 in
    --binary) binary=${2:?--binary needs a file}; shift 2 ;;
    --library) library=${2:?--library needs a file}; shift 2 ;;
    --out) out=${2:?--out needs a folder}; shift 2 ;;
    *) die "$1 is not known; see the head of scripts/release.sh" ;;
  esac
done
[ -x "$nats" ] || die "$nats is missing: scripts/install.sh nats"
epoch=$(git log -1 --format=%ct 2>/dev/null || echo 0)

if [ -z "$binary" ]; then
  machine=$(uname -m)
  DORMOUSE_COMMIT=$(git rev-parse --short=12 HEAD 2>/dev/null || true)
  export DORMOUSE_COMMIT
  # With --target the flags are those of the program alone, not those of what runs during the build.
  say "building a static binary; cold, this takes some 20 minutes on two cores"
  RUSTFLAGS="-C target-feature=+crt-static" cargo build --locked --profile dist \
    --target "$machine-unknown-linux-gnu" -p dormouse
  binary=target/$machine-unknown-linux-gnu/dist/dormouse
  if ldd "$binary" 2>/dev/null | grep -q '=>'; then die "$binary is not static: $(ldd "$binary")"; fi
fi

if [ -z "$library" ]; then
  # Loaded before programs of any image: it needs nothing but glibc, and no newer one than this machine's.
  cargo build --locked --profile dist -p dormouse-gpu-preload
  library=target/dist/libdormouse_gpu.so
fi

version=$("$binary" version -o json | python3 -c 'import json, sys; print(json.load(sys.stdin)["version"])')
name=dormouse-$version-$(uname -m)-linux
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
folder=$work/$name
mkdir -p "$folder/completion" "$out"
install -m 755 "$binary" "$folder/dormouse"
install -m 755 "$nats" "$folder/nats-server"
install -m 644 "$library" "$folder/libdormouse_gpu.so"
for shell in bash zsh fish; do "$binary" completion "$shell" >"$folder/completion/dormouse.$shell"; done
cp README.md CHANGELOG.md LICENSE "$folder/"
cp -r docs deploy "$folder/"
find "$folder" -name __pycache__ -prune -exec rm -rf {} +
scripts/licences.py >"$folder/THIRD-PARTY-LICENCES.txt"
archive=$out/$name.tar.gz
tar --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner -C "$work" -c "$name" | gzip -9n >"$archive"
(cd "$out" && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256")
needs=$(strings -a "$library" 2>/dev/null | grep -o '^GLIBC_2\.[0-9]*$' | sort -V | tail -n1) || true
say "programs with parts of GPUs need ${needs:-a glibc}, in their image too"
say "made $archive ($(du -h "$archive" | cut -f1))"
scripts/try-release.sh "$archive"
