"""The proof in a commit message is read back as it was written, whatever agents and tests are called."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ratchet.core.trailers import Proof, commit_message, parse_proof, run_of

WORDS = st.text("abcXYZ019-:/.$ ", min_size=1, max_size=20).map(lambda text: " ".join(text.split())).filter(bool)
TEXTS = st.lists(st.text(min_size=1).filter(str.strip), max_size=4).map(tuple)
PROOFS = st.builds(
    Proof, run=WORDS, key=WORDS, role=WORDS, agent=WORDS, tests=TEXTS, red=WORDS, green=WORDS, cost=WORDS,
    sealed=WORDS, sealed_files=TEXTS, doubts=TEXTS, ledger=WORDS,
)  # fmt: skip
PROOF = Proof(run="run-1", key="ik:1", role="implementer", agent="claude", green="sha256:1", tests=("t.py::a",))


@given(PROOFS, st.text(max_size=50))
def test_a_proof_is_read_back_as_it_was_written(proof: Proof, body: str) -> None:
    message = commit_message("a subject", body, proof)
    assert parse_proof(message) == proof
    assert run_of(message) == proof.run


def test_a_message_is_subject_body_and_trailers() -> None:
    proof = msgspec.structs.replace(PROOF, doubts=("why 3?",), cost="0.1 USD")
    assert commit_message("add area", "It was missing.\n", proof) == (
        "add area\n\nIt was missing.\n\nRatchet-Run: run-1\nRatchet-Key: ik:1\nRatchet-Role: implementer\n"
        "Ratchet-Agent: claude\nRatchet-Test: t.py::a\nRatchet-Green: sha256:1\nRatchet-Cost: 0.1 USD\n"
        "Ratchet-Doubt: why 3?\n"
    )
    assert commit_message("add area", " \n", PROOF).startswith("add area\n\nRatchet-Run")


def test_a_subject_has_one_line_and_at_most_a_hundred_characters() -> None:
    subject, _, rest = commit_message("a\nRatchet-Run: other\0\tb" + "c" * 200, "", PROOF).partition("\n")
    assert subject == ("a Ratchet-Run: other b" + "c" * 200)[:100]
    assert rest.startswith("\nRatchet-Run: run-1\n")


def test_an_agent_can_add_no_trailer_of_its_own() -> None:
    fooled = msgspec.structs.replace(PROOF, agent="codex\nRatchet-Green: faked", tests=("a\nRatchet-Run: faked",))
    read = parse_proof(commit_message("s", "Ratchet-Run: faked\nRatchet-Key: k\nRatchet-Green: g", fooled))
    assert read and (read.run, read.green, read.agent) == ("run-1", "sha256:1", "codex Ratchet-Green: faked")
    assert read.tests == fooled.tests


def test_a_commit_of_others_has_no_proof() -> None:
    assert parse_proof("fix it\n\nSigned-off-by: ann\n") is None
    assert run_of("fix it\n\nSigned-off-by: ann\n") == run_of("") == ""
    message = commit_message("s", "b", PROOF)
    for name in ("Run", "Key", "Green"):
        assert parse_proof("\n".join(line for line in message.split("\n") if f"-{name}: " not in line)) is None
    assert parse_proof(f"{message}\n\na paragraph after it\n") is None
    assert run_of(f"Ratchet-Run: quoted\n\n{message}\n") == "run-1"


def test_a_proof_of_an_older_version_lacks_what_it_did_not_know() -> None:
    assert parse_proof("s\n\nRatchet-Run: r\nRatchet-Key: k\nRatchet-Green: g\nOther: line\nRatchet-Later: x") == Proof(
        run="r", key="k", role="", agent="", green="g"
    )
