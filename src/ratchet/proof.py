"""Re-enacts what a commit claims: red at its parent with the new test, green at the commit."""

from __future__ import annotations

import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import msgspec

from ratchet import repository
from ratchet.checks import Checks
from ratchet.core import trailers
from ratchet.core.report import RED, Report, broken, digest, fingerprint
from ratchet.core.roles import Scope
from ratchet.errors import UsageError
from ratchet.process import Confinement, confined
from ratchet.steps import cross
from ratchet.workspace.git import git


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was checked."""

    what: str
    holds: bool
    detail: str = ""


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    subject: str
    claims: list[Claim]

    @property
    def holds(self) -> bool:
        return all(claim.holds for claim in self.claims)


class Place(Protocol):
    """A fresh workspace at a commit, with what confines the tests in it; gone afterwards."""

    def __call__(self, commit: str, /) -> AbstractContextManager[tuple[Path, Confinement | None]]: ...


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """Where and with what a commit's claim is re-enacted."""

    repo: Path
    checks: Checks
    scope: Scope
    place: Place

    async def run_at(self, commit: str, lay_over: tuple[str, list[str]] | None = None) -> Report:
        """The suite's report there, with these paths of another commit laid over."""
        with self.place(commit) as (folder, confinement), tempfile.TemporaryDirectory(prefix="ratchet-verify-") as logs:
            if lay_over and lay_over[1]:
                await cross(_lay, folder, *lay_over)
            with confined(confinement):
                return await self.checks.run(folder, log=Path(logs) / "tests.log")


def _lay(folder: Path, commit: str, paths: list[str]) -> None:
    git(
        "restore",
        f"--source={commit}",
        "--pathspec-from-file=-",
        "--pathspec-file-nul",
        cwd=folder,
        env={"GIT_LITERAL_PATHSPECS": "1"},
        stdin=b"\0".join(path.encode(errors="surrogateescape") for path in paths),
    )


async def verify_commit(commit: str, stage: Stage) -> Verification:
    proof = trailers.parse(repository.message_of(stage.repo, commit))
    if proof is None:
        raise UsageError(
            f"{commit[:12]} carries no proof: it is not a commit of the factory",
            hint="git log --grep Ratchet-Key lists those that do",
        )
    claims = [await _red_before(commit, proof, stage)] if proof.tests else []
    return Verification(subject=commit, claims=[*claims, await _green_after(commit, proof, stage)])


async def _red_before(commit: str, proof: trailers.Proof, stage: Stage) -> Claim:
    what = f"red at the parent with the new test: {', '.join(proof.tests)}"
    parent = repository.parent_of(stage.repo, commit)
    if parent is None:
        return Claim(what=what, holds=False, detail="the commit has no parent")
    new_tests = [path for path in repository.changed_paths(stage.repo, commit) if stage.scope.is_test(path)]
    report = await stage.run_at(parent, (commit, new_tests))
    red = {test.id for test in report.tests if test.status in RED} | {error.file for error in broken(report)}
    if green := [name for name in proof.tests if name not in red]:
        return Claim(what=what, holds=False, detail=f"not red there: {', '.join(green)} ({report.status})")
    if fingerprint(report, proof.tests) != proof.red:
        return Claim(what=what, holds=False, detail="it is red, but fails in another way than recorded")
    return Claim(what=what, holds=True)


async def _green_after(commit: str, proof: trailers.Proof, stage: Stage) -> Claim:
    report = await stage.run_at(commit)
    what = f"green at the commit: {report.totals.passed} of {report.totals.tests} tests pass"
    if digest(report) != proof.green:
        return Claim(what=what, holds=False, detail=f"the report differs from the recorded one ({report.status})")
    return Claim(what=what, holds=True)
