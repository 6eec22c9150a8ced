"""`history.md`: a run as a document, one section for each iteration, attempt and role,
with what was reverted and why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ratchet.core import events as ev


def history_document(events: Iterable[ev.AnyEvent | ev.UnknownEvent], answers: Mapping[int, str]) -> str:
    """Render the history of a run. `answers` are the agents' answers by step."""
    lines: list[str] = []
    iteration, attempt = 1, 1
    for event in events:
        match event:
            case ev.RunStarted():
                lines += [
                    f"# {event.title}",
                    "",
                    f"{event.workflow} from {event.base_commit[:10]} on {event.branch}",
                    "",
                ]
            case ev.StepStarted(role=role) if role:
                lines += [
                    f"## Iteration {iteration}, attempt {attempt}: {role} ({event.action}, step {event.step})",
                    "",
                ]
                lines += [answers[event.step].strip(), ""] if answers.get(event.step, "").strip() else []
            case ev.StepCommitted():
                lines += [f"**KEPT** {event.commit[:10]}: {event.subject}", ""]
                iteration, attempt = iteration + 1, 1
            case ev.StepReverted() | ev.RefactorReverted() | ev.RevisionReverted():
                lines += [f"**REVERTED** {', '.join(event.paths)}: {event.why}", ""]
                attempt += 1
            case ev.AttemptFailed() | ev.AuditFailed() | ev.RefactorFailed() | ev.ReviewFailed():
                lines += [f"**FAILED** {event.reason}: {event.why}", ""]
                attempt += 1
            case ev.RedRefused() | ev.SpecRefused() | ev.FinalRefused():
                lines += [f"**REFUSED** {event.why}", ""]
                attempt += 1
            case ev.RedConfirmed():
                lines += [f"**RED** for the right reason: {', '.join(event.tests)}", ""]
                attempt = 1
            case ev.WritesUndone() | ev.FilesLeftOut():
                lines += [f"**UNDONE** {', '.join(event.paths)}", ""]
            case ev.RunParked():
                lines += [f"**PARKED** {event.reason}: {event.detail}", ""]
            case ev.RunFailed() | ev.RunReturned():
                lines += [f"**{'FAILED' if isinstance(event, ev.RunFailed) else 'RETURNED'}** {event.detail}", ""]
            case ev.RunCompleted():
                lines += [f"**COMPLETED** with {event.commits} commits", ""]
    return "\n".join(lines)
