"""What each gate looks at: commands, and those the factory has built in."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable
from functools import lru_cache
from pathlib import Path

import msgspec

from ratchet import plugins
from ratchet.checks.coverage import read_coverage
from ratchet.checks.gates import COVERAGE_FILE
from ratchet.core import events as ev
from ratchet.core.cheats import Change, Cheat, find_cheats
from ratchet.core.gates import Gate, changed_lines, is_large, new_findings, uncovered
from ratchet.core.mutants import Mutant, mutants
from ratchet.core.receipt import Artifact
from ratchet.core.report import ReportStatus
from ratchet.core.roles import Role, Writes
from ratchet.core.verdict import Decision, read_review
from ratchet.core.workflow import Act
from ratchet.process import ProgramMissing, confined
from ratchet.steps.asking import ask
from ratchet.steps.conversing import Variant
from ratchet.steps.testing import report_in
from ratchet.steps.work import Doing, Work, cross, fresh
from ratchet.supervision import supervise

MUTANTS_MAX = 8
SAID_MAX_BYTES = 200_000
READ_MAX_CHARS = 1_000_000  # what is larger was not written by hand
KILLED_PERCENT = 60.0  # what is wanted of the tests when the configuration does not say


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a gate came to: `why` it does not pass, what it `said` at length, and whether there was anything to do. Of
    what is `doubtful` a later gate decides."""

    why: str = ""
    said: str = ""
    doubtful: bool = False
    skipped: bool = False
    facts: list[ev.Event] = []
    artifacts: list[Artifact] = []


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked at: the announced tree of a step, as a change of the tree `before`; `label` keeps forks apart.
    `judged`: a judge comes later who can refuse; `doubts` are what it is to decide."""

    work: Work
    doing: Doing
    before: str
    label: str = ""
    judged: bool = False
    doubts: str = ""

    @property
    def tree(self) -> str:
        return self.doing.started.tree

    def name(self, gate: Gate) -> str:
        return f"step-{self.doing.number}{self.label}-{file_name(gate)}"


Ask = Callable[[Look, Gate], Awaitable[Answer]]


async def answer(look: Look, gate: Gate) -> Answer:
    return await (known_gates().get(gate.kind) or command)(look, gate)


@lru_cache(maxsize=1)
def known_gates() -> dict[str, Ask]:
    """Those that are more than a command, by name; ours register through the same entry points as anybody's."""
    return {entry.name: entry.load() for entry in plugins.found("gates").values()}


def file_name(gate: Gate) -> str:
    return gate.name.replace("/", "_")


# --- commands -------------------------------------------------------------------------------------------------------


async def command(look: Look, gate: Gate) -> Answer:
    why, said = await call_gate(look, gate)
    proved = look.doing.state.proved.get(gate.name)
    if why and proved:
        before = (await cross(look.work.directory.get, proved)).decode(errors="replace")
        why = why if new_findings(before, said) else ""  # as red as it was before anybody did anything
    return Answer(why=why, said=said)


async def call_gate(look: Look, gate: Gate) -> tuple[str, str]:
    """Run its command on the announced tree; returns why it does not pass, or '', and all it said."""
    if not gate.command.strip():
        raise ProgramMissing(f"{gate.name} is no gate we know, and has no command", hint="[[gates]] command = …")
    log = fresh(look.work.directory.log_path(f"{look.name(gate)}.log"))
    try:
        how = await _commands(look.work, gate, log)
    finally:
        await cross(look.work.workspace.reset, look.tree)
    said = log.read_bytes()[-SAID_MAX_BYTES:].decode(errors="replace") if log.exists() else ""
    return (f"{how}: {said.strip()[-500:]}" if how else ""), said


async def _commands(work: Work, gate: Gate, log: Path) -> str:
    for argv in _split(gate.command):
        with confined(work.sandboxes.for_gate()):
            ended = await supervise(
                argv,
                cwd=work.workspace.path / gate.root,
                env=work.surroundings() | {"CI": "1", "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1"},
                output=log,
                timeout_s=gate.timeout_s,
            )
        if ended.timed_out:
            return f"no end after {gate.timeout_s:.0f} s"
        if ended.exit_code != 0:
            return f"exit {ended.exit_code}"
    return ""


def _split(command: str) -> list[list[str]]:
    """At `&&` between words; one inside quotes is somebody's shell's."""
    parts: list[list[str]] = [[]]
    for word in shlex.split(command):
        if word == "&&":
            parts.append([])
        else:
            parts[-1].append(word)
    return [part for part in parts if part]


# --- built-in gates -------------------------------------------------------------------------------------------------


async def unit(_look: Look, _gate: Gate) -> Answer:
    """The suite was run by the judge before the commit was made; there is no commit without its green report."""
    return Answer()


async def cheats(look: Look, _gate: Gate) -> Answer:
    found = await cross(_find_cheats, look, await _files_of_red(look))
    return Answer(
        why="; ".join(str(cheat) for cheat in found[:10]),
        said="\n".join(str(cheat) for cheat in found),
        doubtful=look.judged and bool(found) and all(cheat.doubt for cheat in found),
    )


async def _files_of_red(look: Look) -> set[str]:
    """Where the tests are that the step made green: a fixer does not write them, and may know them by heart."""
    state = look.doing.state
    if not state.red_report:
        return set()
    report = await report_in(look.work, state.red_report)
    return {test.file for test in report.tests if test.file and test.id in set(state.red)}


def _find_cheats(look: Look, asked: set[str]) -> list[Cheat]:
    workspace, scope = look.work.workspace, look.doing.state.scope
    paths = workspace.changes(look.before, look.tree)
    old, new = workspace.read_all(look.before, paths), workspace.read_all(look.tree, paths)
    changes = [Change(path=path, before=_text(old[path]), after=_text(new[path])) for path in old]
    readable = [change for change in changes if _is_text(change)]
    unchanged = workspace.read_all(look.tree, sorted(path for path in asked - set(paths) if scope.is_test(path)))
    tests = [(path, text) for path, content in unchanged.items() if (text := _text(content))]
    return find_cheats(readable, scope, tests=tests, spec=look.work.item.spec)


def _is_text(change: Change) -> bool:
    return not any(side and ("\0" in side or len(side) > READ_MAX_CHARS) for side in (change.before, change.after))


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode(errors="replace")


async def _changed(look: Look) -> dict[str, set[int]]:
    return changed_lines(await cross(look.work.workspace.diff, look.before, look.tree))


async def coverage(look: Look, gate: Gate) -> Answer:
    """The command leaves a file, which is read before the workspace is put back."""
    work = look.work
    log = fresh(work.directory.log_path(f"{look.name(gate)}.log"))
    folder = work.workspace.path / gate.root
    try:
        how = await _commands(work, gate, log)
        left = next((path for path in (folder / name for name in _COVERAGE_FILES) if path.is_file()), None)
        content = left.read_bytes() if left else b""
    finally:
        await cross(work.workspace.reset, look.tree)
    coverage = read_coverage(content, str(folder))
    if coverage is None:
        said = log.read_bytes()[-500:].decode(errors="replace").strip()
        return Answer(why=f"no coverage was measured ({how or 'exit 0'}): {said}")
    return Answer(why=uncovered(gate, coverage, await _changed(look)), said=msgspec.json.encode(coverage).decode())


_COVERAGE_FILES = (
    COVERAGE_FILE,
    "coverage.json",
    "coverage/coverage-final.json",
    "coverage/lcov.info",
    "lcov.info",
    "cover.out",
)


async def mutation(look: Look, gate: Gate) -> Answer:
    """Each mutant takes the place of the source, and the suite must turn red; Python only, where we have the tool."""
    made = await cross(_mutants, look, await _changed(look))
    if not made:
        return Answer(skipped=True)
    survived, tried = [], 0
    deadline = asyncio.get_running_loop().time() + gate.timeout_s
    for mutant in made:
        if asyncio.get_running_loop().time() > deadline:
            break
        tried += 1
        if await _survives(look, mutant):
            survived.append(f"{mutant.path}:{mutant.line}: {mutant.what}, and no test noticed")
    killed = 100.0 * (tried - len(survived)) / tried
    wanted = gate.threshold or KILLED_PERCENT
    why = f"{killed:.0f} % of {tried} mutants were noticed, {wanted:g} % are wanted: {'; '.join(survived[:5])}"
    return Answer(why=why if killed < wanted else "", said="\n".join(survived))


def _mutants(look: Look, changed: dict[str, set[int]]) -> list[Mutant]:
    found = []
    for path, lines in sorted(changed.items()):
        if path.endswith(".py") and not look.doing.state.scope.is_test(path):
            source = (look.work.workspace.read(look.tree, path) or b"").decode(errors="replace")
            found += mutants(path, source, lines, at_most=MUTANTS_MAX)
    return found[:MUTANTS_MAX]


async def _survives(look: Look, mutant: Mutant) -> bool:
    work = look.work
    log = work.directory.log_path(f"step-{look.doing.number}{look.label}-mutation.log")
    try:
        (work.workspace.path / mutant.path).write_text(mutant.source)
        with confined(work.sandboxes.for_tests()):
            report = await work.checks.run(work.workspace.path, log=log)
    finally:
        await cross(work.workspace.reset, look.tree)
    return report.status is ReportStatus.PASSED


async def judge(look: Look, gate: Gate) -> Answer:
    """Another agent's structured verdict. Anything else than a valid one fails the gate."""
    work, doing = look.work, look.doing
    act = Act(
        does="verify",
        role=Role.REVIEWER,
        action=f"gate.{gate.kind}",
        prompt=gate.kind,
        writes=Writes.NOTHING,
        history=False,
    )
    asking = msgspec.structs.replace(doing, step=msgspec.structs.replace(doing.step, act=act))
    agent = work.agents(gate.agent, False) if gate.agent else work.agents(Role.REVIEWER, False)
    turn, label = work.turn(doing.step.action), f"{look.label}-{gate.kind}"
    variant = Variant(agent=agent, turn=turn, label=label, hint=look.doubts, spent=[])
    asked = await ask(work, asking, variant)
    verdict = read_review(asked.text)
    made = Answer(said=asked.text, facts=asked.facts, artifacts=asked.artifacts)
    if isinstance(verdict, str):
        return msgspec.structs.replace(made, why=verdict)
    if verdict.verdict is Decision.APPROVED:
        return made
    issues = "; ".join(f"{finding.file}:{finding.line}: {finding.issue}" for finding in verdict.findings[:10])
    return msgspec.structs.replace(made, why=f"{verdict.summary} {issues}".strip())


async def architecture(look: Look, gate: Gate) -> Answer:
    changed = await _changed(look)
    read, scope = look.work.workspace.read, look.doing.state.scope
    created = [path for path in changed if not scope.is_test(path) and await cross(read, look.before, path) is None]
    return await judge(look, gate) if is_large(changed, created) else Answer(skipped=True)
