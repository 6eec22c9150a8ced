"""Detects gates from a project's files: the commands of each ecosystem with the reason, or why one cannot run."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ratchet.checks.detect.project import Project, join_root
from ratchet.checks.protocol import Target
from ratchet.core.gates import Gate

COVERAGE_FILE = ".ratchet-coverage"


class MissingGate(msgspec.Struct, frozen=True, kw_only=True):
    """A gate that the project would have, and why it cannot run here."""

    name: str
    why: str


def detect_gates(folder: Path, targets: list[Target]) -> tuple[list[Gate], list[MissingGate]]:
    """Return the built-in gates, and the commands that the project configures and whose program is installed."""
    project = Project(folder)
    found: list[Gate] = [Gate(name="unit", why="the tests, run after every step")]
    absent: list[MissingGate] = []
    for target in targets:
        for gate in _of(project, target):
            program = gate.command.split()[0]
            if _is_installed(program, folder / target.root, gate.command):
                found.append(_in(target.root, gate))
            else:
                absent.append(MissingGate(name=gate.name, why=f"{gate.why}, but {program} is not installed"))
    found.append(Gate(name="cheats", why="always"))
    return list({gate.name: gate for gate in found}.values()), absent


def _in(root: str, gate: Gate) -> Gate:
    return gate if root == "." else msgspec.structs.replace(gate, name=f"{gate.name}@{root}", root=root)


def _is_installed(program: str, folder: Path, command: str) -> bool:
    if program == "npx":
        return (folder / "node_modules/.bin" / command.split()[2]).exists()
    module = re.match(r"\S*python[\d.]* -m (\w+)", command)
    if module and module[1] not in ("compileall", "unittest"):
        return (
            shutil.which(module[1], path=str(Path(program).parent)) is not None or shutil.which(module[1]) is not None
        )
    return "/" in program or shutil.which(program) is not None


def _of(project: Project, target: Target) -> Iterator[Gate]:
    by_language = {"python": _python, "javascript": _javascript, "typescript": _javascript, "go": _go, "rust": _rust}
    yield from by_language.get(target.language.lower(), _nothing)(project, target)
    yield from _make(project, target)


def _nothing(_project: Project, _target: Target) -> Iterator[Gate]:
    yield from ()


def _has(project: Project, root: str, *names: str) -> str:
    return next((name for name in names if project.has(join_root(root, name)[0])), "")


# --- Python ---------------------------------------------------------------------------------------------------------


def _python(project: Project, target: Target) -> Iterator[Gate]:
    python = target.command[0] if "python" in Path(target.command[0]).name else "python3"
    tools = project.toml(join_root(target.root, "pyproject.toml")[0]).get("tool", {})
    skip = r"(^|/)(\.venv|venv|node_modules|\.git)/"
    yield Gate(name="compile", command=f"{python} -m compileall -q -x {skip} .", why="Python sources must parse")
    if "ruff" in tools or _has(project, target.root, "ruff.toml", ".ruff.toml"):
        yield Gate(name="lint", command="ruff check .", why="ruff is configured")
    elif _has(project, target.root, ".flake8"):
        yield Gate(name="lint", command="flake8", why="flake8 is configured")
    if "mypy" in tools or _has(project, target.root, "mypy.ini", ".mypy.ini"):
        yield Gate(name="types", command=_mypy(tools), why="mypy is configured")
    elif "pyright" in tools or _has(project, target.root, "pyrightconfig.json"):
        yield Gate(name="types", command="pyright", why="pyright is configured")
    yield from _python_coverage(target, tools)


def _mypy(tools: dict[str, dict[str, object]]) -> str:
    return "mypy" if "files" in tools.get("mypy", {}) or "packages" in tools.get("mypy", {}) else "mypy ."


def _python_coverage(target: Target, tools: dict[str, dict[str, object]]) -> Iterator[Gate]:
    """Require the project's own coverage threshold; a threshold of ours would reject honest work."""
    table = tools.get("coverage", {}).get("report", {})
    least = table.get("fail_under", 0) if isinstance(table, dict) else 0
    if not least or target.runner not in ("pytest", "unittest"):
        return
    run = " ".join(target.command[1:] if target.command[1:2] == ["-m"] else ["-m", target.runner])
    command = f"coverage run {run} && coverage json -o {COVERAGE_FILE}"
    yield Gate(
        name="coverage",
        command=command,
        threshold=float(least),
        why=f"the project wants {least} %",
    )


# --- others ---------------------------------------------------------------------------------------------------------

_ESLINT = ("eslint.config.js", "eslint.config.mjs", "eslint.config.cjs", "eslint.config.ts", ".eslintrc.json",
           ".eslintrc.js", ".eslintrc.cjs", ".eslintrc")  # fmt: skip


def _javascript(project: Project, target: Target) -> Iterator[Gate]:
    scripts = project.json(join_root(target.root, "package.json")[0]).get("scripts", {})
    scripts = scripts if isinstance(scripts, dict) else {}
    if _has(project, target.root, "tsconfig.json"):
        yield Gate(name="compile", command="npx --no-install tsc --noEmit", why="there is a tsconfig.json")
    if "lint" in scripts:
        yield Gate(name="lint", command="npm run --silent lint", why="package.json has a script lint")
    elif _has(project, target.root, *_ESLINT):
        yield Gate(name="lint", command="npx --no-install eslint .", why="eslint is configured")
    yield from _beside_the_tests(scripts)
    if name := next((name for name in ("typecheck", "type-check", "types") if name in scripts), ""):
        yield Gate(name="types", command=f"npm run --silent {name}", why=f"package.json has a script {name}")
    if name := next((name for name in ("test:integration", "integration") if name in scripts), ""):
        yield Gate(name="integration", command=f"npm run --silent {name}", why=f"package.json has a script {name}")


_CHECKERS = {"xo": "lint", "eslint": "lint", "standard": "lint", "biome": "lint", "prettier": "format", "tsc": "types",
             "tsd": "types", "vue-tsc": "types", "publint": "package"}  # fmt: skip


def _beside_the_tests(scripts: dict[str, str]) -> Iterator[Gate]:
    """Yield what the test script runs besides tests: `xo && ava && tsd`."""
    parts = [part.strip() for part in str(scripts.get("test", "")).split("&&")]
    for part in parts if len(parts) > 1 else []:
        program = part.split()[0] if part else ""
        if program in _CHECKERS and not ("lint" in scripts and _CHECKERS[program] == "lint"):
            yield Gate(name=_CHECKERS[program], command=f"npx --no-install {part}", why="the test script runs it too")


def _go(project: Project, target: Target) -> Iterator[Gate]:
    yield Gate(name="compile", command="go build ./...", why="Go packages must build")
    if config := _has(project, target.root, ".golangci.yml", ".golangci.yaml", ".golangci.toml"):
        yield Gate(name="lint", command="golangci-lint run", why=f"there is a {config}")
    else:
        yield Gate(name="lint", command="go vet ./...", why="go vet comes with Go")


def _rust(project: Project, target: Target) -> Iterator[Gate]:
    yield Gate(name="compile", command="cargo check --quiet --all-targets", why="crates must build")
    if _has(project, target.root, "clippy.toml", ".clippy.toml"):
        yield Gate(name="lint", command="cargo clippy --quiet -- -D warnings", why="clippy is configured")


_TARGET = re.compile(r"^(lint|types|typecheck|integration)\s*:(?!=)", re.MULTILINE)


def _make(project: Project, target: Target) -> Iterator[Gate]:
    """Yield gates from Makefile targets, for checks that no tool's configuration asks for."""
    if target.language.lower() in ("python", "javascript", "typescript", "go", "rust"):
        return
    for name in dict.fromkeys(_TARGET.findall(project.text(join_root(target.root, "Makefile")[0]))):
        kind = "types" if name == "typecheck" else name
        yield Gate(name=kind, command=f"make {name}", why=f"the Makefile has a target {name}")
