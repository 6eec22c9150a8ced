"""Checks of a run's record: ledger, receipts, artifacts, and what its commits say about the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ratchet.core import events as ev
from ratchet.core.ledger import Entry
from ratchet.core.receipt import Receipt, receipt_digest
from ratchet.core.state import ROWS, RunStatus
from ratchet.core.trailers import Proof
from ratchet.engine.proof import Claim
from ratchet.errors import ArtifactBroken
from ratchet.store.protocols import RunRow
from ratchet.store.run_directory import RunDirectory


def check_receipts(entries: Sequence[Entry], receipts: Iterable[Receipt]) -> Claim:
    """Compare receipts with steps in both directions: a receipt without its step is a ledger that was cut off."""
    events = [ev.decode(entry.kind, entry.data) for entry in entries]
    keys = {event.step: event.key for event in events if isinstance(event, ev.StepStarted)}
    filed = {event.step: event.sha256 for event in events if isinstance(event, ev.ReceiptFiled)}
    kept = {receipt.step: receipt for receipt in receipts}
    digests = {step: receipt_digest(receipt) for step, receipt in kept.items() if keys.get(step) == receipt.key}
    wrong = sorted(step for step in filed.keys() | kept.keys() if step not in filed or filed[step] != digests.get(step))
    detail = f"receipts and ledger differ in steps {wrong}" if wrong else ""
    return Claim(what=f"{len(keys)} steps, each receipt matches its key", holds=not wrong, detail=detail)


def check_end(row: RunRow, entries: Sequence[Entry]) -> Claim:
    """Compare the end of the ledger with the status of the run."""
    events = (ev.decode(entry.kind, entry.data) for entry in reversed(entries))
    last = next((event for event in events if type(event) in ROWS), None)
    recorded = ROWS[type(last)][0] if isinstance(last, ev.Event) else RunStatus.RUNNING
    detail = "" if recorded is row.status else f"the run is {row.status}, its ledger says {recorded}"
    return Claim(what=f"the ledger ends as the run did: {row.status}", holds=not detail, detail=detail)


def check_anchors(entries: Sequence[Entry], proofs: Mapping[str, Proof]) -> Claim:
    """Compare the ledger with the `seq:sum` in each commit: neither can be changed without the other."""
    sums = {f"{entry.seq}:{entry.sum}" for entry in entries}
    anchored = {commit: proof.ledger for commit, proof in proofs.items() if proof.ledger}
    wrong = [commit[:12] for commit, anchor in anchored.items() if anchor not in sums]
    detail = f"not the ledger that {', '.join(wrong)} was made with" if wrong else ""
    return Claim(what=f"{len(anchored)} commits name entries of this ledger", holds=not wrong, detail=detail)


def check_artifacts(directory: RunDirectory, receipts: Iterable[Receipt]) -> Claim:
    every = [artifact for receipt in receipts for artifact in receipt.artifacts]
    kept = [artifact for artifact in every if not directory.is_pruned(artifact)]
    broken = []
    for artifact in kept:
        try:
            directory.get(artifact)
        except ArtifactBroken as error:
            broken.append(error.message)
    pruned = f" ({len(every) - len(kept)} were removed by `ratchet gc`)" if len(every) > len(kept) else ""
    return Claim(what=f"{len(kept)} artifacts match their receipts{pruned}", holds=not broken, detail="; ".join(broken))
