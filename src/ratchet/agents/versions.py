"""Finds the installed version of a program and compares it with the versions its adapter was tested with.

Reads the package metadata, which is fast; `--version` takes seconds for some programs and makes them write to the home.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from ratchet.core.foreign_json import MALFORMED
from ratchet.errors import RatchetError
from ratchet.process.supervise import supervise

_NUMBER = re.compile(r"\d+(?:\.\d+)+")
_ANSWER_S = 10.0


class VersionRange(msgspec.Struct, frozen=True, kw_only=True):
    """The versions an adapter was tested with: from `first` up to, not including, `before`."""

    first: str
    before: str

    def warning(self, name: str, version: str) -> str:
        if not version:
            return f"cannot determine the version of {name}; tested: {self}"
        fits = numbers(self.first) <= numbers(version) < numbers(self.before)
        return "" if fits else f"{name} {version} is untested (tested: {self}); its output may not be recognised"

    def __str__(self) -> str:
        return f"{self.first} up to {self.before}"


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


async def version_of(program: str, *, scratch_dir: Path) -> str:
    """Return the version, empty if unknown. `place` is a folder for temporary output."""
    path = Path(program).resolve()
    return _from_package_json(path) or _from_metadata(path) or await _from_answer(program, scratch_dir)


def _from_package_json(path: Path) -> str:
    if "node_modules" not in path.parts:
        return ""
    for folder in path.parents:
        if (manifest := folder / "package.json").is_file():
            try:
                found = msgspec.json.decode(manifest.read_bytes(), type=dict[str, object]).get("version", "")
            except MALFORMED:
                return ""
            if found:
                return str(found)
        if folder.name == "node_modules":
            break
    return ""


def _from_metadata(path: Path) -> str:
    """Find the pip package whose RECORD lists the program."""
    for record in path.parent.parent.glob("lib/python3*/site-packages/*.dist-info/RECORD"):
        if f"/bin/{path.name}," in record.read_text("utf-8", errors="replace"):
            return record.parent.name.removesuffix(".dist-info").rpartition("-")[2]
    return ""


async def _from_answer(program: str, scratch_dir: Path) -> str:
    output = scratch_dir / "version"
    try:
        env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(scratch_dir)}
        await supervise([program, "--version"], cwd=scratch_dir, env=env, output=output, timeout_s=_ANSWER_S)
    except (RatchetError, OSError):
        return ""
    found = _NUMBER.search(output.read_text("utf-8", errors="replace"))
    return found[0] if found else ""
