"""What the scripts of a `package.json` come down to: plain commands, and the runner that one of them starts."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import Any

from ratchet.core.roles import matches as fits

_TOKEN = re.compile(r"""(?P<end>&&|\|\||[;|&\n])|(?P<word>(?:\d?>&\d|'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\&|;])+)""")
_PIECE = re.compile(r"""'(?P<hard>[^']*)'|"(?P<soft>(?:\\.|[^"\\])*)"|\\(?P<one>.)|(?P<bare>[^'"\\]+)""")
_SETTING = re.compile(r"[A-Za-z_]\w*=.*")
_SEVERAL = {"run-s", "run-p", "npm-run-all", "npm-run-all2", "concurrently"}
_MANAGERS = ("npm", "pnpm", "yarn", "bun")
_MEASURES = {"c8", "nyc"}
_WRAPPERS = {*_MEASURES, "cross-env", "env"}
# These may name a runner among their words, and start none.
_NO_RUNNERS = {
    "eslint", "tsc", "prettier", "xo", "standard", "semistandard", "biome", "oxlint", "tsd", "rimraf", "echo", "rm",
    "cp", "mkdir", "cd", "tsup", "rollup", "webpack", "esbuild", "codecov", "attw", "publint", "depcheck", "knip",
    "cspell",
}  # fmt: skip
# We want results once, of every test: not a watch, and not a measure that fails when only some of the tests run.
_UNWANTED = {
    "--watch", "--watchAll", "--watch=true", "--coverage", "--coverage=true", "--coverage.enabled", "--collectCoverage",
    "--experimental-test-coverage",
}  # fmt: skip


Matches = Callable[[str], bool]
Judge = Callable[[list[str]], bool]


def commands(table: dict[str, Any], matches: Matches = bool, called: Collection[str] = ()) -> list[list[str]]:
    """The commands that the test script comes down to: scripts call scripts, and check style before they test.

    `matches` says whether a pattern has files: one that has none is left to the runner as it is written. Of the scripts
    that are `called` from above those that are there are meant, if any is.
    """
    scripts = _known(table)
    wanted = [name for name in scripts if name in called] or [name for name in [_first(scripts)] if name]
    seen = {*wanted}
    return [words for name in wanted for words in _expanded(scripts, name, [], seen, matches)]


def handed_on(table: dict[str, Any]) -> set[str]:
    """Of the tools that run scripts in every package of a monorepo all that they are told: the scripts are among it."""
    found = [_unwrapped(words) for words in commands(table)]
    return {name for words in found if _is_for_all(words) for word in words[1:] for name in _told(word)}


_FOR_ALL = {"nx", "turbo", "lerna", "ultra", "wsrun", "oao", "bolt", "rush", "moon"}
_ALL = re.compile(r"-ws|-r|--workspaces|--recursive|--filter(?:=.*)?|-F|workspaces")


def _is_for_all(words: list[str]) -> bool:
    at = next((n for n, word in enumerate(words) if word not in ("npx", "exec", "dlx", *_MANAGERS)), 0)
    named = words[at : at + 1]
    return (bool(named) and named[0] in _FOR_ALL) or (words[0] in _MANAGERS and any(map(_ALL.fullmatch, words[1:])))


def _told(word: str) -> list[str]:
    names = re.sub(r"^-[-\w]*=", "", word).split(",")
    return ["test" if name in ("t", "tst") else name for name in names]


def _known(table: dict[str, Any]) -> dict[str, str]:
    known = table.get("scripts")
    return {name: text for name, text in known.items() if isinstance(text, str)} if isinstance(known, dict) else {}


def _first(scripts: dict[str, str]) -> str:
    return next((name for name in ("test", "test:unit", "unit", "tests") if name in scripts), "")


def earlier(table: dict[str, Any], is_runner: Judge, is_wanted: Judge) -> list[list[str]]:
    """What the test script does before it starts the runner, of that which comes down to something wanted, by `npm`
    where it is a script: those have others before and after them."""
    scripts = _known(table)
    return _earlier(scripts, _first(scripts), set(), is_runner, is_wanted)


def _earlier(scripts: dict[str, str], name: str, seen: set[str], is_runner: Judge, is_wanted: Judge) -> list[list[str]]:
    found: list[list[str]] = []
    for words in [words for each in (f"pre{name}", name) for words in _split(scripts.get(each, ""), bool)]:
        called = _called(words, scripts)
        leaves = [leaf for each in called for leaf in _expanded(scripts, each, [], {each}, bool)] or [words]
        if any(map(is_runner, leaves)):
            inner = [each for each in called if each not in seen]
            more = [_earlier(scripts, each, seen | {*called}, is_runner, is_wanted) for each in inner[:1]]
            return [*found, *(each for part in more for each in part)]
        if any(map(is_wanted, leaves)):
            found += [["npm", "run", "--silent", *_from(words, each)] for each in called] or [words]
    return found


def _from(words: list[str], script: str) -> list[str]:
    return [script, *(words[words.index("--") :] if "--" in words else [])]


def start_of(words: list[str], programs: Collection[str]) -> int | None:
    """Where in a command the runner is named, behind settings and wrappers such as `c8` or `npx`."""
    before = [word for word in words if not _SETTING.fullmatch(word)]
    if before and _stem(before[0]) in _NO_RUNNERS:
        return None
    return next((at for at, word in enumerate(words) if _stem(word) in programs), None)


def is_started(words: list[str], at: int) -> bool:
    """Whether the word there is the program, and no argument of another: only wrappers and settings stand before it."""
    starters = {*_WRAPPERS, "npx", "node", "exec", *_MANAGERS}
    return all(_stem(word) in starters or word.startswith("-") or _SETTING.fullmatch(word) for word in words[:at])


def plain(words: list[str], at: int) -> list[str]:
    """The command with its settings and without its wrappers; a program from `node_modules` by its bare name."""
    settings = [word for word in words[:at] if _SETTING.fullmatch(word)]
    word = words[at]
    bare = _stem(word) if "/" not in word or "node_modules/" in word else word
    under_node = "node" in words[:at]
    program = words[words.index("node") : at + 1] if under_node else [bare]
    rest = [word for word in words[at + 1 :] if word not in _UNWANTED]
    return [*(["env", *settings] if settings else []), *program, *rest]


def options_only(arguments: list[str], valued: Collection[str]) -> list[str]:
    """Arguments without the files among them: what follows an option in `valued` is its value."""
    after = ["", *arguments]
    return [word for word, before in zip(arguments, after, strict=False) if word.startswith("-") or before in valued]


def names(word: str, path: str) -> bool:
    """Whether a word of a command means this file: by its name, by a pattern, or by a folder around it."""
    return fits(path, word) or path.startswith(f"{word.rstrip('/')}/")


def _expanded(
    scripts: dict[str, str], name: str, more: list[str], seen: set[str], matches: Matches
) -> Iterator[list[str]]:
    found = list(_split(scripts[name], matches))
    for number, words in enumerate(found, start=1):
        own = [*words, *more] if number == len(found) else words
        called = _called(own, scripts)
        settings = _settings(own) if called else []
        for inner in [each for each in called if each not in seen]:
            seen.add(inner)
            rest = own[own.index("--") + 1 :] if "--" in own else []
            yield from ([*settings, *leaf] for leaf in _expanded(scripts, inner, rest, seen, matches))
        if not called:
            yield own


def _settings(words: list[str]) -> list[str]:
    """Of a command that runs scripts those for all of them."""
    at = next((n for n, word in enumerate(words) if word in _MANAGERS or word in _SEVERAL), 0)
    return [word for word in words[:at] if _SETTING.fullmatch(word)]


def _unwrapped(words: list[str]) -> list[str]:
    """Without what stands before the program: settings, and wrappers that only measure."""
    at = next((n for n, word in enumerate(words) if word in _MANAGERS), 0)
    known = at and all(_SETTING.fullmatch(word) or word.startswith("-") for word in words[1:at])
    wrapped = words[0] in _WRAPPERS or _SETTING.fullmatch(words[0])
    return words[at:] if wrapped and (known or words[0] in _MEASURES) else words


def _called(words: list[str], scripts: dict[str, str]) -> list[str]:
    """The scripts of this package that a command runs."""
    words = _unwrapped(words)
    named = [word for word in words[1:] if not word.startswith("-") and word not in ("run", "run-script", "exec")]
    if words[0] in _SEVERAL or words[0].startswith("npm-run-"):
        wanted = [word.removeprefix("npm:") for word in named]
        return [name for pattern in wanted for name in scripts if fnmatch(name, pattern)]
    if words[0] not in _MANAGERS or words[1:2] == ["exec"] or words[:2] == ["bun", "test"]:
        return []
    elsewhere = any(word.startswith(("-w", "--workspace", "--prefix", "-C", "--filter", "-r")) for word in words[1:])
    if elsewhere:
        return []
    pattern = re.fullmatch(r"/(.+)/", named[0]) if named else None
    if pattern and words[0] == "pnpm":
        return [name for name in scripts if re.search(pattern.group(1), name)]
    return [name for name in named[:1] if name in scripts]


def _split(script: str, matches: Matches) -> Iterator[list[str]]:
    words: list[str] = []
    for token in _TOKEN.finditer(script):
        if token.group("word"):
            words.append(_word(token.group("word"), matches))
        elif words:
            yield _without_redirection(words)
            words = []
    if words:
        yield _without_redirection(words)


def _word(text: str, matches: Matches) -> str:
    """A shell's `**` is no more than its `*`; one in quotes, or without files, is left to the runner, whose it is."""
    pieces = list(_PIECE.finditer(text))
    shells = "".join(_unquoted(piece).replace("**", "*" if piece.group("bare") else "**") for piece in pieces)
    whole = "".join(map(_unquoted, pieces))
    return shells if shells == whole or matches(shells) else whole


def _unquoted(piece: re.Match[str]) -> str:
    bare = piece.group("bare")
    if bare is not None:
        return bare
    # Between double quotes a shell leaves every other backslash where it is.
    soft = re.sub(r'\\([$`"\\\n])', r"\1", piece.group("soft") or "")
    return piece.group("hard") or soft or piece.group("one") or ""


def _without_redirection(words: list[str]) -> list[str]:
    at = next((n for n, word in enumerate(words) if re.match(r"\d?>", word)), len(words))
    return words[:at]


def _stem(word: str) -> str:
    return re.sub(r"\.[cm]?js$", "", PurePosixPath(word).name)
