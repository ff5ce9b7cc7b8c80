#!/usr/bin/env python3
"""Prints what a release consists of, as CycloneDX 1.6 in JSON: the crates that are linked into `dormouse`
and libdormouse_gpu.so, with the digests of Cargo.lock, and nats-server.

    scripts/sbom.py --nats-server FILE --nats-version VERSION [--target TRIPLE]

The same sources and the same nats-server give the same text. SOURCE_DATE_EPOCH is its time.
"""

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import tomllib
import uuid

from licences import ROOT, linked, metadata

NAMESPACE = uuid.UUID("8f0f2f3e-3c0b-5a53-9d0f-6f2f1c2a7b11")


def locked() -> dict[tuple[str, str], str]:
    """The digest of each crate's archive, by name and version."""
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    return {(crate["name"], crate["version"]): crate["checksum"] for crate in lock["package"] if "checksum" in crate}


def reference(package: dict) -> str:
    return f"pkg:cargo/{package['name']}@{package['version']}"


def spdx(licence: str) -> str:
    """Old manifests separate alternatives by a slash, which SPDX does not know."""
    return " OR ".join(part.strip() for part in licence.split("/"))


def component(package: dict, digests: dict[tuple[str, str], str]) -> dict:
    found = {"type": "library", "bom-ref": reference(package), "name": package["name"], "version": package["version"]}
    if package["description"]:
        found["description"] = " ".join(package["description"].split())
    digest = digests.get((package["name"], package["version"]))
    if digest:
        found["hashes"] = [{"alg": "SHA-256", "content": digest}]
    if package["license"]:
        found["licenses"] = [{"expression": spdx(package["license"])}]
    # A crate of this repository is in no registry.
    if package["source"] is not None:
        found["purl"] = reference(package)
    if package["repository"]:
        found["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return found


def broker(program: pathlib.Path, version: str) -> dict:
    name = "github.com/nats-io/nats-server/v2"
    return {
        "type": "application",
        "bom-ref": f"pkg:golang/{name}@v{version}",
        "name": "nats-server",
        "version": version,
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(program.read_bytes()).hexdigest()}],
        "licenses": [{"expression": "Apache-2.0"}],
        "purl": f"pkg:golang/{name}@v{version}",
        "externalReferences": [{"type": "vcs", "url": "https://github.com/nats-io/nats-server"}],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nats-server", type=pathlib.Path, required=True)
    parser.add_argument("--nats-version", required=True)
    parser.add_argument("--target")
    arguments = parser.parse_args()
    digests, wanted = locked(), linked(arguments.target)
    resolved = metadata()
    every = resolved["packages"]
    packages = {package["id"]: package for package in every if f"{package['name']} v{package['version']}" in wanted}
    main_program = next(package for package in packages.values() if package["name"] == "dormouse")
    server = broker(arguments.nats_server, arguments.nats_version)
    edges = {}
    for node in resolved["resolve"]["nodes"]:
        if node["id"] not in packages:
            continue
        needed = [edge["pkg"] for edge in node["deps"] if any(kind["kind"] is None for kind in edge["dep_kinds"])]
        edges[reference(packages[node["id"]])] = {reference(packages[one]) for one in needed if one in packages}
    edges[reference(main_program)].add(server["bom-ref"])
    components = [component(package, digests) for package in packages.values() if package is not main_program]
    components = sorted([*components, server], key=lambda found: found["bom-ref"])
    moment = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", 0)), datetime.timezone.utc)
    described = component(main_program, digests) | {"type": "application"}
    bom = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"timestamp": moment.strftime("%Y-%m-%dT%H:%M:%SZ"), "component": described},
        "components": components,
        "dependencies": [{"ref": found, "dependsOn": sorted(edges[found])} for found in sorted(edges)],
    }
    text = json.dumps(bom, sort_keys=True)
    bom["serialNumber"] = f"urn:uuid:{uuid.uuid5(NAMESPACE, text)}"
    print(json.dumps(bom, indent=1, sort_keys=True))


if __name__ == "__main__":
    main()
