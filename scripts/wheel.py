#!/usr/bin/env python3
"""Makes a wheel with Python's library alone: the same files give the same wheel, byte by byte.

    scripts/wheel.py program TREE VERSION MACHINE OUT [--dynamic]
    scripts/wheel.py library PROJECT OUT

`program` packs a tree with the folders bin, lib and share: an installer puts them below the environment's
prefix. A static program runs with every C library, and the wheel's name says so; a dynamic one (--dynamic)
runs on machines like this one. `library` packs the pure Python below PROJECT/src, as PROJECT/pyproject.toml
describes it. SOURCE_DATE_EPOCH is the time of every file. The name of the wheel is printed.
"""

import argparse
import base64
import hashlib
import os
import pathlib
import stat
import time
import tomllib
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The oldest names that installers know, so that old installers take the wheel.
EVERY_C_LIBRARY = ("manylinux_2_17", "manylinux2014", "musllinux_1_1")
# The first time that a ZIP archive can hold.
EARLIEST = 315532800
SUMMARY = "A control plane for shared ML clusters: partitions that are resized while their jobs run"
DESCRIPTION = """\
Dormouse shares one cluster among machine-learning jobs. Every job gets a partition, a set of equal
containers. Partitions are resized while the jobs run, so that the cluster is full and the shares are fair.

    dormouse demo    # a cluster on this machine, and jobs that come and go
    dormouse up      # a cluster on this machine for jobs of your own

The wheel holds the program, nats-server, completions, manual pages and examples. It needs no root, no
compiler and no other package.
"""


class Wheel:
    """The files of a wheel, with their digests for RECORD."""

    def __init__(self, name, version, tags):
        self.stem = f"{name}-{version}"
        self.info = f"{self.stem}.dist-info"
        self.tags = tags
        self.files = {}

    def add(self, name, content, executable=False):
        self.files[name] = (content, 0o755 if executable else 0o644)

    def add_file(self, name, path):
        self.add(name, path.read_bytes(), bool(path.stat().st_mode & stat.S_IXUSR))

    def write(self, out, is_pure):
        python, abi = "py3", "none"
        platforms = ".".join(self.tags)
        lines = ["Wheel-Version: 1.0", "Generator: dormouse", f"Root-Is-Purelib: {str(is_pure).lower()}"]
        lines += [f"Tag: {python}-{abi}-{tag}" for tag in self.tags]
        self.add(f"{self.info}/WHEEL", ("\n".join(lines) + "\n").encode())
        path = out / f"{self.stem}-{python}-{abi}-{platforms}.whl"
        moment = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", 0)), EARLIEST))[:6]
        level = int(os.environ.get("DORMOUSE_PACKAGE_LEVEL", "9"))
        record = []
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
            # The description last, as the format recommends: readers look there first.
            for name in sorted(self.files, key=lambda name: (name.startswith(self.info), name)):
                content, mode = self.files[name]
                digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                record.append(f"{name},sha256={digest},{len(content)}")
                put(archive, name, content, mode, moment)
            record.append(f"{self.info}/RECORD,,")
            put(archive, f"{self.info}/RECORD", ("\n".join(record) + "\n").encode(), 0o644, moment)
        return path


def put(archive, name, content, mode, moment):
    entry = zipfile.ZipInfo(name, moment)
    entry.create_system = 3
    entry.external_attr = (stat.S_IFREG | mode) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, content)


def files_below(folder):
    found = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return sorted(found, key=lambda path: path.relative_to(folder).as_posix())


def metadata(fields, text):
    return ("\n".join(f"{name}: {value}" for name, value in fields) + "\n\n" + text).encode()


def program(arguments):
    tree, version = arguments.tree, arguments.version
    platforms = ["linux"] if arguments.dynamic else EVERY_C_LIBRARY
    wheel = Wheel("dormouse", version, [f"{platform}_{arguments.machine}" for platform in platforms])
    for path in files_below(tree):
        place = path.relative_to(tree)
        # Licences have a place of their own in a wheel, and documents none.
        if place.parts[:2] == ("share", "doc"):
            continue
        if place.parts[0] == "bin":
            wheel.add_file(f"{wheel.stem}.data/scripts/{place.name}", path)
        else:
            wheel.add_file(f"{wheel.stem}.data/data/{place.as_posix()}", path)
    licence_files = sorted(arguments.licence, key=lambda path: path.name)
    for path in licence_files:
        wheel.add_file(f"{wheel.info}/licenses/{path.name}", path)
    if arguments.sbom:
        wheel.add(f"{wheel.info}/sboms/dormouse.cdx.json", arguments.sbom.read_bytes())
    fields = [
        ("Metadata-Version", "2.4"),
        ("Name", "dormouse"),
        ("Version", version),
        ("Summary", SUMMARY),
        ("License-Expression", "Apache-2.0"),
        *(("License-File", path.name) for path in licence_files),
        ("Classifier", "Environment :: Console"),
        ("Classifier", "Operating System :: POSIX :: Linux"),
        ("Requires-Python", ">=3.8"),
        ("Description-Content-Type", "text/markdown"),
    ]
    wheel.add(f"{wheel.info}/METADATA", metadata(fields, DESCRIPTION))
    return wheel.write(arguments.out, is_pure=False)


def library(arguments):
    source = arguments.project
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    wheel = Wheel(project["name"].replace("-", "_"), project["version"], ["any"])
    for path in files_below(source / "src"):
        wheel.add_file(path.relative_to(source / "src").as_posix(), path)
    wheel.add(f"{wheel.info}/licenses/LICENSE", (ROOT / "LICENSE").read_bytes())
    fields = [
        ("Metadata-Version", "2.4"),
        ("Name", project["name"]),
        ("Version", project["version"]),
        ("Summary", project["description"]),
        ("License-Expression", "Apache-2.0"),
        ("License-File", "LICENSE"),
        ("Requires-Python", project["requires-python"]),
        *(("Requires-Dist", needed) for needed in project["dependencies"]),
    ]
    for extra, packages in project.get("optional-dependencies", {}).items():
        fields.append(("Provides-Extra", extra))
        fields += [("Requires-Dist", f'{needed}; extra == "{extra}"') for needed in packages]
    fields.append(("Description-Content-Type", "text/markdown"))
    wheel.add(f"{wheel.info}/METADATA", metadata(fields, (source / "README.md").read_text()))
    return wheel.write(arguments.out, is_pure=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(required=True)
    kind = kinds.add_parser("program")
    kind.set_defaults(make=program)
    kind.add_argument("tree", type=pathlib.Path)
    kind.add_argument("version")
    kind.add_argument("machine")
    kind.add_argument("out", type=pathlib.Path)
    kind.add_argument("--dynamic", action="store_true")
    kind.add_argument("--licence", type=pathlib.Path, action="append", default=[])
    kind.add_argument("--sbom", type=pathlib.Path)
    kind = kinds.add_parser("library")
    kind.set_defaults(make=library)
    kind.add_argument("project", type=pathlib.Path)
    kind.add_argument("out", type=pathlib.Path)
    arguments = parser.parse_args()
    print(arguments.make(arguments).name)


if __name__ == "__main__":
    main()
