"""What each gate looks at: commands, and those the factory has built in."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from ratchet.checks.coverage import read_coverage
from ratchet.checks.gates import COVERAGE_FILE
from ratchet.core import events as ev
from ratchet.core.cheats import Change, Cheat, find_cheats
from ratchet.core.gates import Gate, changed_lines, is_large, new_findings, uncovered
from ratchet.core.mutants import Mutant, mutants
from ratchet.core.receipt import Artifact
from ratchet.core.report import ReportStatus
from ratchet.core.roles import Role
from ratchet.core.verdict import Decision, read_review
from ratchet.core.workflow import Step
from ratchet.process import confined, supervise
from ratchet.steps.asking import ask
from ratchet.steps.work import Doing, Work, cross, fresh

MUTANTS_MAX = 8
SAID_MAX_BYTES = 200_000
KILLED_PERCENT = 60.0  # what is wanted of the tests when the configuration does not say


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a gate came to: `why` it does not pass, what it `said` at length, and whether there was anything to do."""

    why: str = ""
    said: str = ""
    skipped: bool = False
    facts: list[ev.Event] = []
    artifacts: list[Artifact] = []


async def answer(work: Work, doing: Doing, gate: Gate) -> Answer:
    return await _BUILT_IN.get(gate.kind, _command)(work, doing, gate)


def file_name(gate: Gate) -> str:
    return gate.name.replace("/", "_")


# --- commands -------------------------------------------------------------------------------------------------------


async def _command(work: Work, doing: Doing, gate: Gate) -> Answer:
    why, said = await call_gate(work, doing, gate)
    if not why:
        return Answer(said=said)
    if gate.name in doing.state.proved and not new_findings(await _proved(work, doing, gate), said):
        return Answer(said=said)  # as red as it was before anybody did anything
    return Answer(why=why, said=said)


async def _proved(work: Work, doing: Doing, gate: Gate) -> str:
    return (await cross(work.directory.get, doing.state.proved[gate.name])).decode(errors="replace")


async def call_gate(work: Work, doing: Doing, gate: Gate) -> tuple[str, str]:
    """Run its command on the announced tree; returns why it does not pass, or '', and all it said."""
    log = fresh(work.directory.log_path(f"step-{doing.number}-{file_name(gate)}.log"))
    try:
        how = await _commands(work, gate, log)
    finally:
        await cross(work.workspace.reset, doing.started.tree)
    said = log.read_bytes()[-SAID_MAX_BYTES:].decode(errors="replace") if log.exists() else ""
    return (f"{how}: {said.strip()[-500:]}" if how else ""), said


async def _commands(work: Work, gate: Gate, log: Path) -> str:
    for part in gate.command.split("&&"):
        with confined(work.sandboxes.for_gate()):
            ended = await supervise(
                shlex.split(part),
                cwd=work.workspace.path / gate.root,
                env=work.env | {"CI": "1", "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1"},
                output=log,
                timeout_s=gate.timeout_s,
            )
        if ended.timed_out:
            return f"no end after {gate.timeout_s:.0f} s"
        if ended.exit_code != 0:
            return f"exit {ended.exit_code}"
    return ""


# --- built-in gates -------------------------------------------------------------------------------------------------


async def _unit(_work: Work, _doing: Doing, _gate: Gate) -> Answer:
    """The suite was run by the judge before the commit was made; there is no commit without its green report."""
    return Answer()


async def _cheats(work: Work, doing: Doing, _gate: Gate) -> Answer:
    found = await cross(_find_cheats, work, doing)
    return Answer(why="; ".join(str(cheat) for cheat in found[:10]), said="\n".join(str(cheat) for cheat in found))


def _find_cheats(work: Work, doing: Doing) -> list[Cheat]:
    before, after = _span(doing)
    paths = work.workspace.changes(before, after)
    changes = [change for path in paths if (change := _change(work, path, before, after))]
    return find_cheats(changes, doing.state.scope)


def _span(doing: Doing) -> tuple[str, str]:
    """The trees before and after the step that is verified."""
    return doing.state.commits[-1].tree, doing.state.green_tree


def _change(work: Work, path: str, before: str, after: str) -> Change | None:
    old, new = work.workspace.read(before, path), work.workspace.read(after, path)
    if b"\0" in (old or b"") + (new or b""):
        return None
    return Change(path=path, before=_text(old), after=_text(new))


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode(errors="replace")


async def _changed(work: Work, doing: Doing) -> dict[str, set[int]]:
    return changed_lines(await cross(work.workspace.diff, *_span(doing)))


async def _coverage(work: Work, doing: Doing, gate: Gate) -> Answer:
    """The command leaves a file, which is read before the workspace is put back."""
    log = fresh(work.directory.log_path(f"step-{doing.number}-{file_name(gate)}.log"))
    folder = work.workspace.path / gate.root
    try:
        how = await _commands(work, gate, log)
        left = next((path for path in (folder / name for name in _COVERAGE_FILES) if path.is_file()), None)
        content = left.read_bytes() if left else b""
    finally:
        await cross(work.workspace.reset, doing.started.tree)
    coverage = read_coverage(content, str(folder))
    if coverage is None:
        said = log.read_bytes()[-500:].decode(errors="replace").strip()
        return Answer(why=f"no coverage was measured ({how or 'exit 0'}): {said}")
    return Answer(
        why=uncovered(gate, coverage, await _changed(work, doing)), said=msgspec.json.encode(coverage).decode()
    )


_COVERAGE_FILES = (
    COVERAGE_FILE,
    "coverage.json",
    "coverage/coverage-final.json",
    "coverage/lcov.info",
    "lcov.info",
    "cover.out",
)


async def _mutation(work: Work, doing: Doing, gate: Gate) -> Answer:
    """Each mutant takes the place of the source, and the suite must turn red; Python only, where we have the tool."""
    made = await cross(_mutants, work, doing, await _changed(work, doing))
    if not made:
        return Answer(skipped=True)
    survived, tried = [], 0
    deadline = asyncio.get_running_loop().time() + gate.timeout_s
    for mutant in made:
        if asyncio.get_running_loop().time() > deadline:
            break
        tried += 1
        if await _survives(work, doing, mutant):
            survived.append(f"{mutant.path}:{mutant.line}: {mutant.what}, and no test noticed")
    killed = 100.0 * (tried - len(survived)) / tried
    wanted = gate.threshold or KILLED_PERCENT
    why = f"{killed:.0f} % of {tried} mutants were noticed, {wanted:g} % are wanted: {'; '.join(survived[:5])}"
    return Answer(why=why if killed < wanted else "", said="\n".join(survived))


def _mutants(work: Work, doing: Doing, changed: dict[str, set[int]]) -> list[Mutant]:
    after = doing.state.green_tree
    found = []
    for path, lines in sorted(changed.items()):
        if path.endswith(".py") and not doing.state.scope.is_test(path):
            source = (work.workspace.read(after, path) or b"").decode(errors="replace")
            found += mutants(path, source, lines, at_most=MUTANTS_MAX)
    return found[:MUTANTS_MAX]


async def _survives(work: Work, doing: Doing, mutant: Mutant) -> bool:
    log = work.directory.log_path(f"step-{doing.number}-mutation.log")
    try:
        (work.workspace.path / mutant.path).write_text(mutant.source)
        with confined(work.sandboxes.for_tests()):
            report = await work.checks.run(work.workspace.path, log=log)
    finally:
        await cross(work.workspace.reset, doing.started.tree)
    return report.status is ReportStatus.PASSED


async def _judge(work: Work, doing: Doing, gate: Gate) -> Answer:
    """Another agent's structured verdict. Anything else than a valid one fails the gate."""
    step = Step(
        phase=doing.phase,
        action=gate.kind,
        role=Role.REVIEWER,
        inputs={"gate": gate.name, "kept": len(doing.state.commits)},
    )
    asked = await ask(work, msgspec.structs.replace(doing, step=step), agent=gate.agent)
    verdict = read_review(asked.text)
    made = Answer(said=asked.text, facts=asked.facts, artifacts=asked.artifacts)
    if isinstance(verdict, str):
        return msgspec.structs.replace(made, why=verdict)
    if verdict.verdict is Decision.APPROVED:
        return made
    issues = "; ".join(f"{finding.file}:{finding.line}: {finding.issue}" for finding in verdict.findings[:10])
    return msgspec.structs.replace(made, why=f"{verdict.summary} {issues}".strip())


async def _architecture(work: Work, doing: Doing, gate: Gate) -> Answer:
    before, _ = _span(doing)
    changed = await _changed(work, doing)
    created = [path for path in changed if await cross(work.workspace.read, before, path) is None]
    sources = [path for path in created if not doing.state.scope.is_test(path)]
    if not is_large(changed, sources):
        return Answer(skipped=True)
    return await _judge(work, doing, gate)


_BUILT_IN: dict[str, Callable[[Work, Doing, Gate], Awaitable[Answer]]] = {
    "unit": _unit,
    "coverage": _coverage,
    "mutation": _mutation,
    "cheats": _cheats,
    "judge": _judge,
    "architecture": _architecture,
}
COMMANDLESS = frozenset(_BUILT_IN) - {"coverage"}
