"""Steps that run the tests: the baseline, and the check that a new test fails for the right reason."""

from __future__ import annotations

import re

import msgspec

from ratchet.checks.detect.set_up import is_not_set_up, set_up_advice
from ratchet.checks.protocol import Target
from ratchet.checks.run.tool_digests import changed_tools
from ratchet.core import events as ev
from ratchet.core.compare import Judgement, failed_beside_a_new_test, judge_red
from ratchet.core.failure import Reason
from ratchet.core.flaky import merge_rerun
from ratchet.core.learning import FINGERPRINTS_MAX, report_fingerprints
from ratchet.core.receipt import Artifact
from ratchet.core.report import GREEN, RED, Diagnostic, Report, ReportStatus, TestStatus, fingerprint, load_errors
from ratchet.core.sealed import withheld
from ratchet.core.state import RunState
from ratchet.engine.blocking import run_blocking
from ratchet.engine.run_setup import recorded_targets
from ratchet.engine.steps.context import RunContext, StepContext, StepResult, abbreviate, bounded_names, truncate
from ratchet.engine.steps.sealing import run_with_sealed, sealed_files, texts
from ratchet.engine.steps.user_sealed import lay_user_sealed
from ratchet.process.spawn import confined


async def run_tests(context: RunContext, started: ev.StepStarted, *, label: str = "") -> tuple[Report, Artifact]:
    """Run all tests, then reset the workspace. Returns the report and its artifact."""
    log = context.directory.log_path(f"step-{started.step}{label}-tests.log")
    # Ignored, cached and compiled files that an agent left are not in the tree and must not affect the tests.
    await run_blocking(context.workspace.reset, started.tree)
    with confined(context.sandboxes.for_tests()):
        report = await context.checks.run(context.workspace.path, log=log)
    await run_blocking(context.workspace.reset, started.tree)
    name = f"reports/step-{started.step}{label}.json"
    return report, await run_blocking(context.directory.put, name, msgspec.json.encode(report))


async def load_report(context: RunContext, artifact: Artifact | None) -> Report:
    assert artifact, "the workflow table allows no comparison before a first report"
    return msgspec.json.decode(await run_blocking(context.directory.get, artifact), type=Report)


def runner_changed(before: dict[str, str], now: dict[str, str]) -> str:
    """Return why test results can no longer be trusted, or an empty string. Old ledgers have no digests to compare."""
    names = changed_tools(before, now) if before else []
    return f"the installed test runner was changed during the run: {abbreviate(names)}" if names else ""


async def baseline(context: RunContext, step: StepContext) -> StepResult:
    report, kept = await run_tests(context, step.started)
    if report.status not in ("passed", "failed", "no_tests") or _is_unready(report):
        return StepResult(events=[_misconfigured(report, context, step)], artifacts=[kept])
    return await _taken(context, step, report, kept)


async def baseline_to_fix(context: RunContext, step: StepContext) -> StepResult:
    """Take the baseline for a fixer: tests that fail to load count as failures, as long as there is a runner."""
    report, kept = await run_tests(context, step.started)
    unready = _is_unready(report) and is_not_set_up(report)  # a fixer cannot install packages
    if unready or report.status in (ReportStatus.ERROR, ReportStatus.NO_TESTS, ReportStatus.UNKNOWN):
        return StepResult(events=[_misconfigured(report, context, step)], artifacts=[kept])
    return await _taken(context, step, report, kept)


async def _taken(context: RunContext, step: StepContext, report: Report, kept: Artifact) -> StepResult:
    laid = await lay_user_sealed(context, step)
    if isinstance(laid, ev.RunFailed):
        return StepResult(events=[laid], artifacts=[kept])
    taken = ev.BaselineTaken(
        step=step.number,
        report=kept,
        tests=report.totals.tests,
        skipped=report.totals.skipped,
        unloaded=bounded_names(sorted({error.file for error in load_errors(report) if error.file})[:100]),
        failing=bounded_names([test.id for test in report.tests if test.status in RED][:1000]),
        tree=step.started.tree,
        tools=await run_blocking(context.checks.tool_digests, context.workspace.path),
    )
    return StepResult(events=[*([laid] if laid else []), taken], artifacts=[kept])


def _is_unready(report: Report) -> bool:
    """Whether no test could run because files do not load, or more files lack a package than tests pass: then hardly a
    change of the source could turn anything green."""
    errors = load_errors(report)
    ran = any(test.status not in (TestStatus.ERROR, TestStatus.SKIPPED) for test in report.tests)
    return bool(errors) and (not ran or (report.totals.passed < len(errors) and is_not_set_up(report)))


def _misconfigured(report: Report, context: RunContext, step: StepContext) -> ev.RunFailed:
    if errors := load_errors(report):
        why = f"the tests do not load on the untouched base: {abbreviate([_error_line(error) for error in errors])}"
        output = ""
    else:
        notes = f": {'; '.join(report.notes)}" if report.notes else ""
        why = f"the tests cannot be run on the untouched base ({report.status}){notes}"
        output = report.output.strip()
    if len(output) > _OUTPUT_CHARS:
        output = output[-_OUTPUT_CHARS:].partition("\n")[2]  # start at the beginning of a line
    assert step.state.started
    advice = _advice(recorded_targets(step.state.started), context) if is_not_set_up(report) else ""
    detail = "\n".join(part for part in (why, output, advice) if part)
    return ev.RunFailed(reason=Reason.MISCONFIGURED, detail=detail)


def _advice(targets: list[Target], context: RunContext) -> str:
    commands = [command for target in targets if target.language != "python" for command in target.setup]
    given = " ".join(f'"{command}"' for command in commands)
    offer = f"or let each run do it, in ratchet.toml: [workspace] setup = [{given}]" if commands else ""
    return "\n".join(part for part in (set_up_advice(targets, context.repo), offer) if part)


def _error_line(error: Diagnostic) -> str:
    return f"{error.file}:{error.line}: {error.type}: {error.message}"


_OUTPUT_CHARS = 400


async def verify_red(context: RunContext, step: StepContext) -> StepResult:
    state = step.state
    report, kept = await run_tests(context, step.started)
    verdict, flaky = await _judge_red(context, state, report), list[ev.Event]()
    if not verdict.ok and failed_beside_a_new_test(await load_report(context, state.reference), report):
        # A new test seldom breaks others: asking the auditor again because one of them is flaky would cost more.
        again, _ = await run_tests(context, step.started, label="-again")
        report, flaky = merge_rerun(report, again), _found_flaky(step, report, again)
        kept = await run_blocking(
            context.directory.put, f"reports/step-{step.number}-merged.json", msgspec.json.encode(report)
        )
        verdict = await _judge_red(context, state, report)
    if not verdict.ok:
        return await _refuse(context, step, verdict.why, kept, flaky, met=verdict.met)
    sealed = await _sealed_red(context, step)
    if not sealed.ok:
        return await _refuse(context, step, f"the sealed test is not accepted: {sealed.why}", kept, flaky)
    seen = fingerprint(report, verdict.tests)
    red = ev.RedConfirmed(
        step=step.number,
        tests=bounded_names(verdict.tests),
        fingerprint=seen,
        report=kept,
        sealed=len(sealed.tests),
        failures=report_fingerprints(report, verdict.tests)[:FINGERPRINTS_MAX],
    )
    return StepResult(events=[*flaky, red], artifacts=[kept])


def _found_flaky(step: StepContext, first: Report, again: Report) -> list[ev.Event]:
    failed = {test.id for test in first.tests if test.status in RED}
    flaky = bounded_names([test.id for test in again.tests if test.id in failed and test.status in GREEN])
    return [ev.FlakyTestsFound(step=step.number, tests=flaky)] if flaky else []


async def _judge_red(context: RunContext, state: RunState, report: Report) -> Judgement:
    reference = await load_report(context, state.reference)
    return judge_red(reference, report, state.scope, is_ours=lambda name: _may_be_ours(name, context))


async def _refuse(
    context: RunContext, step: StepContext, why: str, kept: Artifact, flaky: list[ev.Event], *, met: bool = False
) -> StepResult:
    tree = step.state.green_tree
    await run_blocking(context.workspace.reset, tree)
    refused = ev.RedRefused(step=step.number, why=truncate(why), tree=tree, met=met)
    return StepResult(events=[*flaky, refused], artifacts=[kept])


async def _sealed_red(context: RunContext, step: StepContext) -> Judgement:
    """Check that the sealed tests, without the open one, are red for the right reason too."""
    files = await sealed_files(context, step.state.sealed)
    return await judge_sealed_red(context, step.state, files) if files else Judgement(ok=True)


async def judge_sealed_red(context: RunContext, state: RunState, files: dict[str, bytes]) -> Judgement:
    report = await run_with_sealed(context, state.green_tree, files)
    verdict = await _judge_red(context, state, report)
    hidden = withheld(texts(files), [context.item.spec])
    return msgspec.structs.replace(verdict, why=hidden.clean(verdict.why))


def _may_be_ours(name: str, context: RunContext) -> bool:
    """Whether a missing module may be one that the spec asks for: the spec or a folder of the project has its name."""
    top = name.split(".", maxsplit=1)[0].split("/", maxsplit=1)[0]
    places = [context.workspace.path / folder for folder in (".", "src", "lib")]
    there = any((place / top).is_dir() or (place / f"{top}.py").is_file() for place in places)
    return there or re.search(rf"\b{re.escape(top)}\b", context.item.spec) is not None
