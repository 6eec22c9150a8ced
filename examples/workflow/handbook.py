"""A custom workflow: a writer keeps a handbook in `docs/`, and pages with dead links are rejected.

`baseline → write → judge → verify → land`: the writer is a custom role that may write only `docs/**`, and `handbook.write` is a
custom step that calls it and checks its answer. Everything else is built in: ledger, receipts, resume, bounds, sandbox,
test && commit || revert, and the gates.
"""

from __future__ import annotations

import re
from pathlib import Path

from ratchet.core import events as ev
from ratchet.core.failure import Reason
from ratchet.core.gates import Gate
from ratchet.core.roles import Writes
from ratchet.core.state import Phase, RunState, Table
from ratchet.core.workflows.workflow import PhaseAction, Workflow, default_inputs, run_failed, attempts_summary
from ratchet.engine.steps import RunContext, StepContext, StepResult, run_blocking
from ratchet.engine.steps.ask import propose
from ratchet.engine.steps.builtin_gates import GateInput, GateResult

PROMPT = """# Your task
You are the writer. Keep the handbook in docs/ true to the spec. Write there and nowhere else. A page that links to one
that does not exist is refused.

# Spec
$spec

# Why your earlier tries did not count
$feedback
"""

NEXT: Table = {
    ("baseline", ev.BaselineTaken): "write",
    ("write", ev.ChangeProposed): "judge",
    ("write", ev.AttemptFailed): "write",
    ("judge", ev.StepCommitted): "verify",
    ("judge", ev.StepReverted): "write",
    ("verify", ev.StepVerified): "land",
    ("verify", ev.StepReverted): "write",
    ("land", ev.Landed): "done",
}

ACTS: dict[Phase, PhaseAction] = {
    "baseline": PhaseAction(does="baseline"),
    "write": PhaseAction(
        does="handbook.write", role="writer", action="handbook.write", writes=Writes.PATHS, paths=("docs/**",)
    ),
    "judge": PhaseAction(does="judge"),
    "verify": PhaseAction(does="verify"),
    "land": PhaseAction(does="land"),
}


def bounds(state: RunState) -> ev.Event | None:
    if state.phase == "write" and state.attempts >= state.policy.attempts:
        return run_failed(Reason.NO_PROGRESS, f"no page that will do: {attempts_summary(state)}")
    return None


HANDBOOK = Workflow(name="handbook", table=NEXT, actions=ACTS, bounds=bounds, inputs=default_inputs)

_LINK = re.compile(r"\]\(([\w./-]+\.md)\)")


async def write(work: RunContext, doing: StepContext) -> StepResult:
    """Ratchet's own step asks; what it proposes is looked at. Cut off anywhere, it is done again from the same tree."""
    done = await propose(work, doing)
    *facts, outcome = done.events
    dead = await run_blocking(_dead_links, work.workspace.path / "docs") if isinstance(outcome, ev.ChangeProposed) else []
    if not dead:
        return done
    await run_blocking(work.workspace.reset, doing.started.tree)
    why = f"links to pages that do not exist: {', '.join(dead)}"
    refused = ev.AttemptFailed(step=doing.number, reason=Reason.NO_PROGRESS, why=why)
    return StepResult(events=[*facts, refused], artifacts=done.artifacts)


def _dead_links(docs: Path) -> list[str]:
    links = [link for page in sorted(docs.rglob("*.md")) for link in _LINK.findall(page.read_text("utf-8", "replace"))]
    return [link for link in links if not (docs / link).is_file()]


LONGEST = 200


async def short(look: GateInput, gate: Gate) -> GateResult:
    """A gate that limits the length of a page."""
    pages = sorted((look.context.workspace.path / "docs").rglob("*.md"))
    long = [page.name for page in pages if page.read_text("utf-8", "replace").count("\n") > LONGEST]
    return GateResult(why=f"pages of more than {LONGEST} lines: {', '.join(long)}" if long else "")
