"""Resolves the scripts of a `package.json` to plain commands and to the runner that one of them starts."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import Any

from ratchet.core.roles import matches_glob as fits

_TOKEN = re.compile(r"""(?P<end>&&|\|\||[;|&\n])|(?P<word>(?:\d?>&\d|'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\&|;])+)""")
_PIECE = re.compile(r"""'(?P<hard>[^']*)'|"(?P<soft>(?:\\.|[^"\\])*)"|\\(?P<one>.)|(?P<bare>[^'"\\]+)""")
_SETTING = re.compile(r"[A-Za-z_]\w*=.*")
_SEVERAL = {"run-s", "run-p", "npm-run-all", "npm-run-all2", "concurrently"}
_MANAGERS = ("npm", "pnpm", "yarn", "bun")
_MEASURES = {"c8", "nyc"}
_WRAPPERS = {*_MEASURES, "cross-env", "env"}
# These programs may have a runner's name among their arguments but start none.
_NO_RUNNERS = {
    "eslint", "tsc", "prettier", "xo", "standard", "semistandard", "biome", "oxlint", "tsd", "rimraf", "echo", "rm",
    "cp", "mkdir", "cd", "tsup", "rollup", "webpack", "esbuild", "codecov", "attw", "publint", "depcheck", "knip",
    "cspell",
}  # fmt: skip
# Options to drop: every test must run exactly once, without watch mode and without coverage, which fails if only some
# tests run.
_UNWANTED = {
    "--watch", "--watchAll", "--watch=true", "--coverage", "--coverage=true", "--coverage.enabled", "--collectCoverage",
    "--experimental-test-coverage",
}  # fmt: skip


Matches = Callable[[str], bool]
Judge = Callable[[list[str]], bool]


def script_commands(table: dict[str, Any], matches: Matches = bool, called: Collection[str] = ()) -> list[list[str]]:
    """Return the commands that the test script resolves to: scripts call scripts, and run linters before the tests.

    `matches` returns whether a pattern has files; a pattern without files is passed to the runner unchanged. `called`
    names scripts that a parent package runs; if some of them exist here, they are used in place of `test`.
    """
    scripts = _known(table)
    wanted = [name for name in scripts if name in called] or [name for name in [_first(scripts)] if name]
    seen = {*wanted}
    return [words for name in wanted for words in _expanded(scripts, name, [], seen, matches)]


def workspace_scripts(table: dict[str, Any]) -> set[str]:
    """Return all arguments of monorepo tools that run scripts in every package; the script names are among them."""
    found = [_unwrapped(words) for words in script_commands(table)]
    return {name for words in found if _is_for_all(words) for word in words[1:] for name in _script_names(word)}


_FOR_ALL = {"nx", "turbo", "lerna", "ultra", "wsrun", "oao", "bolt", "rush", "moon"}
_ALL = re.compile(r"-ws|-r|--workspaces|--recursive|--filter(?:=.*)?|-F|workspaces")


def _is_for_all(words: list[str]) -> bool:
    at = next((n for n, word in enumerate(words) if word not in ("npx", "exec", "dlx", *_MANAGERS)), 0)
    named = words[at : at + 1]
    return (bool(named) and named[0] in _FOR_ALL) or (words[0] in _MANAGERS and any(map(_ALL.fullmatch, words[1:])))


_IN_BROWSERS = {
    "karma", "wtr", "web-test-runner", "cypress", "testcafe", "nightwatch", "wdio", "testem", "ember", "ng", "aegir",
    "playwright-test", "airtap", "polendina",
}  # fmt: skip


def uses_browser(table: dict[str, Any]) -> bool:
    """Return whether the test script starts a program that runs tests in browsers; its dependencies run there too."""
    return any(index_of_program(words, _IN_BROWSERS) is not None for words in script_commands(table))


def _script_names(word: str) -> list[str]:
    names = re.sub(r"^-[-\w]*=", "", word).split(",")
    return ["test" if name in ("t", "tst") else name for name in names]


def _known(table: dict[str, Any]) -> dict[str, str]:
    known = table.get("scripts")
    return {name: text for name, text in known.items() if isinstance(text, str)} if isinstance(known, dict) else {}


def _first(scripts: dict[str, str]) -> str:
    return next((name for name in ("test", "test:unit", "unit", "tests") if name in scripts), "")


def commands_before(table: dict[str, Any], is_runner: Judge, is_wanted: Judge) -> list[list[str]]:
    """Return the wanted commands that the test script runs before the runner. A script is returned as an `npm` command,
    so that its pre and post scripts run too."""
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


def index_of_program(words: list[str], programs: Collection[str]) -> int | None:
    """Return the index of the runner in a command, after variables and wrappers such as `c8` or `npx`."""
    before = [word for word in words if not _SETTING.fullmatch(word)]
    if before and _stem(before[0]) in _NO_RUNNERS:
        return None
    return next((at for at, word in enumerate(words) if _stem(word) in programs), None)


def is_started(words: list[str], at: int) -> bool:
    """Return whether the word is the program and not an argument: only wrappers and variables precede it."""
    starters = {*_WRAPPERS, "npx", "node", "exec", *_MANAGERS}
    return all(_stem(word) in starters or word.startswith("-") or _SETTING.fullmatch(word) for word in words[:at])


def plain(words: list[str], at: int) -> list[str]:
    """Return the command with its variables and without wrappers; programs in `node_modules` are given by bare name."""
    settings = [word for word in words[:at] if _SETTING.fullmatch(word)]
    word = words[at]
    bare = _stem(word) if "/" not in word or "node_modules/" in word else word
    under_node = "node" in words[:at]
    program = words[words.index("node") : at + 1] if under_node else [bare]
    rest = [word for word in words[at + 1 :] if word not in _UNWANTED]
    return [*(["env", *settings] if settings else []), *program, *rest]


def options_only(arguments: list[str], valued: Collection[str]) -> list[str]:
    """Return the arguments without files; a word after an option in `valued` is that option's value."""
    after = ["", *arguments]
    return [word for word, before in zip(arguments, after, strict=False) if word.startswith("-") or before in valued]


def matches_word(word: str, path: str) -> bool:
    """Return whether a word of a command denotes this file: by name, by pattern or by a parent folder."""
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
    """Return the options that a command passes to all scripts it runs."""
    at = next((n for n, word in enumerate(words) if word in _MANAGERS or word in _SEVERAL), 0)
    return [word for word in words[:at] if _SETTING.fullmatch(word)]


def _unwrapped(words: list[str]) -> list[str]:
    """Remove variables and coverage wrappers before the program."""
    at = next((n for n, word in enumerate(words) if word in _MANAGERS), 0)
    known = at and all(_SETTING.fullmatch(word) or word.startswith("-") for word in words[1:at])
    wrapped = words[0] in _WRAPPERS or _SETTING.fullmatch(words[0])
    return words[at:] if wrapped and (known or words[0] in _MEASURES) else words


def _called(words: list[str], scripts: dict[str, str]) -> list[str]:
    """Return the scripts of this package that a command runs."""
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
    """Expand an unquoted pattern as a shell does, where `**` equals `*`; quoted patterns and those without files are
    left to the runner."""
    pieces = list(_PIECE.finditer(text))
    shells = "".join(_unquoted(piece).replace("**", "*" if piece.group("bare") else "**") for piece in pieces)
    whole = "".join(map(_unquoted, pieces))
    return shells if shells == whole or matches(shells) else whole


def _unquoted(piece: re.Match[str]) -> str:
    bare = piece.group("bare")
    if bare is not None:
        return bare
    # Inside double quotes a shell keeps every other backslash.
    soft = re.sub(r'\\([$`"\\\n])', r"\1", piece.group("soft") or "")
    return piece.group("hard") or soft or piece.group("one") or ""


def _without_redirection(words: list[str]) -> list[str]:
    at = next((n for n, word in enumerate(words) if re.match(r"\d?>", word)), len(words))
    return words[:at]


def _stem(word: str) -> str:
    return re.sub(r"\.[cm]?js$", "", PurePosixPath(word).name)
