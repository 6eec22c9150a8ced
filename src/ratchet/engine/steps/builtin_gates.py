"""Gates: commands of the project, and the built-in ones."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Awaitable, Callable
from functools import lru_cache
from pathlib import Path

import msgspec

from ratchet import plugins
from ratchet.checks.detect.project_gates import COVERAGE_FILE
from ratchet.checks.run.coverage import read_coverage
from ratchet.core import events as ev
from ratchet.core.cheats import Change, Cheat, find_cheats
from ratchet.core.gates import Gate, changed_lines, is_large, new_findings, uncovered, whole_if_hidden
from ratchet.core.mutants import Mutant, mutants
from ratchet.core.receipt import Artifact
from ratchet.core.report import ReportStatus
from ratchet.core.roles import Role, Writes
from ratchet.core.verdict import Decision, parse_review
from ratchet.core.workflows.workflow import PhaseAction
from ratchet.engine.blocking import run_blocking
from ratchet.engine.steps.agent_call import Variant
from ratchet.engine.steps.ask import ask_role
from ratchet.engine.steps.context import RunContext, StepContext, new_log
from ratchet.engine.steps.run_tests import load_report
from ratchet.process.spawn import ProgramMissing, confined
from ratchet.process.supervise import supervise
from ratchet.tree_files import read_inside, write_inside

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
    """Run the gate's command on the step's tree; returns why it failed (or an empty string) and its output."""
    if not gate.command.strip():
        raise ProgramMissing(f"unknown gate {gate.name} without a command", hint="[[gates]] command = …")
    log = new_log(inputs.context.directory.log_path(f"{inputs.name(gate)}.log"))
    try:
        how = await _commands(inputs.context, gate, log)
    finally:
        await run_blocking(inputs.context.workspace.reset, inputs.tree)
    output = log.read_bytes()[-OUTPUT_MAX_BYTES:].decode(errors="replace") if log.exists() else ""
    return (f"{how}: {output.strip()[-500:]}" if how else ""), output


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
    """Run the command and read the coverage file it wrote, before the workspace is reset."""
    context = inputs.context
    log = new_log(context.directory.log_path(f"{inputs.name(gate)}.log"))
    folder = context.workspace.path / gate.root
    try:
        how = await _commands(context, gate, log)
        contents = (read_inside(folder, name, max_bytes=_COVERAGE_BYTES) for name in _COVERAGE_FILES)
        content = next((content for content in contents if content is not None), b"")
    finally:
        await run_blocking(context.workspace.reset, inputs.tree)
    coverage = read_coverage(content, str(folder))
    if coverage is None:
        output = log.read_bytes()[-500:].decode(errors="replace").strip()
        return GateResult(why=f"no coverage file was written ({how or 'exit 0'}): {output}")
    return GateResult(
        why=uncovered(gate, coverage, await _changed(inputs)), output=msgspec.json.encode(coverage).decode()
    )


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
    """Replace the source by each mutant and run the tests, which must fail. Python only."""
    made = await run_blocking(_mutants, inputs, await _changed(inputs))
    if not made:
        return GateResult(skipped=True)
    survived, tried = [], 0
    deadline = asyncio.get_running_loop().time() + gate.timeout_s
    for mutant in made:
        if asyncio.get_running_loop().time() > deadline:
            break
        tried += 1
        if await _survives(inputs, mutant):
            survived.append(f"{mutant.path}:{mutant.line}: {mutant.what}, and no test failed")
    killed = 100.0 * (tried - len(survived)) / tried
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


async def _survives(inputs: GateInput, mutant: Mutant) -> bool:
    context = inputs.context
    log = context.directory.log_path(f"step-{inputs.step.number}{inputs.label}-mutation.log")
    try:
        write_inside(context.workspace.path, mutant.path, mutant.source.encode())
        with confined(context.sandboxes.for_tests()):
            report = await context.checks.run(context.workspace.path, log=log)
    finally:
        await run_blocking(context.workspace.reset, inputs.tree)
    return report.status is ReportStatus.PASSED


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
