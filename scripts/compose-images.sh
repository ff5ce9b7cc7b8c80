#!/usr/bin/env bash
# Makes the images of deploy/compose.yaml from what is installed here, on a base of a few of
# Debian's packages: dormouse-local/{base,nats,dormouse,jaeger,prometheus}. Nothing is pulled.
#
#   scripts/compose-images.sh BINARY        the dormouse to put in
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tools=${DORMOUSE_TOOLS:-$root/.tools}
binary=$(realpath "${1:?usage: scripts/compose-images.sh BINARY}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
say() { printf 'compose-images: %s\n' "$*"; }

if ! docker image inspect dormouse-local/base >/dev/null 2>&1; then
  say "base, from Debian's packages"
  mkdir "$work/packages" "$work/root"
  # apt drops its rights for the download.
  chmod 755 "$work" && chmod 777 "$work/packages"
  (cd "$work/packages" && apt-get -q download libc6 libgcc-s1 libstdc++6 busybox-static ca-certificates >/dev/null)
  for package in "$work"/packages/*.deb; do dpkg-deb -x "$package" "$work/root"; done
  mkdir -p "$work/root"/{bin,etc/ssl/certs,proc,sys,dev,tmp,var/lib/dormouse,data}
  chmod 1777 "$work/root/tmp"
  for name in sh wget cat ls; do ln -sf busybox "$work/root/bin/$name"; done
  # What the package's own script would put together.
  find "$work/root/usr/share/ca-certificates" -name '*.crt' -print0 | sort -z | xargs -0 cat >"$work/root/etc/ssl/certs/ca-certificates.crt"
  printf 'root:x:0:0::/:/bin/sh\ndormouse:x:10001:10001::/var/lib/dormouse:/bin/sh\n' >"$work/root/etc/passwd"
  printf 'root:x:0:\ndormouse:x:10001:\n' >"$work/root/etc/group"
  chown 10001:10001 "$work/root/var/lib/dormouse"
  tar -C "$work/root" -c . | docker import - dormouse-local/base >/dev/null
fi

# image NAME FILE INSTRUCTIONS...: one program on the base.
image() {
  local name=$1 file=$2 context
  shift 2
  context=$(mktemp -d -p "$work")
  install -m 755 "$file" "$context/program"
  { printf 'FROM dormouse-local/base\nCOPY program /usr/local/bin/%s\n' "$name"; printf '%s\n' "$@"; } >"$context/Dockerfile"
  docker build -q -t "dormouse-local/$name" "$context" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
  say "dormouse-local/$name"
}

image dormouse "$binary" 'USER 10001' 'WORKDIR /var/lib/dormouse' \
  'ENV DORMOUSE_DATA=/var/lib/dormouse DORMOUSE_LOG_FORMAT=json' 'ENTRYPOINT ["/usr/local/bin/dormouse"]'
image nats "$tools/bin/nats-server" 'ENTRYPOINT ["/usr/local/bin/nats"]'
image jaeger "$tools/bin/jaeger" 'USER 10001' 'ENTRYPOINT ["/usr/local/bin/jaeger"]'
image prometheus "$tools/bin/prometheus" 'WORKDIR /prometheus' 'ENTRYPOINT ["/usr/local/bin/prometheus"]'
