"""How unittest finds a project's tests: as the project's own files call it, else from where its test files lie."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from configparser import ConfigParser, Error

from ratchet.checks.project import Project, root_of

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
_STOPS = {"-f", "--failfast"}  # the whole suite is judged
_VALUED = {"-s": "start", "--start-directory": "start", "-t": "top", "--top-level-directory": "top", "-p": "pattern",
           "--pattern": "pattern", "-k": ""}  # fmt: skip


def is_unittests(text: str) -> bool:
    return bool(_UNITTEST.search(text))


def imports_pytest(text: str) -> bool:
    return bool(_IMPORTS_PYTEST.search(text))


def is_pytests(text: str) -> bool:
    """Whether only pytest would run this file: a class called Test with another above it may well be unittest's."""
    return bool(
        _SURELY_PYTEST.search(text) or (re.search(r"(?m)^class Test\w*\((?!.*Case)", text) and not is_unittests(text))
    )


def as_called(project: Project) -> tuple[str, list[str]] | None:
    """The file that says how unittest is called here, and with what; one that picks single modules says too little."""
    if project.has(".stestr.conf"):
        return ".stestr.conf", _stestr(project.text(".stestr.conf"))
    calls = ((path, words) for path in CALLERS for words in _calls(project.text(path)))
    return next(((path, words) for path, words in calls if _is_whole(project, words)), None)


def _calls(text: str) -> Iterator[list[str]]:
    for call in _CALL.finditer(text):
        section = text[text.rfind("\n[", 0, call.start()) + 1 : call.start()]
        if "changedir" not in section and "change_dir" not in section:
            rest = _GIVEN.sub(lambda given: given[1] or "", call["rest"])
            words = [_HERE.sub("", word) for word in _WORD.findall(rest)]
            yield [word for word in words if word not in _STOPS and not re.search(r"[{}$]", word)]


def _stestr(text: str) -> list[str]:
    """stestr runs what unittest finds, in processes of its own."""
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
    """What `discover` was told: `start`, `pattern` and `top`, by option or, in this order, by place."""
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
    """The folder that the ids start at."""
    told = searched(words)
    return told.get("top") or told.get("start") or "."


def by_files(project: Project) -> tuple[str, list[str]] | None:
    """A file with unittest's tests, and how most of those that are named alike and lie in one place are found."""
    kinds = {"test*.py": list(_tests(project, "**/test*.py")), "*_test.py": list(_tests(project, "**/*_test.py"))}
    pattern, paths = max(kinds.items(), key=lambda kind: len(kind[1]))
    if not paths:
        return None
    places = Counter(_place(project, path) for path in paths)
    place = next(iter(places)) if "." not in places else "."
    start = [] if place == "." else ["-s", place]
    named = [] if pattern == "test*.py" else ["-p", pattern]
    first = next(path for path in paths if _place(project, path) == place)
    return first, ["discover", *start, *named] if start or named else []


def _tests(project: Project, pattern: str) -> Iterator[str]:
    return (path for path in project.named(pattern) if is_unittests(project.text(path)))


def _place(project: Project, path: str) -> str:
    """Discovery goes into packages only: the folder above the outermost one has to be named."""
    place = root_of(path)
    while place != "." and project.has(f"{place}/__init__.py"):
        place = root_of(place)
    return place
