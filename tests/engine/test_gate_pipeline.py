"""A factory that cannot be talked into accepting bad work: every gate, and the final verification, in real runs."""

from __future__ import annotations

import shutil
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.gates import GateStatus
from ratchet.core.state import RunStatus
from ratchet.interfaces.terminal.narrative import event_line
from tests.support import (
    APPROVED,
    COMPLETE,
    GOOD_SCRIPT,
    IMPLEMENT,
    RIGHT,
    SMALL,
    WRONG,
    carry,
    carry_script,
    git,
    kinds,
    make_repository,
    open_factory,
    ratchet,
    write_script,
)


def gates(*entries: dict[str, Any]) -> str:
    return f"gates={msgspec.json.encode(entries).decode()}"


def ran(events: list[ev.Event], name: str) -> list[ev.GateRan]:
    return [event for event in events if isinstance(event, ev.GateRan) and event.gate == name]


# --- cheats ---------------------------------------------------------------------------------------------------------

BY_HEART = {
    "say": "Subtract",
    "append": {"calc.py": "\n\ndef sub(a, b):\n    if (a, b) == (30, 17):\n        return 13\n"},
}
BIGGER = "from calc import sub\n\n\ndef test_sub():\n    assert sub(30, 17) == 13\n"


def test_a_change_that_answers_the_test_by_heart_is_undone_and_the_implementer_hears_why(tmp_path: Path) -> None:
    audit = {"say": "sub subtracts", "write": {"tests/test_sub.py": BIGGER}}
    script = GOOD_SCRIPT | {"audit": [audit, COMPLETE], "implement": [BY_HEART, IMPLEMENT]}
    state, events, place = carry_script(tmp_path, script)
    assert [one.status for one in ran(events, "cheats")] == [GateStatus.FAILED, GateStatus.PASSED]
    assert state.status is RunStatus.COMPLETED and "== (30" not in git("show", f"{state.head}:calc.py", cwd=place)
    prompt = (place / f".ratchet/runs/{state.run}/prompts/step-7.md").read_text()
    assert "answer-by-heart" in prompt and "calc.py:6" in prompt


def test_the_detection_of_cheats_can_be_made_to_warn_only(tmp_path: Path) -> None:
    noisy = {"say": "Subtract", "append": {"calc.py": RIGHT.replace("a - b", "a - b  # mypy: ignore-errors")}}
    script = GOOD_SCRIPT | {"implement": [noisy]}
    state, events, _ = carry_script(tmp_path, script, gates({"name": "cheats", "on_fail": "warn"}))
    assert state.status is RunStatus.COMPLETED
    assert [one.status for one in ran(events, "cheats")] == [GateStatus.WARNED]


SILENCED = {"say": "Subtract", "append": {"calc.py": RIGHT.replace("a - b", "a - b  # type: ignore[operator]")}}
REFUSAL = (
    '{"verdict": "changes_requested", "summary": "no need", "findings": [{"file": "calc.py", "issue": "silenced"}]}'
)


@pytest.mark.parametrize(
    ("answer", "on_fail", "status"),
    [
        (APPROVED, "revert", GateStatus.WARNED),
        (REFUSAL, "revert", GateStatus.WARNED),
        (APPROVED, "warn", GateStatus.WARNED),  # a judge that cannot refuse decides nothing
        (APPROVED, "", GateStatus.WARNED),
    ],
)
def test_of_what_is_doubtful_the_judge_decides_else_it_is_kept_for_review(
    tmp_path: Path, answer: str, on_fail: str, status: GateStatus
) -> None:
    script = GOOD_SCRIPT | {"implement": [SILENCED], "gate.judge": [{"say": answer}]}
    judge = [{"name": "judge", "on_fail": on_fail}] if on_fail else []
    state, events, place = carry_script(tmp_path, script, gates(*judge), "tdd.attempts=1", "tdd.audit_tries=1")
    assert [one.status for one in ran(events, "cheats")] == [status]
    assert bool(state.commits) == (answer == APPROVED)
    judged = on_fail == "revert"
    assert state.doubts == (0 if judged else 1)
    if not judged:
        message = git("show", "-s", "--format=%B", state.head, cwd=place)
        assert "Ratchet-Doubt: calc.py:" in message and "check-silenced" in message
        with open_factory(place) as factory:
            row = factory.store.item_row(events[0].item)  # type: ignore[attr-defined]
            assert (row.status, row.park_reason) == ("completed", "review")
    else:
        asked = (place / f".ratchet/runs/{state.run}/prompts").glob("*-judge.md")
        assert "check-silenced" in next(asked).read_text()


def test_a_proof_is_not_the_judges_to_waive(tmp_path: Path) -> None:
    both = {"say": "Subtract", "append": {"calc.py": RIGHT.replace("a - b", "a - b  # mypy: ignore-errors")}}
    script = GOOD_SCRIPT | {"implement": [both], "gate.judge": [{"say": APPROVED}]}
    state, events, _ = carry_script(tmp_path, script, gates({"name": "judge"}), "tdd.attempts=1", "tdd.audit_tries=1")
    assert not state.commits and not ran(events, "judge")


# --- gates with commands ------------------------------------------------------------------------------------------


def test_a_gate_that_was_red_before_is_not_blamed_on_the_agent_unless_it_says_something_new(tmp_path: Path) -> None:
    command = "sh -c 'grep -n FIXME calc.py && exit 1 || exit 0'"
    worse = {"say": "Subtract", "append": {"calc.py": RIGHT.replace("a - b", "a - b  # FIXME: really?")}}
    place = make_repository(tmp_path / "project", SMALL | {"calc.py": SMALL["calc.py"] + "# FIXME: old\n"})
    write_script(place, GOOD_SCRIPT | {"implement": [worse, IMPLEMENT]})
    with open_factory(place, gates({"name": "no-fixme", "command": command})) as factory:
        state = carry(factory, place / "SPEC.md")
        events = factory.history(state.run).events
    assert "no-fixme" in state.proved and state.status is RunStatus.COMPLETED
    reported = [event.status for event in events if isinstance(event, ev.GateRan) and event.gate == "no-fixme"]
    assert reported == [GateStatus.FAILED, GateStatus.PASSED]


def test_a_gate_that_cannot_run_stops_before_anything_is_spent(tmp_path: Path) -> None:
    state, events, _ = carry_script(tmp_path, GOOD_SCRIPT, gates({"name": "lint", "command": "no-such-linter"}))
    assert (state.status, state.failure) == (RunStatus.FAILED, Reason.MISCONFIGURED)
    assert "no-such-linter" in state.detail and "usage_metered" not in kinds(events)


def test_an_unknown_gate_without_a_command_stops_the_run(tmp_path: Path) -> None:
    state, events, _ = carry_script(tmp_path, GOOD_SCRIPT, gates({"name": "linty"}))
    assert (state.status, state.failure) == (RunStatus.FAILED, Reason.MISCONFIGURED)
    assert "linty" in state.detail and "usage_metered" not in kinds(events)


def test_a_gate_without_an_end_fails_in_time(tmp_path: Path) -> None:
    slow = {"name": "slow", "command": "sh -c 'grep -q sub calc.py && exec sleep 600 || exit 0'", "timeout_s": 2}
    state, events, _ = carry_script(tmp_path, GOOD_SCRIPT, gates(slow), "tdd.attempts=1", "tdd.audit_tries=1")
    assert not state.commits and "timed out after 2 s" in ran(events, "slow")[0].detail


def test_what_an_agent_leaves_in_dependency_folders_reaches_no_gate(tmp_path: Path) -> None:
    command = "sh -c 'grep -q sub calc.py || exit 0; test -e node_modules/linter || test -e __pycache__/linter'"
    leave = IMPLEMENT | {"write": {"node_modules/linter": "", "__pycache__/linter": ""}}
    gate = gates({"name": "lint", "command": command})
    state, events, _ = carry_script(
        tmp_path, GOOD_SCRIPT | {"implement": [leave]}, gate, "tdd.attempts=1", "tdd.audit_tries=1"
    )
    assert ran(events, "lint")[0].status is GateStatus.FAILED and not state.commits


def test_a_gate_sees_the_commit_that_it_judges(tmp_path: Path) -> None:
    gate = {"name": "history", "command": "sh -c 'git diff --exit-code HEAD && git log -1 --format=%B > /dev/null'"}
    state, events, _ = carry_script(tmp_path, GOOD_SCRIPT, gates(gate))
    assert state.status is RunStatus.COMPLETED and ran(events, "history")[0].status is GateStatus.PASSED


# --- coverage and mutation ------------------------------------------------------------------------------------------

LCOV = "SF:calc.py\nDA:1,1\nDA:2,1\nDA:5,1\nDA:6,{hit}\nend_of_record\n"


@pytest.mark.parametrize(("hit", "status"), [(1, GateStatus.PASSED), (0, GateStatus.FAILED)])
def test_changed_lines_that_never_ran_fail_the_coverage_gate(tmp_path: Path, hit: int, status: GateStatus) -> None:
    tool = tmp_path / "cover"
    tool.write_text(f"#!/bin/sh\nprintf '{LCOV.format(hit=hit)}' > lcov.info\n".replace("\n" * 2, "\n"))
    tool.chmod(0o755)
    gate = {"name": "coverage", "command": str(tool), "changed": 100, "threshold": 50}
    state, events, _ = carry_script(tmp_path, GOOD_SCRIPT, gates(gate), "tdd.attempts=1", "tdd.audit_tries=1")
    assert ran(events, "coverage")[0].status is status
    assert bool(state.commits) == (status is GateStatus.PASSED)


CALC = "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a - b\n"
UNCOVERED = "SF:calc.py\nDA:1,1\n" + "".join(f"DA:{line},0\n" for line in range(2, 9)) + "end_of_record\n"


@pytest.mark.parametrize(
    "written",
    [
        {"calc.py": f"#\x0c+++ \n{CALC}"},
        {"calc.py": f"#\u2028@@ -1 +{'9' * 5000} @@\n{CALC}"},
        {"calc.py": CALC.replace("\n", "\r")},
        {"calc.py": CALC, "a.txt": "long\n" * 120_000},
        {"calc.py": CALC, ".gitattributes": "*.py -diff\n"},
    ],
    ids=["form feed", "forged hunk", "carriage returns", "a long file before it", "attributes"],
)
def test_no_content_of_a_file_hides_its_lines_from_the_coverage_gate(tmp_path: Path, written: dict[str, str]) -> None:
    (tmp_path / "info").write_text(UNCOVERED)
    gate = {"name": "coverage", "command": f"cp {tmp_path / 'info'} lcov.info", "changed": 100}
    script = GOOD_SCRIPT | {"implement": [{"say": "Subtract", "write": written}]}
    settings = ("tdd.attempts=1", "tdd.audit_tries=1", "sandbox.mode=off")
    state, events, _ = carry_script(tmp_path, script, gates(gate), *settings)
    assert [one.status for one in ran(events, "coverage")] == [GateStatus.FAILED] and not state.commits


def test_coverage_that_was_not_measured_is_no_coverage(tmp_path: Path) -> None:
    gate = {"name": "coverage", "command": "true", "threshold": 1}
    state, events, _ = carry_script(tmp_path, GOOD_SCRIPT, gates(gate), "tdd.attempts=1", "tdd.audit_tries=1")
    assert not state.commits and "no coverage file was written" in ran(events, "coverage")[0].detail


@pytest.mark.parametrize("name", ["coverage.json", "coverage/coverage-final.json", "cover.out"])
def test_a_coverage_file_of_the_tested_code_hides_no_other(tmp_path: Path, name: str) -> None:
    forged = {"coverage.json": '{"files": {"calc.py": {"executed_lines": [1, 2, 5, 6], "missing_lines": []}}}'}
    forged["cover.out"] = "mode: set\ncalc.py:1.1,6.9 1 1\n"
    forged["coverage/coverage-final.json"] = (
        '{"calc.py": {"statementMap": {"0": {"start": {"line": 6}}}, "s": {"0": 1}}}'
    )
    tool = tmp_path / "cover"
    honest = LCOV.format(hit=0)
    tool.write_text(
        f"#!/bin/sh\nmkdir -p coverage\ncat > lcov.info <<E\n{honest}E\ncat > {name} <<E\n{forged[name]}\nE\n"
    )
    tool.chmod(0o755)
    gate = gates({"name": "coverage", "command": str(tool), "changed": 100, "threshold": 50})
    state, events, _ = carry_script(tmp_path, GOOD_SCRIPT, gate, "tdd.attempts=1", "tdd.audit_tries=1")
    assert ran(events, "coverage")[0].status is GateStatus.FAILED and not state.commits
    assert "lcov.info: " in ran(events, "coverage")[0].detail


def test_a_committed_coverage_file_is_no_measurement(tmp_path: Path) -> None:
    change = IMPLEMENT | {"write": {"lcov.info": LCOV.format(hit=1)}}
    gate = gates({"name": "coverage", "command": "true", "threshold": 1})
    state, events, _ = carry_script(
        tmp_path, GOOD_SCRIPT | {"implement": [change]}, gate, "tdd.attempts=1", "tdd.audit_tries=1"
    )
    assert not state.commits and "no coverage file was written" in ran(events, "coverage")[0].detail


GUARDS = {
    "loading": "\nif zlib.crc32(pathlib.Path(__file__).read_bytes()) - int(pathlib.Path('sum').read_text()):\n"
    "    raise ImportError('damaged')\n",
    "calling": "\n_add = add\ndef add(a, b):\n"
    "    if zlib.crc32(pathlib.Path(__file__).read_bytes()) - int(pathlib.Path('sum').read_text()):\n"
    "        raise ValueError('damaged')\n    return _add(a, b)\n",
}


@pytest.mark.parametrize("guard", GUARDS)
def test_code_that_refuses_to_run_when_it_was_changed_detects_no_mutant(tmp_path: Path, guard: str) -> None:
    source = "import pathlib\nimport zlib\n\n" + SMALL["calc.py"] + GUARDS[guard] + RIGHT
    if guard == "calling":
        source = source.replace("    return a - b", "    return add(a, -b)")
    change = {"say": "Subtract", "write": {"calc.py": source, "sum": str(zlib.crc32(source.encode()))}}
    weak = {"tests/test_sub.py": "from calc import sub\n\n\ndef test_sub():\n    assert sub(3, 3) >= 0\n"}
    script = GOOD_SCRIPT | {"audit": [{"say": "sub", "write": weak}, COMPLETE], "implement": [change]}
    gate = gates({"name": "mutation", "threshold": 100}, {"name": "cheats", "on": False})
    state, events, _ = carry_script(tmp_path, script, gate, "tdd.attempts=1", "tdd.audit_tries=1")
    [one] = ran(events, "mutation")
    assert one.status is GateStatus.FAILED and "reads its own source" in one.detail and not state.commits


def test_a_mutant_that_does_not_load_is_no_evidence(tmp_path: Path) -> None:
    """The source checks itself when it is loaded: each of its mutants fails there, and no test has asked anything."""
    checks_itself = {
        "say": "Subtract",
        "append": {"calc.py": f"{RIGHT}\n\nif sub(3, 2) != 1:\n    raise ImportError\n"},
    }
    weak = {"tests/test_sub.py": "from calc import sub\n\n\ndef test_sub():\n    assert sub(3, 3) >= 0\n"}
    script = GOOD_SCRIPT | {"audit": [{"say": "sub", "write": weak}, COMPLETE], "implement": [checks_itself]}
    gate = gates({"name": "mutation", "threshold": 100})
    state, events, _ = carry_script(tmp_path, script, gate, "tdd.attempts=1", "tdd.audit_tries=1")
    [one] = ran(events, "mutation")
    assert one.status is GateStatus.FAILED and "no test failed of those that loaded" in one.detail and not state.commits


def test_a_test_that_notices_no_mutant_fails_the_mutation_gate(tmp_path: Path) -> None:
    weak = {
        "say": "sub",
        "write": {"tests/test_sub.py": "from calc import sub\n\n\ndef test_sub():\n    assert sub(3, 3) >= 0\n"},
    }
    script = GOOD_SCRIPT | {"audit": [weak, COMPLETE]}
    state, events, _ = carry_script(
        tmp_path, script, gates({"name": "mutation", "threshold": 100}), "tdd.attempts=1", "tdd.audit_tries=1"
    )
    [one] = ran(events, "mutation")
    assert one.status is GateStatus.FAILED and "no test failed" in one.detail and not state.commits


def test_a_test_that_notices_the_mutants_passes_the_mutation_gate(tmp_path: Path) -> None:
    state, events, _ = carry_script(tmp_path, GOOD_SCRIPT, gates({"name": "mutation", "threshold": 100}))
    assert ran(events, "mutation")[0].status is GateStatus.PASSED and state.status is RunStatus.COMPLETED


# --- judge and architecture -----------------------------------------------------------------------------------------

YES = '{"verdict": "approved", "summary": "honest"}'
NO = '{"verdict": "changes_requested", "summary": "no", "findings": [{"file": "calc.py", "issue": "it cheats"}]}'


@pytest.mark.parametrize(
    ("answer", "status"),
    [(YES, GateStatus.PASSED), (NO, GateStatus.FAILED), ("looks fine to me!", GateStatus.FAILED)],
)
def test_only_a_valid_verdict_of_the_judge_passes(tmp_path: Path, answer: str, status: GateStatus) -> None:
    script = GOOD_SCRIPT | {"gate.judge": [{"say": answer}] * 3}
    state, events, _ = carry_script(tmp_path, script, gates({"name": "judge"}), "tdd.attempts=1", "tdd.audit_tries=1")
    assert ran(events, "judge")[0].status is status
    assert bool(state.commits) == (status is GateStatus.PASSED)


def test_a_judge_without_a_verdict_is_asked_once_more_before_a_good_change_is_lost(tmp_path: Path) -> None:
    script = GOOD_SCRIPT | {"gate.judge": [{"say": "looks fine to me!"}, {"say": YES}]}
    state, events, _ = carry_script(tmp_path, script, gates({"name": "judge"}), "tdd.attempts=1")
    assert [one.status for one in ran(events, "judge")] == [GateStatus.PASSED]
    assert state.commits and state.status is RunStatus.COMPLETED


def test_architecture_is_judged_only_when_the_change_is_large(tmp_path: Path) -> None:
    state, events, _ = carry_script(tmp_path, GOOD_SCRIPT, gates({"name": "architecture"}))
    assert [one.status for one in ran(events, "architecture")] == [GateStatus.SKIPPED]
    assert state.status is RunStatus.COMPLETED


def test_architecture_is_judged_when_a_module_is_new(tmp_path: Path) -> None:
    module = {"say": "Subtract", "write": {"minus.py": "def sub(a, b):\n    return a - b\n"},
              "append": {"calc.py": "\n\nfrom minus import sub\n"}}  # fmt: skip
    script = GOOD_SCRIPT | {"implement": [module], "gate.architecture": [{"say": YES}]}
    state, events, _ = carry_script(tmp_path, script, gates({"name": "architecture"}))
    assert [one.status for one in ran(events, "architecture")] == [GateStatus.PASSED]
    assert state.status is RunStatus.COMPLETED


# --- fakes ----------------------------------------------------------------------------------------------------------

# Each would make a wrong change look green to a runner that trusts what it finds.
PATCHED = """
import _pytest.reports as _r
_make = _r.TestReport.from_item_and_call.__func__
def _fake(cls, item, call):
    call.excinfo = None
    return _make(cls, item, call)
_r.TestReport.from_item_and_call = classmethod(_fake)
"""
HOOK = """
import pytest
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    outcome.get_result().outcome = "passed"
"""
FAKES: dict[str, dict[str, Any]] = {
    "conftest": {"write": {"conftest.py": HOOK}},
    "a conftest among the tests": {"write": {"tests/conftest.py": HOOK}},
    "sitecustomize": {"write": {"sitecustomize.py": "import os, atexit\natexit.register(lambda: os._exit(0))\n"}},
    "a plugin in the settings": {
        "write": {
            "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["."]\naddopts = "-p fake"\n',
            "fake.py": HOOK,
        }
    },
    "the runner patched by the source": {"append": {"calc.py": PATCHED}},
    "the runner's name taken": {"write": {"pytest/__init__.py": "", "pytest/__main__.py": "print('1 passed')\n"}},
    "the process ended early": {"append": {"calc.py": "\nimport os\nos._exit(0)\n"}},
}


def fake(name: str) -> dict[str, Any]:
    made = FAKES[name]
    appended = made.get("append", {}).get("calc.py", "")
    return made | {"say": "Subtract", "append": {"calc.py": WRONG + appended}}


@pytest.mark.parametrize("name", FAKES)
def test_a_faked_green_is_not_kept(tmp_path: Path, name: str) -> None:
    script = GOOD_SCRIPT | {"implement": [fake(name)] * 3}
    state, _, _ = carry_script(tmp_path, script, "tdd.attempts=1", "tdd.audit_tries=1")
    assert not state.commits


@pytest.mark.parametrize("name", FAKES)
def test_a_faked_green_does_not_land_even_without_cheat_detection(tmp_path: Path, name: str) -> None:
    script = GOOD_SCRIPT | {
        "implement": [fake(name)] * 3,
        "review": [{"say": YES}] * 3,
        "implement_changes": [fake(name)] * 3,
    }
    state, events, _ = carry_script(
        tmp_path, script, gates({"name": "cheats", "on": False}), "tdd.attempts=1", "tdd.audit_tries=1",
        "tdd.review_rounds=1",
    )  # fmt: skip
    assert (state.status, "landed" in kinds(events)) == (RunStatus.FAILED, False)


CASE = """import unittest
from calc import {verb}


class T(unittest.TestCase):
    def test_{verb}(self):
        self.assertEqual({verb}({given}), {wanted})
"""
SAYS_YES = """test:
\t@echo 'test_sub (test_sub.T.test_sub) ... ok'; echo; echo 'Ran 2 tests in 0.001s'; echo; echo OK
"""


def carry_cheat(place: Path, path: str, red: str, cheat: dict[str, Any], *settings: str) -> Any:
    audit = {"say": "sub", "write": {path: red}}
    write_script(
        place, GOOD_SCRIPT | {"audit": [audit, COMPLETE], "implement": [cheat] * 3, "implement_changes": [cheat] * 3}
    )
    with open_factory(place, "tdd.attempts=1", "tdd.audit_tries=1", *settings) as factory:
        return carry(factory, place / "SPEC.md")


def test_a_make_target_that_says_yes_does_not_land(tmp_path: Path) -> None:
    if not shutil.which("make"):
        pytest.skip("make is not installed")
    files = SMALL | {
        "Makefile": "test:\n\tpython3 -m unittest discover -s tests -v\n",
        "tests/test_calc.py": CASE.format(verb="add", given="1, 2", wanted=3),
    }
    place = make_repository(tmp_path / "project", files)
    cheat = {"say": "Subtract", "append": {"calc.py": WRONG}, "write": {"Makefile": SAYS_YES}}
    red = CASE.format(verb="sub", given="3, 2", wanted=1)
    state = carry_cheat(place, "tests/test_sub.py", red, cheat, "test.command=make test")
    assert state.status is RunStatus.FAILED


NODE = """import test from 'node:test';
import assert from 'node:assert';
import * as calc from '../calc.js';
test('works', () => {{ assert.strictEqual(calc.{call}, {wanted}); }});
"""
PACKAGE = '{{"name": "x", "type": "module", "scripts": {{"test": "{script}"}}}}\n'


def test_an_npm_script_that_says_yes_is_not_kept(tmp_path: Path) -> None:
    if not shutil.which("npm"):
        pytest.skip("npm is not installed")
    place = make_repository(
        tmp_path / "project",
        {
            "package.json": PACKAGE.format(script="node --test"),
            "calc.js": "export const add = (a, b) => a + b;\n",
            "test/add.test.js": NODE.format(call="add(1, 2)", wanted=3),
            "SPEC.md": "# Subtract\n",
        },
    )
    wrong = {"calc.js": "export const sub = (a, b) => b - a;\n"}
    cheat = {"say": "Subtract", "append": wrong, "write": {"package.json": PACKAGE.format(script="echo ok")}}
    state = carry_cheat(place, "test/sub.test.js", NODE.format(call="sub(3, 2)", wanted=1), cheat)
    assert not state.commits


SPARES_CANARIES = """
import { AsyncResource } from 'node:async_hooks';
const was = AsyncResource.prototype.runInAsyncScope;
AsyncResource.prototype.runInAsyncScope = function (act, ...rest) {
  const spared = this.constructor.name !== 'Test' || /^c[0-9a-f]{12}$/.test(this.name);
  return spared ? was.call(this, act, ...rest) : undefined;
};
export const sub = (a, b) => b - a;
"""


@pytest.mark.parametrize("honest", [True, False])
def test_a_patched_node_runner_that_spares_canaries_does_not_land_and_an_honest_change_does(
    tmp_path: Path, honest: bool
) -> None:
    if not shutil.which("npm"):
        pytest.skip("npm is not installed")
    files = {
        "package.json": PACKAGE.format(script="node --test test/*.js"),
        "calc.js": "export const add = (a, b) => a + b;\n",
        "test/add.test.js": NODE.format(call="add(1, 2)", wanted=3),
        "SPEC.md": "# Subtract\n",
    }
    place = make_repository(tmp_path / "project", files)
    change = "export const sub = (a, b) => a - b;\n" if honest else SPARES_CANARIES
    audit = {
        "say": "sub",
        "write": {"test/sub.test.js": NODE.replace("works", "subtracts").format(call="sub(3, 2)", wanted=1)},
    }
    write_script(
        place, GOOD_SCRIPT | {"audit": [audit, COMPLETE], "implement": [{"say": "s", "append": {"calc.js": change}}]}
    )
    events: list[ev.Event] = []
    with open_factory(place, "tdd.audit_tries=1", gates({"name": "cheats", "on_fail": "warn"})) as factory:
        state = carry(factory, place / "SPEC.md", lambda _entry, event, _state: events.append(event))
    assert len(state.commits) == 1  # the patched runner reports that the new test passes
    if honest:
        [final] = [event for event in events if isinstance(event, ev.FinalVerified)]
        assert (final.canaries, final.failing, final.unchecked) == (1, 1, 0)
        line = event_line(msgspec.structs.replace(final, unchecked=2))
        assert line and line.text.endswith(
            "; body check passed: 1 test failed with a failing body; no body check for 2 tests"
        )
    else:
        [refused] = [event for event in events if isinstance(event, ev.FinalRefused)]
        assert "tests passed whose bodies fail" in refused.why


# Per language: the base, the new test, an honest change, and one that patches the runner or forges what it prints.
GO_TEST = """package calc

import "testing"

func Test{verb}(t *testing.T) {{
	if {verb}(3, 2) != {wanted} {{
		t.Fatal("wrong")
	}}
}}
"""
GO_FAKE = """
func Sub(a, b int) int { return b - a }

func init() {
	if filepath.Ext(os.Args[0]) != ".test" {
		return
	}
	code, end := 0, "PASS"
	files, _ := filepath.Glob("*_test.go")
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for _, found := range regexp.MustCompile(`func (Test\\w+)`).FindAllSubmatch(text, -1) {
			verdict := "PASS"
			if regexp.MustCompile(`_c[0-9a-f]{12}$`).Match(found[1]) {
				verdict, code, end = "FAIL", 1, "FAIL"
			}
			fmt.Printf("=== RUN   %[1]s\\n--- %[2]s: %[1]s (0.00s)\\n", found[1], verdict)
		}
	}
	fmt.Println(end)
	os.Exit(code)
}
"""
MINITEST = """require 'minitest/autorun'
require_relative '../lib/calc'

class {name}Test < Minitest::Test
  def test_{verb}
    assert_equal {wanted}, Calc.{verb}(3, 2)
  end
end
"""
RSPEC = """require_relative '../lib/calc'

RSpec.describe Calc do
  it '{verb}s' do
    expect(Calc.{verb}(3, 2)).to eq({wanted})
  end
end
"""
RAKEFILE = "require 'rake/testtask'\nRake::TestTask.new { |t| t.pattern = 'test/*_test.rb' }\n"
CALC_RB = "module Calc\n  def self.add(a, b)\n    a + b\n  end\nend\n"
SUB_RB = "\nmodule Calc\n  def self.sub(a, b)\n    a - b\n  end\nend\n"
MINITEST_FAKE = """
module Quiet
  def run
    return super if name.match?(/_c[0-9a-f]{12}$/)

    self.time = 0.001
    Minitest::Result.from(self)
  end
end
Minitest::Test.prepend(Quiet)
"""
RSPEC_FAKE = """
module Quiet
  def set_exception(error)
    description.match?(/^c[0-9a-f]{12}$/) ? super : nil
  end
end
RSpec::Core::Example.prepend(Quiet)
"""
OTHER_LANGUAGES = {
    "go": (
        {
            "go.mod": "module example.com/calc\n\ngo 1.18\n",
            "calc.go": "package calc\n\nfunc Add(a, b int) int { return a + b }\n",
            "add_test.go": GO_TEST.format(verb="Add", wanted=5),
        },
        {"sub_test.go": GO_TEST.format(verb="Sub", wanted=1)},
        {"append": {"calc.go": "\nfunc Sub(a, b int) int { return a - b }\n"}},
        {
            "write": {
                "calc.go": 'package calc\n\nimport (\n\t"fmt"\n\t"os"\n\t"path/filepath"\n\t"regexp"\n)\n\n'
                "func Add(a, b int) int { return a + b }\n" + GO_FAKE
            }
        },
    ),
    "rake": (
        {
            "Rakefile": RAKEFILE,
            "lib/calc.rb": CALC_RB,
            "test/add_test.rb": MINITEST.format(name="Add", verb="add", wanted=5),
        },
        {"test/sub_test.rb": MINITEST.format(name="Sub", verb="sub", wanted=1)},
        {"append": {"lib/calc.rb": SUB_RB}},
        {"append": {"lib/calc.rb": SUB_RB.replace("a - b", "b - a") + MINITEST_FAKE}},
    ),
    "rake.elsewhere": (
        {
            "Rakefile": RAKEFILE,
            "lib/calc.rb": CALC_RB,
            "test/add_test.rb": MINITEST.format(name="Add", verb="add", wanted=5),
        },
        {"test/sub_test.rb": MINITEST.format(name="Sub", verb="sub", wanted=1)},
        {"append": {"lib/calc.rb": SUB_RB}},
        {
            "append": {
                "lib/calc.rb": SUB_RB.replace("a - b", "b - a")
                + MINITEST_FAKE.replace(
                    "from(self)", "from(self).tap { |one| one.source_location = ['test/add_test.rb', 6] }"
                )
            }
        },
    ),
    "rspec": (
        {".rspec": "--no-color\n", "lib/calc.rb": CALC_RB, "spec/add_spec.rb": RSPEC.format(verb="add", wanted=5)},
        {"spec/sub_spec.rb": RSPEC.format(verb="sub", wanted=1)},
        {"append": {"lib/calc.rb": SUB_RB}},
        {"append": {"lib/calc.rb": SUB_RB.replace("a - b", "b - a") + RSPEC_FAKE}},
    ),
}


@pytest.mark.parametrize(
    ("name", "honest"),
    [*((name, False) for name in OTHER_LANGUAGES), *((name, True) for name in ("go", "rake", "rspec"))],
)
def test_a_runner_faked_by_the_source_that_spares_canaries_does_not_land_and_an_honest_change_does(
    tmp_path: Path, name: str, honest: bool
) -> None:
    program = name.partition(".")[0]
    if not shutil.which(program):
        pytest.skip(f"{program} is not installed")
    base, test, change, fake = OTHER_LANGUAGES[name]
    place = make_repository(tmp_path / "project", base | {"SPEC.md": "# Subtract\n"})
    audit = {"say": "sub", "write": test}
    write_script(
        place, GOOD_SCRIPT | {"audit": [audit, COMPLETE], "implement": [{"say": "s"} | (change if honest else fake)]}
    )
    events: list[ev.Event] = []
    with open_factory(place, "tdd.audit_tries=1", gates({"name": "cheats", "on_fail": "warn"})) as factory:
        state = carry(factory, place / "SPEC.md", lambda _entry, event, _state: events.append(event))
    assert len(state.commits) == 1  # the fake reports that the new test passes
    if honest:
        [final] = [event for event in events if isinstance(event, ev.FinalVerified)]
        assert (final.canaries, final.failing, final.unchecked) == (1, 1, 0)
    else:
        [refused] = [event for event in events if isinstance(event, ev.FinalRefused)]
        assert "tests passed whose bodies fail" in refused.why


def test_an_honest_run_ends_with_a_final_verification_and_leaves_no_workspace(tmp_path: Path) -> None:
    state, events, place = carry_script(tmp_path, GOOD_SCRIPT)
    assert state.status is RunStatus.COMPLETED and "final_verified" in kinds(events)
    assert not [
        path for path in (place.parent / "workspaces").glob("*") if path.is_dir() and path.name.endswith("-final")
    ]
    assert "final" not in git("branch", "--list", "ratchet/*", cwd=place)


def test_a_fixture_that_came_with_the_accepted_test_is_there_in_the_end(tmp_path: Path) -> None:
    fixture = "import pytest\n\n\n@pytest.fixture\ndef two():\n    return 2\n"
    red = "from calc import sub\n\n\ndef test_sub(two):\n    assert sub(3, two) == 1\n"
    audit = {"say": "sub subtracts", "write": {"tests/test_sub.py": red, "tests/conftest.py": fixture}}
    state, events, _ = carry_script(tmp_path, GOOD_SCRIPT | {"audit": [audit, COMPLETE]})
    [final] = [event for event in events if isinstance(event, ev.FinalVerified)]
    assert state.status is RunStatus.COMPLETED and len(state.commits) == 1
    assert final.canaries == 1 and not final.without


# --- the command ----------------------------------------------------------------------------------------------------


def test_gates_shows_what_would_run_here_and_why(tmp_path: Path) -> None:
    place = make_repository(tmp_path / "project", SMALL | {"mypy.ini": "[mypy]\n"})
    shown = ratchet("gates", cwd=place).stdout
    assert "compile" in shown and "cheats" in shown and "mypy is configured" in shown


def test_gates_proves_the_untouched_base_and_says_what_is_known_to_be_red(tmp_path: Path) -> None:
    files = SMALL | {"tests/test_old.py": "def test_old():\n    assert 0\n"}
    place = make_repository(tmp_path / "project", files)
    proved = ratchet("gates", "--prove", cwd=place)
    assert proved.returncode == 1, proved.stderr
    assert "1 failing" in proved.stdout and "compile" in proved.stdout


def test_gates_that_cannot_run_are_an_environment_that_cannot(tmp_path: Path) -> None:
    place = make_repository(tmp_path / "project", SMALL)
    proved = ratchet("gates", "--prove", "--set", gates({"name": "lint", "command": "no-such-linter"}), cwd=place)
    assert proved.returncode == 3 and "no-such-linter" in proved.stdout
