"""Gates: commands of the project, and the built-in ones."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path

import msgspec

from ratchet import plugins
from ratchet.checks.detect.project_gates import COVERAGE_FILE
from ratchet.checks.run.coverage import read_coverage
from ratchet.core import events as ev
from ratchet.core.cheats import Change, Cheat, find_cheats
from ratchet.core.compare import why_inconclusive
from ratchet.core.gates import Coverage, Gate, changed_lines, is_large, new_findings, uncovered, whole_if_hidden
from ratchet.core.mutants import Mutant, mutants, rewritten
from ratchet.core.receipt import Artifact
from ratchet.core.report import GREEN, RED, Report, ReportStatus, load_errors
from ratchet.core.roles import Role, Writes
from ratchet.core.verdict import Decision, parse_review
from ratchet.core.workflows.workflow import PhaseAction
from ratchet.engine.blocking import run_blocking
from ratchet.engine.steps.agent_call import Variant
from ratchet.engine.steps.ask import ask_role
from ratchet.engine.steps.context import RunContext, StepContext, fresh_context, new_log
from ratchet.engine.steps.run_tests import load_report
from ratchet.process.spawn import ProgramMissing, confined
from ratchet.process.supervise import supervise
from ratchet.tree_files import read_inside, remove_inside, write_inside

MUTANTS_MAX = 8
OUTPUT_MAX_BYTES = 200_000
READ_MAX_CHARS = 1_000_000  # larger files are generated
KILLED_PERCENT = 60.0  # default threshold of the mutation gate


class GateResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a gate: `why` it failed (or empty) and its full output.

    `skipped`: there was nothing to check. `doubtful`: the findings do not refuse the change; a later judge gate decides
    about them, else they are recorded.
    """

    why: str = ""
    output: str = ""
    doubtful: bool = False
    skipped: bool = False
    facts: list[ev.Event] = []
    artifacts: list[Artifact] = []


class GateInput(msgspec.Struct, frozen=True, kw_only=True):
    """The change that gates check: from the tree `before` to the tree of the step. `label` names the files of a fork.

    `has_judge`: a later judge gate can reject; `doubts` are the findings it has to decide about.
    """

    context: RunContext
    step: StepContext
    before: str
    label: str = ""
    has_judge: bool = False
    doubts: str = ""

    @property
    def tree(self) -> str:
        return self.step.started.tree

    def name(self, gate: Gate) -> str:
        return f"step-{self.step.number}{self.label}-{gate_file_name(gate)}"


GateFunction = Callable[[GateInput, Gate], Awaitable[GateResult]]


async def check_gate(inputs: GateInput, gate: Gate) -> GateResult:
    return await (gate_functions().get(gate.kind) or command)(inputs, gate)


@lru_cache(maxsize=1)
def gate_functions() -> dict[str, GateFunction]:
    """Return the gates that are functions, by name. Built-in and plugin gates use the same entry points."""
    return {entry.name: entry.load() for entry in plugins.entry_points("gates").values()}


def gate_file_name(gate: Gate) -> str:
    return gate.name.replace("/", "_")


# --- commands -------------------------------------------------------------------------------------------------------


async def command(inputs: GateInput, gate: Gate) -> GateResult:
    why, output = await run_gate_command(inputs, gate)
    proved = inputs.step.state.proved.get(gate.name)
    if why and proved:
        before = (await run_blocking(inputs.context.directory.get, proved)).decode(errors="replace")
        why = why if new_findings(before, output) else ""  # the same findings as on the untouched base
    return GateResult(why=why, output=output)


async def run_gate_command(inputs: GateInput, gate: Gate) -> tuple[str, str]:
    """Run the gate's command on the step's tree, in a workspace of its own; returns why it failed (or an empty string)
    and its output."""
    if not gate.command.strip():
        raise ProgramMissing(f"unknown gate {gate.name} without a command", hint="[[gates]] command = …")
    log = new_log(inputs.context.directory.log_path(f"{inputs.name(gate)}.log"))
    async with _fresh(inputs) as context:
        how = await _commands(context, gate, log)
    output = log.read_bytes()[-OUTPUT_MAX_BYTES:].decode(errors="replace") if log.exists() else ""
    return (f"{how}: {output.strip()[-500:]}" if how else ""), output


@asynccontextmanager
async def _fresh(inputs: GateInput) -> AsyncIterator[RunContext]:
    """Yield a workspace made anew. It has the same name on the base, so that output with paths can be compared."""
    step, label = inputs.step, f"{inputs.label}-gate"
    async with fresh_context(inputs.context, label, tree=inputs.tree, head=step.state.head) as fresh:
        yield fresh


async def _commands(context: RunContext, gate: Gate, log: Path) -> str:
    for argv in _split(gate.command):
        with confined(context.sandboxes.for_gate()):
            ended = await supervise(
                argv,
                cwd=context.workspace.path / gate.root,
                env=context.workspace_environment() | {"CI": "1", "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1"},
                output=log,
                timeout_s=gate.timeout_s,
            )
        if ended.timed_out:
            return f"timed out after {gate.timeout_s:.0f} s"
        if ended.exit_code != 0:
            return f"exit {ended.exit_code}"
    return ""


def _split(command: str) -> list[list[str]]:
    """Split at `&&` between words; a quoted `&&` belongs to a shell command."""
    parts: list[list[str]] = [[]]
    for word in shlex.split(command):
        if word == "&&":
            parts.append([])
        else:
            parts[-1].append(word)
    return [part for part in parts if part]


# --- built-in gates -------------------------------------------------------------------------------------------------


async def unit(_look: GateInput, _gate: Gate) -> GateResult:
    """Pass: the tests ran before the commit, and there is no commit without a green report."""
    return GateResult()


async def cheats(inputs: GateInput, _gate: Gate) -> GateResult:
    found = await run_blocking(_find_cheats, inputs, await _files_of_red(inputs))
    return GateResult(
        why="; ".join(str(cheat) for cheat in found[:10]),
        output="\n".join(str(cheat) for cheat in found),
        doubtful=bool(found) and all(cheat.doubt for cheat in found),
    )


async def _files_of_red(inputs: GateInput) -> set[str]:
    """Return the files of the tests that the step made green: the source may contain their expected values."""
    state = inputs.step.state
    if not state.red_report:
        return set()
    report = await load_report(inputs.context, state.red_report)
    return {test.file for test in report.tests if test.file and test.id in set(state.red)}


def _find_cheats(inputs: GateInput, asked: set[str]) -> list[Cheat]:
    workspace, scope = inputs.context.workspace, inputs.step.state.scope
    paths = workspace.changes(inputs.before, inputs.tree)
    old, new = workspace.read_all(inputs.before, paths), workspace.read_all(inputs.tree, paths)
    changes = [Change(path=path, before=_text(old[path]), after=_text(new[path])) for path in old]
    readable = [change for change in changes if _is_text(change)]
    unchanged = workspace.read_all(inputs.tree, sorted(path for path in asked - set(paths) if scope.is_test(path)))
    tests = [(path, text) for path, content in unchanged.items() if (text := _text(content))]
    return find_cheats(readable, scope, tests=tests, spec=inputs.context.item.spec)


def _is_text(change: Change) -> bool:
    return not any(side and ("\0" in side or len(side) > READ_MAX_CHARS) for side in (change.before, change.after))


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode(errors="replace")


async def _changed(inputs: GateInput) -> dict[str, set[int]]:
    return await run_blocking(_changed_lines, inputs)


def _changed_lines(inputs: GateInput) -> dict[str, set[int]]:
    """Return the changed lines by file: of the whole diff, since what is cut off would escape the gates."""
    workspace, before, after = inputs.context.workspace, inputs.before, inputs.tree
    found = changed_lines(workspace.diff(before, after, max_bytes=sys.maxsize))
    paths = workspace.changes(before, after)
    old, new = workspace.read_all(before, paths), workspace.read_all(after, paths)
    for path, content in new.items():
        if content is not None and content != old[path]:
            hidden = whole_if_hidden(path, content.decode(errors="replace"), is_shown=path in found)
            found |= {path: hidden} if hidden else {}
    return found


async def coverage(inputs: GateInput, gate: Gate) -> GateResult:
    """Run the command and read the coverage files it wrote. Each must be good enough: which of them the tool wrote, and
    which the tested code, cannot be told."""
    log = new_log(inputs.context.directory.log_path(f"{inputs.name(gate)}.log"))
    async with _fresh(inputs) as context:
        folder = context.workspace.path / gate.root
        for name in _COVERAGE_FILES:
            await run_blocking(remove_inside, folder, name)
        how = await _commands(context, gate, log)
        found = {name: read_inside(folder, name, max_bytes=_COVERAGE_BYTES) for name in _COVERAGE_FILES}
    written = {name: read_coverage(content, str(folder)) for name, content in found.items() if content is not None}
    if not written:
        output = log.read_bytes()[-500:].decode(errors="replace").strip()
        return GateResult(why=f"no coverage file was written ({how or 'exit 0'}): {output}")
    changed = await _changed(inputs)
    whys = {name: _why_uncovered(gate, coverage, changed) for name, coverage in written.items()}
    worst = next((name for name, why in whys.items() if why), next(iter(written)))
    detail = f"{worst}: {whys[worst]}" if len(written) > 1 and whys[worst] else whys[worst]
    return GateResult(why=detail, output=msgspec.json.encode(written[worst]).decode())


def _why_uncovered(gate: Gate, coverage: Coverage | None, changed: dict[str, set[int]]) -> str:
    return uncovered(gate, coverage, changed) if coverage else "its format is not known, or it names no lines"


_COVERAGE_BYTES = 256 << 20
_COVERAGE_FILES = (
    COVERAGE_FILE,
    "coverage.json",
    "coverage/coverage-final.json",
    "coverage/lcov.info",
    "lcov.info",
    "cover.out",
)


async def mutation(inputs: GateInput, gate: Gate) -> GateResult:
    """Replace the source by each mutant and run the tests. Python only.

    A mutant is detected when a test fails that passes on the same lines in other words. Tests that did not run, since
    their file did not load, are no evidence; nor are those that fail whenever the source is touched.
    """
    changed = await _changed(inputs)
    made = await run_blocking(_mutants, inputs, changed)
    if not made:
        return GateResult(skipped=True)
    survived, tried = [], 0
    deadline = asyncio.get_running_loop().time() + gate.timeout_s
    async with _fresh(inputs) as context:
        inputs = msgspec.structs.replace(inputs, context=context)
        same = await run_blocking(_rewritten, inputs, {mutant.path for mutant in made}, changed)
        control = await _run_with(inputs, same)
        passing = set() if why_inconclusive(control) else {test.id for test in control.tests if test.status in GREEN}
        if not passing:
            return GateResult(why="no test passes on the same code in other words: it reads its own source or bytes")
        for mutant in made:
            if asyncio.get_running_loop().time() > deadline:
                break
            tried += 1
            report = await _run_with(inputs, {mutant.path: mutant.source})
            if not _detects(passing, report):
                unloaded = " of those that loaded" if load_errors(report) else ""
                survived.append(f"{mutant.path}:{mutant.line}: {mutant.what}, and no test failed{unloaded}")
    killed = 100.0 * (tried - len(survived)) / tried if tried else 0.0
    wanted = gate.threshold or KILLED_PERCENT
    why = f"{killed:.0f} % of {tried} mutants were detected, {wanted:g} % are required: {'; '.join(survived[:5])}"
    return GateResult(why=why if killed < wanted else "", output="\n".join(survived))


def _mutants(inputs: GateInput, changed: dict[str, set[int]]) -> list[Mutant]:
    found = []
    for path, lines in sorted(changed.items()):
        if path.endswith(".py") and not inputs.step.state.scope.is_test(path):
            source = (inputs.context.workspace.read(inputs.tree, path) or b"").decode(errors="replace")
            found += mutants(path, source, lines, at_most=MUTANTS_MAX)
    return found[:MUTANTS_MAX]


def _rewritten(inputs: GateInput, paths: set[str], changed: dict[str, set[int]]) -> dict[str, str]:
    sources = inputs.context.workspace.read_all(inputs.tree, sorted(paths))
    return {path: rewritten(_text(source) or "", changed[path]) for path, source in sources.items()}


async def _run_with(inputs: GateInput, sources: dict[str, str]) -> Report:
    """Run all tests with these sources instead, then reset the workspace."""
    context = inputs.context
    log = context.directory.log_path(f"step-{inputs.step.number}{inputs.label}-mutation.log")
    for path, source in sources.items():
        write_inside(context.workspace.path, path, source.encode())
    with confined(context.sandboxes.for_tests()):
        report = await context.checks.run(context.workspace.path, log=log)
    await run_blocking(context.workspace.reset, inputs.tree)
    return report


def _detects(passing: set[str], report: Report) -> bool:
    """Whether one of these tests fails now, or the tests no longer end."""
    failed = any(test.id in passing and test.status in RED for test in report.tests)
    return failed or report.status is ReportStatus.TIMEOUT


async def judge(inputs: GateInput, gate: Gate) -> GateResult:
    """Ask another agent for a structured verdict. An invalid answer is asked for once more, then it fails the gate:
    the change may be good, and was paid for."""
    context, step = inputs.context, inputs.step
    act = PhaseAction(
        does="verify",
        role=Role.REVIEWER,
        action=f"gate.{gate.kind}",
        prompt=gate.kind,
        writes=Writes.NOTHING,
        history=False,
    )
    asking = msgspec.structs.replace(step, plan=msgspec.structs.replace(step.plan, act=act))
    agent = context.agents.get(gate.agent) if gate.agent else context.agents.get(Role.REVIEWER)
    turn, label = context.ledger.turn(step.plan.action), f"{inputs.label}-{gate.kind}"
    variant = Variant(agent=agent, turn=turn, label=label, hint=inputs.doubts, spent=[])
    asked = await ask_role(context, asking, variant)
    verdict = parse_review(asked.text)
    made = GateResult(output=asked.text, facts=asked.facts, artifacts=asked.artifacts)
    if isinstance(verdict, str):
        hint = f"{inputs.doubts}\nYour last answer was not valid: {verdict}.".strip()
        asked = await ask_role(
            context, asking, msgspec.structs.replace(variant, turn=turn + 1, label=f"{label}-again", hint=hint)
        )
        verdict = parse_review(asked.text)
        facts, artifacts = [*made.facts, *asked.facts], [*made.artifacts, *asked.artifacts]
        made = GateResult(output=asked.text, facts=facts, artifacts=artifacts)
    if isinstance(verdict, str):
        return msgspec.structs.replace(made, why=verdict)
    if verdict.verdict is Decision.APPROVED:
        return made
    issues = "; ".join(f"{finding.file}:{finding.line}: {finding.issue}" for finding in verdict.findings[:10])
    return msgspec.structs.replace(made, why=f"{verdict.summary} {issues}".strip())


async def architecture(inputs: GateInput, gate: Gate) -> GateResult:
    changed = await _changed(inputs)
    read, scope = inputs.context.workspace.read, inputs.step.state.scope
    created = [
        path for path in changed if not scope.is_test(path) and await run_blocking(read, inputs.before, path) is None
    ]
    return await judge(inputs, gate) if is_large(changed, created) else GateResult(skipped=True)
