"""Commit trailers with the proof that the tests failed before the commit and pass after it."""

from __future__ import annotations

import msgspec

_FIELDS = {
    "run": "Ratchet-Run",
    "key": "Ratchet-Key",
    "role": "Ratchet-Role",
    "agent": "Ratchet-Agent",
    "tests": "Ratchet-Test",
    "red": "Ratchet-Red",
    "green": "Ratchet-Green",
    "cost": "Ratchet-Cost",
    "sealed": "Ratchet-Sealed",
    "sealed_files": "Ratchet-Sealed-File",
    "doubts": "Ratchet-Doubt",
    "ledger": "Ratchet-Ledger",
}
_LISTS = ("tests", "sealed_files", "doubts")


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """`tests` turned green here; `red` is their failure fingerprint before; `green` digests the full report after.

    `sealed` counts the examples in `sealed_files` that passed although the author never saw them; `doubts` are findings
    that no judge decided.
    `ledger` is `seq:sum` of the run's last ledger entry before the commit: what led to it cannot be rewritten later.
    """

    run: str
    key: str
    role: str
    agent: str
    tests: tuple[str, ...] = ()
    red: str = ""
    green: str
    cost: str = ""
    sealed: str = ""
    sealed_files: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    ledger: str = ""


def missing(proof: Proof) -> list[str]:
    """Return the trailers that every commit of a run has, or that others of this one demand, and that it lacks."""
    wanted = ["role", "agent", "ledger"]
    wanted += ["red"] if proof.tests else []
    wanted += ["tests"] if proof.red else []
    wanted += ["sealed"] if proof.sealed_files else []
    wanted += ["sealed_files"] if proof.sealed else []
    return [_FIELDS[field] for field in wanted if not getattr(proof, field)]


def commit_message(subject: str, body: str, proof: Proof) -> str:
    lines: list[str] = []
    for field, name in _FIELDS.items():
        value = getattr(proof, field)
        values = [_quoted(test) for test in value] if isinstance(value, tuple) else [_one_line(value)]
        lines += [f"{name}: {text}" for text in values if text]
    paragraphs = [_one_line(subject)[:100], body.strip(), "\n".join(lines)]
    return "\n\n".join(part for part in paragraphs if part) + "\n"


def _one_line(text: str) -> str:
    # A newline in an agent's words must not be able to add a trailer of its own, nor a NUL to stop the commit.
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _quoted(test: str) -> str:
    # Test ids are kept to the letter: one that a trailer line would change is written as a JSON string.
    plain = test == _one_line(test) and test.isprintable() and not test.startswith('"')
    return test if plain else msgspec.json.encode(test).decode()


def _unquoted(text: str) -> str:
    return msgspec.json.decode(text, type=str) if text.startswith('"') else text


def run_of(text: str) -> str:
    """Return the run that a commit message names; empty for commits of others."""
    last = text.strip("\n").split("\n\n")[-1].split("\n")
    return next((line.removeprefix(_RUN) for line in last if line.startswith(_RUN)), "")


_RUN = f"{_FIELDS['run']}: "


def parse_proof(text: str) -> Proof | None:
    """Parse the proof in the last paragraph of a commit message; None for commits of others."""
    found: dict[str, list[str]] = {}
    for line in text.strip("\n").split("\n\n")[-1].split("\n"):
        name, _, value = line.partition(": ")
        found.setdefault(name, []).append(value)
    if not all(_FIELDS[field] in found for field in ("run", "key", "green")):
        return None
    values: dict[str, object] = {
        field: found[name][-1] for field, name in _FIELDS.items() if name in found and field not in _LISTS
    }
    lists = {field: [_unquoted(text) for text in found.get(_FIELDS[field], [])] for field in _LISTS}
    return msgspec.convert({"role": "", "agent": "", **values, **lists}, Proof)
