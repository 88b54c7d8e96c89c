"""Gives the wheel its tag: any Python 3, and the glibc of the portable binaries (`NEWEST` in ci/dist/portable.sh)."""

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Tag(BuildHookInterface):
    """Hatchling calls `initialize` before it packs."""

    def initialize(self, version, build_data):
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-manylinux_2_31_x86_64"
