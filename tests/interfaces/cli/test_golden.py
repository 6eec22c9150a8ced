"""All commands' help and errors at 80 columns, as they were last agreed on: a change of wording is seen.

After a change that is meant: `RATCHET_GOLDEN=write python -m pytest tests/interfaces/cli/test_golden.py`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from ratchet.interfaces.cli import MODULES, main
from tests.support import SMALL, make_repository

WRITE = os.environ.get("RATCHET_GOLDEN") == "write"  # read before a test hides it
FOLDER = Path(__file__).with_name("golden")
ERRORS = (
    "", "rnu", "run", "run --agnet x", "run NOPE.md", "run SPEC.md", "run SPEC.md --agent telepathy:x",
    "run -d x SPEC.md",
    "run SPEC.md --agent command:no-such-program", "run SPEC.md --workflow dance --agent command:true",
    "run SPEC.md --max-cost nothing", "run SPEC.md --set tdd.atempts=3", "run SPEC.md --set workspace.kind", "add",
    "add -d x --workflow dance", "add SPEC.md --priority urgent", "fix --log nope.log", "fix nowhere", "loop",
    "show run-nope", "resume", "verify run-nope", "verify HEAD", "logs", "diff", "abort", "export", "cancel item-nope",
    "requeue item-nope", "kill worker-nope", "queue --after x@y", "clean --older-than soon",
    "config explain", "config explain test.comand", "config show test.command", "config", "init", "schema nope",
    "agent check", "agent scripted", "agents try", "agents claude", "completion tcsh", "worker --once --drain",
    "queue --server nowhere", "watch --on never", "workspace destroy", "mcp install",
)  # fmt: skip


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = make_repository(tmp_path / "p", SMALL | {"ratchet.toml": ""})
    monkeypatch.chdir(place)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RATCHET_TOKEN", "a-token-of-our-choice")
    return place


def agreed(name: str, text: str) -> None:
    path = FOLDER / name
    if WRITE:
        FOLDER.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), f"the wording has changed: read the difference, then write {path.name} anew"


def without_places(text: str, tmp_path: Path) -> str:
    text = text.replace(str(tmp_path), "/TMP")
    return re.sub(r"\b[0-9a-f]{10,40}\b", "COMMIT", text)


def test_every_commands_help_is_as_agreed_and_fits_into_80_columns(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert project
    parts = []
    for name in ("", *MODULES):
        main([*name.split(), "--help"])
        parts.append(f"$ ratchet {name} --help\n{capsys.readouterr().out}")
    text = "\n".join(parts)
    assert [line for line in text.splitlines() if len(line) > 80] == []
    agreed("help.txt", text)


def test_every_error_is_as_agreed_and_ends_in_a_hint(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert project
    parts = []
    for words in ERRORS:
        code = main(words.split())
        output = capsys.readouterr()
        parts.append(f"$ ratchet {words}\n{without_places(output.err, tmp_path) or '(help)'}exit code {code}\n")
        assert code == 0 or "hint:" in output.err, words
        assert "Traceback" not in output.err, words
    agreed("errors.txt", "\n".join(parts))
