"""Re-enacts what a commit claims: red at its parent with the new test, green at the commit."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from pathlib import Path

import msgspec

from ratchet import repository
from ratchet.checks import Checks
from ratchet.core import trailers
from ratchet.core.report import RED, Report, broken, digest, fingerprint
from ratchet.core.roles import Scope
from ratchet.errors import UsageError
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


async def verify_commit(repo: Path, commit: str, *, checks: Checks, scope: Scope) -> Verification:
    proof = trailers.parse(repository.message_of(repo, commit))
    if proof is None:
        raise UsageError(
            f"{commit[:12]} carries no proof: it is not a commit of the factory",
            hint="git log --grep Ratchet-Key lists those that do",
        )
    claims = []
    if proof.tests:
        claims.append(await _red_before(repo, commit, proof, checks, scope))
    claims.append(await _green_after(repo, commit, proof, checks))
    return Verification(subject=commit, claims=claims)


async def _red_before(repo: Path, commit: str, proof: trailers.Proof, checks: Checks, scope: Scope) -> Claim:
    what = f"red at the parent with the new test: {', '.join(proof.tests)}"
    parent = repository.parent_of(repo, commit)
    if parent is None:
        return Claim(what=what, holds=False, detail="the commit has no parent")
    new_tests = [path for path in repository.changed_paths(repo, commit) if scope.is_test(path)]
    report = await _run_at(repo, parent, checks, lay_over=(commit, new_tests))
    red = {test.id for test in report.tests if test.status in RED} | {error.file for error in broken(report)}
    if green := [name for name in proof.tests if name not in red]:
        return Claim(what=what, holds=False, detail=f"not red there: {', '.join(green)} ({report.status})")
    if fingerprint(report, proof.tests) != proof.red:
        return Claim(what=what, holds=False, detail="it is red, but fails in another way than recorded")
    return Claim(what=what, holds=True)


async def _green_after(repo: Path, commit: str, proof: trailers.Proof, checks: Checks) -> Claim:
    report = await _run_at(repo, commit, checks)
    what = f"green at the commit: {report.totals.passed} of {report.totals.tests} tests pass"
    if digest(report) != proof.green:
        return Claim(what=what, holds=False, detail=f"the report differs from the recorded one ({report.status})")
    return Claim(what=what, holds=True)


async def _run_at(repo: Path, commit: str, checks: Checks, lay_over: tuple[str, list[str]] | None = None) -> Report:
    """Run the suite in a throw-away checkout, which is gone afterwards also when we are interrupted."""
    place = Path(tempfile.mkdtemp(prefix="ratchet-verify-"))
    folder = place / secrets.token_hex(4)
    try:
        await cross(git, "worktree", "add", "--quiet", "--detach", str(folder), commit, cwd=repo)
        if lay_over and lay_over[1]:
            source, paths = lay_over
            names = b"\0".join(path.encode(errors="surrogateescape") for path in paths)
            await cross(
                git,
                "restore",
                f"--source={source}",
                "--pathspec-from-file=-",
                "--pathspec-file-nul",
                cwd=folder,
                env={"GIT_LITERAL_PATHSPECS": "1"},
                stdin=names,
            )
        return await checks.run(folder, log=place / "tests.log")
    finally:
        await cross(git, "worktree", "remove", "--force", str(folder), cwd=repo, ok=(0, 128))
        shutil.rmtree(place, ignore_errors=True)
