#!/usr/bin/env bash
# Writes the broker's accounts and permissions (accounts.conf) to standard output.
#
#   deploy/nats/make-accounts.sh [--prefix NAME] [--keys DIR] [--tenant NAME]... [--user TENANT/NAME:ROLE]...
#                                [--operator NAME]... [--node NAME]... [--gateway NAME]...
#
# Without --keys every user's public nkey is a variable that the server reads from its environment:
# $DORMOUSE_NKEY_ADMISSION, $DORMOUSE_NKEY_NODE_N0, $DORMOUSE_NKEY_TENANT_ADS ... With --keys the keys are made
# (openssl) and filled in: DIR/<user>.nk is the seed that a client is given (DORMOUSE_NKEY), DIR/<user>.pub the
# public key. Existing keys are kept, so that a tenant or node can be added later. DIR/gateway.secret is what the
# keys of services' callers follow from (`dormouse account key`).
#
# Users: admission, optimizer, placer, checkpointer, autoscaler, archiver, slurm, api, webhook, operator, sys, node-<name>,
# gateway-<name>, tenant-<name>; people: user-<tenant>.<name> (ROLE is viewer or submitter), operator-<name>.
# What people do stands on the log under their names: the broker writes them into the subjects.
set -euo pipefail

prefix=dormouse keys=
tenants=() nodes=() gateways=() users=() operators=()
while [ $# -gt 0 ]; do
  case $1 in
    --prefix) prefix=$2; shift 2 ;;
    --keys) keys=$2; shift 2 ;;
    --tenant) tenants+=("$2"); shift 2 ;;
    --user) users+=("$2"); shift 2 ;;
    --operator) operators+=("$2"); shift 2 ;;
    --node) nodes+=("$2"); shift 2 ;;
    --gateway) gateways+=("$2"); shift 2 ;;
    -h | --help) sed -n '2,16s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "make-accounts: unknown argument '$1'" >&2; exit 2 ;;
  esac
done
for name in "$prefix" "${tenants[@]}" "${nodes[@]}" "${gateways[@]}"; do
  # A dot or a wildcard in a name would widen the permissions below.
  [[ $name =~ ^[A-Za-z0-9_-]+$ ]] || { echo "make-accounts: '$name' is not a name of letters, digits, '-' and '_'" >&2; exit 2; }
done

for name in "${operators[@]}"; do
  [[ $name =~ ^[a-z][a-z0-9-]*$ ]] || { echo "make-accounts: '$name' is not an operator's name of lower-case letters, digits and '-'" >&2; exit 2; }
done
for user in "${users[@]}"; do
  [[ $user =~ ^[A-Za-z0-9_-]+/[a-z][a-z0-9-]*:(viewer|submitter)$ ]] || { echo "make-accounts: '$user' is not of the form ads/alice:submitter or ads/vera:viewer" >&2; exit 2; }
done

# variable USER: the variable that holds its public key.
variable() { printf '$DORMOUSE_NKEY_%s' "$(tr 'a-z.-' 'A-Z__' <<<"$1")"; }

if [ -z "$keys" ]; then
  people=("${users[@]%:*}")
  twice=$(for user in "${tenants[@]/#/tenant-}" "${nodes[@]/#/node-}" "${gateways[@]/#/gateway-}" \
    "${operators[@]/#/operator-}" "${people[@]/#/user-}"; do variable "${user//\//.}"; echo; done | sort | uniq -d | head -1)
  [ -z "$twice" ] || { echo "make-accounts: two of these names have the key $twice; name one otherwise, or give --keys" >&2; exit 2; }
fi

stream=$(tr 'a-z-' 'A-Z_' <<<"$prefix")
log=${stream}_LOG
ingress=${stream}_IN
code=${stream}_CODE
states=${stream}_STATES
leases=KV_${prefix}_leases

# nkey USER: its public key, or the variable that holds it.
nkey() {
  if [ -z "$keys" ]; then
    variable "$1"
    return
  fi
  mkdir -p "$keys"
  [ -s "$keys/$1.pub" ] || make_key "$keys/$1"
  cat "$keys/$1.pub"
}

# make_key FILE: an Ed25519 key in NATS's encoding, FILE.nk (seed) and FILE.pub.
make_key() (
  umask 077
  openssl genpkey -algorithm ed25519 -outform DER -out "$1.der"
  openssl pkey -in "$1.der" -inform DER -pubout -outform DER -out "$1.pub.der"
  python3 - "$1" <<'PY'
import base64, sys

def encoded(prefix, key):
    """Prefix, key and CRC-16/XMODEM in base 32: github.com/nats-io/nkeys."""
    body, crc = prefix + key, 0
    for byte in body:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return base64.b32encode(body + crc.to_bytes(2, "little")).rstrip(b"=").decode()

SEED, USER = 18 << 3, 20 << 3
path = sys.argv[1]
seed = open(path + ".der", "rb").read()[-32:]
public = open(path + ".pub.der", "rb").read()[-32:]
open(path + ".nk", "w").write(encoded(bytes([SEED | USER >> 5, (USER & 31) << 3]), seed) + "\n")
open(path + ".pub", "w").write(encoded(bytes([USER]), public) + "\n")
PY
  rm -f "$1.der" "$1.pub.der"
)

# reads STREAM: what following it takes (its state, pull consumers, single messages).
reads() {
  looks "$1"
  local call
  for call in DIRECT.GET. CONSUMER.CREATE.; do echo "\$JS.API.$call$1 \$JS.API.$call$1.>"; done
  for call in CONSUMER.INFO. CONSUMER.MSG.NEXT. CONSUMER.DELETE.; do echo "\$JS.API.$call$1.>"; done
}

# looks STREAM: its state and single messages only.
looks() { echo "\$JS.API.STREAM.INFO.$1 \$JS.API.STREAM.MSG.GET.$1"; }

# quoted SUBJECT...: one a line, quoted.
quoted() { printf '          "%s"\n' "$@"; }

# user NAME "SUBSCRIBE..." "PUBLISH..." [MORE]: everyone has an inbox. No subject holds a space, so lists are words.
user() {
  local subscribe publish
  set -f
  # shellcheck disable=SC2086
  subscribe=$(quoted '_INBOX.>' $2) publish=$(quoted '$JS.API.INFO' $3)
  set +f
  cat <<EOF
      # $1
      {nkey: $(nkey "$1"), permissions: {
        subscribe: {allow: [
$subscribe
        ]}
        publish: {allow: [
$publish
        ]}${4:-}
      }}
EOF
}

# service WRITER [PUBLISH]: follows the log, appends as WRITER, competes for WRITER's leases.
service() {
  user "$1" "" "$prefix.log.$1.> $(lease "$1") $(lease "$1.>") $(reads "$log") $(looks "$leases") \$JS.API.$(states_read) ${2:-}"
}

# own_asks NAME: what the account of an agent or gateway asks of the broker. Of the broker's interface it has the state and
# single messages of the log and the leases, and fetches of one reader that the operator made; replies are rewritten by the
# imports, so that nothing can be delivered to anybody else.
own_asks() {
  echo "STREAM.INFO.$log STREAM.MSG.GET.$log DIRECT.GET.$log STREAM.INFO.$leases STREAM.MSG.GET.$leases"
  echo "CONSUMER.INFO.$log.$1 CONSUMER.RESET.$log.$1 CONSUMER.MSG.NEXT.$log.$1 $(states_read)"
}

# code_read: what an agent asks of the broker to fetch packed folders.
code_read() { echo "DIRECT.GET.$code.>"; }

# states_read: what everyone who folds the log asks to start from a folded state.
states_read() { echo "DIRECT.GET.$states.>"; }

# code_kept: what the operator asks of the broker to list and remove packed folders, and to see whether one is there.
code_kept() { echo "$(code_read) STREAM.INFO.$code STREAM.PURGE.$code"; }

# looked: what an operator asks of the broker beside reading the log by ranges.
looked() { echo "\$JS.API.STREAM.INFO.$log \$JS.API.STREAM.MSG.GET.$log \$JS.API.$(states_read)"; }

# exported NAME SUBJECT...: to the account of an agent or gateway.
exported() {
  local name=$1 subject more
  shift
  for subject in "$@"; do printf '      {service: "%s", accounts: ["%s"]}\n' "$subject" "$name"; done
  for subject in $(own_asks "$name"); do
    more=
    case $subject in CONSUMER.MSG.NEXT.*) more='response_type: stream, ' ;; esac
    printf '      {service: "$JS.API.%s", %saccounts: ["%s"]}\n' "$subject" "$more" "$name"
  done
}

# services FROM=TO...: imports of CTL's FROM under the account's TO.
services() {
  local pair
  for pair in "$@"; do
    printf '      {service: {account: CTL, subject: "%s"}, to: "%s"}\n' "${pair%%=*}" "${pair#*=}"
  done
}

# limits CONNECTIONS: what an account of a tenant's or a person's may take of the brokers: connections to all of them,
# subscriptions of each, the longest message. The same as `dormouse account` signs (services/runtime/src/accounts/plan.rs).
limits() { echo "    limits: {max_connections: $1, max_subscriptions: 1000, max_payload: 2097152}"; }

# people NAME "SUBSCRIBE..." "PUBLISH..." IMPORTS [LIMITS]: the account of one person. A dot in an account's name would keep the
# broker from telling its users what they may do.
people() {
  set -f
  # shellcheck disable=SC2086
  cat <<PEOPLE

  "${1/./\/}": {
    users: [
      {nkey: $(nkey "$1"), permissions: {
        publish: {allow: [
$(quoted $3)
        ]}
        subscribe: {allow: [
$(quoted '_INBOX.>' $2)
        ]}
      }}
    ]
    imports: [
$4
    ]${5:-}
  }
PEOPLE
  set +f
}

# parts USER: sets tenant, name and role of TENANT/NAME:ROLE, and its verbs.
parts() {
  tenant=${1%%/*} name=${1#*/} role=${1##*:} verbs=
  name=${name%%:*}
  [ "$role" = viewer ] || verbs="submit cancel revise"
}

# answers NODE: what an agent answers, for the operator and for tenants about themselves: what its containers print.
answers() { echo "$prefix.api.*.$1 $prefix.tenant.*.api.*.$1"; }

# own NAME "ANSWERED..." SUBJECT...: the account of an agent or gateway that writes to these.
own() {
  local name=$1 answered=$2 subject more
  shift 2
  set -f
  cat <<OWN

  "$name": {
    users: [
      {nkey: $(nkey "$name"), permissions: {
        publish: {allow: [
$(quoted "$@" "$prefix.js.>")
        ]}
        subscribe: {allow: [
$(quoted '_INBOX.>' $answered)
        ]}
        allow_responses: {max: 100, expires: "1m"}
      }}
    ]
OWN
  if [ -n "$answered" ]; then
    echo '    exports: ['
    for subject in $answered; do printf '      {service: "%s", accounts: [CTL]}\n' "$subject"; done
    echo '    ]'
  fi
  echo '    imports: ['
  set +f
  for subject in "$@"; do printf '      {service: {account: CTL, subject: "%s"}}\n' "$subject"; done
  case $name in node-*) more=$(code_read) ;; *) more= ;; esac
  for subject in $(own_asks "$name") $more; do
    printf '      {service: {account: CTL, subject: "$JS.API.%s"}, to: "%s.js.%s"}\n' "$subject" "$prefix" "$subject"
  done
  printf '    ]\n  }\n'
}

# lease KEY: its subject.
lease() { echo "\$KV.${prefix}_leases.$1"; }

cat <<EOF
# Written by deploy/nats/make-accounts.sh. The log's account is the services'; each tenant, agent and gateway has one of its
# own.
# Nobody may delete events, only the archiver may trim the log, and only the operator may create or change a stream (and so lower its limits).
accounts {
  SYS: {users: [{nkey: $(nkey sys)}]}

  CTL: {
    jetstream: enabled
    users: [
EOF
service admission "$(reads "$ingress") \$JS.API.STREAM.PURGE.$ingress"
service optimizer
service placer "$(reads "$leases")"
service checkpointer
service autoscaler
service slurm
service archiver "$prefix.states.> \$JS.API.STREAM.PURGE.$states \$JS.API.STREAM.PURGE.$log \$JS.API.CONSUMER.LIST.$log"
# The queries: answers what it and tenants were asked, hands submissions in, stores tenants' packed folders, shows tenants
# what becomes of their jobs.
user api "$prefix.api.> $prefix.tenant.*.api.> \$SRV.>" "$(reads "$log") $(looks "$leases") $(looks "$ingress") \$JS.API.$(states_read)
  $prefix.in.*.* $prefix.status.> $(lease status) $(lease "status.>")
  $prefix.code.> $(printf '$JS.API.%s ' $(code_kept))" '
        allow_responses: {max: 100, expires: "1m"}'
user webhook "" "$(lease webhooks) $(lease "webhooks.>") $(reads "$log") $(looks "$leases") \$JS.API.$(states_read)"
# The cluster's owner: creates the streams. Its events name nobody; operators with names have accounts of their own.
user operator "$prefix.status.>" "$prefix.log.operator.0.> $prefix.in.*.* $prefix.api.> \$SRV.> \$SYS.REQ.USER.INFO
  $prefix.code.> $(printf '$JS.API.%s ' $(code_kept))
  $(reads "$log") $(reads "$ingress") $(reads "$leases") $(lease streams) \$JS.API.$(states_read)
  \$JS.API.STREAM.CREATE.* \$JS.API.STREAM.UPDATE.* \$JS.API.STREAM.LIST \$JS.API.STREAM.NAMES"
if [ -n "$keys" ] && [ ${#gateways[@]} -gt 0 ] && [ ! -s "$keys/gateway.secret" ]; then
  (umask 077; openssl rand -hex 32 > "$keys/gateway.secret")
fi
echo '    ]'
echo '    exports: ['
for tenant in "${tenants[@]}"; do
  for verb in submit cancel revise measured; do
    printf '      {service: "%s.in.%s.%s", accounts: ["tenant-%s"]}\n' "$prefix" "$tenant" "$verb" "$tenant"
  done
  printf '      {service: "%s.tenant.%s.api.>", accounts: ["tenant-%s"]}\n' "$prefix" "$tenant" "$tenant"
  printf '      {stream: "%s.status.%s.>", accounts: ["tenant-%s"]}\n' "$prefix" "$tenant" "$tenant"
done
for user in "${users[@]}"; do
  parts "$user"
  for verb in $verbs; do
    printf '      {service: "%s.in.%s.%s.submitter.%s", accounts: ["user-%s/%s"]}\n' "$prefix" "$tenant" "$verb" "$name" "$tenant" "$name"
  done
  printf '      {service: "%s.tenant.%s.api.>", accounts: ["user-%s/%s"]}\n' "$prefix" "$tenant" "$tenant" "$name"
  printf '      {stream: "%s.status.%s.>", accounts: ["user-%s/%s"]}\n' "$prefix" "$tenant" "$tenant" "$name"
done
set -f
for operator in "${operators[@]}"; do
  for subject in "$prefix.log.operator.$operator.>" "$prefix.in.*.submit.operator.$operator" \
    "$prefix.in.*.cancel.operator.$operator" "$prefix.in.*.revise.operator.$operator" "$prefix.api.>" \
    $(looked) "$prefix.code.>" $(printf '$JS.API.%s ' $(code_kept)); do
    printf '      {service: "%s", accounts: ["operator-%s"]}\n' "$subject" "$operator"
  done
  printf '      {service: "$JS.API.DIRECT.GET.%s", response_type: stream, accounts: ["operator-%s"]}\n' "$log" "$operator"
  printf '      {stream: "%s.status.>", accounts: ["operator-%s"]}\n' "$prefix" "$operator"
done
set +f
for node in "${nodes[@]}"; do
  exported "node-$node" "$prefix.log.node.$node.>" "$(lease "node.$node")" "\$JS.API.$(code_read)"
done
for gateway in "${gateways[@]}"; do
  exported "gateway-$gateway" "$prefix.log.gateway.$gateway.>" "$(lease "gateway.$gateway")"
done
echo '    ]'
if [ ${#nodes[@]} -gt 0 ]; then
  echo '    imports: ['
  set -f
  for node in "${nodes[@]}"; do
    for subject in $(answers "$node"); do
      printf '      {service: {account: "node-%s", subject: "%s"}}\n' "$node" "$subject"
    done
  done
  set +f
  echo '    ]'
fi
echo '  }'
for node in "${nodes[@]}"; do
  own "node-$node" "$(answers "$node")" "$prefix.log.node.$node.>" "$(lease "node.$node")"
done
for gateway in "${gateways[@]}"; do
  own "gateway-$gateway" "" "$prefix.log.gateway.$gateway.>" "$(lease "gateway.$gateway")"
done
for tenant in "${tenants[@]}"; do
  cat <<EOF

  "tenant-$tenant": {
    users: [
      {nkey: $(nkey "tenant-$tenant"), permissions: {
        publish: {allow: ["$prefix.in.$tenant.*", "$prefix.tenant.$tenant.api.>", "\$SYS.REQ.USER.INFO"]}
        subscribe: {allow: ["_INBOX.>", "$prefix.status.$tenant.>"]}
      }}
    ]
    imports: [
      {service: {account: CTL, subject: "$prefix.in.$tenant.submit"}}
      {service: {account: CTL, subject: "$prefix.in.$tenant.cancel"}}
      {service: {account: CTL, subject: "$prefix.in.$tenant.revise"}}
      {service: {account: CTL, subject: "$prefix.in.$tenant.measured"}}
      {service: {account: CTL, subject: "$prefix.tenant.$tenant.api.>"}}
      {stream: {account: CTL, subject: "$prefix.status.$tenant.>"}}
    ]
$(limits 256)
  }
EOF
done
for user in "${users[@]}"; do
  parts "$user"
  # The last one tells a key what it may do itself: so the command line learns whose it is.
  # A viewer sees what containers print, and neither runs programs in them nor is given a notebook's token.
  publish="$prefix.tenant.$tenant.api.>" imports=
  [ "$role" = submitter ] || publish="$prefix.tenant.$tenant.api.* $prefix.tenant.$tenant.api.containers.* $prefix.tenant.$tenant.api.logs.*"
  publish+=" \$SYS.REQ.USER.INFO"
  for verb in $verbs; do
    publish+=" $prefix.in.$tenant.$verb"
    imports+=$(services "$prefix.in.$tenant.$verb.submitter.$name=$prefix.in.$tenant.$verb")$'\n'
  done
  imports+="      {service: {account: CTL, subject: \"$prefix.tenant.$tenant.api.>\"}}
      {stream: {account: CTL, subject: \"$prefix.status.$tenant.>\"}}"
  people "user-$tenant.$name" "$prefix.status.$tenant.>" "$publish" "$imports" $'\n'"$(limits 64)"
done
for operator in "${operators[@]}"; do
  set -f
  imports=$(services "$prefix.log.operator.$operator.>=$prefix.log.operator.0.>" \
    "$prefix.in.*.submit.operator.$operator=$prefix.in.*.submit" \
    "$prefix.in.*.cancel.operator.$operator=$prefix.in.*.cancel" \
    "$prefix.in.*.revise.operator.$operator=$prefix.in.*.revise" "$prefix.api.>=$prefix.api.>" \
    "\$JS.API.STREAM.INFO.$log=$prefix.js.STREAM.INFO.$log" \
    "\$JS.API.STREAM.MSG.GET.$log=$prefix.js.STREAM.MSG.GET.$log" \
    "\$JS.API.DIRECT.GET.$log=$prefix.js.DIRECT.GET.$log" \
    "\$JS.API.$(states_read)=$prefix.js.$(states_read)" "$prefix.code.>=$prefix.code.>" \
    $(for call in $(code_kept); do echo "\$JS.API.$call=$prefix.js.$call"; done))
  imports+=$'\n'"      {stream: {account: CTL, subject: \"$prefix.status.>\"}}"
  set +f
  # The broker answers the first for each account by itself: so a client finds out that it is in one of its own.
  people "operator-$operator" "$prefix.status.>" "\$JS.API.STREAM.INFO.$log $prefix.js.> $prefix.log.operator.0.>
    $prefix.in.*.submit $prefix.in.*.cancel $prefix.in.*.revise $prefix.api.> \$SYS.REQ.USER.INFO $prefix.code.>" "$imports"
done
cat <<'EOF'
}
system_account: SYS
EOF
