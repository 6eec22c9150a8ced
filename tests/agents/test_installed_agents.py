"""What `ratchet agents` says about this machine, and what a trial says about an agent."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.support import ratchet


def install(folder: Path, name: str, body: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{body}")
    path.chmod(0o755)
    return path


def listed(tmp_path: Path, **env: str) -> dict[str, dict[str, object]]:
    path = f"{tmp_path}/bin:{os.path.dirname(sys.executable)}"  # noqa: PTH120 — not resolved: the environment's own
    done = ratchet("agents", "--json", cwd=tmp_path, PATH=path, HOME=str(tmp_path / "home"), **env)
    return {one["name"]: one for one in json.loads(done.stdout)}


def test_an_agent_that_is_not_installed_is_listed_as_absent(tmp_path: Path) -> None:
    found = listed(tmp_path)
    assert len(found) == 7
    assert not found["claude"]["installed"]


def test_a_version_and_its_warning_are_listed(tmp_path: Path) -> None:
    install(tmp_path / "bin", "claude", "print('1.0.3 (Claude Code)')")
    found = listed(tmp_path)["claude"]
    assert found["installed"] and found["version"] == "1.0.3"
    assert "is untested" in str(found["warning"])


def test_a_version_is_read_from_the_package_without_asking(tmp_path: Path) -> None:
    package = tmp_path / "node_modules" / "@openai" / "codex"
    package.mkdir(parents=True)
    (package / "package.json").write_text('{"version": "0.166.0"}')
    install(package / "bin", "codex.js", f"open({str(tmp_path / 'asked')!r}, 'w')")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "codex").symlink_to(package / "bin" / "codex.js")
    assert listed(tmp_path)["codex"]["version"] == "0.166.0"
    assert not (tmp_path / "asked").exists()


def test_a_login_is_named_and_never_shown(tmp_path: Path) -> None:
    login = tmp_path / "home" / ".codex" / "auth.json"
    login.parent.mkdir(parents=True)
    login.write_text("a secret")
    found = listed(tmp_path, ANTHROPIC_API_KEY="another secret", OPENAI_API_KEY="")
    assert found["codex"]["login"] == "~/.codex/auth.json"
    assert found["claude"]["login"] == "ANTHROPIC_API_KEY"
    assert "secret" not in json.dumps(found)


GOOD = "open('hello.txt', 'w').write('hello\\n'); open('ran.txt', 'w').write('ran\\n'); print('DONE')"


@pytest.mark.parametrize(("body", "code", "edits"), [(GOOD, 0, True), ("print('DONE')", 1, False)])
def test_a_trial_says_what_worked(tmp_path: Path, body: str, code: int, edits: bool) -> None:
    program = install(tmp_path / "bin", "fake", body)
    done = ratchet("agents", "try", f"command:{program}", "--json", cwd=tmp_path)
    findings = {finding["what"]: finding["ok"] for finding in json.loads(done.stdout)}
    assert done.returncode == code, done.stderr
    assert (findings["answers"], findings["edits files"]) == (True, edits)


def test_an_agent_that_is_not_installed_cannot_be_tried(tmp_path: Path) -> None:
    done = ratchet("agents", "try", "claude", cwd=tmp_path, PATH=os.defpath)
    assert done.returncode == 2
    assert "claude is not installed" in done.stderr
