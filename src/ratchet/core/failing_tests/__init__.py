"""Rewrites accepted tests so that they must fail, under their own names: one module per language or family.

A body that cannot be rewritten for certain is left as it is, and its test not checked.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ratchet.core.failing_tests import blocks, erlang, go, javascript
from ratchet.core.failing_tests.result import FailingTests, Rewriting, Unclear

__all__ = ["JAVASCRIPT", "FailingTests", "with_failing_tests"]

JAVASCRIPT = ("js", "mjs", "cjs", "jsx", "ts", "mts", "cts", "tsx")  # suffixes of files
_LENGTH_MAX = 300_000
_LANGUAGES: dict[str, Callable[[str, str], Rewriting]] = {
    "go": go.rewrite,
    "erl": erlang.rewrite,
    "rb": lambda _path, text: blocks.rewrite(blocks.RUBY, text),
    "exs": lambda _path, text: blocks.rewrite(blocks.ELIXIR, text),
    **dict.fromkeys(("R", "r"), lambda _path, text: blocks.rewrite(blocks.R, text)),
    "lua": lambda _path, text: blocks.rewrite(blocks.LUA, text),
    **dict.fromkeys(JAVASCRIPT, javascript.rewrite),
}


def with_failing_tests(path: str, text: str, *, run: bool = False) -> tuple[str, FailingTests] | None:
    """Return the file with failing tests, under the same names; None if that cannot be done for certain.

    They fail at once; with `run`, in JavaScript and TypeScript after their own bodies.
    """
    suffix = path.rsplit(".", 1)[-1]
    rewrite = _LANGUAGES.get(suffix)
    if not rewrite or len(text) > _LENGTH_MAX:
        return None
    try:
        is_script = run and suffix in JAVASCRIPT
        additions, tests = javascript.rewrite(path, text, run=True) if is_script else rewrite(path, text)
    except (Unclear, RecursionError):
        return None
    for at, added in sorted(additions.items(), reverse=True):
        text = text[:at] + added + text[at:]
    return (text, msgspec.structs.replace(tests, suffix=suffix)) if tests.sure else None
