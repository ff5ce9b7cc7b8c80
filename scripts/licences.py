#!/usr/bin/env python3
"""Prints the licences of everything that is linked into the programs of a release, and of nats-server.

    scripts/licences.py [TARGET]
"""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = ("dormouse", "dormouse-gpu-preload")
NAMES = ("LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE", "THIRD")


def cargo(*arguments: str) -> str:
    return subprocess.run(["cargo", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def linked(target: str | None = None) -> set[str]:
    """Package identifiers that the programs need on `target`, without build scripts and tests."""
    packages = [word for program in PROGRAMS for word in ("-p", program)]
    where = ["--target", target] if target else []
    tree = cargo("tree", "--locked", *packages, *where, "-e", "normal", "--prefix", "none", "-f", "{p}")
    # "name v1.2.3", with words in brackets behind it.
    return {" ".join(line.split()[:2]) for line in tree.splitlines() if line.strip()}


def metadata() -> dict:
    return json.loads(cargo("metadata", "--locked", "--format-version", "1"))


def main() -> None:
    wanted = linked(sys.argv[1] if len(sys.argv) > 1 else None)
    texts: dict[str, list[str]] = {}
    print("nats-server: Apache-2.0, https://github.com/nats-io/nats-server")
    for package in sorted(metadata()["packages"], key=lambda it: (it["name"], it["version"])):
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
