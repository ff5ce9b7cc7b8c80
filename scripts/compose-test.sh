#!/usr/bin/env bash
# Brings deploy/compose.yaml up and judges it: scripts/compose-test.sh BINARY
#
# Three brokers, two copies of every service, two agents on the machine's own Docker engine, Jaeger,
# Prometheus. A job is submitted over TLS and runs; a broker and one copy of
# each service are killed; another job runs; the log verifies. Everything is removed again.
# Ports 4222, 4318, 8080, 9090, 9464 to 9480 and 16686 of this machine must be free.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
tools=${DORMOUSE_TOOLS:-$root/.tools}
binary=$(realpath "${1:?usage: scripts/compose-test.sh BINARY}")
# A copy of deploy/: keys and certificates belong to this trial.
trial=$(mktemp -d)
state=/var/lib/dormouse
[ ! -e "$state/n0" ] || { echo "compose-test: error: $state/n0 exists: another cluster uses it" >&2; exit 1; }
export DORMOUSE_IMAGE=dormouse-local/dormouse DORMOUSE_NATS_IMAGE=dormouse-local/nats
export DORMOUSE_JAEGER_IMAGE=dormouse-local/jaeger DORMOUSE_PROMETHEUS_IMAGE=dormouse-local/prometheus
compose() { "$tools/bin/docker-compose" -f "$trial/deploy/compose.yaml" "$@"; }
say() { printf 'compose-test: %s\n' "$*"; }
die() { say "error: $*" >&2; exit 1; }
cleanup() {
  local code=$?
  if [ $code != 0 ]; then
    compose ps --all --format 'table {{.Name}}\t{{.Status}}' >&2 || true
    compose logs --tail 8 --no-color >&2 2>/dev/null || true
  fi
  compose down -v --timeout 5 >/dev/null 2>&1 || true
  docker ps -aq --filter label=dormouse.node | xargs -r docker rm -f >/dev/null 2>&1 || true
  rm -rf "$trial" "$state/n0" "$state/n1" "$state/checkpoints"
}
trap cleanup EXIT

# await SECONDS WHAT COMMAND...: until it succeeds.
await() {
  local seconds=$1 what=$2 end
  shift 2
  end=$((SECONDS + seconds))
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || { "$@" >&2 || true; die "$what did not happen within $seconds s"; }
    sleep 0.5
  done
}

as() { env DORMOUSE_SERVER=tls://localhost:4222 DORMOUSE_TLS_CA="$trial/deploy/tls/ca.pem" DORMOUSE_NKEY="$trial/deploy/keys/$1.nk" "$binary" "${@:2}"; }
job() {
  cat <<YAML
{name: $1, tenant: ads, kind: training, executor: plain, image: dormouse-local/base, command: {start: [/bin/sh, -c, "echo hello"]},
 demand: {cpu: 1, memory: 256Mi}, containers: {min: 2, max: 2}, success: all, retries: 2}
YAML
}
ended() { ! kill -0 "$1"; }
runs() {
  local started=$SECONDS
  job "$1" | as operator submit -
  as operator job wait "ads/$1" &
  waiting=$!
  await 60 "the end of $1" ended $waiting
  wait $waiting || die "ads/$1 did not complete"
  say "ads/$1 completed after $((SECONDS - started)) s"
}

say "images"
scripts/compose-images.sh "$binary"
cp -r deploy "$trial/deploy"
(cd "$trial" && deploy/nats/make-tls.sh deploy/tls nats-1 nats-2 nats-3)
"$binary" account file --keys "$trial/deploy/keys" tenant-ads ads/alice:submitter ads/vera:viewer operator-olga node-n0 node-n1 gateway-g0 >"$trial/deploy/nats/accounts.conf"
chmod -R a+rX "$trial"
say "up: $(compose version --short)"
compose up --no-build --detach --wait-timeout 180 >"$trial/up.log" 2>&1 || { tail -n 20 "$trial/up.log" >&2; die "compose up"; }
nodes_ready() { [ "$(as operator nodes -o json | grep -o '"state":"up"' | wc -l)" = 2 ]; }
await 120 "two nodes" nodes_ready
as operator tenant grant ads --image 'dormouse-local/*' >/dev/null
runs first

say "a broker and one copy of each service are killed"
compose kill -s KILL nats-2 >/dev/null 2>&1
for service in admission optimizer placer checkpointer autoscaler api; do
  docker kill "dormouse-$service-1" >/dev/null
done
runs second
compose start nats-2 >/dev/null 2>&1

scraped() { wget -qO- "http://localhost:9090/api/v1/query?query=up" | grep -q '"service":"placer"'; }
await 60 "metrics in Prometheus" scraped
traced() { wget -qO- http://localhost:16686/api/services | grep -q optimizer; }
await 60 "traces in Jaeger" traced
# There is no such service: that is an answer, of which wget makes an error.
answered() { { wget -S -O- http://localhost:8080/ads/nothing/ 2>&1 || true; } | grep 'HTTP/1.1 40[14]'; }
await 30 "an answer of the gateway" answered
as operator log verify
say "ok: two jobs, a broker and six services lost, metrics, traces, the gateway; the log verifies"
