"""Embedders turn texts into vectors: a small local model, or any endpoint that speaks OpenAI's protocol."""

from __future__ import annotations

import importlib.util
import json
import os
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from ratchet.config import LearningsConfig
from ratchet.errors import EnvironmentCannot

_LOADING = threading.Lock()
_TEXT_MAX_CHARS = 8_000


class Embedder(Protocol):
    name: str

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector for each text. Raises EnvironmentCannot."""
        ...


class LocalEmbedder:
    """`wordllama`: averages static word vectors, without a network or a GPU. Loaded at the first use."""

    name = "wordllama-256"

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        try:
            with _LOADING:
                model = _wordllama()
            found: list[list[float]] = model.embed([text[:_TEXT_MAX_CHARS] for text in texts], norm=True).tolist()
        except Exception as error:  # whatever fails in there, words are searched instead
            raise EnvironmentCannot(f"the embedding model failed: {error}") from error
        return found


@cache
def _wordllama() -> Any:
    import wordllama  # noqa: PLC0415 — optional and slow to import

    # The weights are in its wheel; its default would look elsewhere and then download them.
    return wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)


class EndpointEmbedder:
    """Asks `POST URL/embeddings`. The key is read from a variable, and sent to that address only."""

    def __init__(self, url: str, model: str, *, key: str, timeout_s: float) -> None:
        self.name, self._url, self._model = f"{model}@{url}", url.rstrip("/"), model
        self._key, self._timeout_s = key, timeout_s

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        import urllib.request  # noqa: PLC0415 — slow to import, and most never ask an endpoint

        body = json.dumps({"model": self._model, "input": [text[:_TEXT_MAX_CHARS] for text in texts]}).encode()
        headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {self._key}"} if self._key else {})
        request = urllib.request.Request(f"{self._url}/embeddings", body, headers)  # noqa: S310 — checked when opened
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s) as response:  # noqa: S310 — see above
                rows = sorted(json.loads(response.read())["data"], key=lambda row: int(row["index"]))
            vectors = [[float(value) for value in row["embedding"]] for row in rows]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise EnvironmentCannot(f"the embedding endpoint {self._url} failed: {error}") from error
        if len(vectors) != len(texts):
            raise EnvironmentCannot(f"the embedding endpoint {self._url} gave {len(vectors)} of {len(texts)} vectors")
        return vectors


def open_embedder(config: LearningsConfig, environ: Mapping[str, str] = os.environ) -> tuple[Embedder | None, str]:
    """Return the configured embedder, or None and why only words are searched."""
    if config.embedder == "off":
        return None, "the embedder is off (learnings.embedder)"
    if config.embedder.startswith(("http://", "https://")):
        if not config.model:
            return None, "no embedding model is named: set learnings.model"
        key = environ.get(config.key_env, "") if config.key_env else ""
        return EndpointEmbedder(config.embedder, config.model, key=key, timeout_s=config.timeout_s), ""
    if importlib.util.find_spec("wordllama") and importlib.util.find_spec("numpy"):
        return LocalEmbedder(), ""
    return None, "no embedding model is installed: pip install 'ratchet-factory[learn]'"
