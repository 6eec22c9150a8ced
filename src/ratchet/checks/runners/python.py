"""Runners for Python: pytest, unittest, Django, and tox and nox around them. All load our reporters from outside."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from ratchet.checks.detect import pytest_config, tox_nox
from ratchet.checks.detect.project import Project, join_root, parent_of
from ratchet.checks.formats import Parsed
from ratchet.checks.protocol import Confidence, LaunchStep, RunOutput, Session, Target
from ratchet.checks.runners import (
    JUNIT,
    REPORTERS,
    join_paths,
    open_log_tail,
    parse_records,
    reporter_env,
    unittest_discovery,
)
from ratchet.checks.runners.base import BaseRunner
from ratchet.core.report import Diagnostic, TestResult
from ratchet.core.roles import matches_glob
from ratchet.files import is_of_others

TESTS = ["tests/**", "test/**", "**/test_*.py", "**/*_test.py", "**/conftest.py"]
PROTECTED = ["pytest.ini", ".pytest.ini", "tox.ini", "**/sitecustomize.py", "**/usercustomize.py", "**/*.pth"]
# The whole suite counts: a project that stops at its first failure would leave the rest unknown.
_WHOLE = "--continue-on-collection-errors --maxfail=0"
_TEST_FILE = ("**/test_*.py", "**/*_test.py")


def python_env(session: Session, command: list[str]) -> dict[str, str]:
    """Put our reporters on the module path of every Python process below."""
    path = {"PYTHONPATH": join_paths(str(REPORTERS), session.env.get("PYTHONPATH"))}
    return reporter_env(session) | path | _activated(session, command)


def _activated(session: Session, command: list[str]) -> dict[str, str]:
    """Activate the environment of the interpreter: tests start programs that are installed in it."""
    place = Path(command[0]).parent
    if not (place.parent / "pyvenv.cfg").is_file() or place.parent == Path(sys.prefix):
        return {}
    return {"VIRTUAL_ENV": str(place.parent), "PATH": join_paths(str(place), session.env.get("PATH"))}


def pytest_env(session: Session, command: list[str]) -> dict[str, str]:
    """Configure pytest by variables only, so that it works through `make test`, scripts and wrappers."""
    file = shlex.quote(str(session.private / JUNIT))
    channel = f"--junitxml={file} -o junit_family=xunit1" if session.reporter_blocked else "-p _ratchet_pytest"
    options = joined_options(session.env.get("PYTEST_ADDOPTS"), channel, _WHOLE)
    part = {"_RATCHET_PART": "1"} if session.only else {}
    return python_env(session, command) | {"PYTEST_ADDOPTS": options} | part


def joined_options(*options: str | None) -> str:
    return " ".join(option for option in options if option)


def find_python(folder: Path, module: str = "", top: Path | None = None) -> str:
    """Return the interpreter in which the project is installed: its own, the active one, ours, or the system's; the
    module must be available.

    Its own may be that of the whole repository, or of everything below `top`.
    """
    above = _upward(folder, top)
    places = [place / name for place in above for name in (".venv", "venv", "env")]
    places += [*_active(), *(kept for place in above for kept in _tool_environments(place))]
    found = [place / "bin" / "python" for place in places if (place / "bin" / "python").is_file()]
    if module and (having := [python for python in found if _has(python, module)]):
        return str(having[0])
    if found:
        return str(found[0])
    ours = Path(sys.executable)
    return str(ours) if not module or _has(ours, module) else shutil.which("python3") or str(ours)


def _upward(folder: Path, top: Path | None) -> list[Path]:
    """Yield the folder and its parents, up to the next repository root at or above the top."""
    every = [folder, *folder.parents]
    least = every.index(top) if top in every else 0
    repository = next((at for at, above in enumerate(every) if at >= least and _is_root(above)), least)
    return every[: repository + 1]


def _is_root(folder: Path) -> bool:
    return (folder / ".git").exists() and not is_of_others(folder / ".git", besides=folder.stat().st_uid)


def _tool_environments(folder: Path) -> Iterator[Path]:
    """Yield the environments that poetry, hatch and pipenv created for this folder, found by its path."""
    home = Path(os.environ.get("HOME") or "/")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    shared = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    if (folder / "pyproject.toml").is_file():
        key = base64.urlsafe_b64encode(hashlib.sha256(os.fsencode(folder)).digest()).decode()[:8]
        yield from sorted((cache / "pypoetry" / "virtualenvs").glob(f"*-{key}-py3.*"), reverse=True)
        yield from sorted((shared / "hatch" / "env" / "virtual").glob(f"*/{key}/*"), reverse=True)
    if (folder / "Pipfile").is_file():
        listed = Path(os.environ.get("WORKON_HOME") or shared / "virtualenvs").glob("*/.project")
        yield from (path.parent for path in listed if path.read_text(errors="replace").strip() == str(folder))


def _active() -> Iterator[Path]:
    """Return the active environment, according to the shell, Conda or PATH."""
    yield from (Path(os.environ[name]) for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if os.environ.get(name))
    if not (program := shutil.which("python")):
        return
    first = Path(program).parent.parent
    if (first / "pyvenv.cfg").exists() or (first / "conda-meta").exists():
        yield first


def _has(python: Path, module: str) -> bool:
    return any(python.parent.parent.glob(f"lib/python*/site-packages/{module}"))


def _may_have(python: Path, module: str) -> bool:
    """Return whether the module may be available: a system Python stores some elsewhere, and a pyenv shim represents
    several."""
    shims = python.parent.name == "shims" and python.parent.parent.glob(
        f"versions/*/lib/python*/site-packages/{module}"
    )
    return _has(python, module) or any(shims or python.parent.parent.glob(f"lib/python3/dist-packages/{module}"))


class PythonRunner(BaseRunner):
    family = "python"

    def parse(self, results: RunOutput) -> Parsed:
        return parse_records(results)

    def target(self, project: Project, root: str, command: list[str], why: str, strength: Confidence) -> Target:
        return Target(
            runner=self.name,
            command=command,
            root=root,
            language="python",
            tests=join_root(root, *TESTS),
            sources=join_root(root, "**/*.py"),
            protected=join_root(root, *PROTECTED),
            setup=list(_setup(project, root)),
            why=why,
            strength=strength,
        )


# Usual names of test dependencies, likeliest first.
_FOR_TESTS = ("test", "tests", "testing", "dev", "development")
_REQUIREMENTS = (
    "requirements.txt",
    *(f"requirements{sign}{what}.txt" for what in _FOR_TESTS for sign in "-_/"),
    *(f"{what}{sign}requirements.txt" for what in _FOR_TESTS for sign in "-_"),
)


def _setup(project: Project, root: str) -> Iterator[str]:
    """Return the commands that install the dependencies of a fresh checkout."""
    manifest = project.toml(*join_root(root, "pyproject.toml"))
    uses = manifest.get("tool", {})
    if project.has(*join_root(root, "uv.lock")):
        yield "uv sync"
    elif project.has(*join_root(root, "poetry.lock")) or "poetry" in uses:
        yield "poetry install"
    elif project.has(*join_root(root, "pdm.lock")) or {"scripts", "dev-dependencies"} & {*uses.get("pdm", {})}:
        yield "pdm install"
    elif "envs" in uses.get("hatch", {}) and not _names_tests(manifest):
        yield "hatch env create"
    elif project.has(*join_root(root, "Pipfile")):
        yield "pipenv install --dev"
    else:
        for path in _REQUIREMENTS:
            if project.has(*join_root(root, path)):
                yield f"python3 -m pip install -r {path}"
        if "project" in manifest:
            yield from _installed(manifest)
        elif any(project.has(*join_root(root, path)) for path in ("setup.py", "setup.cfg")):
            yield "python3 -m pip install -e ."


def _installed(manifest: dict[str, Any]) -> Iterator[str]:
    """Return the command that installs the project with its test dependencies."""
    if not isinstance(own := manifest.get("project"), dict):
        return
    extra = _for_tests(own.get("optional-dependencies"))
    group = _for_tests(manifest.get("dependency-groups"))
    what = f"'.[{extra}]'" if extra else "."
    yield f"python3 -m pip install -e {what}{f' --group {group}' if group else ''}"


def _names_tests(manifest: dict[str, Any]) -> bool:
    extras = manifest.get("project", {}).get("optional-dependencies")
    return bool(_for_tests(extras) or _for_tests(manifest.get("dependency-groups")))


def _for_tests(table: object) -> str:
    return next((name for name in _FOR_TESTS if isinstance(table, dict) and name in table), "")


class Pytest(PythonRunner):
    name = "pytest"
    covers_subfolders = True
    programs = ("pytest", "py.test")

    def detect(self, project: Project) -> Iterator[Target]:
        sure = [*self.evidence(project), *_wrapped(project)]
        sure = [found for found in sure if not self._is_data(project, found[0])] or sure
        by_name = self._named_files(project, [root for root, _, strength in sure if strength is Confidence.CONFIG])
        for root, why, strength in [*sure, *by_name]:
            command = [find_python(project.folder / root, "pytest", project.folder), "-m", "pytest"]
            target = self.target(project, root, command, why, strength)
            own = join_root(root, *pytest_config.own_test_files(project, root))
            yield msgspec.structs.replace(target, tests=list(dict.fromkeys([*target.tests, *own])))

    def evidence(self, project: Project) -> Iterator[tuple[str, str, Confidence]]:
        for path in project.glob("**/pytest.ini", "**/.pytest.ini"):
            yield parent_of(path), f"there is a {path}", Confidence.CONFIG
        for path in project.glob("**/pytest.toml", "**/.pytest.toml"):
            if "pytest" in project.toml(path):  # others have data of that name
                yield parent_of(path), f"there is a {path}", Confidence.CONFIG
        for path in project.glob("**/pyproject.toml"):
            if "pytest" in project.toml(path).get("tool", {}):
                yield parent_of(path), f"{path} configures pytest", Confidence.CONFIG
        for path, marker in [(path, "[pytest]") for path in project.glob("**/tox.ini")] + [
            (path, "[tool:pytest]") for path in project.glob("**/setup.cfg")
        ]:
            if marker in project.text(path):
                yield parent_of(path), f"{path} configures pytest", Confidence.CONFIG
        for path in project.glob("**/pyproject.toml", "**/Pipfile", "**/setup.cfg", "**/setup.py"):
            if _NAMES_PYTEST.search(project.text(path)):
                yield parent_of(path), f"{path} names pytest as a dependency", Confidence.DEPENDENCY
        for path in project.glob("conftest.py", "tests/conftest.py", "test/conftest.py"):
            yield ".", f"there is a {path}", Confidence.CONFIG
        for path in project.glob("**/requirements*.txt", "requirements/*.txt"):
            if re.search(r"(?m)^pytest\b", project.text(path)):
                root = parent_of(path).removesuffix("requirements") or "."
                yield root.rstrip("/") or ".", f"{path} names pytest", Confidence.DEPENDENCY

    @staticmethod
    def _is_data(project: Project, root: str) -> bool:
        """Return whether a folder below the tests is test data: it contains nothing that pytest would collect."""
        above = PurePosixPath(root).parts[:-1]
        texts = [
            project.text(path) for path in join_root(root, "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini")
        ]
        return bool({"test", "tests", "testing"} & {*above}) and not (
            any("python_files" in text or "--doctest" in text for text in texts)
            or any(
                matches_glob(path, pattern)
                for path in project.files_below(root)
                for pattern in join_root(root, *_TEST_FILE)
            )
        )

    def _named_files(self, project: Project, sure: list[str]) -> Iterator[tuple[str, str, Confidence]]:
        """Return a test file outside of every configured folder."""
        paths = [path for path in project.glob(*_TEST_FILE) if not path.startswith(tuple(f"{root}/" for root in sure))]
        own = [path for path in paths if unittest_discovery.is_pytest_file(project.text(path))]
        others = [path for path in paths if unittest_discovery.is_unittest_file(project.text(path)) and path not in own]
        # If nothing imports pytest, a few functions named test among many unittest classes are not tests.
        if own and (
            len(own) > len(others) or any(unittest_discovery.imports_pytest(project.text(path)) for path in own)
        ):
            yield ".", f"{own[0]} is named like a pytest file", Confidence.PATTERN

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        return [
            LaunchStep(
                argv=[*target.command, *[test.id for test in session.only]], env=pytest_env(session, target.command)
            )
        ]

    def unknown_tests(self, output: str, selected: list[TestResult]) -> list[TestResult]:
        """Return the tests that pytest does not find, because of which it runs nothing."""
        unfound = {match["name"] for match in _UNFOUND.finditer(output)}
        return [test for test in selected if any(name == test.id or name.endswith(f"/{test.id}") for name in unfound)]

    def parse(self, results: RunOutput) -> Parsed:
        parsed = parse_records(results)
        begun = parsed.tests or parsed.ended or parsed.collection_errors
        return parsed if begun else _collection_errors_in(results, parsed)


def _wrapped(project: Project) -> Iterator[tuple[str, str, Confidence]]:
    """Find pytest in a file of tox or nox: tests that need no pytest themselves are run by it all the same."""
    for path in project.glob("tox.ini", "tox.toml", "noxfile.py"):
        if tox_nox.runs_pytest(project, path) and any(project.glob(*_TEST_FILE)):
            yield ".", f"{path} runs pytest", Confidence.DEPENDENCY


# In a list, as a key, or on a line of its own.
_NAMES_PYTEST = re.compile(r"""(?m)["']pytest\b|^\s*pytest\s*(?:[=<>~!;].*)?$""")
_UNFOUND = re.compile(
    r"(?m)^ERROR: (?:(?:file or directory )?not found|\w+ argument cannot contain :: selection parts): (?P<name>.+)$"
)
# Errors before our plugin is loaded: in a conftest.py or the configuration.
_CONFTEST = re.compile(r"(?m)^(?P<type>\w+) while loading conftest '(?P<file>.+)'\.$")
_RAISED = re.compile(r"(?m)^E +(?P<type>[\w.]+)(?:: (?P<message>.*))?$")
_PLACE = re.compile(r'(?m)^(?P<file>[^\s:]+):(?P<line>\d+): in |^E +File ".+", line (?P<error_line>\d+)$')
_CONFIG = re.compile(r"(?m)^ERROR: (?P<file>/.+\.(?:toml|ini|cfg)):(?:(?P<line>\d+):)? (?P<message>.+)$")


def _collection_errors_in(results: RunOutput, parsed: Parsed) -> Parsed:
    with open_log_tail(results) as stream:
        text = stream.read().decode(errors="replace")
    found = _CONFTEST.search(text) or _CONFIG.search(text)
    if not found:
        return parsed
    at, raised = list(_PLACE.finditer(text)), _RAISED.search(text)
    line = found.groupdict().get("line") or (at[-1]["line"] or at[-1]["error_line"] if at else "0")
    error = Diagnostic(
        file=found["file"],
        line=int(line),
        type=raised["type"] if raised else found.groupdict().get("type") or "",
        message=found.groupdict().get("message") or (raised["message"] or "" if raised else found[0]),
        tool="pytest",
    )
    return Parsed(collection_errors=[error], ended=True)


class Unittest(PythonRunner):
    name = "unittest"

    def detect(self, project: Project) -> Iterator[Target]:
        if called := unittest_discovery.discovery_commands(project):
            path, calls = called
            yield self._calling(project, calls, f"{path} runs unittest's tests", Confidence.SCRIPT)
        elif found := unittest_discovery.by_files(project, list(_others(project))):
            path, calls = found
            yield self._calling(project, calls, f"{path} has unittest's tests", Confidence.PATTERN)

    def _calling(self, project: Project, calls: list[list[str]], why: str, strength: Confidence) -> Target:
        first, *others = [[find_python(project.folder), "-m", "unittest", *words] for words in calls]
        return msgspec.structs.replace(self.target(project, ".", first, why, strength), also=others)

    def recognises(self, words: list[str]) -> bool:
        return "unittest" in words

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        """Replace `-m unittest` by `-m _ratchet_unittest`, which takes the same arguments.

        Selected tests are picked from all discovered ones: not every test can be loaded by its name.
        """
        env = python_env(session, target.command)
        if session.only:
            chosen = session.private / "only"
            chosen.write_text("\n".join(_dotted(test.id) for test in session.only))
            env["_RATCHET_ONLY"] = str(chosen)
        return [LaunchStep(argv=_ours(target.command), env=env)]

    def runs_file(self, command: list[str], file: str) -> bool:
        top = _top(command).rstrip("/")
        return top == "." or file.startswith(f"{top}/")

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        if test.name.endswith("(doctest)") or _TWIN.search(test.id):  # this test can only be picked after loading all
            return ["ratchet", "test", test.id]
        words = target.command
        top = _top(words)
        path = [] if top == "." else ["env", f"PYTHONPATH={top}"]
        return [*path, *words[: words.index("unittest") + 1], _dotted(test.id)]


def _others(project: Project) -> Iterator[str]:
    """Return the folders whose configuration shows that another runner runs their tests."""
    yield from (target.root for target in Django().detect(project))
    yield from (root for root, _, strength in Pytest().evidence(project) if strength is Confidence.CONFIG)


_TWIN = re.compile(r" \(\d+\)$")  # tests of the same name are numbered from the second on
_HOOK = re.compile(r"(?:setUp|tearDown)(?:Class|Module) \((.+)\)$")


def _dotted(name: str) -> str:
    """Return what can be selected: for a failure before or after a class or module, all of it."""
    hook = _HOOK.match(name)
    return hook[1] if hook else _TWIN.sub("", name)


def _ours(words: list[str]) -> list[str]:
    at = words.index("unittest")
    return [*words[:at], "_ratchet_unittest", *words[at + 1 :]]


def _top(words: list[str]) -> str:
    return unittest_discovery.top_of(words[words.index("unittest") + 1 :])


# A reusable app names its test settings instead of a manage.py.
_DJANGO_TEST = re.compile(r"""(?m)(?:-m\s+django|django-admin(?:\.py)?)["', ]+test\b.*""")
_SETTINGS = re.compile(r"--(settings|pythonpath)[= ]+([\w./-]+)")


_NAMED_SETTINGS = re.compile(r"""\bDJANGO_SETTINGS_MODULE["']?\s*[=:,]\s*["']?([\w.]+)""")


# The default tests of a call: `test {posargs:tests}`, `test ${ARGS:-tests}`, `test tests`.
_LABEL = re.compile(r"(?:\{posargs:|:-|[\s\"'])([a-z_][\w./]*)[}\"',\])]*\s*$")


def _django_options(call: str, text: str) -> list[str]:
    """Return the settings and the tests that a call, or the file around it, names."""
    options = [f"--{name}={value}" for name, value in _SETTINGS.findall(call)]
    around = _NAMED_SETTINGS.search(text)
    if around and not any(option.startswith("--settings") for option in options):
        options.append(f"--settings={around[1]}")
    label = _LABEL.search(_SETTINGS.sub("", call.partition("test")[2]))
    return [*options, label[1]] if label else options


def _without_labels(command: list[str]) -> list[str]:
    """Remove the test labels of the command, to be replaced by others, and keep its options."""
    at = command.index("test") + 1 if "test" in command else len(command)
    pairs = zip(command[at:], command[at - 1 :], strict=False)
    valued = [word for word, before in pairs if word.startswith("-") or _wants_value(before)]
    return [*command[:at], *valued]


def _wants_value(word: str) -> bool:
    return word in (
        "--settings",
        "--pythonpath",
        "--testrunner",
        "-p",
        "--pattern",
        "-t",
        "-k",
        "--tag",
        "--exclude-tag",
    )


class Django(PythonRunner):
    name = "django"

    def detect(self, project: Project) -> Iterator[Target]:
        for path in project.glob("**/manage.py"):
            root = parent_of(path)
            if "django" in project.text(path).lower() and not _has_pytest_above(project, root):
                command = [find_python(project.folder / root, "django", project.folder), "manage.py", "test"]
                yield self.target(project, root, command, f"{path} is Django's", Confidence.SCRIPT)
        for path in project.glob("runtests.py", "run_tests.py"):
            # A reusable app has no manage.py but a script that passes its arguments to Django.
            if all(word in project.text(path) for word in ("execute_from_command_line", "test", "sys.argv")):
                command = [find_python(project.folder, "django"), path]
                yield self.target(project, ".", command, f"{path} runs Django's tests", Confidence.SCRIPT)
        for path in project.glob(*unittest_discovery.CALLERS):
            if called := _DJANGO_TEST.search(project.text(path)):
                options = _django_options(called.group(), project.text(path))
                command = [find_python(project.folder, "django"), "-m", "django", "test", *options]
                yield self.target(project, ".", command, f"{path} runs Django's tests", Confidence.SCRIPT)

    def recognises(self, words: list[str]) -> bool:
        script = any(word in ("manage.py", "django") or word.endswith("django-admin") for word in words)
        return (script and "test" in words) or any(word.endswith("runtests.py") for word in words)

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        # The parallel runner has its own result class, which would bypass ours.
        options = ["--testrunner", "_ratchet_unittest.DjangoRunner", "--parallel", "1", "--noinput"]
        command = _without_labels(target.command) if session.only else target.command
        labels = [_label(test.id) for test in session.only]
        # For a project's own test runner that starts pytest.
        env = pytest_env(session, target.command)
        env["_RATCHET_PYTEST"] = env.pop("PYTEST_ADDOPTS")
        return [LaunchStep(argv=[*command, *options, *dict.fromkeys(labels)], env=env)]

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        return [*_without_labels(target.command), _label(test.id)]


def _has_pytest_above(project: Project, root: str) -> bool:
    above = [folder.as_posix() for folder in PurePosixPath(root).parents]
    return any(pytest_config.uses_pytest_django(project, folder) for folder in above)


def _label(name: str) -> str:
    """Convert to a Django label: modules, not files."""
    return name.removesuffix(".py").replace("/", ".") if name.endswith(".py") else _dotted(name)


class _Wrapped(PythonRunner):
    """Base of programs that create environments and run pytest in them: our plugin is loaded by variables."""

    files: tuple[str, ...] = ()
    option = ""  # option that selects an environment

    def detect(self, project: Project) -> Iterator[Target]:
        for path in project.glob(*(f"**/{file}" for file in self.files)):
            names = tox_nox.pytest_environments(project, path)
            if not tox_nox.runs_pytest(project, path):
                continue
            root, why = parent_of(path), f"{path} runs pytest through {self.name}"
            python = Path(find_python(project.folder / root, "pytest", project.folder))
            program = shutil.which(self.name) or shutil.which(self.name, path=str(python.parent)) or ""
            own = self.name if not program or shutil.which(self.name) else program
            first, *others = [[own, self.option, name] for name in names] or [[own]]
            alone = program and not _may_have(python, "pytest")
            strength = Confidence.ASKED if alone else Confidence.PATTERN
            target = self.target(project, root, first, why, strength)
            yield msgspec.structs.replace(target, also=others)

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        return [*target.command, "--", _TWIN.sub("", test.id)]

    def chosen(self, session: Session) -> list[str]:
        return ["--", *[_TWIN.sub("", test.id) for test in session.only]] if session.only else []


class Tox(_Wrapped):
    name = "tox"
    files = ("tox.ini", "tox.toml", "pyproject.toml")
    option = "-e"

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        env = pytest_env(session, target.command)
        # tox hides variables from its commands: each must be passed explicitly.
        through = [
            "-x",
            f"testenv.pass_env+={','.join(['PYTHONPATH', 'PYTEST_ADDOPTS', '_RATCHET_PART', *reporter_env(session)])}",
        ]
        return [LaunchStep(argv=[*target.command, *through, *self.chosen(session)], env=env)]


class Nox(_Wrapped):
    name = "nox"
    files = ("noxfile.py",)
    option = "-s"

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        return [LaunchStep(argv=[*target.command, *self.chosen(session)], env=pytest_env(session, target.command))]
