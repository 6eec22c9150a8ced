"""Sealed tests: written with the open ones, proven red, run at every judgement, seen by no implementing role."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ratchet.app.runs import read_spec, sealed_settings
from ratchet.core import events as ev
from ratchet.core import trailers
from ratchet.core.ledger import Entry
from ratchet.core.state import RunState, RunStatus
from ratchet.errors import UsageError
from ratchet.workspace.sandbox import why_no_sandbox
from tests.support import (
    APPROVED,
    AUDIT,
    COMPLETE,
    IMPLEMENT,
    RED_TEST,
    REVIEW,
    RIGHT,
    carry_script,
    git,
    kinds,
    make_repository,
    open_factory,
    ratchet,
    small_project,
    write_script,
)

MARKER = "zq7731"
SEALED_TEST = f"""from calc import sub


def test_{MARKER}_sealed():
    assert sub(7731, 31) == 7700


def test_negative_sealed():
    assert sub(2, 904177318) == -904177316
"""
SEALED = "tests/test_sub_sealed.py"
BOTH = {
    "say": f"sub subtracts, {MARKER} and 904177318 included",
    "write": {"tests/test_sub.py": RED_TEST, SEALED: SEALED_TEST},
}
BY_HEART = {"say": "Subtract", "append": {"calc.py": "\n\ndef sub(a, b):\n    return len(str(a))\n"}}
SCRIPT: dict[str, Any] = {"audit": [BOTH, COMPLETE], "implement": [IMPLEMENT], "review": [REVIEW]}
ON = "tdd.sealed=true"


def of_kind(events: list[ev.Event], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def test_an_honest_change_lands_with_both_files_and_says_how_many_examples_it_had_never_seen(tmp_path: Path) -> None:
    state, events, place = carry_script(tmp_path, SCRIPT, ON)
    assert state.status is RunStatus.COMPLETED, state.detail
    (written,) = of_kind(events, ev.TestWritten)
    assert written.paths == ["tests/test_sub.py"] and not of_kind(events, ev.WritesUndone)
    assert of_kind(events, ev.RedConfirmed)[0].sealed == 1, "as a file: it cannot be loaded yet"
    assert git("show", "--name-only", "--format=", state.head, cwd=place).splitlines() == [
        "calc.py",
        "tests/test_sub.py",
        SEALED,
    ]
    proof = trailers.parse_proof(git("show", "-s", "--format=%B", state.head, cwd=place))
    assert proof and proof.sealed == "2" and proof.sealed_files == (SEALED,)
    assert git("rev-list", "--count", f"main..{state.head}", cwd=place) == "1"


def test_a_change_that_knows_the_open_example_by_heart_is_overfitted(tmp_path: Path) -> None:
    state, events, _ = carry_script(tmp_path, {**SCRIPT, "implement": [BY_HEART, IMPLEMENT]}, ON)
    assert state.status is RunStatus.COMPLETED, state.detail
    (reverted,) = of_kind(events, ev.StepReverted)
    assert reverted.outcome == "overfitted"
    assert "2 of 2 sealed examples do not pass" in reverted.why and "sub subtracts" in reverted.why
    assert MARKER not in reverted.why and "904177318" not in reverted.why


# --- nobody who implements can read them ----------------------------------------------------------------------------


def traces(top: Path) -> list[str]:
    """Files below the folder, and git repositories with objects, that hold something of the sealed file."""
    wanted = (MARKER.encode(), b"904177318", b"-904177316")
    found = [str(path) for path in top.rglob("*") if path.is_file() and _holds(path.read_bytes(), wanted)]
    for head in top.rglob("HEAD"):
        if (head.parent / "objects").is_dir():
            reported = subprocess.run(
                ["git", "--git-dir", str(head.parent), "cat-file", "--batch-all-objects", "--batch"],
                capture_output=True,
                check=False,
            ).stdout
            found += [f"objects of {head.parent}"] if _holds(reported, wanted) else []
    return [place for place in found if not place.endswith("script.json")]


def _holds(content: bytes, wanted: tuple[bytes, ...]) -> bool:
    return any(word in content for word in wanted)


class Reader:
    """Looks everywhere when an implementing role is about to be asked, and what the commands would tell it."""

    def __init__(self, top: Path) -> None:
        self.top, self.found, self.looked = top, set[str](), 0

    def __call__(self, _entry: Entry, event: ev.Event, state: RunState) -> None:
        if not (isinstance(event, ev.StepStarted) and event.role in ("implementer", "architect")):
            return
        if state.commits:
            return  # the sealed file of the first requirement is in a commit by now
        assert state.started
        self.looked += 1
        layers = Path("/dev/shm").glob(f"ratchet-{state.started.slug}*")
        self.found |= {place for where in (self.top, *layers) for place in traces(where)}


COMMANDS = (("show", "last", "--json"), ("logs", "last"), ("export", "last"), ("diff", "last"))


def run_watched(place: Path, watch: Any, *settings: str) -> RunState:
    with open_factory(place, ON, *settings) as factory:
        lease = factory.claim(factory.add(place / "SPEC.md").id)
        return asyncio.run(factory.work(lease, watch=watch, on_agent_event=lambda _text: None))


# An auditor that writes its sealed test down elsewhere too, in files that it may not write.
CARELESS = {
    "say": BOTH["say"],
    "write": {"tests/test_sub.py": RED_TEST, SEALED: SEALED_TEST, "notes.md": SEALED_TEST, "plan/sub.py": SEALED_TEST},
    "append": {"calc.py": f"\n# {MARKER}\n"},
}


@pytest.mark.parametrize("audit", [BOTH, CARELESS], ids=["careful", "careless"])
def test_nothing_of_a_sealed_file_is_anywhere_while_an_implementer_works(tmp_path: Path, audit: dict[str, Any]) -> None:
    place = small_project(
        tmp_path, {"audit": [audit, COMPLETE], "implement": [BY_HEART, BY_HEART, IMPLEMENT], "review": [REVIEW]}
    )
    reader = Reader(tmp_path)

    def watch(entry: Entry, event: ev.Event, state: RunState) -> None:
        reader(entry, event, state)
        if isinstance(event, ev.StepReverted) and reader.looked == 2:
            for command in COMMANDS:
                reported = ratchet(*command, cwd=place, XDG_STATE_HOME=str(tmp_path / "state"))
                assert not _holds((reported.stdout + reported.stderr).encode(), (MARKER.encode(), b"904177318")), (
                    command
                )

    state = run_watched(place, watch)
    assert state.status is RunStatus.COMPLETED, state.detail
    assert reader.looked == 3 and reader.found == set()
    assert traces(place), "once committed, the sealed file is there for everybody"


AGENT = """
case "$RATCHET_ACTION" in
  audit)
    test -e tests/test_sub_sealed.py && echo REQUIREMENTS_COMPLETE && exit
    cp {top}/open.py tests/test_sub.py
    cp {top}/sealed.py tests/test_sub_sealed.py
    mkdir -p target node_modules && cp {top}/sealed.py target/copy.py && cp {top}/sealed.py node_modules/copy.py
    git add -A >/dev/null 2>&1
    git commit -qm sealed >/dev/null 2>&1
    cp {top}/sealed.py "$HOME/transcript" 2>/dev/null
    cat {top}/sealed.py >&2
    cat {top}/sealed.py ;;
  implement)
    {{ grep -rls "zq[7]731" . "$HOME" /tmp /var/tmp /dev/shm {repo}
      git cat-file --batch-all-objects --batch 2>/dev/null | grep -c "zq[7]731" | grep -v '^0$'
      env | grep -l "zq[7]731"; }} > found.txt
    grep -s . {repo}/.ratchet/runs/*/logs/* >> seen.txt
    cp {top}/right.py calc.py
    echo "Subtract" ;;
  *) echo '{approved}' ;;
esac
"""


@pytest.mark.skipif(bool(why_no_sandbox()), reason="the agents of this test run in the sandbox")
def test_a_process_in_the_sandbox_finds_no_sealed_test(tmp_path: Path) -> None:
    place = small_project(tmp_path, {})
    top = tmp_path / "hidden"
    top.mkdir()
    (top / "open.py").write_text(RED_TEST)
    (top / "sealed.py").write_text(SEALED_TEST)
    (top / "right.py").write_text((place / "calc.py").read_text() + RIGHT)
    script = tmp_path / "hidden" / "agent.sh"
    script.write_text(AGENT.format(top=top, repo=place, approved=APPROVED))
    (tmp_path / "script.json").unlink()
    seen: list[str] = []

    def watch(_entry: Entry, event: ev.Event, _state: RunState) -> None:
        if isinstance(event, ev.StepStarted) and event.role == "implementer":
            seen.extend(place for place in traces(tmp_path) if "/hidden/" not in place)

    state = run_watched(place, watch, f"agent=command:sh {script}")
    assert state.status is RunStatus.COMPLETED, state.detail
    assert seen == []
    found = git("show", f"{state.head}:found.txt", cwd=place).splitlines()
    assert [line for line in found if "/hidden" not in line] == []


# --- what else can happen -------------------------------------------------------------------------------------------


def test_an_auditor_that_forgets_the_sealed_file_is_asked_once_more(tmp_path: Path) -> None:
    forgets = {"say": "sub subtracts", "write": {"tests/test_sub.py": RED_TEST}}
    later = {"say": "sealed", "write": {SEALED: SEALED_TEST}}
    state, events, _ = carry_script(tmp_path, {**SCRIPT, "audit": [forgets, COMPLETE], "audit.sealed": [later]}, ON)
    assert state.status is RunStatus.COMPLETED, state.detail
    assert of_kind(events, ev.TestWritten)[0].sealed is not None
    assert of_kind(events, ev.StepVerified)[0].completion.sealed == 2


def test_without_a_sealed_file_the_run_goes_on_and_says_so(tmp_path: Path) -> None:
    forgets = {"say": "sub subtracts", "write": {"tests/test_sub.py": RED_TEST}}
    state, events, place = carry_script(
        tmp_path, {**SCRIPT, "audit": [forgets, COMPLETE], "audit.sealed": [{"say": "no"}]}, ON
    )
    assert state.status is RunStatus.COMPLETED, state.detail
    assert "asked twice" in of_kind(events, ev.TestWritten)[0].unsealed
    assert "Ratchet-Sealed" not in git("log", "-1", "--format=%B", state.head, cwd=place)


def test_an_auditor_is_not_accused_of_changing_the_links_of_the_project(tmp_path: Path) -> None:
    """A fork has links with times of their own: git lists them as files that may differ."""
    place = small_project(tmp_path)
    (place / "docs").mkdir()
    (place / "docs" / "index.md").write_text("# Documentation\n")
    (place / "README.md").symlink_to("docs/index.md")
    git("add", "-A", cwd=place)
    git("commit", "-qm", "a link", cwd=place)
    write_script(place, SCRIPT)
    heard: list[ev.Event] = []
    state = run_watched(place, lambda _entry, event, _state: heard.append(event))
    assert state.status is RunStatus.COMPLETED, state.detail
    assert not of_kind(heard, ev.WritesUndone)


@pytest.mark.parametrize(
    ("sealed", "why"),
    [
        ("from calc import add\n\n\ndef test_sealed():\n    assert add(1, 1) == 2\n", "already passes"),
        ("def test_sealed(:\n    pass\n", "SyntaxError"),
        ("def test_sealed():\n    assert zq == 1\n", "never defined"),
    ],
)
def test_a_sealed_test_that_is_not_red_for_the_right_reason_goes_back(tmp_path: Path, sealed: str, why: str) -> None:
    bad = {"say": "sub", "write": {"tests/test_sub.py": RED_TEST, SEALED: sealed}}
    state, events, _ = carry_script(tmp_path, {**SCRIPT, "audit": [bad, BOTH, COMPLETE]}, ON)
    assert state.status is RunStatus.COMPLETED, state.detail
    (refused,) = of_kind(events, ev.RedRefused)
    assert "the sealed test is not accepted" in refused.why and why in refused.why


def test_a_gate_that_reverts_leaves_no_sealed_file_behind(tmp_path: Path) -> None:
    dirty = {"say": "Subtract", "append": {"calc.py": "\n\ndef sub(a, b):\n    return a - b  # dirty\n"}}
    place = small_project(tmp_path, {**SCRIPT, "implement": [dirty, IMPLEMENT]})
    (place / "ratchet.toml").write_text('[[gates]]\nname = "clean"\ncommand = "sh -c \'! grep -q dirty calc.py\'"\n')
    git("add", "ratchet.toml", cwd=place)
    git("commit", "-qm", "gate", cwd=place)
    reader, received = Reader(tmp_path), list[ev.Event]()

    def watch(entry: Entry, event: ev.Event, state: RunState) -> None:
        received.append(event)
        reader(entry, event, state)

    state = run_watched(place, watch)
    assert state.status is RunStatus.COMPLETED, state.detail
    assert [event.outcome for event in of_kind(received, ev.StepReverted)] == ["gate"]
    assert reader.looked == 2 and reader.found == set()


class Killed(Exception):
    """The worker died."""


@pytest.mark.parametrize("action", ["audit", "verify_red", "judge", "verify", "audit.contest"])
def test_a_run_that_dies_at_a_step_with_sealed_tests_ends_as_if_it_had_not(tmp_path: Path, action: str) -> None:
    contest = [{"say": "the sealed test was wrong", "write": {SEALED: SEALED_TEST}}]
    script = {**SCRIPT, "audit": [CONTESTED, COMPLETE], "audit.contest": contest}
    place = small_project(tmp_path, script)
    dead: list[str] = []

    def die(_entry: Entry, event: ev.Event, _state: RunState) -> None:
        # In the middle of the step: its announcement is durable, nothing else is.
        if isinstance(event, ev.StepStarted) and event.action == action and not dead:
            dead.append(action)
            raise Killed

    with pytest.raises((Killed, ExceptionGroup)):
        run_watched(place, die, "tdd.attempts=1")
    reader, received = Reader(tmp_path), list[ev.Event]()

    def watch(entry: Entry, event: ev.Event, state: RunState) -> None:
        received.append(event)
        reader(entry, event, state)

    with open_factory(place, ON, "tdd.attempts=1") as factory:
        (row,) = factory.store.runs()
        lease = factory.claim(row.item)
        state = asyncio.run(factory.work(lease, watch=watch, on_agent_event=lambda _text: None))
    assert dead and "step_resumed" in kinds(received)
    assert state.status is RunStatus.COMPLETED, state.detail
    assert reader.found == set()
    proof = trailers.parse_proof(git("show", "-s", "--format=%B", state.head, cwd=place))
    assert proof and proof.sealed == "2" and len(state.commits) == 1


WRONG_SEALED = "from calc import sub\n\n\ndef test_wrong_sealed():\n    assert sub(2, 904177318) == 904177316\n"
CONTESTED = {"say": "sub subtracts, 904177318 included", "write": {"tests/test_sub.py": RED_TEST, SEALED: WRONG_SEALED}}


def test_after_the_last_attempt_the_auditor_may_replace_a_wrong_sealed_test(tmp_path: Path) -> None:
    script = {
        **SCRIPT,
        "audit": [CONTESTED, COMPLETE],
        "implement": [IMPLEMENT] * 3,
        "audit.contest": [{"say": "the spec says minus, so 904177318 was wrong", "write": {SEALED: SEALED_TEST}}],
    }
    state, events, _ = carry_script(tmp_path, script, ON)
    assert state.status is RunStatus.COMPLETED, state.detail
    assert [event.outcome for event in of_kind(events, ev.StepReverted)] == ["overfitted"] * 3
    (replaced,) = of_kind(events, ev.SealedReplaced)
    assert "904177318" not in replaced.why
    assert len(state.commits) == 1 and of_kind(events, ev.StepVerified)[0].completion.sealed == 2


def test_a_sealed_test_that_stands_gives_the_requirement_back(tmp_path: Path) -> None:
    script = {
        **SCRIPT,
        "audit": [BOTH, BOTH, COMPLETE],
        "implement": [BY_HEART] * 3 + [IMPLEMENT],
        "audit.contest": [{"say": "the sealed test is what the spec says"}],
    }
    state, events, _ = carry_script(tmp_path, script, ON)
    assert state.status is RunStatus.COMPLETED, state.detail
    assert [kind for kind in kinds(events) if "sealed" in kind] == ["sealed_contested", "sealed_upheld"]
    assert len(state.commits) == 1


def test_a_judge_decides_whether_a_sealed_test_may_be_replaced(tmp_path: Path) -> None:
    refuses = {
        "say": '{"verdict": "changes_requested", "summary": "weaker", "findings": [{"file": "x", "issue": "y"}]}'
    }
    script = {
        **SCRIPT,
        "audit": [BOTH, BOTH, COMPLETE],
        "implement": [BY_HEART] * 3 + [IMPLEMENT],
        "audit.contest": [{"say": "easier", "write": {SEALED: RED_TEST.replace("test_sub", "test_easy_sealed")}}],
        "gate.arbitrate": [refuses],
        "gate.judge": [REVIEW] * 9,
    }
    place = small_project(tmp_path, script)
    (place / "ratchet.toml").write_text('[[gates]]\nname = "judge"\n')
    git("add", "ratchet.toml", cwd=place)
    git("commit", "-qm", "gate", cwd=place)
    received: list[ev.Event] = []
    state = run_watched(place, lambda _entry, event, _state: received.append(event))
    assert state.status is RunStatus.COMPLETED, state.detail
    assert "weaker" in of_kind(received, ev.SealedUpheld)[0].why


# --- sealed tests of people -----------------------------------------------------------------------------------------


PLAIN = {**SCRIPT, "audit": [AUDIT, COMPLETE]}


def own_folder(tmp_path: Path, content: str) -> str:
    folder = tmp_path / "elsewhere"
    (folder / "tests").mkdir(parents=True)
    (folder / "tests" / "test_own.py").write_text(content)
    return f"sealed.dir={folder}"


OWN_LATE = (
    "import calc\n\n\ndef test_own_add():\n    assert calc.add(7731, 1) == 7732\n\n\n"
    "def test_own_sub():\n    assert calc.sub(7731, 904177318) == -904169587\n"
)


def test_peoples_sealed_tests_must_pass_in_the_end_and_do_not_land(tmp_path: Path) -> None:
    state, events, place = carry_script(tmp_path, PLAIN, "tdd.sealed=false", own_folder(tmp_path, OWN_LATE))
    assert state.status is RunStatus.COMPLETED, state.detail
    (laid,) = of_kind(events, ev.SealedLaid)
    assert (laid.tests, laid.green) == (2, 1)
    assert "test_own" not in git("ls-tree", "-r", "--name-only", state.head, cwd=place)


def test_peoples_sealed_tests_land_if_asked(tmp_path: Path) -> None:
    own = own_folder(tmp_path, OWN_LATE)
    state, _, place = carry_script(tmp_path, PLAIN, "tdd.sealed=false", own, "sealed.land=true")
    assert state.status is RunStatus.COMPLETED, state.detail
    assert git("show", f"{state.started and state.started.branch}:tests/test_own.py", cwd=place) == OWN_LATE.strip()


def test_a_verdict_of_peoples_sealed_tests_is_counted_and_bounded(tmp_path: Path) -> None:
    script = {**PLAIN, "implement": [BY_HEART], "implement_changes": [BY_HEART] * 9, "review": [REVIEW] * 9}
    own = own_folder(tmp_path, OWN_LATE)
    state, events, _ = carry_script(tmp_path, script, "tdd.sealed=false", own, "tdd.disclosures=1")
    assert state.status is RunStatus.FAILED and "was disclosed 1 times" in state.detail
    (refused,) = of_kind(events, ev.FinalRefused)
    assert "1 of 2 sealed examples do not pass" in refused.why and "1310" not in refused.why


def test_a_change_that_breaks_what_peoples_sealed_tests_check_is_overfitted(tmp_path: Path) -> None:
    breaks = {"say": "Subtract", "write": {"calc.py": BREAKS_ADD}}
    script = {**PLAIN, "implement": [breaks, IMPLEMENT]}
    state, events, _ = carry_script(tmp_path, script, "tdd.sealed=false", own_folder(tmp_path, OWN_LATE))
    assert state.status is RunStatus.COMPLETED, state.detail
    (reverted,) = of_kind(events, ev.StepReverted)
    assert (reverted.outcome, reverted.disclosed) == ("overfitted", 1)
    assert "1 of 1 sealed examples that passed before" in reverted.why and state.disclosures == 1


BREAKS_ADD = "def add(a, b):\n    return 3\n\n\ndef sub(a, b):\n    return a - b\n"


def test_a_spec_names_its_folder_of_sealed_tests(tmp_path: Path) -> None:
    place = small_project(tmp_path, {})
    own = Path(own_folder(tmp_path, OWN_LATE).partition("=")[2])
    (place / "SPEC.md").write_text("---\nsealed: ../elsewhere\n---\n# Subtract\n\n`calc.sub(a, b)` subtracts.\n")
    assert sealed_settings(place / "SPEC.md", None, place) == [f"sealed.dir={own}"]
    assert read_spec(place / "SPEC.md").startswith("# Subtract")
    with pytest.raises(UsageError, match="inside the repository"):
        sealed_settings(place / "SPEC.md", place / "tests", place)
    with pytest.raises(UsageError, match="no folder"):
        sealed_settings(place / "SPEC.md", tmp_path / "nowhere", place)


C_PROJECT = {
    "CMakeLists.txt": "cmake_minimum_required(VERSION 3.10)\nproject(num C)\nenable_testing()\nadd_library(num num.c)\n"
    "file(GLOB TESTS ${CMAKE_SOURCE_DIR}/tests/*.c)\nforeach(src ${TESTS})\n"
    "  get_filename_component(name ${src} NAME_WE)\n"
    "  add_executable(${name} ${src})\n  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})\n"
    "  target_link_libraries(${name} num)\n  add_test(NAME ${name} COMMAND ${name})\nendforeach()\n",
    ".gitignore": "build\n",
    "num.h": "int twice(int n);\nint gcd(int a, int b);\n",
    "num.c": '#include "num.h"\n\nint twice(int n) { return 2 * n; }\n\nint gcd(int a, int b) { return -1; }\n',
    "tests/test_twice.c": '#include "num.h"\n\nint main(void) { return twice(2) == 4 ? 0 : 1; }\n',
    "SPEC.md": "# Greatest common divisor\n\n`gcd` in num.c.\n",
}
C_TEST = '#include "num.h"\n\nint main(void) { return gcd(%s) == %s ? 0 : 1; }\n'


@pytest.mark.toolchain
@pytest.mark.skipif(bool(why_no_sandbox()) or not shutil.which("cmake"), reason="needs a sandbox and cmake")
def test_a_project_whose_build_folder_is_outside_is_judged_in_the_sandbox(tmp_path: Path) -> None:
    tests = {"tests/test_gcd.c": C_TEST % ("12, 18", "6"), "tests/test_gcd_sealed.c": C_TEST % ("100, 75", "25")}
    old = "int gcd(int a, int b) { return -1; }"
    by_heart, right = (
        {"say": "Divide", "replace": [{"path": "num.c", "old": old, "new": old.replace("-1", answer)}]}
        for answer in ("6", "b ? gcd(b, a % b) : a")
    )
    place = make_repository(tmp_path / "project", C_PROJECT)
    audit = {"say": "divisors", "write": tests}
    write_script(place, {"audit": [audit, COMPLETE], "implement": [by_heart, right], "review": [REVIEW]})
    heard: list[ev.Event] = []
    state = run_watched(place, lambda _entry, event, _state: heard.append(event))
    assert state.status is RunStatus.COMPLETED, state.detail
    assert [event.outcome for event in of_kind(heard, ev.StepReverted)] == ["overfitted"]
