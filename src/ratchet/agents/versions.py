"""Which version of a program is installed, and whether its adapter was tested with it.

Found in the package the program was installed from, which takes no time; asking `--version` takes some of them seconds
and makes them write into the home.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from ratchet.errors import RatchetError
from ratchet.supervision import supervise

_NUMBER = re.compile(r"\d+(?:\.\d+)+")
_ANSWER_S = 10.0


class Tested(msgspec.Struct, frozen=True, kw_only=True):
    """The versions an adapter was seen to work with: from `first` up to, and not including, `before`."""

    first: str
    before: str

    def warning(self, name: str, version: str) -> str:
        if not version:
            return f"the version of {name} cannot be found out; {self} was tested"
        fits = numbers(self.first) <= numbers(version) < numbers(self.before)
        return "" if fits else f"{name} {version} was not tested, {self} was: it may print what is not understood"

    def __str__(self) -> str:
        return f"{self.first} up to {self.before}"


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


async def version_of(program: str, *, place: Path) -> str:
    """Empty when it cannot be found out. `place` is where what it prints may be kept for a moment."""
    path = Path(program).resolve()
    return _from_package_json(path) or _from_metadata(path) or await _from_answer(program, place)


def _from_package_json(path: Path) -> str:
    if "node_modules" not in path.parts:
        return ""
    for folder in path.parents:
        if (manifest := folder / "package.json").is_file():
            try:
                found = msgspec.json.decode(manifest.read_bytes(), type=dict[str, object]).get("version", "")
            except msgspec.DecodeError:
                return ""
            if found:
                return str(found)
        if folder.name == "node_modules":
            break
    return ""


def _from_metadata(path: Path) -> str:
    """Of a program that pip put into a `bin`: the package whose RECORD names it."""
    for record in path.parent.parent.glob("lib/python3*/site-packages/*.dist-info/RECORD"):
        if f"/bin/{path.name}," in record.read_text("utf-8", errors="replace"):
            return record.parent.name.removesuffix(".dist-info").rpartition("-")[2]
    return ""


async def _from_answer(program: str, place: Path) -> str:
    said = place / "version"
    try:
        env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(place)}
        await supervise([program, "--version"], cwd=place, env=env, output=said, timeout_s=_ANSWER_S)
    except (RatchetError, OSError):
        return ""
    found = _NUMBER.search(said.read_text("utf-8", errors="replace"))
    return found[0] if found else ""
