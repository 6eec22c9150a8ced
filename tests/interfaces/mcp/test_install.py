"""`ratchet mcp install`: each client's own file, with everything else in it as it was, and never a token."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ratchet.interfaces.cli import main
from ratchet.interfaces.mcp.client_config import CLIENTS
from tests.support import make_repository

FILES = {
    "claude": ".mcp.json",
    "codex": "../codex/config.toml",
    "gemini": ".gemini/settings.json",
    "cursor": ".cursor/mcp.json",
    "opencode": "opencode.json",
}


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    return make_repository(tmp_path / "repo", {"a.txt": "a\n"})


def install(repo: Path, client: str, *more: str) -> int:
    return main(["mcp", "install", client, "-C", str(repo), *more])


def servers(repo: Path, client: str) -> Any:
    text = (repo / FILES[client]).read_text()
    table = tomllib.loads(text) if client == "codex" else msgspec.json.decode(text)
    return table[CLIENTS[client].key]


@pytest.mark.parametrize("client", sorted(CLIENTS))
def test_install_writes_the_start_command_once(repo: Path, client: str) -> None:
    assert install(repo, client) == 0
    entry = servers(repo, client)["ratchet"]
    words = entry["command"] if client == "opencode" else [entry["command"], *entry["args"]]
    assert words[-1] == "mcp"
    before = (repo / FILES[client]).read_text()
    assert install(repo, client) == 0
    assert (repo / FILES[client]).read_text() == before


@pytest.mark.parametrize("client", sorted(CLIENTS))
def test_install_writes_the_servers_address_and_the_place_of_its_token(repo: Path, client: str) -> None:
    assert install(repo, client, "--server", "http://127.0.0.1:8484/") == 0
    text = (repo / FILES[client]).read_text()
    assert "http://127.0.0.1:8484/mcp" in text and "RATCHET_TOKEN" in text


def test_what_stands_in_the_file_stays(repo: Path) -> None:
    (repo / ".mcp.json").write_text('{"mcpServers": {"other": {"command": "x"}}, "more": 1}')
    assert install(repo, "claude") == 0
    assert set(servers(repo, "claude")) == {"other", "ratchet"}
    assert msgspec.json.decode((repo / ".mcp.json").read_text())["more"] == 1
    place = repo / FILES["codex"]
    place.parent.mkdir()
    place.write_text('# mine\nmodel = "x"\n\n[mcp_servers.other]\ncommand = "y"\n')
    assert install(repo, "codex") == 0
    assert set(servers(repo, "codex")) == {"other", "ratchet"} and place.read_text().startswith("# mine\n")


def test_a_file_that_cannot_be_read_is_left_alone(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for client, text in (("opencode", "{ // a comment\n}"), ("codex", "[mcp_servers.ratchet]\ncommand = 'mine'\n")):
        place = repo / FILES[client]
        place.parent.mkdir(exist_ok=True)
        place.write_text(text)
        assert install(repo, client) == 2
        assert place.read_text() == text and "--print" in capsys.readouterr().err


def test_it_can_be_printed_instead(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert install(repo, "codex", "--print") == 0
    assert "ratchet" in tomllib.loads(capsys.readouterr().out)["mcp_servers"]
    assert not (repo / FILES["codex"]).exists()
    assert main(["mcp", "install", "-C", str(repo)]) == 2


def test_a_start_command_that_cannot_work_is_not_written(
    repo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ratchet.interfaces.mcp.server", None)  # as without the `mcp` extra
    assert install(repo, "claude") == 3 and "ratchet-factory[mcp]" in capsys.readouterr().err
    assert not (repo / ".mcp.json").exists()
    assert install(repo, "claude", "--server", "http://127.0.0.1:8484") == 0
