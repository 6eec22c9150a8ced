"""What is kept of reports: all of it, however the tests are named, and never another worker's."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ratchet.core.state import RunStatus
from ratchet.interfaces.terminal.live_view import ignore_event
from ratchet.store.run_directory import RunDirectory
from tests.support import (
    AUDIT,
    COMPLETE,
    GOOD_SCRIPT,
    IMPLEMENT,
    REVIEW,
    RIGHT,
    SMALL,
    carry,
    make_repository,
    open_factory,
    write_script,
)

PARAMETER = "import pytest\n\n\n@pytest.mark.parametrize('marker', ['-----{} PRIVATE KEY-----'])\n"
MARKERS = {
    "tests/test_a_pem.py": PARAMETER.format("BEGIN") + "def test_head(marker):\n    assert marker\n",
    "tests/test_z_pem.py": PARAMETER.format("END") + "def test_foot(marker):\n    assert marker\n",
}
SILENCING = {
    "say": "Subtract",
    "write": {"calc.py": f"import unittest\n\n\ndef add(a, b):\n    raise unittest.SkipTest('later')\n{RIGHT}"},
}


def test_a_test_between_two_whose_names_hold_the_ends_of_a_key_is_not_silenced(tmp_path: Path) -> None:
    place = make_repository(tmp_path / "project", SMALL | MARKERS)
    write_script(place, {"audit": [AUDIT, COMPLETE], "implement": [SILENCING] * 3, "review": [REVIEW]})
    with open_factory(place, "sandbox.mode=off") as service:
        state = carry(service, place / "SPEC.md")
        report = service.directory(state.run).path / "reports" / "step-1.json"
    assert not state.commits and state.reverts == 3
    kept = [test["id"] for test in msgspec.json.decode(report.read_bytes())["tests"]]
    assert "tests/test_calc.py::test_add" in kept and len(kept) == 3


TOKENS = ["ghp_" + "A1b2C3d4E5f6G7h8I9" * 2, "ghp_" + "Z9y8X7w6V5u4T3s2R1" * 2]
NAMED_BY_TOKENS = (
    f"import pytest\nfrom calc import add\n\n\n@pytest.mark.parametrize('token', {TOKENS})\n"
    "def test_token(token):\n    assert add(1, 1) == 2\n"
)
SILENCING_THE_FIRST = {
    "say": "Subtract",
    "write": {
        "calc.py": "import unittest\n\ncalls = []\n\n\ndef add(a, b):\n    calls.append((a, b))\n"
        "    if calls.count((1, 1)) == 1 and (a, b) == (1, 1):\n        raise unittest.SkipTest('later')\n"
        f"    return a + b\n{RIGHT}"
    },
}


@pytest.mark.parametrize("change", [IMPLEMENT, SILENCING_THE_FIRST], ids=["honest", "silencing"])
def test_tests_whose_names_look_like_keys_are_compared_and_told_apart(tmp_path: Path, change: dict[str, Any]) -> None:
    place = make_repository(tmp_path / "project", SMALL | {"tests/test_token.py": NAMED_BY_TOKENS})

    write_script(place, {"audit": [AUDIT, COMPLETE], "implement": [change] * 3, "review": [REVIEW]})
    with open_factory(place, "sandbox.mode=off") as service:
        state = carry(service, place / "SPEC.md")
        if change is SILENCING_THE_FIRST:
            assert not state.commits and state.reverts == 3
            return
        assert state.status is RunStatus.COMPLETED and len(state.commits) == 1
        assert asyncio.run(service._verify_commit(state.head)).holds
        reports = service.directory(state.run).path / "reports"
        assert not any(token in path.read_text() for token in TOKENS for path in reports.glob("*.json"))


@pytest.mark.parametrize("workflow", ["tdd", "fix"])
def test_very_many_failing_tests_of_long_names_do_not_end_a_run(tmp_path: Path, workflow: str) -> None:
    many = (
        "import pytest\nfrom calc import add\n\nNAMES = [f'{n:04}-' + 'x' * 290 for n in range(1000)]\n\n\n"
        "@pytest.mark.parametrize('n', range(1000), ids=NAMES)\ndef test_n(n):\n    assert add(1, 1) == 3\n"
    )
    place = make_repository(tmp_path / "project", SMALL | {"tests/test_many.py": many})
    mend = {"say": "Fix", "write": {"calc.py": "def add(a, b):\n    return 3\n"}}
    write_script(place, GOOD_SCRIPT | {"fix": [mend]})
    with open_factory(place, "sandbox.mode=off") as service:
        lease = service.claim(service.add(place / "SPEC.md", workflow=workflow).id)
        state = asyncio.run(service.work(lease, watch=ignore_event, on_agent_event=lambda _text: None))
    assert state.status is RunStatus.COMPLETED and len(state.commits) == 1


def test_a_worker_that_lost_its_lease_overwrites_no_artifact_of_its_successor(tmp_path: Path) -> None:
    late, successor = RunDirectory(tmp_path, "run-1", epoch=1), RunDirectory(tmp_path, "run-1", epoch=2)
    kept = successor.put("reports/step-1.json", b'{"by": "successor"}')
    late.put("reports/step-1.json", b'{"by": "late"}')
    assert successor.get(kept) == b'{"by": "successor"}'
    found = RunDirectory(tmp_path, "run-1", epoch=3).latest("reports/step-1.json")
    assert found and found.read_bytes() == b'{"by": "successor"}'
