"""What the reference and `config explain` say about keys."""

from __future__ import annotations

from ratchet.interfaces.config_help import explain_all


def test_every_key_has_a_sentence_of_its_own() -> None:
    assert [key.key for key in explain_all() if not key.text.endswith(".")] == []
