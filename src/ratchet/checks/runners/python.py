"""Python: pytest, unittest, Django, and tox and nox around them. All through reporters of ours loaded from outside."""

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

from ratchet.checks import Results, Session, Step, Strength, Target, matrix, pytest_ini
from ratchet.checks.formats import Parsed
from ratchet.checks.project import Project, root_of, under
from ratchet.checks.runners import JUNIT, SHIMS, Usual, channel_env, discovery, end_of, joined_path, read_records
from ratchet.core.report import Diagnostic, TestResult
from ratchet.core.roles import matches

TESTS = ["tests/**", "test/**", "**/test_*.py", "**/*_test.py", "**/conftest.py"]
PROTECTED = ["pytest.ini", ".pytest.ini", "tox.ini", "**/sitecustomize.py", "**/usercustomize.py", "**/*.pth"]
# The whole suite is judged: a project that stops at its first failure would leave the rest unknown.
_WHOLE = "--continue-on-collection-errors --maxfail=0"
_TEST_FILE = ("**/test_*.py", "**/*_test.py")


def python_env(session: Session, command: list[str]) -> dict[str, str]:
    """Our reporters on the path of every Python below, whoever starts it."""
    path = {"PYTHONPATH": joined_path(str(SHIMS), session.env.get("PYTHONPATH"))}
    return channel_env(session) | path | _activated(session, command)


def _activated(session: Session, command: list[str]) -> dict[str, str]:
    """As if the environment of that interpreter were active: tests start programs that are installed with it."""
    place = Path(command[0]).parent
    if not (place.parent / "pyvenv.cfg").is_file() or place.parent == Path(sys.prefix):
        return {}
    return {"VIRTUAL_ENV": str(place.parent), "PATH": joined_path(str(place), session.env.get("PATH"))}


def pytest_env(session: Session, command: list[str]) -> dict[str, str]:
    """Everything goes in by the environment, so it reaches pytest through `make test`, scripts and wrappers too."""
    file = shlex.quote(str(session.private / JUNIT))
    channel = f"--junitxml={file} -o junit_family=xunit1" if session.barred else "-p _ratchet_pytest"
    options = joined_options(session.env.get("PYTEST_ADDOPTS"), channel, _WHOLE)
    part = {"_RATCHET_PART": "1"} if session.only else {}
    return python_env(session, command) | {"PYTEST_ADDOPTS": options} | part


def joined_options(*options: str | None) -> str:
    return " ".join(option for option in options if option)


def python_of(folder: Path, module: str = "", top: Path | None = None) -> str:
    """The interpreter the project is installed in: its own, the active one, ours, the system's; with the module.

    Its own may be that of the whole repository, or of all that is below `top`.
    """
    above = _upward(folder, top)
    places = [place / name for place in above for name in (".venv", "venv", "env")]
    places += [*_active(), *(kept for place in above for kept in _kept_elsewhere(place))]
    found = [place / "bin" / "python" for place in places if (place / "bin" / "python").is_file()]
    if module and (having := [python for python in found if _has(python, module)]):
        return str(having[0])
    if found:
        return str(found[0])
    ours = Path(sys.executable)
    return str(ours) if not module or _has(ours, module) else shutil.which("python3") or str(ours)


def _upward(folder: Path, top: Path | None) -> list[Path]:
    """The folder and those above, to the next repository's at or above the top, and no further than there."""
    every = [folder, *folder.parents]
    least = every.index(top) if top in every else 0
    repository = next((at for at, above in enumerate(every) if at >= least and (above / ".git").exists()), least)
    return every[: repository + 1]


def _kept_elsewhere(folder: Path) -> Iterator[Path]:
    """The environments that poetry, hatch and pipenv have made for this folder: by its path they are found again."""
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
    """The environment that was activated, as a shell says it, or Conda, or only by being first on the path."""
    yield from (Path(os.environ[name]) for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if os.environ.get(name))
    if not (program := shutil.which("python")):
        return
    first = Path(program).parent.parent
    if (first / "pyvenv.cfg").exists() or (first / "conda-meta").exists():
        yield first


def _has(python: Path, module: str) -> bool:
    return any(python.parent.parent.glob(f"lib/python*/site-packages/{module}"))


def _may_have(python: Path, module: str) -> bool:
    """As the system's may, which keeps some elsewhere, and what stands for any of those that pyenv has."""
    shims = python.parent.name == "shims" and python.parent.parent.glob(
        f"versions/*/lib/python*/site-packages/{module}"
    )
    return _has(python, module) or any(shims or python.parent.parent.glob(f"lib/python3/dist-packages/{module}"))


class Python(Usual):
    family = "python"

    def parse(self, results: Results) -> Parsed:
        return read_records(results)

    def target(self, project: Project, root: str, command: list[str], why: str, strength: Strength) -> Target:
        return Target(
            runner=self.name,
            command=command,
            root=root,
            language="python",
            tests=under(root, *TESTS),
            sources=under(root, "**/*.py"),
            protected=under(root, *PROTECTED),
            setup=list(_setup(project, root)),
            why=why,
            strength=strength,
        )


# What people call the dependencies that their tests need, the likeliest first.
_FOR_TESTS = ("test", "tests", "testing", "dev", "development")
_REQUIREMENTS = ("requirements.txt", "requirements-dev.txt", "requirements_dev.txt", "requirements-test.txt",
                 "test-requirements.txt", "requirements/dev.txt", "requirements/test.txt",
                 "requirements/tests.txt")  # fmt: skip


def _setup(project: Project, root: str) -> Iterator[str]:
    """How a fresh checkout gets its dependencies."""
    manifest = project.toml(*under(root, "pyproject.toml"))
    uses = manifest.get("tool", {})
    if project.has(*under(root, "uv.lock")):
        yield "uv sync"
    elif project.has(*under(root, "poetry.lock")) or "poetry" in uses:
        yield "poetry install"
    elif project.has(*under(root, "pdm.lock")) or {"scripts", "dev-dependencies"} & {*uses.get("pdm", {})}:
        yield "pdm install"
    elif "envs" in uses.get("hatch", {}) and not _says_for_tests(manifest):
        yield "hatch env create"
    elif project.has(*under(root, "Pipfile")):
        yield "pipenv install --dev"
    else:
        for path in _REQUIREMENTS:
            if project.has(*under(root, path)):
                yield f"python3 -m pip install -r {path}"
        yield from _installed(manifest)


def _installed(manifest: dict[str, Any]) -> Iterator[str]:
    """The project itself, with what it says its tests need."""
    if not isinstance(own := manifest.get("project"), dict):
        return
    extra = _for_tests(own.get("optional-dependencies"))
    group = _for_tests(manifest.get("dependency-groups"))
    what = f"'.[{extra}]'" if extra else "."
    yield f"python3 -m pip install -e {what}{f' --group {group}' if group else ''}"


def _says_for_tests(manifest: dict[str, Any]) -> bool:
    extras = manifest.get("project", {}).get("optional-dependencies")
    return bool(_for_tests(extras) or _for_tests(manifest.get("dependency-groups")))


def _for_tests(table: object) -> str:
    return next((name for name in _FOR_TESTS if isinstance(table, dict) and name in table), "")


class Pytest(Python):
    name = "pytest"
    covers_below = True
    programs = ("pytest", "py.test")

    def detect(self, project: Project) -> Iterator[Target]:
        sure = list(self.evidence(project))
        sure = [found for found in sure if not self._is_data(project, found[0])] or sure
        by_name = self._named_files(project, [root for root, _, strength in sure if strength is Strength.CONFIG])
        for root, why, strength in [*sure, *by_name]:
            command = [python_of(project.folder / root, "pytest", project.folder), "-m", "pytest"]
            yield self.target(project, root, command, why, strength)

    def evidence(self, project: Project) -> Iterator[tuple[str, str, Strength]]:
        for path in project.named("**/pytest.ini", "**/.pytest.ini"):
            yield root_of(path), f"there is a {path}", Strength.CONFIG
        for path in project.named("**/pytest.toml", "**/.pytest.toml"):
            if "pytest" in project.toml(path):  # others have data of that name
                yield root_of(path), f"there is a {path}", Strength.CONFIG
        for path in project.named("**/pyproject.toml"):
            if "pytest" in project.toml(path).get("tool", {}):
                yield root_of(path), f"{path} configures pytest", Strength.CONFIG
        for path, marker in [(path, "[pytest]") for path in project.named("**/tox.ini")] + [
            (path, "[tool:pytest]") for path in project.named("**/setup.cfg")
        ]:
            if marker in project.text(path):
                yield root_of(path), f"{path} configures pytest", Strength.CONFIG
        for path in project.named("**/pyproject.toml", "**/Pipfile", "**/setup.cfg", "**/setup.py"):
            if _NAMES_PYTEST.search(project.text(path)):
                yield root_of(path), f"{path} names pytest as a dependency", Strength.DEPENDENCY
        for path in project.named("conftest.py", "tests/conftest.py", "test/conftest.py"):
            yield ".", f"there is a {path}", Strength.CONFIG
        for path in project.named("**/requirements*.txt", "requirements/*.txt"):
            if re.search(r"(?m)^pytest\b", project.text(path)):
                root = root_of(path).removesuffix("requirements") or "."
                yield root.rstrip("/") or ".", f"{path} names pytest", Strength.DEPENDENCY

    @staticmethod
    def _is_data(project: Project, root: str) -> bool:
        """Whether it lies below a project's tests and has nothing that pytest would take: they run pytest on it."""
        above = PurePosixPath(root).parts[:-1]
        texts = [project.text(path) for path in under(root, "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini")]
        return bool({"test", "tests", "testing"} & {*above}) and not (
            any("python_files" in text or "--doctest" in text for text in texts)
            or any(matches(path, pattern) for path in project.inside(root) for pattern in under(root, *_TEST_FILE))
        )

    def _named_files(self, project: Project, sure: list[str]) -> Iterator[tuple[str, str, Strength]]:
        """A test file outside of every folder that is configured."""
        paths = [path for path in project.named(*_TEST_FILE) if not path.startswith(tuple(f"{root}/" for root in sure))]
        own = [path for path in paths if discovery.is_pytests(project.text(path))]
        others = [path for path in paths if discovery.is_unittests(project.text(path)) and path not in own]
        # Where nobody imports pytest, a few functions called test among many of unittest's classes are no tests.
        if own and (len(own) > len(others) or any(discovery.imports_pytest(project.text(path)) for path in own)):
            yield ".", f"{own[0]} is named like a pytest file", Strength.PATTERN

    def launch(self, target: Target, session: Session) -> list[Step]:
        return [
            Step(argv=[*target.command, *[test.id for test in session.only]], env=pytest_env(session, target.command))
        ]

    def strange(self, said: str, asked: list[TestResult]) -> list[TestResult]:
        """What pytest does not find, for which it would run nothing of the rest."""
        unfound = {match["name"] for match in _UNFOUND.finditer(said)}
        return [test for test in asked if any(name == test.id or name.endswith(f"/{test.id}") for name in unfound)]

    def parse(self, results: Results) -> Parsed:
        parsed = read_records(results)
        begun = parsed.tests or parsed.ended or parsed.collection_errors
        return parsed if begun else _unbegun(results, parsed)


# As one of a list, as a key of its own, or on a line of its own.
_NAMES_PYTEST = re.compile(r"""(?m)["']pytest\b|^\s*pytest\s*(?:[=<>~!;].*)?$""")
_UNFOUND = re.compile(
    r"(?m)^ERROR: (?:(?:file or directory )?not found|\w+ argument cannot contain :: selection parts): (?P<name>.+)$"
)
# What keeps pytest from beginning, before anybody could listen to it: a conftest.py, or its configuration.
_CONFTEST = re.compile(r"(?m)^(?P<type>\w+) while loading conftest '(?P<file>.+)'\.$")
_RAISED = re.compile(r"(?m)^E +(?P<type>[\w.]+)(?:: (?P<message>.*))?$")
_PLACE = re.compile(r'(?m)^(?P<file>[^\s:]+):(?P<line>\d+): in |^E +File ".+", line (?P<said>\d+)$')
_CONFIG = re.compile(r"(?m)^ERROR: (?P<file>/.+\.(?:toml|ini|cfg)):(?:(?P<line>\d+):)? (?P<message>.+)$")


def _unbegun(results: Results, parsed: Parsed) -> Parsed:
    with end_of(results) as stream:
        text = stream.read().decode(errors="replace")
    found = _CONFTEST.search(text) or _CONFIG.search(text)
    if not found:
        return parsed
    at, raised = list(_PLACE.finditer(text)), _RAISED.search(text)
    line = found.groupdict().get("line") or (at[-1]["said"] or at[-1]["line"] if at else "0")
    error = Diagnostic(
        file=found["file"],
        line=int(line),
        type=raised["type"] if raised else found.groupdict().get("type") or "",
        message=found.groupdict().get("message") or (raised["message"] or "" if raised else found[0]),
        tool="pytest",
    )
    return Parsed(collection_errors=[error], ended=True)


class Unittest(Python):
    name = "unittest"

    def detect(self, project: Project) -> Iterator[Target]:
        if called := discovery.as_called(project):
            path, calls = called
            yield self._calling(project, calls, f"{path} runs unittest's tests", Strength.SCRIPT)
        elif found := discovery.by_files(project, list(_others(project))):
            path, calls = found
            yield self._calling(project, calls, f"{path} has unittest's tests", Strength.PATTERN)

    def _calling(self, project: Project, calls: list[list[str]], why: str, strength: Strength) -> Target:
        first, *others = [[python_of(project.folder), "-m", "unittest", *words] for words in calls]
        return msgspec.structs.replace(self.target(project, ".", first, why, strength), also=others)

    def recognises(self, words: list[str]) -> bool:
        return "unittest" in words

    def launch(self, target: Target, session: Session) -> list[Step]:
        """`-m unittest` becomes `-m _ratchet_unittest`, which takes the same arguments.

        The tests asked for are picked from all that are found: not every one of them can be loaded by its name.
        """
        env = python_env(session, target.command)
        if session.only:
            chosen = session.private / "only"
            chosen.write_text("\n".join(_dotted(test.id) for test in session.only))
            env["_RATCHET_ONLY"] = str(chosen)
        return [Step(argv=_ours(target.command), env=env)]

    def takes(self, command: list[str], file: str) -> bool:
        top = _top(command).rstrip("/")
        return top == "." or file.startswith(f"{top}/")

    def again(self, target: Target, test: TestResult) -> list[str]:
        if test.name.endswith("(doctest)") or _TWIN.search(test.id):  # only who loads all of them can pick this one
            return ["ratchet", "test", test.id]
        words = target.command
        top = _top(words)
        path = [] if top == "." else ["env", f"PYTHONPATH={top}"]
        return [*path, *words[: words.index("unittest") + 1], _dotted(test.id)]


def _others(project: Project) -> Iterator[str]:
    """The folders that say by themselves that it is not unittest that runs their tests."""
    yield from (target.root for target in Django().detect(project))
    yield from (root for root, _, strength in Pytest().evidence(project) if strength is Strength.CONFIG)


_TWIN = re.compile(r" \(\d+\)$")  # of tests that have one name the second and further ones are numbered
_HOOK = re.compile(r"(?:setUp|tearDown)(?:Class|Module) \((.+)\)$")


def _dotted(name: str) -> str:
    """What can be asked for: of what failed before or after a class or module all of that."""
    hook = _HOOK.match(name)
    return hook[1] if hook else _TWIN.sub("", name)


def _ours(words: list[str]) -> list[str]:
    at = words.index("unittest")
    return [*words[:at], "_ratchet_unittest", *words[at + 1 :]]


def _top(words: list[str]) -> str:
    return discovery.top_of(words[words.index("unittest") + 1 :])


# What a reusable app says in place of a manage.py, with the settings that are its tests' own.
_DJANGO_TEST = re.compile(r"""(?m)(?:-m\s+django|django-admin(?:\.py)?)["', ]+test\b.*""")
_SETTINGS = re.compile(r"--(settings|pythonpath)[= ]+([\w./-]+)")


_NAMED_SETTINGS = re.compile(r"""\bDJANGO_SETTINGS_MODULE["']?\s*[=:,]\s*["']?([\w.]+)""")


# Which tests a call takes when nobody names others: `test {posargs:tests}`, `test ${ARGS:-tests}`, `test tests`.
_LABEL = re.compile(r"(?:\{posargs:|:-|[\s\"'])([a-z_][\w./]*)[}\"',\])]*\s*$")


def _django_options(call: str, text: str) -> list[str]:
    """The settings that a call names, or else the file around it, and which tests it takes."""
    options = [f"--{name}={value}" for name, value in _SETTINGS.findall(call)]
    around = _NAMED_SETTINGS.search(text)
    if around and not any(option.startswith("--settings") for option in options):
        options.append(f"--settings={around[1]}")
    label = _LABEL.search(_SETTINGS.sub("", call.partition("test")[2]))
    return [*options, label[1]] if label else options


def _without_labels(command: list[str]) -> list[str]:
    """The command with its options and without the tests it names, in whose place others are put."""
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


class Django(Python):
    name = "django"

    def detect(self, project: Project) -> Iterator[Target]:
        for path in project.named("**/manage.py"):
            root = root_of(path)
            if "django" in project.text(path).lower() and not _has_pytest_above(project, root):
                command = [python_of(project.folder / root, "django", project.folder), "manage.py", "test"]
                yield self.target(project, root, command, f"{path} is Django's", Strength.SCRIPT)
        for path in project.named("runtests.py", "run_tests.py"):
            # A reusable app has no manage.py, but a script that hands its arguments to Django's.
            if all(word in project.text(path) for word in ("execute_from_command_line", "test", "sys.argv")):
                command = [python_of(project.folder, "django"), path]
                yield self.target(project, ".", command, f"{path} runs Django's tests", Strength.SCRIPT)
        for path in project.named(*discovery.CALLERS):
            if called := _DJANGO_TEST.search(project.text(path)):
                options = _django_options(called.group(), project.text(path))
                command = [python_of(project.folder, "django"), "-m", "django", "test", *options]
                yield self.target(project, ".", command, f"{path} runs Django's tests", Strength.SCRIPT)

    def recognises(self, words: list[str]) -> bool:
        script = any(word in ("manage.py", "django") or word.endswith("django-admin") for word in words)
        return (script and "test" in words) or any(word.endswith("runtests.py") for word in words)

    def launch(self, target: Target, session: Session) -> list[Step]:
        # Its parallel runner has a result class of its own, which would leave ours without results.
        options = ["--testrunner", "_ratchet_unittest.DjangoRunner", "--parallel", "1", "--noinput"]
        command = _without_labels(target.command) if session.only else target.command
        labels = [_label(test.id) for test in session.only]
        # For a test runner of the project's own that starts pytest.
        env = pytest_env(session, target.command)
        env["_RATCHET_PYTEST"] = env.pop("PYTEST_ADDOPTS")
        return [Step(argv=[*command, *options, *dict.fromkeys(labels)], env=env)]

    def again(self, target: Target, test: TestResult) -> list[str]:
        return [*_without_labels(target.command), _label(test.id)]


def _has_pytest_above(project: Project, root: str) -> bool:
    above = [folder.as_posix() for folder in PurePosixPath(root).parents]
    return any(pytest_ini.is_for_django(project, folder) for folder in above)


def _label(name: str) -> str:
    """As Django takes it: files it does not take, but modules."""
    return name.removesuffix(".py").replace("/", ".") if name.endswith(".py") else _dotted(name)


class _Wrapped(Python):
    """A program that makes environments and runs pytest in them: the plugin goes in by the environment."""

    files: tuple[str, ...] = ()
    option = ""  # what chooses an environment

    def detect(self, project: Project) -> Iterator[Target]:
        for path in project.named(*(f"**/{file}" for file in self.files)):
            names = matrix.names(project, path)
            if not names and not (path.endswith(self.files[0]) and "pytest" in project.text(path)):
                continue
            first, *others = [[self.name, self.option, name] for name in names] or [[self.name]]
            root, why = root_of(path), f"{path} runs pytest through {self.name}"
            python = Path(python_of(project.folder / root, "pytest", project.folder))
            alone = shutil.which(self.name) and not _may_have(python, "pytest")
            strength = Strength.ASKED if alone else Strength.PATTERN
            target = self.target(project, root, first, why, strength)
            yield msgspec.structs.replace(target, also=others)

    def again(self, target: Target, test: TestResult) -> list[str]:
        return [*target.command, "--", _TWIN.sub("", test.id)]

    def chosen(self, session: Session) -> list[str]:
        return ["--", *[_TWIN.sub("", test.id) for test in session.only]] if session.only else []


class Tox(_Wrapped):
    name = "tox"
    files = ("tox.ini", "tox.toml", "pyproject.toml")
    option = "-e"

    def launch(self, target: Target, session: Session) -> list[Step]:
        env = pytest_env(session, target.command)
        # tox hides the environment from what it runs: each name has to be let through.
        through = [
            "-x",
            f"testenv.pass_env+={','.join(['PYTHONPATH', 'PYTEST_ADDOPTS', '_RATCHET_PART', *channel_env(session)])}",
        ]
        return [Step(argv=[*target.command, *through, *self.chosen(session)], env=env)]


class Nox(_Wrapped):
    name = "nox"
    files = ("noxfile.py",)
    option = "-s"

    def launch(self, target: Target, session: Session) -> list[Step]:
        return [Step(argv=[*target.command, *self.chosen(session)], env=pytest_env(session, target.command))]
