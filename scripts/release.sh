#!/usr/bin/env bash
# Makes the packages that a stranger installs and runs, and tries each in an empty folder.
#
#   scripts/release.sh [--binary FILE] [--library FILE] [--target TRIPLE --host-binary FILE]
#                      [--packages LIST] [--key FILE] [--twice] [--no-try] [--out FOLDER]
#
# Without --binary, `dormouse` is built, static: that takes as long as a cold optimised build. Without
# --library, libdormouse_gpu.so is built, which is small.
# --packages is a list of archive, wheel and deb, by default all. Beside them lie a wheel of the trainer's
# library, the list of what is linked (CycloneDX) and SHA256SUMS, which --key (a private key of ssh-keygen)
# signs. --twice packs again and compares: the same files give the same packages, byte by byte.
# --target builds for another processor with Debian's cross compilers (scripts/install.sh arm64). Version and
# completions come from --host-binary then, a dormouse of the same sources that runs here. Nothing is tried.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
tools=${DORMOUSE_TOOLS:-$root/.tools}
binary='' library='' target='' speaker='' packages=archive,wheel,deb key='' twice='' try=yes out=target/release-archive
die() { printf 'release: error: %s\n' "$*" >&2; exit 1; }
say() { printf 'release: %s\n' "$*"; }

while [ $# -gt 0 ]; do
  case $1 in
    --binary) binary=${2:?--binary needs a file}; shift 2 ;;
    --library) library=${2:?--library needs a file}; shift 2 ;;
    --target) target=${2:?--target needs a triple such as aarch64-unknown-linux-gnu}; shift 2 ;;
    --host-binary) speaker=${2:?--host-binary needs a file}; shift 2 ;;
    --packages) packages=${2:?--packages needs a list such as archive,wheel}; shift 2 ;;
    --key) key=${2:?--key needs a file}; shift 2 ;;
    --twice) twice=yes; shift ;;
    --no-try) try=''; shift ;;
    --out) out=${2:?--out needs a folder}; shift 2 ;;
    *) die "$1 is not known; see the head of scripts/release.sh" ;;
  esac
done
host=$(uname -m)-unknown-linux-gnu
target=${target:-$host}
machine=${target%%-*}
case $machine in
  x86_64) architecture=amd64 ;;
  aarch64) architecture=arm64 ;;
  *) die "no packages for $machine: x86_64 and aarch64 are known" ;;
esac
IFS=, read -ra kinds <<<"$packages"
for kind in "${kinds[@]}"; do
  case $kind in
    archive | wheel | deb) ;;
    *) die "$kind is no package: archive, wheel or deb" ;;
  esac
done
[ -z "$key" ] || [ -r "$key" ] || die "$key cannot be read"

if [ "$target" = "$host" ]; then
  nats=${DORMOUSE_NATS_SERVER:-$tools/bin/nats-server}
  [ -x "$nats" ] || die "$nats is missing: scripts/install.sh nats"
else
  nats=$tools/$machine/bin/nats-server
  compiler=$machine-linux-gnu
  [ -x "$nats" ] || die "$nats is missing: scripts/install.sh arm64"
  command -v "$compiler-g++" >/dev/null || die "$compiler-g++ is missing: scripts/install.sh arm64"
  [ -n "$speaker" ] || die "--target $target needs --host-binary, a dormouse of the same sources that runs here"
  under=${target//-/_}
  # The linker of Rust, the compilers of crates with C and of scripts/highs.cmake, the headers of bindgen.
  export "CARGO_TARGET_$(tr a-z A-Z <<<"$under")_LINKER=$compiler-gcc"
  export "CC_$under=$compiler-gcc" "CXX_$under=$compiler-g++" "AR_$under=$compiler-ar"
  export "BINDGEN_EXTRA_CLANG_ARGS_$under=--sysroot=/usr/$compiler -I/usr/$compiler/include"
fi

if [ -z "$binary" ]; then
  DORMOUSE_COMMIT=$(git rev-parse --short=12 HEAD)
  export DORMOUSE_COMMIT
  # With --target the flags are those of the program alone, not those of what runs during the build.
  say "building a static binary; cold, this takes some 20 minutes on two cores"
  RUSTFLAGS="-C target-feature=+crt-static" cargo build --locked --profile dist --target "$target" -p dormouse
  binary=${CARGO_TARGET_DIR:-target}/$target/dist/dormouse
  if readelf -l "$binary" | grep -q INTERP; then die "$binary is not static"; fi
fi
if [ -z "$library" ]; then
  # Loaded before programs of any image: it needs nothing but glibc, and no newer one than this machine's.
  if [ "$target" = "$host" ]; then
    cargo build --locked --profile dist -p dormouse-gpu-preload
    library=${CARGO_TARGET_DIR:-target}/dist/libdormouse_gpu.so
  else
    cargo build --locked --profile dist --target "$target" -p dormouse-gpu-preload
    library=${CARGO_TARGET_DIR:-target}/$target/dist/libdormouse_gpu.so
  fi
fi

speaker=${speaker:-$binary}
version=$("$speaker" version -o json | python3 -c 'import json, sys; print(json.load(sys.stdin)["version"])')
nats_version=$(sed -n 's/^nats_version=//p' scripts/install.sh)
[ "$target" != "$host" ] || nats_version=$("$nats" --version | sed 's/.*v//')
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) || die "this is no clone of the repository"
export SOURCE_DATE_EPOCH
level=${DORMOUSE_PACKAGE_LEVEL:-9}
name=dormouse-$version-$machine-linux
dynamic=()
if readelf -l "$binary" 2>/dev/null | grep -q INTERP; then dynamic=(--dynamic); fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# tracked FOLDER PATH...: copies what git knows below the paths. Keys of trials and caches lie there, too.
tracked() {
  local folder=$1
  shift
  git ls-files -z -- "$@" | tar -c --null -T - | tar -x -C "$folder"
}

# rooms FOLDER: examples, and the library that they import, where they stand in the repository.
rooms() {
  mkdir -p "$1"
  tracked "$1" deploy messages/trainer/python
  rm -rf "$1"/deploy/{debian,.gitignore} "$1/messages/trainer/python/tests"
  find "$1" -name '*.sh' -exec grep -lZ '^#!' {} + | xargs -0 chmod 755
}

# The same folders for wheel and Debian package: the program finds its parts from where it stands.
tree=$work/tree
mkdir -p "$tree"/{bin,lib/dormouse,share/{dormouse,man/man1,doc/dormouse}} \
  "$tree"/share/{bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}
install -m 755 "$binary" "$tree/bin/dormouse"
install -m 755 "$nats" "$tree/lib/dormouse/nats-server"
install -m 644 "$library" "$tree/lib/dormouse/libdormouse_gpu.so"
"$speaker" completion bash >"$tree/share/bash-completion/completions/dormouse"
"$speaker" completion zsh >"$tree/share/zsh/site-functions/_dormouse"
"$speaker" completion fish >"$tree/share/fish/vendor_completions.d/dormouse.fish"
"$speaker" completion man "$tree/share/man/man1"
rooms "$tree/share/dormouse"
documents=$tree/share/doc/dormouse
tracked "$documents" README.md CHANGELOG.md LICENSE docs
scripts/licences.py "$target" >"$documents/THIRD-PARTY-LICENCES.txt"
scripts/sbom.py --nats-server "$nats" --nats-version "$nats_version" --target "$target" >"$documents/dormouse.cdx.json"

archive() {
  local folder=$work/$name
  rm -rf "$folder"
  mkdir -p "$folder/completion"
  cp "$tree/bin/dormouse" "$tree"/lib/dormouse/* "$folder/"
  cp "$tree/share/bash-completion/completions/dormouse" "$folder/completion/dormouse.bash"
  cp "$tree/share/zsh/site-functions/_dormouse" "$folder/completion/dormouse.zsh"
  cp "$tree/share/fish/vendor_completions.d/dormouse.fish" "$folder/completion/dormouse.fish"
  cp -r "$documents"/* "$tree"/share/dormouse/* "$folder/"
  chmod -R u=rwX,go=rX "$folder"
  tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -C "$work" -c "$name" |
    gzip "-${level}n" >"$1/$name.tar.gz"
  echo "$name.tar.gz"
}
wheel() {
  scripts/wheel.py program "$tree" "$version" "$machine" "$1" "${dynamic[@]}" --licence LICENSE \
    --licence "$documents/THIRD-PARTY-LICENCES.txt" --sbom "$documents/dormouse.cdx.json"
}
deb() { scripts/deb.sh "$tree" "$version" "$architecture" "$1"; }

# pack FOLDER: makes everything, prints the names.
pack() {
  local kind
  mkdir -p "$1"
  for kind in "${kinds[@]}"; do "$kind" "$1"; done
  scripts/wheel.py library messages/trainer/python "$1"
  cp "$documents/dormouse.cdx.json" "$1/$name.cdx.json"
  echo "$name.cdx.json"
}

pack "$out" >"$work/names"
mapfile -t names <"$work/names"
(cd "$out" && sha256sum "${names[@]}" >SHA256SUMS)
if [ -n "$twice" ]; then
  pack "$work/again" >/dev/null
  (cd "$work/again" && sha256sum --check --quiet) <"$out/SHA256SUMS" || die "packed again, the packages differ"
  say "packed twice, the same: SHA256SUMS $(sha256sum <"$out/SHA256SUMS" | cut -c1-16)"
fi
rm -f "$out/SHA256SUMS.sig"
if [ -n "$key" ]; then
  ssh-keygen -q -Y sign -n dormouse-release -f "$key" "$out/SHA256SUMS"
  say "signed with $(ssh-keygen -l -f "$key" | cut -d' ' -f2)"
fi
needs=$(strings -a "$library" 2>/dev/null | grep -o '^GLIBC_2\.[0-9]*$' | sort -V | tail -n1) || true
say "programs with parts of GPUs need ${needs:-a glibc}, in their image too"
for file in "${names[@]}"; do say "made $out/$file ($(du -h "$out/$file" | cut -f1))"; done
if [ "$target" != "$host" ]; then
  say "packages for $machine are not tried here"
elif [ -n "$try" ]; then
  tried=()
  for file in "${names[@]}"; do
    case $file in dormouse_trainer-* | *.json) ;; *) tried+=("$out/$file") ;; esac
  done
  scripts/try-release.sh "${tried[@]}"
fi
