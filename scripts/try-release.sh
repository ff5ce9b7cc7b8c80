#!/usr/bin/env bash
# Installs each package of a release from an empty folder and runs a cluster from it, as a user without rights
# and with nothing in the environment but Debian's programs: scripts/try-release.sh FILE...
#
# Wheels are installed without network, by pip, and by uv where it is. As root, a Debian package is installed,
# used and purged in a copy of this system that nobody else sees; without root it is only unpacked.
set -euo pipefail
[ $# -gt 0 ] || { sed -n '2,3p' "${BASH_SOURCE[0]}" >&2; exit 2; }
self=$(realpath "${BASH_SOURCE[0]}")
# From the first command to the first line of a job.
limit_ms=${DORMOUSE_TRY_LIMIT_MS:-20000}
empty='' cluster='' package=''
say() { printf 'try-release: %s\n' "$*"; }
die() {
  printf 'try-release: error: %s: %s\n' "$package" "$*" >&2
  if [ -f "$empty/up.log" ]; then tail -n 20 "$empty/up.log" >&2; fi
  exit 1
}
stop() {
  if [ -n "$cluster" ] && kill -INT "$cluster" 2>/dev/null; then wait "$cluster" || true; fi
  cluster=''
}
cleanup() {
  stop
  [ -z "$empty" ] || rm -rf "$empty"
}
trap cleanup EXIT
now_ms() { date +%s%3N; }

# An empty folder that is all of a user, and `clean`, by which this user runs a program in it.
begin() {
  package=$(basename "$1")
  empty=$(mktemp -d)
  clean=(env -i HOME="$empty" PATH=/usr/bin:/bin TERM=dumb)
  if [ "$(id -u)" = 0 ]; then
    chown 65534:65534 "$empty"
    clean=(setpriv --reuid 65534 --regid 65534 --clear-groups "${clean[@]}")
  fi
  cd "$empty"
}

# cluster PARTS ROOMS PROGRAM...: PROGRAM finds its parts in the folder PARTS, and runs a cluster and jobs.
try_cluster() {
  local parts=$1 rooms=$2 said
  shift 2
  "${clean[@]}" "$@" version | tee "$empty/version"
  grep -q "^nats-server  [0-9].*$parts/nats-server" "$empty/version" || die "the broker of the package is not found"
  grep -q "^gpu library  .*lib.*_gpu.so" "$empty/version" || die "the library of the package is not found"
  # Started by itself, not by a function: the signal that ends it must not go to a shell.
  "${clean[@]}" "$@" up --nodes 2 --capacity cpu=2,memory=1Gi >"$empty/up.log" 2>&1 &
  cluster=$!
  for _ in $(seq 600); do
    grep -q '^Submit a job' "$empty/up.log" && break
    kill -0 "$cluster" 2>/dev/null || die "up has ended"
    sleep 0.1
  done
  said=$("${clean[@]}" "$@" run --name hello -- /bin/sh -c 'echo hello from $0') || die "run: $said"
  [ "$said" = "hello from /bin/sh" ] || die "run printed: $said"
  took_ms=$(($(now_ms) - began_ms))
  said=$("${clean[@]}" "$@" run -- python3 "$rooms/deploy/examples/count.py" --steps 2) || die "count.py: $said"
  grep -q 'count: from step 0' <<<"$said" || die "count.py printed: $said"
  "${clean[@]}" "$@" submit "$rooms/deploy/examples/count.yaml" --set workdir="$rooms" --set containers.max=2 || die "submit"
  "${clean[@]}" "$@" job cancel ads/count || die "cancel"
  "${clean[@]}" "$@" log verify || die "verify"
  stop
}
end() {
  [ "$took_ms" -le "$limit_ms" ] || die "the first job's output came after $took_ms ms, and $limit_ms are the limit"
  say "$package runs from an empty folder: first output of a job after $((took_ms / 100))00 ms$1"
  cd /
  rm -rf "$empty"
  empty=''
}

try_archive() {
  began_ms=$(now_ms)
  "${clean[@]}" tar -xzf - -C "$empty" <"$1"
  cd "$empty"/dormouse-*/
  [ -z "$(LD_PRELOAD=$PWD/libdormouse_gpu.so DORMOUSE_GPU_SOCKET=$empty/nobody /bin/true 2>&1)" ] || die "the library does not load"
  try_cluster "$PWD" "$PWD" ./dormouse
  end ''
}

# demo PROGRAM: the demo runs from an empty folder. It is longer than all other trials.
try_demo() {
  began_ms=$(now_ms)
  "${clean[@]}" "$1" demo --write-log "$empty/demo/log.jsonl" >"$empty/up.log" 2>&1 &
  cluster=$!
  until grep -q 'partition.started' "$empty/up.log"; do
    kill -0 "$cluster" 2>/dev/null || die "demo has ended"
    sleep 0.1
  done
  say "demo: first job after $((($(now_ms) - began_ms) / 100))00 ms"
  wait "$cluster" || die "demo failed"
  cluster=''
  grep '^log verify' "$empty/up.log"
}

try_wheel() {
  local uv wheel
  wheel=$empty/$(basename "$1")
  install -m 644 "$1" "$wheel"
  began_ms=$(now_ms)
  "${clean[@]}" python3 -m venv "$empty/venv"
  "${clean[@]}" venv/bin/pip --disable-pip-version-check -q install --no-index "$wheel"
  try_cluster "$empty/venv/lib/dormouse" "$empty/venv/share/dormouse" venv/bin/dormouse
  [ -n "${DORMOUSE_TRY_QUICK:-}" ] || try_demo venv/bin/dormouse
  "${clean[@]}" venv/bin/pip --disable-pip-version-check -q uninstall -y dormouse
  [ ! -e venv/bin/dormouse ] && [ ! -e venv/lib/dormouse ] || die "uninstalled, it leaves its program"
  end ' (venv, pip install, up, run)'
  uv=$(command -v uv || true)
  [ -n "$uv" ] || { say "uv is not here: the wheel is not tried with it"; return; }
  begin "$1"
  wheel=$empty/$(basename "$1")
  install -m 644 "$1" "$wheel"
  install -m 755 "$uv" "$empty/uv"
  began_ms=$(now_ms)
  "${clean[@]}" ./uv -q --offline tool install --no-python-downloads "$wheel"
  try_cluster dormouse/lib/dormouse "$empty/.local/share/uv/tools/dormouse/share/dormouse" .local/bin/dormouse
  [ ! -e .local/bin/nats-server ] || die "the broker is on the PATH of the user"
  "${clean[@]}" ./uv -q --offline tool run --no-python-downloads --from "$wheel" dormouse version >/dev/null || die "uvx"
  end ' (uv tool install, up, run)'
}

try_deb() {
  local copy failed=''
  if [ "$(id -u)" = 0 ]; then
    copy=$(mktemp -d)
    unshare --mount "$self" --in-a-copy "$1" "$copy" || failed=yes
    cd /
    rmdir "$empty" "$copy"
    empty=''
    [ -z "$failed" ] || exit 1
    return
  fi
  began_ms=$(now_ms)
  dpkg-deb -x "$1" "$empty/root"
  try_cluster "$empty/root/usr/lib/dormouse" "$empty/root/usr/share/dormouse" root/usr/bin/dormouse
  end ', unpacked: only root can install it'
}

# in_a_copy FILE FOLDER: the changes of this mount namespace's root lie in memory, and are gone with it.
in_a_copy() {
  local file=$1 copy=$2 folder
  mount -t tmpfs -o size=4g none "$copy"
  mkdir -p "$copy"/{upper,work,root}
  mount -t overlay overlay -o "lowerdir=/,upperdir=$copy/upper,workdir=$copy/work" "$copy/root"
  for folder in proc dev sys; do mount --rbind "/$folder" "$copy/root/$folder"; done
  install -m 644 "$file" "$copy/root/"
  install -m 755 "$self" "$copy/root/try-release"
  exec chroot "$copy/root" /try-release --installed "/$(basename "$file")"
}

installed() {
  local path
  began_ms=$(now_ms)
  dpkg -i "$1" >"$empty/dpkg.log" 2>&1 || { cat "$empty/dpkg.log" >&2; die "dpkg -i"; }
  getent passwd dormouse >/dev/null || die "there is no user dormouse"
  systemd-analyze verify /usr/lib/systemd/system/dormouse*.service || die "the units"
  man -l /usr/share/man/man1/dormouse.1.gz >/dev/null 2>&1 || ! command -v man >/dev/null || die "the manual"
  try_cluster /usr/lib/dormouse /usr/share/dormouse dormouse
  dpkg --purge dormouse >"$empty/dpkg.log" 2>&1 || { cat "$empty/dpkg.log" >&2; die "dpkg --purge"; }
  for path in /usr/bin/dormouse /usr/lib/dormouse /usr/share/dormouse /etc/dormouse; do
    [ ! -e "$path" ] || die "purged, it leaves $path"
  done
  end ' (dpkg -i, up, run)'
}

case $1 in
  --in-a-copy) in_a_copy "$2" "$3" ;;
  --installed) begin "$2"; installed "$2" ;;
  *)
    for file in "$@"; do
      file=$(realpath "$file")
      begin "$file"
      case $file in
        *.tar.gz) try_archive "$file" ;;
        *.whl) try_wheel "$file" ;;
        *.deb) try_deb "$file" ;;
        *) die "neither an archive nor a wheel nor a Debian package" ;;
      esac
    done
    ;;
esac
