#!/usr/bin/env bash
# Makes a certificate authority and one certificate a server, for a trial cluster: bring your own for a real one.
#
#   deploy/nats/make-tls.sh DIR SERVER...      each SERVER a host name, also valid for localhost and 127.0.0.1
#
# Writes DIR/ca.pem, DIR/ca.key and DIR/SERVER.pem, DIR/SERVER.key. What exists is kept.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
dir=$1
shift
umask 077
mkdir -p "$dir"
if [ ! -s "$dir/ca.pem" ]; then
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj "/CN=dormouse trial CA" \
    -addext "keyUsage=critical,keyCertSign,cRLSign" -keyout "$dir/ca.key" -out "$dir/ca.pem" 2>/dev/null
fi
for server in "$@"; do
  [ ! -s "$dir/$server.pem" ] || continue
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$server" \
    -keyout "$dir/$server.key" -out "$dir/$server.csr" 2>/dev/null
  # Routes are dialled as well as accepted: both uses.
  openssl x509 -req -in "$dir/$server.csr" -CA "$dir/ca.pem" -CAkey "$dir/ca.key" -CAcreateserial -days 825 \
    -out "$dir/$server.pem" 2>/dev/null -extfile - <<EOF
subjectAltName=DNS:$server,DNS:localhost,IP:127.0.0.1
extendedKeyUsage=serverAuth,clientAuth
keyUsage=critical,digitalSignature
EOF
  rm "$dir/$server.csr"
done
