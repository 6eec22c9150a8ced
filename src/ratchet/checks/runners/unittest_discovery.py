"""Finds a project's unittest tests: as the project's own files call unittest, else by where test files are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from configparser import ConfigParser, Error
from pathlib import PurePosixPath

from ratchet.checks.detect.project import Project, is_auxiliary, parent_of

_UNITTEST = re.compile(
    r"(?m)^\s*import unittest\b(?!\.mock)|^\s*from unittest import (?!mock\b)|^class \w+\(.*TestCase\b.*\):"
)
_SURELY_PYTEST = re.compile(
    r"(?m)^(?:async )?def test_|^\s*(?:import|from) pytest\b|^class Test\w*(?:\((?:object)?\))?:"
)
_IMPORTS_PYTEST = re.compile(r"(?m)^\s*(?:import|from) pytest\b")
CALLERS = (
    "tox.ini",
    "tox.toml",
    "Makefile",
    "makefile",
    "GNUmakefile",
    "pyproject.toml",
    "noxfile.py",
    "justfile",
    "Justfile",
)
_CALL = re.compile(r"""(?m)^[^#\n]*-m["', ]+unittest\b(?P<rest>[^\n;&|#]*)""")
_HERE = re.compile(r"\{(?:toxinidir|tox_root)\}(?:/|\{/\})|^\./")
_GIVEN = re.compile(r"\{posargs(?::([^{}]*))?\}")
_WORD = re.compile(r"""[^\s"',()\[\]]+""")
_STOPS = {"-f", "--failfast"}  # the whole suite counts
_VALUED = {"-s": "start", "--start-directory": "start", "-t": "top", "--top-level-directory": "top", "-p": "pattern",
           "--pattern": "pattern", "-k": ""}  # fmt: skip


def is_unittest_file(text: str) -> bool:
    return bool(_UNITTEST.search(text))


def imports_pytest(text: str) -> bool:
    return bool(_IMPORTS_PYTEST.search(text))


def is_pytest_file(text: str) -> bool:
    """Return whether only pytest would run this file: a class named Test with a base class may belong to unittest."""
    return bool(
        _SURELY_PYTEST.search(text)
        or (re.search(r"(?m)^class Test\w*\((?!.*Case)", text) and not is_unittest_file(text))
    )


def discovery_commands(project: Project) -> tuple[str, list[list[str]]] | None:
    """Return the file that calls unittest and its arguments; a call that selects single modules is ignored."""
    if project.has(".stestr.conf"):
        return ".stestr.conf", [_stestr(project.text(".stestr.conf"))]
    callers = ((path, [words for words in _calls(project.text(path)) if _is_whole(project, words)]) for path in CALLERS)
    return next(((path, list(_apart(calls))) for path, calls in callers if calls), None)


def _apart(calls: list[list[str]]) -> Iterator[list[str]]:
    """Keep calls that search different folders: the same call often appears in several forms."""
    seen: list[str] = []
    for words in calls:
        start = searched(words).get("start", ".").rstrip("/")
        if not any(_is_in(start, other) or _is_in(other, start) for other in seen):
            seen.append(start)
            yield words


def _is_in(inner: str, outer: str) -> bool:
    return outer == "." or f"{inner}/".startswith(f"{outer}/")


def _calls(text: str) -> Iterator[list[str]]:
    return command_words(text, _CALL)


def command_words(text: str, called: re.Pattern[str]) -> Iterator[list[str]]:
    """Yield the arguments of each call that runs in this folder, not in one below."""
    for call in called.finditer(text):
        section = text[text.rfind("\n[", 0, call.start()) + 1 : call.start()]
        if "changedir" not in section and "change_dir" not in section:
            rest = _GIVEN.sub(lambda given: given[1] or "", call["rest"])
            found = [_HERE.sub("", word) for word in _WORD.findall(rest)]
            yield [word for word in found if word not in _STOPS and not re.search(r"[{}$]", word)]


def _stestr(text: str) -> list[str]:
    """Convert arguments of stestr, which runs what unittest discovers in its own processes."""
    settings = ConfigParser(interpolation=None, strict=False)
    try:
        settings.read_string(text)
    except Error:
        return []
    start, top = settings.defaults().get("test_path", "."), settings.defaults().get("top_dir", ".")
    return ["discover", "-s", _plain(start), "-t", _plain(top)]


def _plain(path: str) -> str:
    return path.removeprefix("./").rstrip("/") or "."


def _is_whole(project: Project, words: list[str]) -> bool:
    start = searched(words).get("start", ".")
    if "discover" in words:
        return (project.folder / start).is_dir()
    return all(word.startswith("-") for word in words)


def searched(words: list[str]) -> dict[str, str]:
    """Return the arguments of `discover`: `start`, `pattern` and `top`, by option or by position."""
    found: dict[str, str] = {}
    places = iter(("start", "pattern", "top"))
    rest = iter(words[words.index("discover") + 1 :] if "discover" in words else [])
    for word in rest:
        if word in _VALUED:
            found[_VALUED[word]] = next(rest, "")
        elif not word.startswith("-"):
            found[next(places, "")] = word
    return found


def top_of(words: list[str]) -> str:
    """Return the folder that ids are relative to."""
    options = searched(words)
    return options.get("top") or options.get("start") or "."


def by_files(project: Project, others: Iterable[str]) -> tuple[str, list[list[str]]] | None:
    """Return a file with unittest tests, and the calls that discover all of them: one for each location.

    `others` are folders that other runners handle.
    """
    places: dict[str, list[str]] = {}
    for path in project.glob(*_PATTERNS):
        if is_unittest_file(project.text(path)) and not path.startswith(tuple(f"{folder}/" for folder in others)):
            places.setdefault(_place(project, path), []).append(path)
    shown = [place for place in places if is_auxiliary(place)]
    data = [place for place in places if _is_in_tests(project, place)]
    left = [place for place in places if place not in {*shown, *data}] or list(places)
    calls = [words for place in left for words in _finding(place, places[place])]
    return (places[left[0]][0], calls) if calls else None


_PATTERNS = ("**/test*.py", "**/*_test.py")
_SURELY_TESTS = re.compile(r"(?:.*/)?tests?(?:_.*)?\.py")


def _finding(place: str, paths: list[str]) -> list[list[str]]:
    """Return the discovery call, which takes one pattern at a time."""
    ends = [path for path in paths if path.endswith("_test.py") and not _SURELY_TESTS.fullmatch(path)]
    starts = [path for path in paths if path not in ends and (not ends or _SURELY_TESTS.fullmatch(path))]
    start = [] if place == "." else ["-s", place]
    named: list[list[str]] = [[]] if starts else []
    named += [["-p", "*_test.py"]] if ends else []
    return [["discover", *start, *words] if start or words else [] for words in named]


def _is_in_tests(project: Project, place: str) -> bool:
    """Return whether a file lies in a test package without being a test: it is test data."""
    above = PurePosixPath(place).parents
    return any(folder.name in ("test", "tests") and project.has(f"{folder}/__init__.py") for folder in above)


def _place(project: Project, path: str) -> str:
    """Return the folder to name: discovery descends only into packages, so it is the one above the outermost
    package."""
    place = parent_of(path)
    while place != "." and project.has(f"{place}/__init__.py"):
        place = parent_of(place)
    return place
