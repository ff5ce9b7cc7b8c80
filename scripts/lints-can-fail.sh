#!/usr/bin/env bash
# Shows that the lints of `make check` can fail: a crate with a planted `unwrap` compiles without
# them, and is refused, for that, as `make check` compiles (RUSTC_WORKSPACE_WRAPPER, CLIPPY_ARGS).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
die() { printf 'lints-can-fail: %s\n' "$*" >&2; exit 1; }

[ -n "${RUSTC_WORKSPACE_WRAPPER:-}" ] || die "run it by: make check"
crate=$(mktemp -d)
trap 'rm -rf "$crate"' EXIT
mkdir "$crate/src"
cat >"$crate/Cargo.toml" <<'TOML'
[package]
name = "planted"
version = "0.0.0"
edition = "2024"
[lints.clippy]
unwrap_used = "warn"
[workspace]
TOML
echo 'pub fn planted(it: Option<u8>) -> u8 { it.unwrap() }' >"$crate/src/lib.rs"

compile() { cargo build --offline --quiet --manifest-path "$crate/Cargo.toml" --target-dir "$crate/target" 2>&1; }
said=$(env -u RUSTC_WORKSPACE_WRAPPER bash -c "$(declare -f compile); crate=$crate; compile") || die "the planted crate does not compile: $said"
if said=$(compile); then die "a planted unwrap() passed"; fi
grep -q 'clippy::unwrap-used' <<<"$said" || die "refused, but for another reason: $said"
echo "lints-can-fail: a planted unwrap() is refused"
