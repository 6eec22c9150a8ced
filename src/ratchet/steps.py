"""How each step of a run is done: ask an agent, run the tests, commit or revert, run the gates, land.

Every method here may be cut off anywhere and called again: it starts from the tree its step was announced with.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from ratchet.agents import Agent, Ask, Cancelled, Failed, Finished, Said, Spent
from ratchet.checks import Checks
from ratchet.config import Config, Gate, OnFail
from ratchet.core import events as ev
from ratchet.core import prompts, trailers
from ratchet.core.compare import judge_green, judge_red
from ratchet.core.failure import FAULT, Fault, Reason
from ratchet.core.item import Item, ParkReason
from ratchet.core.packet import packet
from ratchet.core.receipt import Artifact, Usage
from ratchet.core.report import RED, Report, digest, fingerprint
from ratchet.core.roles import Role
from ratchet.core.runner_settings import says_how_tests_run, touches_runner
from ratchet.core.snapshot import path_text
from ratchet.core.state import Phase, RunState
from ratchet.core.tdd import Step
from ratchet.core.verdict import Decision, Review, read_review, requirements_complete
from ratchet.errors import ArtifactBroken, EnvironmentCannot
from ratchet.process import ProgramMissing, confined, supervise
from ratchet.store.rundir import ANSWERS, RunDirectory
from ratchet.workspace import Workspace
from ratchet.workspace.sandbox import Sandboxes

T = TypeVar("T")


async def cross(function: Callable[..., T], *args: object, **kwargs: object) -> T:
    """The one crossing from the async side to plain functions that wait on disk or git.

    A cancelled caller still waits for the thread: nobody else may touch what it is working on.
    """
    work = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait({work})
        raise


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What doing a step came to: the facts, and the files that go with them."""

    events: list[ev.Event]
    artifacts: list[Artifact] = []


class Parked(Exception):
    """The step cannot go on now, and that is nobody's failure."""

    def __init__(self, event: ev.RunParked, facts: list[ev.Event]) -> None:
        super().__init__(event.detail)
        self.event, self.facts = event, facts


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What came of asking: `paths` are the changes the role was allowed to make."""

    outcome: Finished | Failed
    tree: str
    paths: list[str]
    undone: list[str]
    facts: list[ev.Event]
    artifacts: list[Artifact]

    @property
    def text(self) -> str:
        return self.outcome.text if isinstance(self.outcome, Finished) else ""


class Steps:
    def __init__(
        self,
        *,
        item: Item,
        config: Config,
        directory: RunDirectory,
        workspace: Workspace,
        checks: Checks,
        agents: Callable[[Role], Agent],
        tell: Callable[[Said], None],
        turn: Callable[[str], int],
        history: Callable[[], str],
        env: dict[str, str],
        sandboxes: Sandboxes,
    ) -> None:
        self.item, self.config, self.directory, self.workspace = item, config, directory, workspace
        self.sandboxes = sandboxes
        self.checks, self.agents, self.tell = checks, agents, tell
        self.turn, self.history, self.env = turn, history, env
        self._do: dict[Phase, Callable[[Step, ev.StepStarted, str, RunState], Awaitable[Done]]] = {
            Phase.BASELINE: self.baseline,
            Phase.AUDIT: self.audit,
            Phase.VERIFY_RED: self.verify_red,
            Phase.IMPLEMENT: self.propose,
            Phase.JUDGE: self.judge,
            Phase.VERIFY: self.verify,
            Phase.REFACTOR: self.propose,
            Phase.JUDGE_REFACTOR: self.judge,
            Phase.REVIEW: self.review,
            Phase.REVISE: self.propose,
            Phase.JUDGE_REVISION: self.judge,
            Phase.VERIFY_REVISION: self.verify,
            Phase.LAND: self.land,
        }

    async def do(self, step: Step, started: ev.StepStarted, at: str, state: RunState) -> Done:
        return await self._do[step.phase](step, started, at, state)

    # --- tests -----------------------------------------------------------------------------------------------

    async def baseline(self, _step: Step, started: ev.StepStarted, _at: str, _state: RunState) -> Done:
        report, kept = await self._test(started)
        if report.status not in ("passed", "failed", "no_tests"):
            return Done(events=[_misconfigured(report)], artifacts=[kept])
        failing = [test.id for test in report.tests if test.status in RED][:1000]
        taken = ev.BaselineTaken(
            step=started.step, report=kept, tests=report.totals.tests, failing=failing, tree=started.tree
        )
        return Done(events=[taken], artifacts=[kept])

    async def _test(self, started: ev.StepStarted) -> tuple[Report, Artifact]:
        """Run the whole suite, then take away whatever it left behind."""
        log = self.directory.log_path(f"step-{started.step}-tests.log")
        # What an agent left that is ignored, cached or compiled is not in the tree, and must not take part.
        await cross(self.workspace.reset, started.tree)
        with confined(self.sandboxes.for_tests()):
            report = await self.checks.run(self.workspace.path, log=log)
        if report.output.startswith("bwrap: "):  # the platform's fault must not be taken for anybody else's
            raise EnvironmentCannot(
                f"the sandbox did not start: {report.output.strip()[:300]}",
                hint='resume the run; if it stays so, set sandbox.mode = "off"',
            )
        await cross(self.workspace.reset, started.tree)
        name = f"reports/step-{started.step}.json"
        return report, await cross(self.directory.put, name, msgspec.json.encode(report))

    async def _report(self, artifact: Artifact | None) -> Report:
        assert artifact, "the table lets no one compare before there is something to compare with"
        return msgspec.json.decode(await cross(self.directory.get, artifact), type=Report)

    async def verify_red(self, _step: Step, started: ev.StepStarted, _at: str, state: RunState) -> Done:
        report, kept = await self._test(started)
        verdict = judge_red(await self._report(state.reference), report, state.scope)
        if not verdict.ok:
            await cross(self.workspace.reset, state.green_tree)
            refused = ev.RedRefused(step=started.step, why=_clip(verdict.why), tree=state.green_tree)
            return Done(events=[refused], artifacts=[kept])
        red = ev.RedConfirmed(
            step=started.step,
            tests=verdict.tests,
            fingerprint=fingerprint(report, verdict.tests),
            report=kept,
        )
        return Done(events=[red], artifacts=[kept])

    # --- asks ------------------------------------------------------------------------------------------------

    async def audit(self, step: Step, started: ev.StepStarted, _at: str, state: RunState) -> Done:
        asked = await self._ask(step, started, state)
        if isinstance(asked.outcome, Failed):
            last: ev.Event = ev.AuditFailed(
                step=started.step, reason=asked.outcome.reason, why=_clip(asked.outcome.detail)
            )
        elif asked.paths:
            last = ev.TestWritten(
                step=started.step, paths=_shown(asked.paths), tree=asked.tree, summary=_first_line(asked.text)
            )
        elif requirements_complete(asked.text):
            last = ev.RequirementsMet(step=started.step, summary=_first_line(asked.text))
        else:
            why = _nothing(asked, "wrote no test and did not say that the requirements are complete")
            last = ev.AuditFailed(step=started.step, reason=Reason.NO_PROGRESS, why=why)
        return Done(events=[*asked.facts, last], artifacts=asked.artifacts)

    async def propose(self, step: Step, started: ev.StepStarted, _at: str, state: RunState) -> Done:
        asked = await self._ask(step, started, state)
        failed = ev.RefactorFailed if step.phase is Phase.REFACTOR else ev.AttemptFailed
        if isinstance(asked.outcome, Failed):
            last: ev.Event = failed(step=started.step, reason=asked.outcome.reason, why=_clip(asked.outcome.detail))
        elif not asked.paths:
            why = _nothing(asked, "changed nothing")
            last = failed(step=started.step, reason=Reason.NO_PROGRESS, why=why)
        else:
            last = ev.ChangeProposed(
                step=started.step, paths=_shown(asked.paths), tree=asked.tree, summary=_first_line(asked.text)
            )
        return Done(events=[*asked.facts, last], artifacts=asked.artifacts)

    async def review(self, step: Step, started: ev.StepStarted, _at: str, state: RunState) -> Done:
        asked = await self._ask(step, started, state)
        if isinstance(asked.outcome, Failed):
            last: ev.Event = ev.ReviewFailed(
                step=started.step, reason=asked.outcome.reason, why=_clip(asked.outcome.detail)
            )
        else:
            last = _reviewed(started.step, read_review(asked.text))
        return Done(events=[*asked.facts, last], artifacts=asked.artifacts)

    async def _ask(self, step: Step, started: ev.StepStarted, state: RunState) -> Asked:
        assert step.role
        agent = self.agents(step.role)
        text = await self._prompt(step, state)
        prompt = await cross(self.directory.put, f"prompts/step-{started.step}.md", text.encode())
        spent: list[Usage] = []

        def hear(said: Said) -> None:
            if isinstance(said, Spent):
                spent.append(said.usage)
            self.tell(said)

        began = asyncio.get_running_loop().time()
        with confined(self.sandboxes.for_role(step.role, state.scope)):
            outcome = await self._answer(agent, self._words(step, started, text, state), hear)
        seconds = asyncio.get_running_loop().time() - began
        facts: list[ev.Event] = [_metered(started.step, step.role, agent.name, spent, seconds)]
        await cross(self.workspace.hold, state.head)
        if isinstance(outcome, Failed):
            await cross(self.workspace.reset, started.tree)
            if FAULT[outcome.reason] is Fault.PROVIDER:
                raise Parked(_parked(outcome), facts)
        tree, paths, undone = await cross(self._confine, step.role, started.tree, state)
        if undone:
            facts.append(ev.WritesUndone(step=started.step, role=step.role, paths=_shown(undone)))
        said = outcome.text if isinstance(outcome, Finished) else f"failed: {outcome.reason}: {outcome.detail}"
        entry = prompts.history_entry(started.step, step.role, said)
        answer = await cross(self.directory.put, f"{ANSWERS}step-{started.step}.md", entry.encode())
        return Asked(outcome=outcome, tree=tree, paths=paths, undone=undone, facts=facts, artifacts=[prompt, answer])

    def _words(self, step: Step, started: ev.StepStarted, text: str, state: RunState) -> Ask:
        assert step.role
        return Ask(
            run=self.directory.path.name,
            item=self.item.id,
            role=step.role,
            action=step.action,
            turn=self.turn(step.action),
            key=started.key,
            snapshot=started.snapshot,
            prompt=text,
            inputs=step.inputs,
            folder=self.workspace.path,
            log=_fresh(self.directory.log_path(f"step-{started.step}-{step.role}.log")),
            env=self.env,
            timeout_s=self.config.role(step.role).timeout_s,
            scope=state.scope,
            prices=self.config.prices,
        )

    async def _answer(self, agent: Agent, ask: Ask, tell: Callable[[Said], None]) -> Finished | Failed:
        """An adapter keeps its own deadline; this one holds even when it does not."""
        try:
            async with asyncio.timeout(ask.timeout_s + 30):
                outcome = await agent.ask(ask, tell)
        except TimeoutError:
            return Failed(reason=Reason.AGENT_TIMED_OUT, detail=f"no end after {ask.timeout_s:.0f} s")
        if isinstance(outcome, Cancelled):  # nobody here told it to: we cancel by ending it
            return Failed(reason=Reason.AGENT_CRASHED, detail=f"it stopped before its end: {outcome.detail}")
        return outcome

    async def _prompt(self, step: Step, state: RunState) -> str:
        failures = diff = ""
        if step.phase is Phase.IMPLEMENT:
            failures = packet(await self._report(state.red_report), only=state.red)
        if step.phase is Phase.REVIEW:
            diff = await cross(self.workspace.diff, state.base_tree, state.green_tree)
        history = await cross(self.history)
        return prompts.prompt(step, spec=self.item.spec, failures=failures, history=history, diff=diff)

    def _confine(self, role: Role, before: str, state: RunState) -> tuple[str, list[str], list[str]]:
        """Undo what the role may not write; returns the tree, the changes that stay, and those undone."""
        tree = self.workspace.checkpoint()
        changed = self.workspace.changes(before, tree)
        undone = [path for path in changed if not self._may_write(role, path, before, tree, state)]
        if not undone:
            return tree, changed, []
        self.workspace.restore(undone, before)
        tree = self.workspace.checkpoint()
        return tree, self.workspace.changes(before, tree), undone

    def _may_write(self, role: Role, path: str, before: str, after: str, state: RunState) -> bool:
        """By its path, and for files that also say how tests are run, by what was changed in them."""
        if not state.scope.may_write(role, path):
            return False
        return not says_how_tests_run(path) or not touches_runner(
            path, self.workspace.read(before, path), self.workspace.read(after, path)
        )

    # --- judging ---------------------------------------------------------------------------------------------

    async def judge(self, step: Step, started: ev.StepStarted, at: str, state: RunState) -> Done:
        """test && commit || revert. A commit that is already there, from before a crash, is not made again."""
        red = state.red if step.phase is Phase.JUDGE else []
        if (found := await self._committed(started, state)) is not None:
            commit, kept = found
        else:
            report, kept = await self._test(started)
            verdict = judge_green(await self._report(state.reference), report, red)
            if not verdict.ok:
                return await self._revert(step, started, state, _clip(verdict.why), kept)
            commit = await self._commit(step, started, at, state, report)
        assert state.proposal
        subject = state.proposal.summary
        committed = ev.StepCommitted(
            step=started.step,
            commit=commit,
            parent=state.head,
            subject=subject,
            tests=red,
            report=kept,
            tree=started.tree,
        )
        return Done(events=[committed], artifacts=[kept])

    async def _committed(self, started: ev.StepStarted, state: RunState) -> tuple[str, Artifact] | None:
        commit = await cross(self.workspace.find_commit, started.key, since=state.head)
        await cross(self.workspace.hold, commit or state.head)
        if commit is None:
            return None
        path = self.directory.path / f"reports/step-{started.step}.json"
        if not path.is_file():
            raise ArtifactBroken(f"the report of {commit[:12]} is gone: {path}", path=str(path))
        await cross(self.workspace.follow, commit)
        content = path.read_bytes()  # durable before the commit was made, so it is the one that went with it
        return commit, await cross(self.directory.put, f"reports/step-{started.step}.json", content)

    async def _commit(self, step: Step, started: ev.StepStarted, at: str, state: RunState, report: Report) -> str:
        asked_by = Role.ARCHITECT if step.phase is Phase.JUDGE_REFACTOR else Role.IMPLEMENTER
        assert state.proposal
        feature = step.phase is Phase.JUDGE
        proof = trailers.Proof(
            run=self.directory.path.name,
            key=started.key,
            role=asked_by,
            agent=self.agents(asked_by).name,
            tests=tuple(state.red) if feature else (),
            red=state.fingerprint if feature else "",
            green=digest(report),
            cost=f"{state.uncommitted_usage.cost_usd:.4f} USD",
        )
        message = trailers.message(state.proposal.summary or f"{step.action} {self.item.title}", "", proof)
        return await cross(self.workspace.commit, message=message, parent=state.head, at=at)

    async def _revert(self, step: Step, started: ev.StepStarted, state: RunState, why: str, kept: Artifact) -> Done:
        kind, tree = {
            Phase.JUDGE: (ev.StepReverted, state.red_tree),
            Phase.JUDGE_REFACTOR: (ev.RefactorReverted, state.green_tree),
            Phase.JUDGE_REVISION: (ev.RevisionReverted, state.green_tree),
        }[step.phase]
        await cross(self.workspace.reset, tree)
        paths = state.proposal.paths if state.proposal else []
        return Done(events=[kind(step=started.step, why=why, paths=paths, tree=tree)], artifacts=[kept])

    # --- gates -----------------------------------------------------------------------------------------------

    async def verify(self, step: Step, started: ev.StepStarted, _at: str, state: RunState) -> Done:
        """The gates, in order. A gate that cannot run is misconfigured and stops the run; it never counts as passed."""
        assert state.started
        if state.commits and await cross(self.workspace.tip) == state.commits[-1].parent:
            return await self._undo(step, started, state, "a gate failed, and its worker was lost while undoing")
        passed: list[str] = []
        warnings: list[str] = []
        for gate in [msgspec.json.decode(text, type=Gate) for text in state.started.gates]:
            try:
                why = await self._gate(gate, started)
            except ProgramMissing as error:
                detail = f"gate {gate.name} cannot run: {error}"
                return Done(events=[ev.RunFailed(reason=Reason.MISCONFIGURED, detail=detail)])
            if not why:
                passed.append(gate.name)
            elif gate.on_fail is OnFail.WARN:
                warnings.append(why)
            else:
                return await self._undo(step, started, state, why)
        verified = ev.RevisionVerified if step.phase is Phase.VERIFY_REVISION else ev.StepVerified
        return Done(events=[verified(step=started.step, gates=passed, warnings=warnings)])

    async def _gate(self, gate: Gate, started: ev.StepStarted) -> str:
        log = _fresh(self.directory.log_path(f"step-{started.step}-{gate.name}.log"))
        with confined(self.sandboxes.for_gate()):
            ended = await supervise(
                shlex.split(gate.command),
                cwd=self.workspace.path,
                env=self.env,
                output=log,
                timeout_s=gate.timeout_s,
            )
        await cross(self.workspace.reset, started.tree)
        if ended.exit_code == 0 and not ended.timed_out:
            return ""
        said = log.read_bytes()[-500:].decode(errors="replace").strip()
        how = f"no end after {gate.timeout_s:.0f} s" if ended.timed_out else f"exit {ended.exit_code}"
        return f"gate {gate.name} failed ({how}): {said}"

    async def _undo(self, step: Step, started: ev.StepStarted, state: RunState, why: str) -> Done:
        last = state.commits[-1]
        kind, tree = (
            (ev.RevisionReverted, last.tree)
            if step.phase is Phase.VERIFY_REVISION
            else (ev.StepReverted, state.red_tree)
            if state.red
            else (ev.RefactorReverted, last.tree)
        )
        await cross(self.workspace.undo_commit, commit=last.commit, parent=last.parent)
        await cross(self.workspace.reset, tree)
        paths = state.proposal.paths if state.proposal else []
        undone = kind(step=started.step, why=why, paths=paths, tree=tree, commit=last.commit)
        return Done(events=[undone])

    # --- landing ---------------------------------------------------------------------------------------------

    async def land(self, _step: Step, started: ev.StepStarted, _at: str, state: RunState) -> Done:
        """For now the branch is left where people can take it; it must stand where the ledger says."""
        assert state.started
        await cross(self.workspace.hold, state.head)
        landed = ev.Landed(step=started.step, how="branch", branch=state.started.branch, head=state.head)
        return Done(events=[landed])


def _fresh(path: Path) -> Path:
    path.unlink(missing_ok=True)  # a step that is done again starts its log again
    return path


TEXT_MAX_CHARS, PATHS_MAX, FINDINGS_MAX = 2_000, 200, 50


def _clip(text: str) -> str:
    """An event is small: what an agent, a gate or a test says at length is in the artifacts and logs."""
    return text if len(text) <= TEXT_MAX_CHARS else f"{text[:TEXT_MAX_CHARS]}… ({len(text)} characters)"


def _shown(paths: list[str]) -> list[str]:
    """Paths as text for the ledger, also those that are no text; of very many the first ones and a count."""
    shown = [path_text(os.fsencode(path))[:500] for path in paths[:PATHS_MAX]]
    return shown if len(paths) <= PATHS_MAX else [*shown, f"… and {len(paths) - PATHS_MAX} more"]


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:200] if lines else ""


def _nothing(asked: Asked, what: str) -> str:
    return f"{what}; writes outside its paths were undone: {', '.join(asked.undone)}" if asked.undone else what


def _reviewed(step: int, review: Review | str) -> ev.Event:
    if isinstance(review, str):
        return ev.ReviewFailed(step=step, reason=Reason.AGENT_REFUSED, why=_clip(review))
    if review.verdict is Decision.APPROVED:
        return ev.ReviewApproved(step=step, summary=_clip(review.summary))
    findings = [_clip(prompts.finding_text(finding)) for finding in review.findings[:FINDINGS_MAX]]
    return ev.ChangesRequested(step=step, summary=_clip(review.summary), findings=findings)


def _parked(outcome: Failed) -> ev.RunParked:
    reason = ParkReason.QUESTION if outcome.reason is Reason.AUTH else ParkReason.QUOTA
    return ev.RunParked(reason=reason, detail=_clip(f"{outcome.reason}: {outcome.detail}"), until=outcome.until)


def _misconfigured(report: Report) -> ev.RunFailed:
    tail = report.output.strip()[-400:]
    return ev.RunFailed(
        reason=Reason.MISCONFIGURED,
        detail=f"the tests cannot be run on the untouched base ({report.status}): {'; '.join(report.notes)} {tail}",
    )


def _metered(step: int, role: Role, agent: str, spent: list[Usage], seconds: float) -> ev.UsageMetered:
    total = sum(spent, Usage())
    return ev.UsageMetered(
        step=step,
        role=role,
        agent=agent,
        tokens_in=total.tokens_in,
        tokens_out=total.tokens_out,
        cost_usd=total.cost_usd,
        seconds=round(seconds, 3),
    )
