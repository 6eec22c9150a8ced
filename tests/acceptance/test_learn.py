"""`ratchet learn`, as a person types it."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from ratchet.app import learnings
from ratchet.app.learnings import IMPORT_BATCH
from ratchet.config import load
from ratchet.core.learning import LearningTrial, TrialArm
from ratchet.core.redact import Redactor
from ratchet.engine.learning_library import LearningLibrary
from ratchet.interfaces.cli import main
from ratchet.store.sqlite.store import SqliteStore
from tests.support import make_repository


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = make_repository(tmp_path / "project", {"README.md": "one\n"})
    monkeypatch.chdir(made)
    return made


def learn(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> str:
    assert main(["learn", *args]) == code
    shown = capsys.readouterr()
    return shown.out if code == 0 else shown.err


def test_a_lesson_is_added_found_shown_retired_and_moved(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    added = json.loads(learn(capsys, "add", "Build the parser before its tests run", "--tag", "parser", "--json"))
    again = json.loads(learn(capsys, "add", "Build the parser before its tests run.", "--json"))
    assert again["id"] == added["id"] and added["repo"] == str(place) and added["source"] == "person"
    assert "Build the parser" in learn(capsys, "search", "ParserError:", "tests", "failed")
    assert "Build the parser" in learn(capsys, "list", "--tag", "parser")
    assert "everywhere" not in learn(capsys, "show", added["id"])
    lines = learn(capsys, "export")
    assert "retired" in learn(capsys, "retire", added["id"], "--why", "the parser is gone")
    assert learn(capsys, "list") == "" and "the parser is gone" in learn(capsys, "show", added["id"])
    file = place.parent / "learnings.jsonl"
    file.write_text(lines.replace(str(place), "/elsewhere"))
    assert "imported 1 lines as 1 learnings" in learn(capsys, "import", str(file))
    assert "Build the parser" in learn(capsys, "list", "--all")


def test_bad_input_is_refused_with_a_reason_and_nothing_is_stored(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for content, why in [("", "empty"), ("  ", "empty"), ("x" * 1_000_000, "1,000,000"), ("\x1b[31mred", "control")]:
        assert why in learn(capsys, "add", content, code=2)
    file = place / "bad.jsonl"
    for line, why in [("nonsense", "line 2"), ('{"repo": "/r"}', "line 2 is not a learning")]:
        file.write_text('{"content": "fine", "repo": "/r"}\n' + line)
        assert why in learn(capsys, "import", str(file), code=2)
    lines = [json.dumps({"content": f"{n} {'fine ' * n}"}) for n in range(IMPORT_BATCH + 1)]
    file.write_text("\n".join([*lines, '{"content": "fine", "tags": ["\\u001b[2J"]}']))
    assert f"line {IMPORT_BATCH + 2}: the tag has a control character" in learn(capsys, "import", str(file), code=2)
    assert "U+001B" in learn(capsys, "add", "fine", "--tag", "\x1b[2J", code=2)
    assert "the search is empty" in learn(capsys, "search", " ", code=2)
    assert "shorten" in learn(capsys, "search", "x" * 2000, code=2)
    assert "no learning x" in learn(capsys, "retire", "x", code=2)
    assert learn(capsys, "list", "--all") == ""


def test_a_library_of_any_size_is_exported(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learnings, "EXPORT_PAGE", 2)
    (place / "all.jsonl").write_text(
        "".join(json.dumps({"content": word}) + "\n" for word in ["one", "two", "six", "ten"])
    )
    learn(capsys, "import", str(place / "all.jsonl"))
    assert {json.loads(line)["content"] for line in learn(capsys, "export").splitlines()} == {
        "one",
        "two",
        "six",
        "ten",
    }


def test_delivery_is_switched_off_and_on_in_the_configuration(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = place / "ratchet.toml"
    for before in (
        "",
        '[learnings]\nmost = 2\n[test]\ncommand = "x"\n',
        'agent = "line:x"\n\n[learnings]\non = true\n',
    ):
        file.write_text(before)
        assert "no longer delivered" in learn(capsys, "off")
        config = load(place, environ={}).config
        assert not config.learnings.on and ("most" not in before or config.learnings.most == 2)
        assert "delivered again" in learn(capsys, "on") and load(place, environ={}).config.learnings.on


def test_the_report_says_what_helps_and_what_was_retired_without_effect(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "ratchet.toml").write_text('store = ".ratchet/ratchet.db"\n[learnings]\ntrials = 30\nembedder = "off"\n')
    assert main(["learn", "report"]) == 0 and "no learning was delivered yet" in capsys.readouterr().err
    helps, idle = (
        json.loads(learn(capsys, "add", text, "--json"))["id"]
        for text in ("Build the parser before its tests run", "Rename every variable twice a day")
    )
    with closing(SqliteStore(place / ".ratchet" / "ratchet.db")) as store:
        library = LearningLibrary(store, load(place, environ={}).config.learnings, Redactor())
        trials = [
            LearningTrial(learning=one, run=f"run-{n}", seq=n, arm=arm, attempts=attempts, reverts=attempts - 1)
            for one, saved in ((helps, 1), (idle, 0))
            for arm, count in ((TrialArm.PACKET, 30), (TrialArm.HELD_OUT, 20), (TrialArm.PLACEBO, 5))
            for n in range(count)
            for attempts in [1 + n % 3 + (0 if saved and arm is TrialArm.PACKET else saved)]
            for n in [n + 100 * list(TrialArm).index(arm)]
        ]
        store.learn_run("run-0", [], trials)
        library.judge()
        assert store.learning(helps).lift and not store.learning(helps).retired_at
    shown = learn(capsys, "report")
    assert f"{helps}  helps, 30 delivered, 20 held out, saves" in shown and f"{idle}  retired" in shown
    assert "Beside the failure: 60 deliveries, 40 held out" in shown and "false discovery rate of 5%" in shown
    assert "no effect in 30 deliveries" in learn(capsys, "show", idle)
    assert json.loads(learn(capsys, "report", "--json"))["learnings"][0]["proven"]
