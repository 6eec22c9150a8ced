"""Which agents are installed here, in which version, logged in or not, and what each can do."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import msgspec

from ratchet.agents.native import Program
from ratchet.agents.versions import version_of

NATIVE = ("claude", "codex", "gemini", "opencode", "goose", "aider", "mini")
# How each is started to speak ACP, where it can.
_ACP = {"gemini": "gemini --acp", "opencode": "opencode acp", "goose": "goose acp"}
_BRIDGES = {"claude": "claude-agent-acp", "codex": "codex-acp"}
_SECRETS = ("_API_KEY", "_TOKEN")


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """One agent, as it is here. `login` says by what it is logged in; empty when nothing was found. `can` names what
    it can do for us: resume a session, say what it cost, be held without a sandbox. `acp` is its spec over ACP."""

    name: str
    path: str = ""
    version: str = ""
    tested: str
    warning: str = ""
    login: str = ""
    can: list[str] = []
    acp: str = ""

    @property
    def installed(self) -> bool:
        return bool(self.path)


async def survey(environ: Mapping[str, str] = os.environ) -> list[Standing]:
    """All at once: asking one for its version can take a while."""
    return list(await asyncio.gather(*(look_at(name, environ) for name in NATIVE)))


async def look_at(name: str, environ: Mapping[str, str] = os.environ) -> Standing:
    program: Program = import_module(f"ratchet.agents.{name}").PROGRAM
    path = shutil.which(name, path=environ.get("PATH")) or ""
    with tempfile.TemporaryDirectory() as place:
        version = await version_of(path, place=Path(place)) if path else ""
    return Standing(
        name=name,
        path=path,
        version=version,
        tested=str(program.tested),
        warning=program.tested.warning(name, version) if path else "",
        login=_login(program, environ),
        can=_abilities(program),
        acp=_over_acp(name, environ),
    )


def _login(program: Program, environ: Mapping[str, str]) -> str:
    """By a variable of its provider, or by what a login left in its folders; never what they hold."""
    home = Path(environ.get("HOME") or Path.home())
    named = [name for name in program.variables if name.endswith(_SECRETS) and environ.get(name)]
    kept = [f"~/{file}" for file in program.logins if (home / file).is_file()]
    return ", ".join([*named, *kept])


def _abilities(program: Program) -> list[str]:
    able = {"resume": program.resumes, "edits only": program.limitable, "cost": program.tells_cost}
    return [what for what, can in able.items() if can]


def _over_acp(name: str, environ: Mapping[str, str]) -> str:
    if find_spec("acp") is None:
        return ""
    bridge = _BRIDGES.get(name, "")
    command = _ACP.get(name) or (bridge if bridge and shutil.which(bridge, path=environ.get("PATH")) else "")
    return f"acp:{command}" if command else ""
