"""`history.md`: a run as a document, one section for each iteration, attempt and role,
with what was reverted and why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from ratchet.core import events as ev
from ratchet.core.ledger import GENESIS

_MARK = "<!-- ratchet history "


class HistoryMark(msgspec.Struct, frozen=True, kw_only=True):
    """Where the finished part of a `history.md` ends: its last entry, its size, and what the next section counts from.

    It is the last line of the file, so that the next step adds to the file and does not read the whole ledger.
    """

    seq: int = 0
    sum: str = GENESIS
    size: int = 0
    iteration: int = 1
    attempt: int = 1

    def line(self) -> bytes:
        return f"{_MARK}{msgspec.json.encode(self).decode()} -->\n".encode()


def find_mark(end: bytes) -> HistoryMark:
    """Return the mark at the end of a file; one of an empty file if there is none."""
    line = end.removesuffix(b"\n").rpartition(b"\n")[2].decode(errors="replace")
    try:
        return msgspec.json.decode(line.removeprefix(_MARK).removesuffix(" -->"), type=HistoryMark, strict=True)
    except msgspec.MsgspecError:
        return HistoryMark()


def history_document(
    events: Iterable[ev.AnyEvent | ev.UnknownEvent], answers: Mapping[int, str], iteration: int = 1, attempt: int = 1
) -> tuple[str, int, int]:
    """Render a part of a run's history; returns iteration and attempt that follow it, too.

    `answers` are the agents' answers by step.
    """
    lines: list[str] = []
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
    return "".join(f"{line}\n" for line in lines), iteration, attempt
