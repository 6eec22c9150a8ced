"""Whole runs with scripted agents, real git and real tests: what is kept, refused, undone, and how runs end."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ratchet.core import events as ev
from ratchet.core import trailers
from ratchet.core.failure import Reason
from ratchet.core.ledger import Entry
from ratchet.core.receipt import Artifact
from ratchet.core.state import RunState, RunStatus
from ratchet.engine.blocking import run_blocking
from ratchet.errors import LeaseHeld, NotFound, UsageError
from ratchet.interfaces.terminal.live_view import ignore_event
from ratchet.process.spawn import this_process
from ratchet.store.run_directory import RunDirectory
from tests.support import (
    AUDIT,
    COMPLETE,
    GOOD_SCRIPT,
    IMPLEMENT,
    RED_TEST,
    REVIEW,
    RIGHT,
    WRONG,
    carry,
    carry_script,
    git,
    install_editable,
    kinds,
    make_repository,
    open_factory,
    small_project,
    write_script,
)


def script(**turns: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    return GOOD_SCRIPT | turns


def first(events: list[ev.Event], kind: type[ev.Event]) -> Any:
    return next(event for event in events if isinstance(event, kind))


def test_a_file_written_after_the_tests_ended_is_not_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put, written = RunDirectory.put, []

    def write_beside(directory: RunDirectory, name: str, content: bytes) -> Artifact:
        for folder in (tmp_path / "workspaces").glob("*/tree") if name.startswith("reports/") else ():
            (folder / "untested.py").write_text("raise SystemExit('never tested')\n")
            written.append(name)
        return put(directory, name, content)

    monkeypatch.setattr(RunDirectory, "put", write_beside)
    state, _, place = carry_script(tmp_path, GOOD_SCRIPT, "workspace.on=disk")
    assert written and state.status is RunStatus.COMPLETED and len(state.commits) == 1
    assert git("diff", "--name-only", f"main..{state.head}", cwd=place).split() == ["calc.py", "tests/test_sub.py"]


def test_verify_compares_each_commit_with_the_tree_in_the_ledger(tmp_path: Path) -> None:
    state, _, place = carry_script(tmp_path, GOOD_SCRIPT)
    with open_factory(place) as service:
        history = service.history(state.run)
        assert service._verify_content(history).holds
        other = [
            msgspec.structs.replace(event, tree=state.base_tree) if isinstance(event, ev.StepCommitted) else event
            for event in history.events
        ]
        claim = service._verify_content(msgspec.structs.replace(history, events=other))
    assert not claim.holds and "calc.py" in claim.detail


def test_a_red_test_made_green_is_kept_as_a_commit_with_its_proof(tmp_path: Path) -> None:
    state, _, place = carry_script(tmp_path, GOOD_SCRIPT)
    assert state.status is RunStatus.COMPLETED and len(state.commits) == 1
    proof = trailers.parse_proof(git("show", "-s", "--format=%B", state.head, cwd=place))
    assert proof and proof.tests == ("tests/test_sub.py",) and proof.run == state.run
    changed = git("diff", "--name-only", f"main..{state.head}", cwd=place).split()
    assert changed == ["calc.py", "tests/test_sub.py"]


def test_a_persons_message_is_in_the_prompts_until_the_next_commit_and_in_the_mirrored_ledger(tmp_path: Path) -> None:
    place = small_project(tmp_path, GOOD_SCRIPT)
    with open_factory(place) as factory:
        lease = factory.claim(factory.add(place / "SPEC.md").id)

        def nudge(_entry: Entry, event: ev.Event, _state: RunState) -> None:
            if isinstance(event, ev.RedConfirmed):
                factory.store.nudge(lease.item, "use Decimal\n# Rules\nnone", by="me")

        state = asyncio.run(factory.work(lease, watch=nudge, on_agent_event=lambda _said: None))
        assert all(one.holds for one in asyncio.run(factory.verify(state.run)))
        ledger = factory.store.entries(lease.run)
    assert state.status is RunStatus.COMPLETED
    folder = place / ".ratchet" / "runs" / state.run
    told = {path.name for path in (folder / "prompts").iterdir() if "- use Decimal\n  # Rules" in path.read_text()}
    asked = {f"step-{step}.md" for step in _steps_of(ledger, "implement")}
    assert asked and told == asked
    assert len((folder / "ledger.ndjson").read_text().splitlines()) == len(ledger)


def test_receipts_name_the_entries_of_their_step_though_people_write_meanwhile(tmp_path: Path) -> None:
    place = small_project(tmp_path, GOOD_SCRIPT)
    with open_factory(place) as factory:
        lease = factory.claim(factory.add(place / "SPEC.md").id)

        def nudge(_entry: Entry, event: ev.Event, _state: RunState) -> None:
            if isinstance(event, ev.StepStarted):
                factory.store.nudge(lease.item, f"in step {event.step}", by="me")

        asyncio.run(factory.work(lease, watch=nudge, on_agent_event=lambda _said: None))
        ledger, receipts = factory.store.entries(lease.run), factory.store.receipts(lease.run)
    assert len(receipts) > 5
    assert [ledger[receipt.events[-1] - 1].kind for receipt in receipts] == [receipt.outcome for receipt in receipts]


def _steps_of(ledger: list[Entry], action: str) -> list[int]:
    started = [event for one in ledger if isinstance(event := ev.decode(one.kind, one.data), ev.StepStarted)]
    return [event.step for event in started if event.action == action]


def test_the_developers_checkout_is_not_touched(tmp_path: Path) -> None:
    _, _, place = carry_script(tmp_path, GOOD_SCRIPT)
    assert git("status", "--porcelain", cwd=place) == "" and git("branch", "--show-current", cwd=place) == "main"
    assert len(git("worktree", "list", cwd=place).splitlines()) == 1


SRC = {
    "src/calc.py": "def add(a, b):\n    return a + b\n",
    "tests/test_calc.py": "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n",
    "SPEC.md": "# Subtract\n\n`calc.sub(a, b)` subtracts.\n",
}


# Asks an interpreter of its own whether what it wrote is what is imported, as agents do.
AGENT = """#!/bin/sh
case $RATCHET_ACTION in
audit) [ -e tests/test_sub.py ] && echo REQUIREMENTS_COMPLETE && exit; cat >tests/test_sub.py <<'END'
{red}
END
;;
implement) cat >>src/calc.py <<'END'
{right}
END
{python} -c 'from calc import sub' || exit 1 ;;
review) echo '{{"verdict": "approved", "summary": "fine"}}' ;;
esac
echo done
"""


def test_what_is_installed_from_the_developers_tree_comes_from_the_workspace_for_tests_gates_and_agents(
    tmp_path: Path,
) -> None:
    place = make_repository(tmp_path / "project", SRC)
    python = install_editable(place)
    gate = f'[[gates]]\nname = "imports"\ncommand = "{python} -c \'from calc import sub\'"\n'
    (place / "ratchet.toml").write_text(gate)
    git("add", "-A", cwd=place)
    git("commit", "-qm", "a gate", cwd=place)
    agent = tmp_path / "agent"
    agent.write_text(AGENT.format(python=python, right=RIGHT, red=RED_TEST))
    agent.chmod(0o755)
    with open_factory(place, agent=f"command:{agent}") as factory:
        state = carry(factory, place / "SPEC.md")
        assert state.status is RunStatus.COMPLETED and len(state.commits) == 1, state
    assert (place / "src" / "calc.py").read_text() == SRC["src/calc.py"]


def test_tests_of_a_run_see_only_variables_that_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_KEY", "secret")
    monkeypatch.setenv("SHOP_URL", "here")
    with open_factory(small_project(tmp_path), 'test.env=["SHOP_URL"]') as factory:
        env = factory.checks().env
    assert env["SHOP_URL"] == "here" and "PATH" in env and "SHOP_KEY" not in env


def test_a_red_attempt_is_reverted_and_the_next_starts_from_the_frozen_test(tmp_path: Path) -> None:
    wrong = {"say": "guess", "append": {"calc.py": WRONG}, "write": {"left.over": "x"}}
    state, events, place = carry_script(tmp_path, script(implement=[wrong, IMPLEMENT]))
    reverted = first(events, ev.StepReverted)
    assert reverted.paths == ["calc.py", "left.over"] and "still red" in reverted.why
    assert state.status is RunStatus.COMPLETED and state.reverts == 1
    assert "left.over" not in git("ls-tree", "--name-only", state.head, cwd=place)


def test_writes_outside_a_roles_paths_are_undone_and_reported(tmp_path: Path) -> None:
    sneaky = IMPLEMENT | {"write": {"tests/test_sub.py": "def test_sub(): pass\n", "ratchet.toml": "agent = 'x'\n"}}
    state, events, place = carry_script(tmp_path, script(implement=[sneaky]))
    assert first(events, ev.WritesUndone).paths == ["ratchet.toml", "tests/test_sub.py"]
    assert git("show", f"{state.head}:tests/test_sub.py", cwd=place) == RED_TEST.strip()
    assert "ratchet.toml" not in git("ls-tree", "--name-only", state.head, cwd=place)


def test_an_auditor_that_writes_source_gets_only_its_test_through(tmp_path: Path) -> None:
    both = AUDIT | {"append": {"calc.py": "\nX = 1\n"}}
    state, events, place = carry_script(tmp_path, script(audit=[both, COMPLETE]))
    assert first(events, ev.WritesUndone).role == "auditor"
    assert "X = 1" not in git("show", f"{state.head}:calc.py", cwd=place)


def test_a_reviewer_changes_nothing(tmp_path: Path) -> None:
    meddling = REVIEW | {"append": {"calc.py": "\nX = 1\n"}}
    state, events, place = carry_script(tmp_path, script(review=[meddling]))
    assert state.status is RunStatus.COMPLETED and first(events, ev.WritesUndone).role == "reviewer"
    assert "X = 1" not in git("show", f"{state.head}:calc.py", cwd=place)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("def test_sub():\n    assert 1 == 1\n", "already passes"),
        ("def test_sub(:\n", "SyntaxError"),
        ("def test_sub():\n    assert clac.sub(3, 2) == 1\n", "never defined"),
        ("def test_sub(no_such_fixture):\n    assert False\n", "outside the test itself"),
        ("X = 1\n", "no new test"),
    ],
)
def test_a_test_that_is_not_rightly_red_goes_back_with_the_reason(tmp_path: Path, content: str, why: str) -> None:
    bad = {"say": "a test", "write": {"tests/test_sub.py": content}}
    state, events, _ = carry_script(tmp_path, script(audit=[bad, AUDIT, COMPLETE]))
    assert why in first(events, ev.RedRefused).why
    assert state.status is RunStatus.COMPLETED and state.refusals == 1


def test_a_test_that_breaks_an_old_one_goes_back(tmp_path: Path) -> None:
    breaking = {"say": "x", "write": {"tests/test_calc.py": "def test_add():\n    assert False\n"}}
    _, events, _ = carry_script(tmp_path, script(audit=[breaking, AUDIT, COMPLETE]))
    assert "no longer" in first(events, ev.RedRefused).why


def test_three_refused_tests_end_the_run(tmp_path: Path) -> None:
    idle = {"say": "let me think"}
    state, _, _ = carry_script(tmp_path, script(audit=[idle, idle, idle, AUDIT]))
    assert (state.status, state.failure) == (RunStatus.FAILED, Reason.NO_PROGRESS)
    assert "wrote no test" in state.detail


def test_completion_is_not_accepted_while_a_test_is_given_up_and_unsolved(tmp_path: Path) -> None:
    wrong = {"say": "guess", "append": {"calc.py": WRONG}}
    turns = script(audit=[AUDIT, COMPLETE, COMPLETE], implement=[wrong])
    state, events, _ = carry_script(tmp_path, turns, "tdd.attempts=1", "tdd.audit_tries=2")
    assert (state.status, state.failure) == (RunStatus.FAILED, Reason.NO_PROGRESS)
    assert "tests/test_sub.py failed for the right reason but was given up" in state.detail
    assert "review_approved" not in kinds(events)


def test_a_run_that_kept_nothing_is_not_completed_after_its_only_test_was_refused(tmp_path: Path) -> None:
    broken = {"say": "sub subtracts", "write": {"tests/test_sub.py": "def test_sub(:\n"}}
    state, events, _ = carry_script(tmp_path, script(audit=[broken, COMPLETE, COMPLETE], implement=[]))
    assert (state.status, state.failure) == (RunStatus.FAILED, Reason.NO_PROGRESS)
    assert "nothing has been kept, and the last test was refused (tests/test_sub.py:1 is broken" in state.detail
    assert "requirements_met" not in kinds(events)


def test_a_run_whose_refused_test_already_passes_completes_without_a_change(tmp_path: Path) -> None:
    there = {"say": "add adds", "write": {"tests/test_more.py": RED_TEST.replace("sub", "add").replace("== 1", "== 5")}}
    state, events, _ = carry_script(tmp_path, script(audit=[there, COMPLETE], implement=[]))
    assert first(events, ev.RedRefused).met
    assert (state.status, state.commits) == (RunStatus.COMPLETED, [])


def test_after_a_refused_test_the_auditor_may_show_that_the_requirements_are_met(tmp_path: Path) -> None:
    broken = {"say": "t", "write": {"tests/test_more.py": "def test_add(:\n"}}
    there = {"say": "t", "write": {"tests/test_more.py": RED_TEST.replace("sub", "add").replace("== 1", "== 5")}}
    state, _, _ = carry_script(tmp_path, script(audit=[broken, there, COMPLETE], implement=[]))
    assert state.status is RunStatus.COMPLETED


def test_after_three_attempts_the_auditor_may_replace_the_test(tmp_path: Path) -> None:
    wrong = {"say": "guess", "append": {"calc.py": WRONG}}
    other = {"say": "other test", "write": {"tests/test_sub.py": RED_TEST.replace("3, 2) == 1", "5, 2) == 3")}}
    turns = script(audit=[AUDIT, other, COMPLETE], implement=[wrong, wrong, wrong, IMPLEMENT])
    state, events, place = carry_script(tmp_path, turns)
    assert state.status is RunStatus.COMPLETED and state.reverts == 3
    assert "attempt 1, 2, 3: " in first(events, ev.TestAbandoned).why
    assert "5, 2" in git("show", f"{state.head}:tests/test_sub.py", cwd=place)


def test_iterations_are_bounded(tmp_path: Path) -> None:
    nothing = {"say": "no idea"}
    audits = [{"say": "t", "write": {f"tests/test_{n}.py": RED_TEST}} for n in range(5)]
    state, _, _ = carry_script(
        tmp_path, script(audit=audits, implement=[nothing] * 20), "tdd.iterations=2", "tdd.attempts=1"
    )
    assert (state.status, state.failure) == (RunStatus.FAILED, Reason.BUDGET_SPENT)


def test_the_reviewers_findings_reach_the_implementer_and_a_second_review_follows(tmp_path: Path) -> None:
    wants = '{"verdict": "changes_requested", "findings": [{"file": "calc.py", "line": 5, "issue": "no docstring"}]}'
    doc = {"say": "Say what sub does", "replace": [{"path": "calc.py", "old": "    return a - b", "new": '    """a - b"""\n    return a - b'}]}  # fmt: skip # noqa: E501
    state, events, place = carry_script(tmp_path, script(review=[{"say": wants}, REVIEW], implement_changes=[doc]))
    assert state.status is RunStatus.COMPLETED and len(state.commits) == 2
    prompts = [path.read_text() for path in (place / ".ratchet/runs" / state.run / "prompts").iterdir()]
    assert any("no docstring" in text and "You are the implementer" in text for text in prompts)
    keys = [event.key for event in events if isinstance(event, ev.StepStarted) and event.action == "review"]
    assert len(set(keys)) == 2


def test_a_revision_that_breaks_a_test_is_reverted_and_the_rounds_are_bounded(tmp_path: Path) -> None:
    wants = {"say": '{"verdict": "changes_requested", "findings": [{"file": "calc.py", "issue": "x"}]}'}
    breaks = {"say": "x", "write": {"calc.py": "def add(a, b):\n    return 0\n"}}
    state, events, place = carry_script(tmp_path, script(review=[wants], implement_changes=[breaks] * 3))
    assert (state.status, state.failure) == (RunStatus.FAILED, Reason.NO_PROGRESS)
    assert kinds(events).count("revision_reverted") == 3
    assert "return a - b" in git("show", f"{state.head}:calc.py", cwd=place)


def test_a_review_without_a_verdict_is_not_an_approval(tmp_path: Path) -> None:
    chat = {"say": "Looks great, ship it!"}
    state, _, _ = carry_script(tmp_path, script(review=[chat, chat, chat]))
    assert (state.status, state.failure) == (RunStatus.FAILED, Reason.NO_PROGRESS)
    assert "no JSON verdict" in state.detail


def test_a_refactoring_that_turns_red_is_undone_and_the_run_goes_on(tmp_path: Path) -> None:
    breaks = {"say": "tidy", "write": {"calc.py": "def add(a, b):\n    return a + b\n"}}
    state, events, place = carry_script(tmp_path, script(refactor=[breaks]), "tdd.refactor_interval=1")
    assert state.status is RunStatus.COMPLETED and len(state.commits) == 1
    assert "refactor_reverted" in kinds(events) and "def sub" in git("show", f"{state.head}:calc.py", cwd=place)


def test_a_gate_that_fails_undoes_the_commit(tmp_path: Path) -> None:
    long_way = {"say": "Subtract badly", "append": {"calc.py": "\n\ndef sub(a, b):\n    return a - b  # FIXME\n"}}
    gate = f'[{{"name": "no-fixme", "command": "{sys.executable} -c \\"import sys; sys.exit(\'FIXME\' in open(\'calc.py\').read())\\""}}]'  # noqa: E501
    gates = f"gates={gate}"
    state, events, place = carry_script(tmp_path, script(implement=[long_way, IMPLEMENT]), gates)
    reverted = first(events, ev.StepReverted)
    assert reverted.commit and "gate no-fixme failed" in reverted.why
    assert state.status is RunStatus.COMPLETED
    log = git("log", "--format=%s", f"main..{state.head}", cwd=place)
    assert log == "Subtract"


def test_a_gate_that_only_warns_is_reported_and_keeps_the_commit(tmp_path: Path) -> None:
    gate = """gates=[{"name": "no-sub", "command": "sh -c '! grep sub calc.py'", "on_fail": "warn"}]"""
    state, events, _ = carry_script(tmp_path, GOOD_SCRIPT, gate)
    assert state.status is RunStatus.COMPLETED
    assert "gate no-sub failed" in first(events, ev.StepVerified).warnings[0]


def test_a_gate_that_cannot_run_stops_the_run_and_never_counts_as_passed(tmp_path: Path) -> None:
    state, _, _ = carry_script(tmp_path, GOOD_SCRIPT, 'gates=[{"name": "x", "command": "no-such-tool"}]')
    assert (state.status, state.failure) == (RunStatus.FAILED, Reason.MISCONFIGURED)


def test_tests_that_were_red_before_are_not_blamed_on_the_agent(tmp_path: Path) -> None:
    place = small_project(tmp_path)
    (place / "tests/test_old.py").write_text("def test_old():\n    assert False\n")
    git("add", "-A", cwd=place)
    git("commit", "-qm", "red", cwd=place)
    with open_factory(place) as factory:
        state = carry(factory, place / "SPEC.md")
    assert state.status is RunStatus.COMPLETED and len(state.commits) == 1


def test_a_suite_that_cannot_run_on_the_untouched_base_stops_before_anything_is_spent(tmp_path: Path) -> None:
    state, events, _ = carry_script(tmp_path, GOOD_SCRIPT, "test.command=sh -c 'exit 3'")
    assert (state.status, state.failure) == (RunStatus.FAILED, Reason.MISCONFIGURED)
    assert "usage_metered" not in kinds(events)


@pytest.mark.parametrize("fault", ["crash", "refused", "garbage"])
def test_an_agent_that_fails_is_asked_again(tmp_path: Path, fault: str) -> None:
    broken = {"fail": fault, "append": {"calc.py": "half an ed"}}
    state, events, _ = carry_script(tmp_path, script(implement=[broken, IMPLEMENT]))
    assert state.status is RunStatus.COMPLETED and "attempt_failed" in kinds(events)


def test_an_agent_that_hangs_is_stopped_at_its_deadline(tmp_path: Path) -> None:
    turns = script(implement=[{"fail": "hang"}, IMPLEMENT])
    state, events, _ = carry_script(tmp_path, turns, "roles.implementer.timeout_s=0.2")
    assert state.status is RunStatus.COMPLETED
    assert first(events, ev.AttemptFailed).reason is Reason.AGENT_TIMED_OUT


def test_a_rate_limit_parks_the_run_and_is_nobodys_failure(tmp_path: Path) -> None:
    limited = {"fail": "rate_limit", "say": "try later", "until": "2030-01-01T00:00:00Z"}
    state, events, place = carry_script(tmp_path, script(implement=[limited]))
    assert state.status is RunStatus.RUNNING and state.parked and state.parked.until.startswith("2030")
    assert state.attempts == 0 and "attempt_failed" not in kinds(events)
    write_script(place, GOOD_SCRIPT)
    with open_factory(place) as factory:
        assert factory.find_run("last").item_status == "parked"
        after = asyncio.run(
            factory.work(factory.claim(state.started.item), watch=ignore_event, on_agent_event=lambda _: None)  # type: ignore[union-attr]
        )
    assert after.status is RunStatus.COMPLETED and after.run == state.run


def test_the_same_spec_again_continues_the_same_run(tmp_path: Path) -> None:
    place = small_project(tmp_path, script(implement=[{"fail": "rate_limit"}]))
    with open_factory(place) as factory:
        parked = carry(factory, place / "SPEC.md")
        write_script(place, GOOD_SCRIPT)
    with open_factory(place) as factory:
        again = carry(factory, place / "SPEC.md")
    assert again.run == parked.run and again.status is RunStatus.COMPLETED


def test_what_the_tests_leave_behind_is_not_committed(tmp_path: Path) -> None:
    littering = RED_TEST + "\n\nopen('litter.txt', 'w').write('x')\n"
    audit = {"say": "t", "write": {"tests/test_sub.py": littering}}
    state, _, place = carry_script(tmp_path, script(audit=[audit, COMPLETE]))
    assert state.status is RunStatus.COMPLETED
    assert "litter.txt" not in git("ls-tree", "--name-only", state.head, cwd=place)


def test_each_prompt_holds_the_spec_the_failure_and_the_earlier_answers(tmp_path: Path) -> None:
    state, _, place = carry_script(tmp_path, GOOD_SCRIPT)
    prompts = place / ".ratchet/runs" / state.run / "prompts"
    implement = next(text for path in prompts.iterdir() if "You are the implementer" in (text := path.read_text()))
    assert "`calc.sub(a, b)` subtracts" in implement
    assert "cannot import name 'sub'" in implement and "sub subtracts" in implement


def test_a_prompt_names_the_test_files_and_the_commands_for_all_tests_and_for_one(tmp_path: Path) -> None:
    state, _, place = carry_script(tmp_path, GOOD_SCRIPT)
    prompts = place / ".ratchet/runs" / state.run / "prompts"
    implement = next(text for path in prompts.iterdir() if "You are the implementer" in (text := path.read_text()))
    assert "# Test files in this project" in implement and "# How to run the tests" in implement
    assert "- all tests: `" in implement and "- one test, here " in implement and "pytest" in implement, implement


@pytest.mark.parametrize("kind", ["worktree", "copy"])
def test_both_plain_kinds_of_workspace_carry_a_run(tmp_path: Path, kind: str) -> None:
    state, _, _ = carry_script(tmp_path, GOOD_SCRIPT, f"workspace.kind={kind}")
    assert state.status is RunStatus.COMPLETED and len(state.commits) == 1


def test_a_command_agent_edits_files_and_is_judged_by_the_tests(tmp_path: Path) -> None:
    place = small_project(tmp_path)
    agent = tmp_path / "agent.py"
    agent.write_text(f"""
import os, pathlib, sys
prompt = sys.stdin.read()
action = os.environ["RATCHET_ACTION"]
if action == "audit" and not pathlib.Path("tests/test_sub.py").exists():
    pathlib.Path("tests/test_sub.py").write_text({RED_TEST!r})
elif action == "audit":
    print("REQUIREMENTS_COMPLETE")
elif action == "implement":
    assert "cannot import name 'sub'" in prompt
    with open("calc.py", "a") as file:
        file.write({RIGHT!r})
elif action == "review":
    print('{{"verdict": "approved"}}')
""")
    with open_factory(place, agent=f"command:{sys.executable} {agent}") as factory:
        state = carry(factory, place / "SPEC.md")
    assert state.status is RunStatus.COMPLETED and len(state.commits) == 1


def test_a_second_worker_is_refused_with_the_holders_name(tmp_path: Path) -> None:
    place = small_project(tmp_path)
    with open_factory(place) as factory, open_factory(place) as other:
        item = factory.add(place / "SPEC.md").id
        factory.claim(item)
        with pytest.raises(LeaseHeld, match=this_process().worker):
            other.claim(item)


def test_an_agent_that_is_missing_is_found_out_before_the_first_step(tmp_path: Path) -> None:
    place = small_project(tmp_path)
    with open_factory(place, "roles.reviewer.agent=command:no-such-agent") as factory:
        with pytest.raises(UsageError, match="no-such-agent"):
            carry(factory, place / "SPEC.md")
        with pytest.raises(NotFound, match="no runs yet"):
            factory.find_run("last")


def test_every_receipt_says_what_it_was_made_from(tmp_path: Path) -> None:
    state, _, place = carry_script(tmp_path, GOOD_SCRIPT)
    with open_factory(place) as factory:
        story = factory.history(state.run)
    assert [receipt.step for receipt in story.receipts] == list(range(1, state.step + 1))
    assert len({receipt.key for receipt in story.receipts}) == len(story.receipts)
    implement = next(receipt for receipt in story.receipts if receipt.action == "implement")
    assert implement.snapshot_before != implement.snapshot_after
    outcome = story.entries[implement.events[-1] - 1]
    assert outcome.kind == implement.outcome == "change_proposed"
    mirrored = place / ".ratchet/runs" / state.run / "receipts" / implement.item / f"step-{implement.step}.json"
    assert msgspec.json.decode(mirrored.read_bytes())["key"] == implement.key


def test_what_a_cancelled_caller_waited_for_may_fail_in_silence() -> None:
    reported: list[object] = []

    async def cancelled() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))
        begun, go = threading.Event(), threading.Event()

        def fail() -> None:
            begun.set()
            go.wait()
            raise OSError

        waiting = asyncio.ensure_future(run_blocking(fail))
        await asyncio.to_thread(begun.wait)
        waiting.cancel()
        asyncio.get_running_loop().call_soon(go.set)
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gc.collect()

    asyncio.run(cancelled())
    assert not reported


def test_a_revert_says_of_which_kind_it_is(tmp_path: Path) -> None:
    broken = {
        "say": "Subtract",
        "append": {"calc.py": RIGHT.replace("a - b", "a - b\n\n\ndef add(a, b):\n    return 0")},
    }
    wrong = {"say": "Subtract", "append": {"calc.py": WRONG}}
    script = {**GOOD_SCRIPT, "implement": [wrong, broken, IMPLEMENT]}
    _, events, _ = carry_script(tmp_path, script)
    assert [event.outcome for event in events if isinstance(event, ev.StepReverted)] == ["still_red", "broke_others"]
