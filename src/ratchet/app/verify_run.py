"""Checks of a run's record: ledger, receipts, artifacts, branches, and what ledger and commits say of each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ratchet.core import events as ev
from ratchet.core.ledger import Entry
from ratchet.core.receipt import Receipt, receipt_digest
from ratchet.core.state import ROWS, RunState, RunStatus
from ratchet.core.trailers import Proof, parse_proof
from ratchet.engine.proof import Claim
from ratchet.errors import ArtifactBroken
from ratchet.store.protocols import RunRow
from ratchet.store.run_directory import RunDirectory
from ratchet.workspace.git import repository

Events = Sequence[ev.AnyEvent | ev.UnknownEvent]


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


def recorded_trees(events: Events) -> dict[str, str]:
    """Return the tree of each commit that the ledger names, kept or not."""
    trees = {event.commit: event.tree for event in events if isinstance(event, ev.StepCommitted)}
    verified = [event for event in events if isinstance(event, ev.StepVerified | ev.RevisionVerified)]
    return trees | {event.completion.commit: event.completion.tree for event in verified if event.completion}


def check_named(commit: str, proof: Proof, state: RunState, events: Events, repo: Path) -> Claim:
    """Check that the run kept exactly this commit, or one of which this is a copy with the same changes."""
    what = f"the ledger of {proof.run} names this commit"
    if commit in {kept.commit for kept in state.commits}:
        keys = {event.key for event in events if isinstance(event, ev.StepStarted)}
        return Claim(what=what, holds=proof.key in keys, detail="" if proof.key in keys else "and no step with its key")
    if commit in recorded_trees(events):
        return Claim(what=what, holds=False, detail="it names it as one that was replaced or taken back")
    original = _original(proof, state, repo)
    if not original:
        return Claim(what=what, holds=False, detail=f"the ledger of {proof.run} does not name this commit, nor its key")
    short = original[:12]
    if paths := _differing(original, commit, repo):
        detail = f"the ledger of {proof.run} does not name this commit: it names {short} with this key, which differs"
        return Claim(what=what, holds=False, detail=f"{detail} in {', '.join(paths[:3])}")
    return Claim(
        what=f"the ledger of {proof.run} names {short}, of which this is a copy with the same changes", holds=True
    )


def _original(proof: Proof, state: RunState, repo: Path) -> str:
    """Return the commit of the run with the same key, if it is still here."""
    here = [kept.commit for kept in state.commits if repository.commit_of(repo, kept.commit)]
    proofs = ((commit, parse_proof(repository.message_of(repo, commit))) for commit in here)
    return next((commit for commit, found in proofs if found and found.key == proof.key), "")


def _differing(original: str, commit: str, repo: Path) -> list[str]:
    """Return what a copy has changed: its message, or paths. Another parent is no change, as after a rebase."""
    if repository.message_of(repo, original) != repository.message_of(repo, commit):
        return ["its message"]
    if repository.changes_of(repo, original) == repository.changes_of(repo, commit):
        return []
    paths = [set(repository.changed_paths(repo, each)) for each in (original, commit)]
    return sorted(paths[0] ^ paths[1]) or sorted(paths[0])


def check_branches(state: RunState, events: Events, repo: Path) -> Claim:
    """Check that the run's branch holds its commits, or another branch where it was merged and deleted."""
    assert state.started
    name, head = state.started.branch, next((e.head for e in reversed(events) if isinstance(e, ev.Landed)), state.head)
    what = f"branch {name} holds the {len(state.commits)} commits of the run"
    lost = [each for each in [*(kept.commit for kept in state.commits), head] if not repository.commit_of(repo, each)]
    if lost:
        return Claim(what=what, holds=False, detail=f"{lost[0][:12]} is not in this repository")
    holding, own = repository.branches(repo, holding=head), _own(name, repository.branches(repo))
    if own:
        moved = f"{_short(own[0])} was moved, and does not hold {head[:12]}"
        return Claim(what=what, holds=own[0] in holding, detail="" if own[0] in holding else moved)
    if holding:
        what = f"branch {name} is gone; {_short(holding[0])} holds its {len(state.commits)} commits"
        return Claim(what=what, holds=True)
    return Claim(what=what, holds=False, detail=f"it is gone, and no other branch holds {head[:12]}")


def _short(branch: str) -> str:
    return branch.removeprefix("refs/heads/").removeprefix("refs/remotes/")


def _own(name: str, branches: Sequence[str]) -> list[str]:
    """Return the branch of this name here, else those of remotes."""
    local = f"refs/heads/{name}"
    remote = [each for each in branches if each.startswith("refs/remotes/") and each.split("/", 3)[-1] == name]
    return [local] if local in branches else remote
