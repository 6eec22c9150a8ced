"""The bench of retrieval, as a test: both rankings together find more right lessons than either alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import learnings as bench
from ratchet.core.learning import fuse, search_terms, words_of
from ratchet.engine.embedders import LocalEmbedder
from ratchet.store.sqlite.store import SqliteStore


def test_words_and_meaning_together_find_more_than_each_alone(tmp_path: Path) -> None:
    pytest.importorskip("wordllama", reason="the extra `learn` is not installed")
    embedder, store = LocalEmbedder(), SqliteStore(tmp_path / "a.db")
    assert len(bench.pairs()) >= 300
    bench.fill_with_pairs(store, embedder)
    words, meaning, both = (bench.recall(store, embedder, way) for way in ("lexical", "vector", "fused"))
    store.close()
    for name in ("at_1", "at_5", "mrr"):
        assert getattr(both, name) > max(getattr(words, name), getattr(meaning, name)), name


def test_what_two_rankings_place_high_comes_first() -> None:
    scores = fuse([(1.0, ["a", "b", "c"]), (2.0, ["b", "d"])])
    assert max(scores, key=lambda one: scores[one]) == "b" and scores["d"] > scores["a"]


def test_words_of_every_sentence_are_left_out_unless_there_are_no_others() -> None:
    assert search_terms("the parser is not found") == ["parser", "found"]
    assert search_terms("the test failed") == ["the", "test", "failed"]


def test_a_name_in_camel_case_is_one_word_and_its_parts() -> None:
    assert words_of("isOk parseURL x") == ["isok", "is", "ok", "parseurl", "parse", "url", "x"]
