"""Runs trials: one task with one arm, as an ordinary item in a repository of its own, judged by the sealed tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from ratchet.agents.protocol import absolute_spec
from ratchet.app.backtest.bench import Bench, lay_files
from ratchet.app.runs import RunHistory, RunService
from ratchet.core import events as ev
from ratchet.core.backtest.ranking import Arm, Trial, judge_result
from ratchet.core.backtest.task import MinedTask
from ratchet.core.cheats import Change, find_cheats
from ratchet.core.cheats.config_files import decides_how_tests_run
from ratchet.core.failure import FAULT, FaultOwner, Reason
from ratchet.core.gates import GateStatus
from ratchet.core.report import Report
from ratchet.core.roles import PathRules
from ratchet.core.state import RunState
from ratchet.engine.blocking import run_blocking
from ratchet.engine.run_setup import union
from ratchet.engine.steps.canaries import Canaries, add_canaries
from ratchet.errors import RatchetError
from ratchet.workspace.git.repository import Repository
from ratchet.workspace.git.task_repository import changed_between, content_at, patch_between

OnTrial = Callable[[MinedTask, Arm, Trial | str], None]


class BacktestRun(msgspec.Struct, frozen=True, kw_only=True):
    """The trials that are done, and why others are not: keyed by task and arm, they are run the next time."""

    trials: list[Trial]
    open: dict[str, str]


async def run_trials(
    bench: Bench, tasks: Sequence[MinedTask], arms: Sequence[Arm], *, budget_usd: float | None, on_trial: OnTrial
) -> BacktestRun:
    """Run every task with every arm, oldest task first, so that what an arm learns comes from its past only. Finished
    trials are kept and not repeated; `budget_usd` counts what all of them cost, and those that were not finished."""
    known = {
        (task.id, arm.label): bench.read("trials", _key(bench, task, arm), Trial) for task in tasks for arm in arms
    }
    trials = [trial for trial in known.values() if trial]
    unfinished: dict[str, str] = {}
    for task in tasks:
        for arm in (arm for arm in arms if not known[task.id, arm.label]):
            left = None if budget_usd is None else budget_usd - sum(_spent(bench, tasks, arms).values())
            if left is not None and left <= 0:
                unfinished[f"{task.id} {arm.label}"] = f"the budget of {budget_usd:g} USD is spent"
                continue
            done = await _try(bench, task, arm, left)
            if isinstance(done, Trial):
                bench.write("trials", _key(bench, task, arm), done)
                trials.append(done)
            else:
                unfinished[f"{task.id} {arm.label}"] = done
            on_trial(task, arm, done)
    return BacktestRun(trials=trials, open=unfinished)


def _spent(bench: Bench, tasks: Sequence[MinedTask], arms: Sequence[Arm]) -> dict[str, float]:
    """Return what each run of these trials has cost, finished or not."""
    keys = [_key(bench, task, arm) for task in tasks for arm in arms]
    runs = {trial.run: trial.usage.cost_usd for key in keys if (trial := bench.read("trials", key, Trial))}
    for key in keys:
        runs |= bench.read("unfinished", key, dict[str, float]) or {}
    return runs


def _key(bench: Bench, task: MinedTask, arm: Arm) -> str:
    return f"{task.commit[:12]}-{bench.digest(task, arm, bench.given)}"


async def _try(bench: Bench, task: MinedTask, arm: Arm, left_usd: float | None) -> Trial | str:
    """Return the trial, or why it could not be finished through no fault of the agent."""
    name = bench.digest(task, arm, bench.given)  # agents see this path: it must not name the commit
    repo = await run_blocking(bench.open_repository, task.base_commit, name)
    began = time.monotonic()
    try:
        with (
            RunService(repo, bench.with_settings(_settings(bench, task, arm, left_usd))) as service,
            bench.own_environment(repo.root),
        ):
            item = service.new_item(task.spec, name=task.id, workflow=arm.workflow, metadata={})
            lease = service.start(item)
            state = await service.work(lease, watch=lambda *_: None, on_agent_event=lambda _event: None)
            history = service.history(lease.run)
            why = _why_unfinished(state, capped=_is_capped(bench, arm, left_usd))
            if not why:
                await run_blocking(service.workspaces.destroy, item.slug)
        if why:
            _note_cost(bench, _key(bench, task, arm), state)
            return why
        trial = await _judged(bench, task, arm, repo, history)
    except RatchetError as error:
        return f"{error.message} ({error.hint})" if error.hint else error.message
    await run_blocking(bench.remove_repository, name)
    return msgspec.structs.replace(trial, seconds=round(time.monotonic() - began, 1))


def _settings(bench: Bench, task: MinedTask, arm: Arm, left_usd: float | None) -> list[str]:
    """Return the settings of a trial. Every arm has a store of its own: no arm learns from another's work."""
    own = [*bench.flags, *arm.settings]
    store = bench.state / "stores" / f"{bench.digest(arm, bench.given)}.db"
    store.parent.mkdir(exist_ok=True)
    limits = ["budget.day.cost_usd=0", "budget.day.iterations=0", "budget.repo.cost_usd=0"]
    if left_usd is not None:
        config = bench.with_settings(arm.settings)
        item, step = config.budget.item.cost_usd or left_usd, config.budget.step.cost_usd or left_usd
        limits += [f"budget.item.cost_usd={min(item, left_usd)}", f"budget.step.cost_usd={min(step, item, left_usd)}"]
    agent = absolute_spec(arm.agent.replace("{task}", task.commit[:12]))
    return [f"store={store}", *limits, f"agent={agent}", *own]


def _is_capped(bench: Bench, arm: Arm, left_usd: float | None) -> bool:
    """Whether what is left of the budget is less than what a run of this arm may cost."""
    own = bench.with_settings(arm.settings).budget.item.cost_usd
    return left_usd is not None and (not own or left_usd < own)


def _note_cost(bench: Bench, key: str, state: RunState) -> None:
    runs = bench.read("unfinished", key, dict[str, float]) or {}
    bench.write("unfinished", key, runs | {state.run: state.usage.cost_usd})


def _why_unfinished(state: RunState, *, capped: bool) -> str:
    """Return why a run says nothing about its agent; empty if it does."""
    if state.parked:
        return f"parked: {state.parked.detail}"
    if state.failure is Reason.BUDGET_SPENT and capped:
        return f"the budget of all trials: {state.detail}"
    if state.failure and FAULT[state.failure] in (FaultOwner.PLATFORM, FaultOwner.PROVIDER):
        return f"{state.failure}: {state.detail}"
    return "" if state.final else "the run was interrupted"


# --- judging ----------------------------------------------------------------------------------------------------------


async def _judged(bench: Bench, task: MinedTask, arm: Arm, repo: Repository, history: RunHistory) -> Trial:
    state = history.state
    changed = await run_blocking(changed_between, repo.root, task.base_commit, state.head) if state.commits else []
    result = _Result(bench, task, repo.root, state.head, changed)
    report, cheats = await result.examine() if changed else (None, [])
    refused = [event.detail for event in history.events if isinstance(event, ev.GateRan) and _refused_cheat(event)]
    verdict = judge_result(task, report, cheats=cheats, refused=refused)
    return Trial(
        task=task.id,
        arm=arm.label,
        outcome=verdict.outcome,
        why=verdict.why,
        fixed=verdict.fixed,
        to_fix=len(task.fail_to_pass),
        lost=verdict.lost,
        status=state.status,
        attempts=sum(isinstance(event, ev.ChangeProposed | ev.AttemptFailed) for event in history.events),
        refused_cheats=len(refused),
        usage=state.usage,
        priced=state.priced,
        run=state.run,
        patch=await run_blocking(patch_between, repo.root, task.base_commit, state.head, changed),
    )


def _refused_cheat(ran: ev.GateRan) -> bool:
    return ran.gate == "cheats" and ran.status is GateStatus.FAILED


class _Result:
    """The result of a trial: the last commit of its run, and the paths that differ from the base."""

    def __init__(self, bench: Bench, task: MinedTask, repo: Path, head: str, changed: list[str]) -> None:
        self.bench, self.task, self.repo, self.head, self.changed = bench, task, repo, head, changed
        self.targets = bench.targets(repo)
        self.scope = PathRules(tests=tuple(union(target.tests for target in self.targets)))

    async def examine(self) -> tuple[Report, list[str]]:
        """Run the commit's own tests in a fresh workspace; returns the report, and what is dishonest beyond doubt.

        Nothing that the agent wrote decides how tests run, and canaries show faked results.
        """
        cheats, files = await run_blocking(self._cheats), await run_blocking(self._sealed_files)
        added: list[Canaries] = []

        def lay(folder: Path) -> None:
            lay_files(folder, files)
            added.append(add_canaries(folder, [path for path in self.task.test_paths if files.get(path) is not None]))

        report = await self.bench.run_tests(self.repo, self.head, self.targets, prepare=lay)
        (canaries,) = added
        faked = canaries.why_faked(report)
        return canaries.without_canaries(report), [*cheats, *([faked] if faked else [])]

    def _cheats(self) -> list[str]:
        base, head = self.task.base_commit, self.head
        sides = [(path, content_at(self.repo, base, path), content_at(self.repo, head, path)) for path in self.changed]
        changes = [Change(path=path, before=_text(before), after=_text(after)) for path, before, after in sides]
        found = find_cheats([change for change in changes if _is_text(change)], self.scope, spec=self.task.spec)
        return [str(cheat) for cheat in found if not cheat.doubt]

    def _sealed_files(self) -> dict[str, bytes | None]:
        """Return the commit's tests, and the parent's version of other tests and settings that the agent changed."""
        theirs = [path for path in self.changed if self.scope.is_test(path) or decides_how_tests_run(path)]
        files = {path: content_at(self.repo, self.task.base_commit, path) for path in theirs}
        source = self.bench.repo.root
        return files | {path: content_at(source, self.task.commit, path) for path in self.task.test_paths}


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode(errors="replace")


def _is_text(change: Change) -> bool:
    return not any(side and "\0" in side for side in (change.before, change.after))
