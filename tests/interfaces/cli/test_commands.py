"""The command line as a whole: every command is listed, loads alone, and its help fits a terminal of 80 columns."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from ratchet.interfaces.cli import MODULES, SECTIONS, cli, main
from tests.support import make_repository, ratchet

TABLE = {name: text for rows in SECTIONS.values() for name, (_, text) in rows.items()}
_LOADED = (
    "import sys; from ratchet.interfaces.cli import main; code = main(sys.argv[1:]); print(*sys.modules); exit(code)"
)


@pytest.mark.parametrize("name", list(MODULES))
def test_the_list_of_commands_describes_each_as_its_own_help_does(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command and command.get_short_help_str(200) == TABLE[name]


def test_help_loads_no_command() -> None:
    done = subprocess.run([sys.executable, "-c", _LOADED, "--help"], capture_output=True, text=True, check=True)
    loaded = {name for name in done.stdout.split() if name.startswith("ratchet.") and name != "ratchet.toml"}
    packages = {"ratchet.interfaces", "ratchet.interfaces.cli", "ratchet.interfaces.terminal"}
    assert loaded - packages == {
        "ratchet.errors",
        "ratchet.interfaces.cli.common",
        "ratchet.interfaces.terminal.printable",
    }


def test_a_listing_in_a_pipe_loads_neither_rich_nor_asyncio(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LOADED, "queue"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert not {"rich", "asyncio", "ratchet.workspace.git.command", "ratchet.process.spawn"} & set(done.stdout.split())


def test_without_a_command_help_is_printed_with_three_commands_to_begin_with(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n{section}:\n" in shown for section in SECTIONS)
    assert len(shown.partition("Begin with:\n")[2].partition("\n\n")[0].splitlines()) == 3


@pytest.mark.parametrize("command", ["queue", "status", "runs", "test", "doctor"])
def test_a_folder_that_does_not_exist_is_refused_by_every_command(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "-C", str(tmp_path / "nowhere")]) == 2
    assert "no such folder" in capsys.readouterr().err


def test_a_mistyped_command_or_option_is_answered_with_what_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tset"]) == 2
    assert "hint: did you mean `ratchet test`? see `ratchet --help`" in capsys.readouterr().err
    assert main(["run", "x.md", "--agnet", "claude"]) == 2
    assert "hint: did you mean `ratchet run --agent`? see `ratchet run --help`" in capsys.readouterr().err
    assert main(["test", "--wrong"]) == 2
    assert "hint: see `ratchet test --help`" in capsys.readouterr().err


def test_quiet_prints_results_and_errors_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["-q", "workspace", "destroy", "x"], ["workspace", "destroy", "x", "-q"]):
        assert main([*words, "-C", str(tmp_path)]) == 0
        assert capsys.readouterr() == ("", "")
    assert main(["-q", "show", "-C", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("ratchet: ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands(tmp_path: Path, shell: str) -> None:
    assert "_RATCHET_COMPLETE" in ratchet("completion", shell, cwd=tmp_path).stdout
    asked = {"COMP_WORDS": "ratchet wor", "COMP_CWORD": "wor" if shell == "fish" else "1"}
    done = ratchet(cwd=tmp_path, _RATCHET_COMPLETE=f"{shell}_complete", **asked)
    assert "workspace" in done.stdout and "requeue" not in done.stdout


def test_the_queue_shows_which_labels_an_item_requires(tmp_path: Path) -> None:
    place = make_repository(tmp_path / "project", {"ratchet.toml": '[test]\ncommand = "true"\nrunner = "prove"\n'})
    (place / "spec.md").write_text("---\nrequire_labels: gpu\n---\n\n# Train it\n")
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    added = ratchet("add", "spec.md", "--require-label", "arm64", cwd=place, **state)
    assert added.returncode == 0 and "Train it" in added.stdout, added.stderr
    assert "Train it  [arm64, gpu]" in ratchet("queue", cwd=place, **state).stdout
    wrong = ratchet("add", "spec.md", "--require-label", "two words", cwd=place, **state)
    assert wrong.returncode == 2 and "is no label" in wrong.stderr
