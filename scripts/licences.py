#!/usr/bin/env python3
"""Prints the licences of everything that is linked into `dormouse`, and of nats-server."""

import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAMES = ("LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE", "THIRD")


def linked() -> set[str]:
    """Package identifiers that the binary needs, without build scripts and tests."""
    tree = subprocess.run(
        ["cargo", "tree", "--locked", "-p", "dormouse", "-e", "normal", "--prefix", "none", "-f", "{p}"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout
    # "name v1.2.3", with words in brackets behind it.
    return {" ".join(line.split()[:2]) for line in tree.splitlines() if line.strip()}


def main() -> None:
    metadata = subprocess.run(
        ["cargo", "metadata", "--locked", "--format-version", "1"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout
    wanted = linked()
    texts: dict[str, list[str]] = {}
    print("nats-server: Apache-2.0, https://github.com/nats-io/nats-server")
    for package in sorted(json.loads(metadata)["packages"], key=lambda it: (it["name"], it["version"])):
        name = f"{package['name']} {package['version']}"
        if f"{package['name']} v{package['version']}" not in wanted or package["source"] is None:
            continue
        print(f"{name}: {package['license'] or 'see below'}, {package['repository'] or 'crates.io'}")
        folder = pathlib.Path(package["manifest_path"]).parent
        for file in sorted(folder.rglob("*")):
            if file.is_file() and file.name.upper().startswith(NAMES):
                text = file.read_text(errors="replace").strip()
                texts.setdefault(text, []).append(f"{name} ({file.relative_to(folder)})")
    for text, holders in texts.items():
        print(f"\n{'=' * 78}\n" + "\n".join(holders) + f"\n\n{text}")


if __name__ == "__main__":
    main()
