"""Finds installed agents with version, login and abilities."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import msgspec

from ratchet.agents.adapters import load_program
from ratchet.agents.drivers.cli_stream import CliProgram
from ratchet.agents.versions import version_of
from ratchet.tree_files import temporary_folder

NATIVE = ("claude", "codex", "gemini", "opencode", "goose", "aider", "mini")
# Commands that start an agent with ACP.
_ACP = {"gemini": "gemini --acp", "opencode": "opencode acp", "goose": "goose acp"}
_BRIDGES = {"claude": "claude-agent-acp", "codex": "codex-acp"}
_SECRETS = ("_API_KEY", "_TOKEN")


class AgentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An agent on this machine.

    `login`: where a login was found, else empty. `can`: abilities (resume a session, report cost, run without
    commands). `acp`: its spec over ACP.
    """

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


async def find_agents(environ: Mapping[str, str] = os.environ) -> list[AgentStatus]:
    """Inspect all agents concurrently: getting a version can be slow."""
    return list(await asyncio.gather(*(inspect_agent(name, environ) for name in NATIVE)))


async def inspect_agent(name: str, environ: Mapping[str, str] = os.environ) -> AgentStatus:
    program = load_program(name)
    path = shutil.which(name, path=environ.get("PATH")) or ""
    with temporary_folder("ratchet-") as scratch_dir:
        version = await version_of(path, scratch_dir=Path(scratch_dir)) if path else ""
    return AgentStatus(
        name=name,
        path=path,
        version=version,
        tested=str(program.tested),
        warning=program.tested.warning(name, version) if path else "",
        login=_login(program, environ),
        can=_abilities(program),
        acp=_over_acp(name, environ),
    )


def login_command(name: str) -> str:
    return load_program(name).login_command


def _login(program: CliProgram, environ: Mapping[str, str]) -> str:
    """Return the names of set API variables and of login files; never their content."""
    home = Path(environ.get("HOME") or Path.home())
    named = [name for name in program.variables if name.endswith(_SECRETS) and environ.get(name)]
    kept = [f"~/{file}" for file in program.logins if (home / file).is_file()]
    return ", ".join([*named, *kept])


def _abilities(program: CliProgram) -> list[str]:
    able = {"resume": program.resumes, "edits only": program.limitable, "cost": program.reports_cost}
    return [what for what, can in able.items() if can]


def _over_acp(name: str, environ: Mapping[str, str]) -> str:
    if find_spec("acp") is None:
        return ""
    bridge = _BRIDGES.get(name, "")
    command = _ACP.get(name) or (bridge if bridge and shutil.which(bridge, path=environ.get("PATH")) else "")
    return f"acp:{command}" if command else ""
