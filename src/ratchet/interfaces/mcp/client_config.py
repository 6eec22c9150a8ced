"""Configuration of MCP clients: which file, and which entry. Refers to the token's variable; never writes the token."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ratchet.errors import UsageError

NAME = "ratchet"


class ServerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The server to configure: a command to start or a URL."""

    command: list[str] = []
    url: str = ""


class ClientConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A client's configuration format. `file` is in the repository, or with `at_home` in the home."""

    file: str
    key: str
    shape: Callable[[ServerEntry], dict[str, Any]]
    at_home: bool = False

    def place(self, repo: Path) -> Path:
        if not self.at_home:
            return repo / self.file
        return Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex") / self.file

    def table(self, entry: ServerEntry) -> dict[str, Any]:
        return {self.key: {NAME: self.shape(entry)}}

    def alone(self, entry: ServerEntry) -> str:
        """Return the content of a file with only our entry."""
        if self.file.endswith(".toml"):
            return _toml(self.key, self.shape(entry))
        return _json(self.table(entry))

    def joined(self, entry: ServerEntry, there: str) -> str:
        """Add our entry to the file's content and keep the rest. Raises UsageError if the file cannot be edited."""
        try:
            if self.file.endswith(".toml"):
                return self._appended(entry, there)
            known = msgspec.json.decode(there or "{}", type=dict[str, Any])
            servers = msgspec.convert(known.get(self.key, {}), dict[str, Any])
        except (msgspec.MsgspecError, tomllib.TOMLDecodeError) as error:
            raise UsageError(
                f"cannot parse {self.file}: {error}", hint="add the entry by hand; --print shows it"
            ) from error
        return _json(known | {self.key: servers | {NAME: self.shape(entry)}})

    def _appended(self, entry: ServerEntry, there: str) -> str:
        """Append a section: editing TOML in place would lose comments."""
        present = tomllib.loads(there).get(self.key, {}).get(NAME)
        if present == self.shape(entry):
            return there
        if present is not None:
            raise UsageError(f"{self.file} already has a different `{NAME}` section", hint="remove it, or use --print")
        return f"{there.rstrip()}\n\n{_toml(self.key, self.shape(entry))}".lstrip()


def _json(table: dict[str, Any]) -> str:
    return msgspec.json.format(msgspec.json.encode(table), indent=2).decode() + "\n"


def _toml(key: str, values: dict[str, Any]) -> str:
    """Write strings and lists of strings, whose syntax is the same in JSON and TOML."""
    rows = [f"{name} = {msgspec.json.encode(value).decode()}" for name, value in values.items()]
    return "\n".join([f"[{key}.{NAME}]", *rows, ""])


def _claude(entry: ServerEntry) -> dict[str, Any]:
    if entry.url:
        return {"type": "http", "url": entry.url, "headers": {"Authorization": "Bearer ${RATCHET_TOKEN}"}}
    return {"type": "stdio", **_started(entry)}


def _codex(entry: ServerEntry) -> dict[str, Any]:
    return {"url": entry.url, "bearer_token_env_var": "RATCHET_TOKEN"} if entry.url else _started(entry)


def _gemini(entry: ServerEntry) -> dict[str, Any]:
    if entry.url:
        return {"httpUrl": entry.url, "headers": {"Authorization": "Bearer $RATCHET_TOKEN"}}
    return _started(entry)


def _cursor(entry: ServerEntry) -> dict[str, Any]:
    if entry.url:
        return {"url": entry.url, "headers": {"Authorization": "Bearer ${env:RATCHET_TOKEN}"}}
    return _started(entry)


def _opencode(entry: ServerEntry) -> dict[str, Any]:
    if entry.url:
        headers = {"Authorization": "Bearer {env:RATCHET_TOKEN}"}
        return {"type": "remote", "url": entry.url, "headers": headers, "enabled": True}
    return {"type": "local", "command": entry.command, "enabled": True}


def _started(entry: ServerEntry) -> dict[str, Any]:
    return {"command": entry.command[0], "args": entry.command[1:]}


CLIENTS = {
    "claude": ClientConfig(file=".mcp.json", key="mcpServers", shape=_claude),
    "codex": ClientConfig(file="config.toml", key="mcp_servers", shape=_codex, at_home=True),
    "gemini": ClientConfig(file=".gemini/settings.json", key="mcpServers", shape=_gemini),
    "cursor": ClientConfig(file=".cursor/mcp.json", key="mcpServers", shape=_cursor),
    "opencode": ClientConfig(file="opencode.json", key="mcp", shape=_opencode),
}
