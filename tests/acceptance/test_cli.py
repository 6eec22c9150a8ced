"""The command line as a newcomer meets it."""

from __future__ import annotations

import json
import os
import pty
import sqlite3
import subprocess
from pathlib import Path

import jsonschema_rs
import pytest

from ratchet.paths import user_state
from tests.support import (
    RATCHET,
    SMALL,
    git,
    make_repository,
    quick_environment,
    ratchet,
    small_project,
    write_script,
)


def run_args(place: Path) -> list[str]:
    return [
        "run",
        "SPEC.md",
        "--agent",
        f"scripted:{place.parent}/script.json",
        "--set",
        f"workspace.root={place.parent}/ws",
    ]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with one completed run, looked at by many tests and changed by none."""
    place = small_project(tmp_path_factory.mktemp("cli"))
    (place / "ratchet.toml").write_text('store = ".ratchet/ratchet.db"\n')  # the user's own is another in every test
    git("add", "-A", cwd=place)
    git("commit", "-qm", "store", cwd=place)
    done = ratchet(*run_args(place), cwd=place)
    assert done.returncode == 0, done.stderr
    return place


def test_the_demo_shows_a_refused_test_an_overfitted_change_a_forbidden_write_and_four_proofs(
    tmp_path: Path,
) -> None:
    done = ratchet("demo", "--into", tmp_path / "demo", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for words in (
        "Commits, each with its proof (4)",
        "Reverted (1)",
        "Rejected tests (1)",
        "Forbidden writes reverted (1)",
        "the new test already passes",
        "does not generalise: minutes and hours are read: 4 of 4 sealed examples do not pass",
        "Ratchet-Sealed: 4",
        "What to try next",
    ):
        assert words in done.stdout
    place = tmp_path / "demo" / "project"
    verified = ratchet("verify", "last", cwd=place)
    assert verified.returncode == 0 and verified.stdout.count("✔ green at the commit") == 4
    assert verified.stdout.count("that the author of the change never saw") == 3


def test_a_run_can_be_listed_shown_logged_and_diffed(finished: Path) -> None:
    listed = json.loads(ratchet("runs", "--json", cwd=finished).stdout)
    assert listed[0]["status"] == "completed"
    run = listed[0]["run"]
    assert "1 commit kept" in ratchet("show", run, cwd=finished).stdout
    rows = [json.loads(line) for line in ratchet("logs", run, "-f", "--json", cwd=finished).stdout.splitlines()]
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1)) and rows[0]["data"]["title"] == "Subtract"
    assert "+def sub" in ratchet("diff", run[-8:], cwd=finished).stdout
    state = json.loads(ratchet("show", "last", "--json", cwd=finished).stdout)["state"]
    assert state["phase"] == "done"


def test_piped_output_is_plain_lines(finished: Path) -> None:
    assert "\x1b" not in ratchet("show", "last", cwd=finished).stdout


def test_a_terminal_gets_colour_and_a_live_status(tmp_path: Path) -> None:
    place = small_project(tmp_path)
    leader, follower = pty.openpty()
    running = subprocess.Popen(
        [*RATCHET, *run_args(place)], cwd=place, env=quick_environment(), stdout=follower, stderr=subprocess.DEVNULL
    )
    os.close(follower)
    shown = b""
    while True:
        try:
            chunk = os.read(leader, 65536)
        except OSError:
            break
        if not chunk:
            break
        shown += chunk
    os.close(leader)
    assert running.wait() == 0
    assert b"\x1b[32m" in shown and b"iteration 1/15" in shown and b"kept" in shown


def test_json_keeps_stdout_for_data(tmp_path: Path) -> None:
    place = small_project(tmp_path)
    done = ratchet(*run_args(place), "--json", cwd=place)
    result = json.loads(done.stdout)
    assert result["status"] == "completed" and len(result["commits"]) == 1 and "kept" in done.stderr


def test_a_finished_run_resumed_says_so_and_that_is_fine(finished: Path) -> None:
    done = ratchet("resume", "last", cwd=finished)
    assert done.returncode == 0 and "already completed" in done.stderr


def test_a_failed_run_exits_with_one_and_a_parked_one_with_75(tmp_path: Path) -> None:
    place = small_project(tmp_path, {"audit": [{"say": "?"}] * 3})
    assert ratchet(*run_args(place), cwd=place).returncode == 1
    write_script(place, {"audit": [{"fail": "rate_limit"}]})
    (place / "SPEC.md").write_text("# Another\n")
    parked = ratchet(*run_args(place), cwd=place)
    assert parked.returncode == 75 and "ratchet resume" in parked.stdout


def test_a_forged_commit_does_not_verify(finished: Path, tmp_path: Path) -> None:
    """The test in the commit is swapped for one that is green without the change."""
    clone = tmp_path / "clone"
    git("clone", "-q", str(finished), str(clone), cwd=tmp_path)
    branch = git("for-each-ref", "--format=%(refname:short)", "refs/heads/ratchet", cwd=finished)
    git("checkout", "-q", "-b", "forged", f"origin/{branch}", cwd=clone)
    (clone / "tests" / "test_sub.py").write_text("def test_sub():\n    assert True\n")
    message = git("show", "-s", "--format=%B", "HEAD", cwd=clone)
    git("-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qa", "--amend", "-m", message, cwd=clone)
    done = ratchet("verify", "HEAD", cwd=clone)
    assert done.returncode == 1 and "✘ red at the parent" in done.stdout
    unknown = ratchet("verify", f"origin/{branch}", cwd=clone)
    assert unknown.returncode == 1 and "has no such run" in unknown.stdout and "✔ red at the parent" in unknown.stdout
    store = f"store={finished}/.ratchet/ratchet.db"
    honest = ratchet("verify", f"origin/{branch}", "--set", store, cwd=clone)
    assert honest.returncode == 0, honest.stdout


def test_a_commit_without_a_proof_is_not_one_of_ours(finished: Path) -> None:
    done = ratchet("verify", "main", cwd=finished)
    assert done.returncode == 2 and "has no proof" in done.stderr


def test_an_edited_ledger_row_is_named_by_verify(tmp_path: Path) -> None:
    place = small_project(tmp_path)
    ratchet(*run_args(place), cwd=place)
    db = sqlite3.connect(user_state() / "ratchet.db")
    db.execute(
        "UPDATE events SET data = CAST(replace(CAST(data AS TEXT), 'Subtract', 'Substract') AS BLOB) WHERE seq = 1"
    )
    db.commit()
    db.close()
    done = ratchet("verify", "last", cwd=place)
    assert done.returncode == 1 and "row 1 of the ledger" in done.stdout
    assert ratchet("show", "last", cwd=place).returncode == 1


def test_an_edited_artifact_is_named_by_verify(tmp_path: Path) -> None:
    place = small_project(tmp_path)
    ratchet(*run_args(place), cwd=place)
    report = next((place / ".ratchet" / "runs").glob("*/reports/step-1.json"))
    report.write_text(report.read_text().replace("passed", "failed"))
    done = ratchet("verify", "last", cwd=place)
    assert done.returncode == 1 and "reports/step-1.json was changed" in done.stdout


def test_a_torn_mirror_is_rebuilt_by_export(tmp_path: Path) -> None:
    place = small_project(tmp_path)
    ratchet(*run_args(place), cwd=place)
    ledger = next((place / ".ratchet" / "runs").glob("*/ledger.ndjson"))
    whole = ledger.read_bytes()
    ledger.write_bytes(whole[: len(whole) // 2])
    (ledger.parent / "run.json").unlink()
    assert ratchet("export", "last", cwd=place).returncode == 0
    assert ledger.read_bytes() == whole and (ledger.parent / "run.json").exists()


def test_every_line_of_a_ledger_is_valid_by_its_schema(finished: Path) -> None:
    valid = jsonschema_rs.validator_for(json.loads(ratchet("schema", "ledger-line", cwd=finished).stdout))
    lines = [line for path in finished.glob(".ratchet/runs/*/ledger.ndjson") for line in path.read_text().splitlines()]
    assert [line for line in lines if not valid.is_valid(json.loads(line))] == [] and len(lines) > 10
    changed = json.loads(lines[0])
    changed["data"].pop("item")
    assert not valid.is_valid(changed)


def test_the_runs_files_are_for_their_owner_only(finished: Path) -> None:
    for path in (finished / ".ratchet" / "runs").rglob("*"):
        mode = path.stat().st_mode & 0o777
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_init_writes_what_it_found_and_never_over_a_file(tmp_path: Path) -> None:
    place = make_repository(tmp_path / "p", SMALL)
    done = ratchet("init", cwd=place)
    assert done.returncode == 0 and "pyproject.toml configures pytest" in (place / "ratchet.toml").read_text()
    assert ratchet("config", "validate", cwd=place).returncode == 0
    assert ratchet("init", cwd=place).returncode == 2


def test_config_show_says_where_each_value_came_from(tmp_path: Path) -> None:
    place = make_repository(tmp_path / "p", SMALL | {"ratchet.toml": "[tdd]\nattempts = 5\n"})
    done = ratchet("config", "show", "--json", "--set", "tdd.iterations=7", cwd=place, RATCHET_AGENT="command:true")
    found = {row["key"]: (row["value"], row["source"]) for row in json.loads(done.stdout)}
    assert found["tdd.attempts"] == (5, "ratchet.toml")
    assert found["agent"] == ("command:true", "RATCHET_AGENT")
    assert found["tdd.iterations"] == (7, "--set tdd.iterations")
    assert found["tdd.audit_tries"] == (3, "default")


def test_doctor_says_what_works_here(tmp_path: Path) -> None:
    place = make_repository(tmp_path / "p", SMALL)
    done = ratchet("doctor", cwd=place)
    assert done.returncode == 0 and "git" in done.stdout and "pytest" in done.stdout


def test_doctor_loads_tests_with_the_program_of_the_project_itself(tmp_path: Path) -> None:
    """Neither on PATH nor able to start: the other lines must still be printed."""
    place = make_repository(
        tmp_path / "p", {"package.json": '{"scripts": {"test": "mocha"}, "devDependencies": {"mocha": "1"}}'}
    )
    program = place / "node_modules" / ".bin" / "mocha"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    done = ratchet("doctor", cwd=place)
    assert done.returncode == 0 and "all test files load" in done.stdout
    program.write_text("#!/of/nobody/at/all\n")
    done = ratchet("doctor", cwd=place)
    assert done.returncode == 0 and "mocha is not installed" in done.stdout


def test_schema_prints_what_the_types_say() -> None:
    done = ratchet("schema", "command", cwd=Path())
    assert json.loads(done.stdout)["$defs"]["Command"]["properties"]["kind"] == {"enum": ["command"]}


def test_the_scripted_agent_speaks_the_line_protocol(tmp_path: Path) -> None:
    place = small_project(tmp_path)
    command = {
        "kind": "command", "message_id": "m1", "correlation_id": "c1", "item": "item-1",
        "idempotency_key": "ik:" + "0" * 64, "to": {"agent_type": "auditor"}, "action": "audit", "inputs": {},
        "version": {"snapshot_id": "snap-000000000000"}, "deadline": "2030-01-01T00:00:00Z",
    }  # fmt: skip
    lines = "\n".join(["not json", json.dumps(command), "x" * 300_000, json.dumps(command)]) + "\n"
    done = subprocess.run(
        [*RATCHET, "agent", "scripted", "--script", str(place.parent / "script.json")],
        input=lines, cwd=place, capture_output=True, text=True, check=True, env=quick_environment(), timeout=60,
    )  # fmt: skip
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["kind"] for answer in answers] == [
        "heartbeat",
        "log",
        "heartbeat",
        "event",
        "log",
        "heartbeat",
        "event",
    ]
    assert answers[3] == answers[-1] and answers[3]["event"] == "completed"
    assert (place / "tests" / "test_sub.py").exists()
    assert answers[3]["artifacts"][0]["path"] == "tests/test_sub.py"


def test_a_relative_store_is_the_repositorys_wherever_the_command_is_typed(tmp_path: Path) -> None:
    place = small_project(tmp_path)
    done = ratchet(
        *run_args(place)[:1], "../SPEC.md", *run_args(place)[2:], "--set", "store=my.db", cwd=place / "tests"
    )
    assert done.returncode == 0 and (place / "my.db").is_file(), done.stderr
    assert "completed" in ratchet("runs", "--set", "store=my.db", cwd=place).stdout
