"""Verify the proof of a commit: the new test fails at the parent and passes at the commit."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import msgspec

from ratchet.checks.protocol import SuiteRunner
from ratchet.core import trailers
from ratchet.core.cheats import inline_tests
from ratchet.core.report import RED, Report, fingerprint, load_errors, report_digest
from ratchet.core.roles import PathRules
from ratchet.core.sealed import sealed_result
from ratchet.engine.blocking import run_blocking
from ratchet.errors import UsageError
from ratchet.process.spawn import Confinement, confined
from ratchet.tree_files import read_inside, temporary_folder, write_inside
from ratchet.workspace.git import repository
from ratchet.workspace.git.command import git
from ratchet.workspace.git.filters import lay_over


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One checked claim and whether it holds."""

    what: str
    holds: bool
    detail: str = ""


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    subject: str
    claims: list[Claim]

    @property
    def holds(self) -> bool:
        return all(claim.holds for claim in self.claims)


class WorkspaceOpener(Protocol):
    """Opens a temporary workspace at a commit; yields its folder and the sandbox of its tests."""

    def __call__(self, commit: str, /) -> AbstractContextManager[tuple[Path, Confinement | None]]: ...


class ProofContext(msgspec.Struct, frozen=True, kw_only=True):
    """What is needed to verify commits of a repository. `red_first`: whoever changes tests has to name them."""

    repo: Path
    checks: SuiteRunner
    scope: PathRules
    open_workspace: WorkspaceOpener
    red_first: bool = False

    async def run_tests_at(self, commit: str, overlay: tuple[str, list[str]] | None = None) -> Report:
        """Run all tests at a commit, with some paths replaced by those of another commit."""
        with (
            self.open_workspace(commit) as (folder, confinement),
            temporary_folder("ratchet-verify-") as logs,
        ):
            if overlay:
                await run_blocking(_lay_over, folder, self.repo, *overlay, self.scope)
            with confined(confinement):
                return await self.checks.run(folder, log=Path(logs) / "tests.log")


def _lay_over(folder: Path, repo: Path, commit: str, paths: list[str], scope: PathRules) -> None:
    """Restore test files, and the tests inside source files without their source."""
    git_dir = repository.git_dir_of(repo)
    lay_over(folder, git_dir, commit, [path for path in paths if scope.is_test(path)])
    for path in (path for path in paths if not scope.is_test(path)):
        here = read_inside(folder, path)
        wanted = git("show", f"{commit}:{path}", env={"GIT_DIR": str(git_dir)}, ok=(0, 128))
        texts = [side.decode(errors="surrogateescape") for side in (here or b"", wanted)]
        if here is not None and inline_tests.has_tests(path, texts[1]):
            text = inline_tests.with_tests_of(path, *texts)
            write_inside(folder, path, text.encode(errors="surrogateescape"))


async def verify_commit(commit: str, stage: ProofContext, *, first: Sequence[Claim] = ()) -> Verification:
    """Check the trailers, and repeat what they claim. `first` are claims that were checked before."""
    proof = trailers.parse_proof(repository.message_of(stage.repo, commit))
    if proof is None:
        raise UsageError(
            f"{commit[:12]} has no proof: it is not a commit of Ratchet",
            hint="list commits with a proof: git log --grep Ratchet-Key",
        )
    claims = [*first, _complete(commit, proof, stage)]
    claims += [await _red_before(commit, proof, stage)] if proof.tests else []
    claims += [await _sealed_red_before(commit, proof, stage)] if proof.sealed_files else []
    after = await stage.run_tests_at(commit)
    claims += [_sealed_green_after(after, proof)] if proof.sealed_files else []
    return Verification(subject=commit, claims=[*claims, _green_after(after, proof)])


def _complete(commit: str, proof: trailers.Proof, stage: ProofContext) -> Claim:
    """Check that no trailer is left out: a claim that is not made is not repeated."""
    missing = trailers.missing(proof)
    if stage.red_first and not proof.tests and (added := _added_tests(commit, stage)):
        missing.append(f"Ratchet-Test for {', '.join(added[:3])}")
    detail = f"it lacks {', '.join(missing)}" if missing else ""
    return Claim(
        what=f"carries the trailers of a commit by the {proof.role or 'factory'}", holds=not missing, detail=detail
    )


def _added_tests(commit: str, stage: ProofContext) -> list[str]:
    return [path for path in repository.changed_paths(stage.repo, commit) if stage.scope.is_test(path)]


async def _red_before(commit: str, proof: trailers.Proof, stage: ProofContext) -> Claim:
    what = f"red at the parent with the new test: {', '.join(proof.tests)}"
    parent = repository.parent_of(stage.repo, commit)
    if parent is None:
        return Claim(what=what, holds=False, detail="the commit has no parent")
    changed = repository.changed_paths(stage.repo, commit)
    changed = [path for path in changed if path not in proof.sealed_files]
    new_tests = [path for path in changed if stage.scope.is_test(path) or inline_tests.is_possible(path)]
    report = await stage.run_tests_at(parent, (commit, new_tests))
    red = {test.id for test in report.tests if test.status in RED} | {error.file for error in load_errors(report)}
    if green := [name for name in proof.tests if name not in red]:
        return Claim(what=what, holds=False, detail=f"not red there: {', '.join(green)} ({report.status})")
    if fingerprint(report, proof.tests) != proof.red:
        return Claim(what=what, holds=False, detail="it fails, but not in the recorded way")
    return Claim(what=what, holds=True)


async def _sealed_red_before(commit: str, proof: trailers.Proof, stage: ProofContext) -> Claim:
    """Lay only the sealed files over the parent: they must fail there without the open test."""
    what = f"red at the parent with the sealed tests: {', '.join(proof.sealed_files)}"
    parent = repository.parent_of(stage.repo, commit)
    if parent is None:
        return Claim(what=what, holds=False, detail="the commit has no parent")
    result = sealed_result(await stage.run_tests_at(parent, (commit, list(proof.sealed_files))), proof.sealed_files)
    return Claim(what=what, holds=not result.ok, detail="they pass there" if result.ok else "")


def _sealed_green_after(report: Report, proof: trailers.Proof) -> Claim:
    result = sealed_result(report, proof.sealed_files)
    examples = "sealed example passes" if proof.sealed == "1" else "sealed examples pass"
    what = f"{proof.sealed} {examples} that the author of the change never saw"
    holds = result.ok and str(result.passed) == proof.sealed
    return Claim(what=what, holds=holds, detail="" if holds else f"{result.passed} of {result.tests} pass")


def _green_after(report: Report, proof: trailers.Proof) -> Claim:
    others = report.totals.tests - report.totals.passed  # of a green report: skipped, expected to fail
    passed = f"{report.totals.passed} of {report.totals.tests} tests pass"
    what = f"green at the commit: {passed}{f', {others} skipped or expected to fail' if others else ''}"
    if report_digest(report) != proof.green:
        return Claim(what=what, holds=False, detail=f"the report differs from the recorded one ({report.status})")
    return Claim(what=what, holds=True)
