"""Gives the wheel its tag, and its manual pages and completions, file by file: hatchling leaves files of named folders out."""

from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SHARED = ["share/man", "share/bash-completion", "share/zsh", "share/fish"]


class Contents(BuildHookInterface):
    """Hatchling calls `initialize` before it packs."""

    def initialize(self, version, build_data):
        build_data["pure_python"] = False
        # The wheel works with any Python 3, and with the oldest glibc of the portable binaries: NEWEST in ci/dist/portable.sh.
        build_data["tag"] = "py3-none-manylinux_2_31_x86_64"
        data = Path(self.root, "data")
        for path in sorted(path for folder in SHARED for path in (data / folder).rglob("*") if path.is_file()):
            build_data["shared_data"][str(path)] = str(path.relative_to(data))
