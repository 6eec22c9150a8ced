"""How each client is told of us: which file, and what stands in it. A token is never written, only where to find it."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ratchet.errors import UsageError

NAME = "ratchet"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What to start, or where it is served."""

    command: list[str] = []
    url: str = ""


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """`file` is in the repository, or in the user's home where the client knows no other. `key` holds the servers."""

    file: str
    key: str
    shape: Callable[[Entry], dict[str, Any]]
    at_home: bool = False

    def place(self, repo: Path) -> Path:
        if not self.at_home:
            return repo / self.file
        return Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex") / self.file

    def table(self, entry: Entry) -> dict[str, Any]:
        return {self.key: {NAME: self.shape(entry)}}

    def alone(self, entry: Entry) -> str:
        """As it would stand in a file with nothing else."""
        if self.file.endswith(".toml"):
            return _toml(self.key, self.shape(entry))
        return _json(self.table(entry))

    def joined(self, entry: Entry, there: str) -> str:
        """The file with our entry in it and everything else as it was. Raises UsageError where that cannot be."""
        try:
            if self.file.endswith(".toml"):
                return self._appended(entry, there)
            known = msgspec.json.decode(there or "{}", type=dict[str, Any])
            servers = msgspec.convert(known.get(self.key, {}), dict[str, Any])
        except (msgspec.MsgspecError, tomllib.TOMLDecodeError) as error:
            raise UsageError(
                f"{self.file} cannot be read: {error}", hint="add it by hand: --print shows what"
            ) from error
        return _json(known | {self.key: servers | {NAME: self.shape(entry)}})

    def _appended(self, entry: Entry, there: str) -> str:
        """There is no library here that edits TOML, and comments are dear: only a new section can be added."""
        present = tomllib.loads(there).get(self.key, {}).get(NAME)
        if present == self.shape(entry):
            return there
        if present is not None:
            raise UsageError(f"{self.file} has another `{NAME}` already", hint="remove that section, or use --print")
        return f"{there.rstrip()}\n\n{_toml(self.key, self.shape(entry))}".lstrip()


def _json(table: dict[str, Any]) -> str:
    return msgspec.json.format(msgspec.json.encode(table), indent=2).decode() + "\n"


def _toml(key: str, values: dict[str, Any]) -> str:
    """Words and lists of words: JSON writes them as TOML does."""
    rows = [f"{name} = {msgspec.json.encode(value).decode()}" for name, value in values.items()]
    return "\n".join([f"[{key}.{NAME}]", *rows, ""])


def _claude(entry: Entry) -> dict[str, Any]:
    if entry.url:
        return {"type": "http", "url": entry.url, "headers": {"Authorization": "Bearer ${RATCHET_TOKEN}"}}
    return {"type": "stdio", **_started(entry)}


def _codex(entry: Entry) -> dict[str, Any]:
    return {"url": entry.url, "bearer_token_env_var": "RATCHET_TOKEN"} if entry.url else _started(entry)


def _gemini(entry: Entry) -> dict[str, Any]:
    if entry.url:
        return {"httpUrl": entry.url, "headers": {"Authorization": "Bearer $RATCHET_TOKEN"}}
    return _started(entry)


def _cursor(entry: Entry) -> dict[str, Any]:
    if entry.url:
        return {"url": entry.url, "headers": {"Authorization": "Bearer ${env:RATCHET_TOKEN}"}}
    return _started(entry)


def _opencode(entry: Entry) -> dict[str, Any]:
    if entry.url:
        headers = {"Authorization": "Bearer {env:RATCHET_TOKEN}"}
        return {"type": "remote", "url": entry.url, "headers": headers, "enabled": True}
    return {"type": "local", "command": entry.command, "enabled": True}


def _started(entry: Entry) -> dict[str, Any]:
    return {"command": entry.command[0], "args": entry.command[1:]}


CLIENTS = {
    "claude": Client(file=".mcp.json", key="mcpServers", shape=_claude),
    "codex": Client(file="config.toml", key="mcp_servers", shape=_codex, at_home=True),
    "gemini": Client(file=".gemini/settings.json", key="mcpServers", shape=_gemini),
    "cursor": Client(file=".cursor/mcp.json", key="mcpServers", shape=_cursor),
    "opencode": Client(file="opencode.json", key="mcp", shape=_opencode),
}
