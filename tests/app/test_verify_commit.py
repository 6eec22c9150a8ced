"""`verify` believes no trailer that the run's ledger does not know, and says which branches hold a run's commits."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path

import pytest

from ratchet.app import verify_run
from ratchet.core import trailers
from ratchet.core.state import RunStatus
from ratchet.engine.proof import Claim, Verification
from tests.support import GOOD_SCRIPT, SMALL, carry, git, open_factory, small_project

STORE = "store={}/.ratchet/ratchet.db"


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with one completed run, changed by no test."""
    place = small_project(tmp_path_factory.mktemp("verify"), GOOD_SCRIPT)
    with open_factory(place, STORE.format(place)) as factory:
        assert carry(factory, place / "SPEC.md").status is RunStatus.COMPLETED
    return place


@pytest.fixture
def clone(landed: Path, tmp_path: Path) -> Path:
    """Another checkout, in which a branch `forged` stands at the run's commit."""
    place = tmp_path / "clone"
    git("clone", "-q", str(landed), str(place), cwd=tmp_path)
    git("config", "user.email", "m@m", cwd=place)
    git("config", "user.name", "M", cwd=place)
    git("checkout", "-q", "-b", "forged", f"origin/{branch_of(landed)}", cwd=place)
    return place


def branch_of(place: Path) -> str:
    return git("branch", "--list", "ratchet/*", "--format=%(refname:short)", cwd=place)


def message_of(place: Path) -> str:
    return git("show", "-s", "--format=%B", "HEAD", cwd=place)


def amend(place: Path, message: str, files: dict[str, str] | None = None) -> None:
    for path, content in (files or {}).items():
        (place / path).write_text(content)
    git("commit", "-q", "-a", "--amend", "-m", message, cwd=place)


def verified(place: Path, landed: Path, name: str = "HEAD") -> Verification:
    with open_factory(place, STORE.format(landed)) as factory:
        return asyncio.run(factory.verify(name))[0]


def failing(verification: Verification) -> list[str]:
    return [f"{claim.what}: {claim.detail}" for claim in verification.claims if not claim.holds]


def test_a_commit_of_a_run_is_named_by_its_ledger_also_in_another_checkout(clone: Path, landed: Path) -> None:
    found = verified(clone, landed)
    assert failing(found) == []
    assert re.fullmatch(r"the ledger of run-\S+ names this commit", found.claims[0].what)


def test_trailers_copied_onto_another_change_are_refused_though_its_tests_pass(clone: Path, landed: Path) -> None:
    by_heart = SMALL["calc.py"] + "\n\ndef sub(a, b):\n    return 1\n"
    amend(clone, message_of(clone), {"calc.py": by_heart})
    [why] = failing(verified(clone, landed))  # tests fail before and pass after, as the trailers say
    assert "does not name this commit" in why and "differs in calc.py" in why


def test_a_run_that_never_was_is_a_failing_claim_with_a_hint(clone: Path, landed: Path) -> None:
    amend(clone, re.sub(r"run-[0-9a-f-]+", "run-20260101-000000-deadbeef", message_of(clone)))
    [why] = failing(verified(clone, landed))
    assert "run-20260101-000000-deadbeef" in why and "no such run" in why and "--server" in why


def test_a_claim_that_is_left_out_is_missed(clone: Path, landed: Path) -> None:
    proof = trailers.parse_proof(message_of(clone))
    assert proof
    for left_out, missing in ((r"Ratchet-(Test|Red|Agent)", "Ratchet-Test for tests/test_sub.py"),
                              ("Ratchet-Red", "Ratchet-Red")):  # fmt: skip
        git("reset", "-q", "--hard", f"origin/{branch_of(landed)}", cwd=clone)
        kept = [line for line in message_of(clone).split("\n") if not re.match(left_out, line)]
        amend(clone, "\n".join(kept))
        assert any(f"it lacks {missing}" in why or f", {missing}" in why for why in failing(verified(clone, landed)))


def test_a_commit_that_a_person_rebased_holds_as_a_copy_with_the_same_changes(clone: Path, landed: Path) -> None:
    git("checkout", "-q", "-b", "newer", "origin/main", cwd=clone)
    (clone / "README.md").write_text("# Calculator\n")
    git("add", "README.md", cwd=clone)
    git("commit", "-q", "-m", "Add a README", cwd=clone)
    git("cherry-pick", "forged", cwd=clone)
    found = verified(clone, landed)
    assert failing(found) == [] and "of which this is a copy with the same changes" in found.claims[0].what


# --- branches -------------------------------------------------------------------------------------------------------


@pytest.fixture
def moved(landed: Path, tmp_path: Path) -> Path:
    """A copy of the repository, whose branches may be moved."""
    place = tmp_path / "moved"
    shutil.copytree(landed, place, symlinks=True)
    git("worktree", "prune", cwd=place)
    return place


def checked(place: Path, landed: Path) -> Claim:
    with open_factory(place, STORE.format(landed)) as factory:
        history = factory.history(factory.store.runs()[0].run)
    return verify_run.check_branches(history.state, history.events, place)


def test_an_amended_branch_no_longer_holds_the_commits_of_its_run(moved: Path, landed: Path) -> None:
    assert checked(moved, landed).holds
    git("checkout", "-q", branch_of(moved), cwd=moved)
    amend(moved, message_of(moved), {"calc.py": SMALL["calc.py"]})
    assert "was moved, and does not hold" in checked(moved, landed).detail


def test_a_branch_that_was_merged_and_deleted_is_held_by_the_other(moved: Path, landed: Path) -> None:
    branch = branch_of(moved)
    git("merge", "-q", "--no-ff", "-m", "Merge", branch, cwd=moved)
    git("branch", "-q", "-D", branch, cwd=moved)
    found = checked(moved, landed)
    assert found.holds and found.what == f"branch {branch} is gone; main holds its 1 commits"


def test_commits_that_are_gone_are_failing_claims_and_no_error(moved: Path, landed: Path) -> None:
    git("branch", "-q", "-D", branch_of(moved), cwd=moved)
    assert "no other branch holds" in checked(moved, landed).detail
    git("reflog", "expire", "--expire=now", "--all", cwd=moved)
    git("gc", "-q", "--prune=now", cwd=moved)
    with open_factory(moved, STORE.format(landed)) as factory:
        run, commit = asyncio.run(factory.verify(factory.store.runs()[0].run))
    assert not run.holds and "is not in this repository" in failing(run)[-1]
    assert failing(commit) == ["the commit is in this repository: it is lost, and cannot be repeated"]
