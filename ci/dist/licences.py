"""Prints the licences of the crates that are linked into the libraries and commands of a release: a list, then each text once.

The crates are those that Cargo resolves for Linux on x86-64. Crates that run only while others are compiled are left out.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOTS = {"gpuslice-shim", "gpuslice-reader", "gpuslice-cli", "gpuslice-agent"}
FILE = re.compile(r"(licen[cs]e|copying|copyright|notice|unlicense)", re.IGNORECASE)
HEAD = """\
gpuslice is under the Apache License 2.0. Its libraries and commands contain Rust's standard library (MIT OR Apache-2.0), and
the crates below, under the licence beside each. The licences' texts follow, as the crates bring them.
"""


def linked(metadata):
    """Packages of other authors that the roots reach by normal dependencies, sorted by name and version."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    todo = [key for key, package in packages.items() if package["name"] in ROOTS]
    seen = set()
    while todo:
        key = todo.pop()
        is_macro = any("proc-macro" in target["kind"] for target in packages[key]["targets"])
        if key in seen or is_macro:
            continue
        seen.add(key)
        for dependency in nodes[key]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                todo.append(dependency["pkg"])
    others = [packages[key] for key in seen if packages[key]["source"]]
    return sorted(others, key=lambda package: (package["name"], package["version"]))


def texts(package):
    folder = Path(package["manifest_path"]).parent
    files = sorted(path for path in folder.iterdir() if path.is_file() and FILE.match(path.name))
    return [path.read_text(errors="replace").strip() for path in files]


def main():
    command = ["cargo", "metadata", "--format-version=1", "--locked", "--filter-platform=x86_64-unknown-linux-gnu"]
    packages = linked(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
    unlicensed = [package["name"] for package in packages if not package["license"]]
    if unlicensed or len(packages) < len(ROOTS):
        sys.exit(f"of {len(packages)} crates these have no licence: {unlicensed}")
    print(HEAD)
    used = {}
    for package in packages:
        name = f"{package['name']} {package['version']}"
        print(f"{name:34} {package['license']}")
        for text in texts(package):
            used.setdefault(text, []).append(name)
    for text, names in used.items():
        print(f"\n{'-' * 100}\n{', '.join(names)}:\n\n{text}")


main()
