#!/usr/bin/env bash
# Unpacks a release's archive in an empty folder and runs a cluster from it, with nothing in the
# environment but Debian's programs: scripts/try-release.sh ARCHIVE
set -euo pipefail
archive=$(realpath "${1:?usage: scripts/try-release.sh ARCHIVE}")
empty=$(mktemp -d)
cluster=''
cleanup() {
  if [ -n "$cluster" ] && kill -INT "$cluster" 2>/dev/null; then wait "$cluster" || true; fi
  rm -rf "$empty"
}
trap cleanup EXIT
die() {
  printf 'try-release: error: %s\n' "$*" >&2
  if [ -f "$empty/up.log" ]; then tail -n 20 "$empty/up.log" >&2; fi
  exit 1
}
clean() { env -i HOME="$empty" PATH=/usr/bin:/bin "$@"; }

tar -xzf "$archive" -C "$empty"
cd "$empty"/dormouse-*/
clean ./dormouse version | tee "$empty/version"
grep -q "^nats-server  [0-9].*$PWD" "$empty/version" || die "the broker of the archive is not found"
grep -q "^gpu library  $PWD/libdormouse_gpu.so" "$empty/version" || die "the library of the archive is not found"
[ -z "$(LD_PRELOAD=$PWD/libdormouse_gpu.so DORMOUSE_GPU_SOCKET=$empty/nobody /bin/true 2>&1)" ] || die "the library does not load"
# Started by itself, not by the function: the signal that ends it must not go to a shell.
env -i HOME="$empty" PATH=/usr/bin:/bin ./dormouse up --nodes 2 --capacity cpu=2,memory=1Gi >"$empty/up.log" 2>&1 &
cluster=$!
for _ in $(seq 120); do
  grep -q '^Submit a job' "$empty/up.log" && break
  kill -0 "$cluster" 2>/dev/null || die "up has ended"
  sleep 0.5
done
said=$(clean ./dormouse run --name hello -- /bin/sh -c 'echo hello from $0') || die "run: $said"
[ "$said" = "hello from /bin/sh" ] || die "run printed: $said"
clean ./dormouse submit deploy/examples/count.yaml --set containers.max=2 || die "submit"
clean ./dormouse job cancel ads/count || die "cancel"
clean ./dormouse log verify || die "verify"
printf 'try-release: %s runs from an empty folder\n' "$(basename "$archive")"
