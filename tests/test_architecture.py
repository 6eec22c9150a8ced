"""The tree shows the architecture, and this keeps it true."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "ratchet"

# Each room, and the rooms it may use. Those in the third row never use each other.
ROOMS = {
    "core": {"core"},
    "errors": set[str](),
    "files": {"errors"},
    "plugins": set[str](),
    "process": {"core", "errors", "files", "reaper"},
    "supervision": {"files", "process"},
    "reaper": set[str](),
    "config": {"core", "errors"},
    "store": {"core", "errors", "files", "store"},
    "workspace": {"core", "errors", "files", "process", "supervision", "workspace"},
    "checks": {"core", "errors", "files", "plugins", "process", "supervision", "checks"},
    "agents": {"core", "errors", "files", "plugins", "process", "supervision", "agents"},
    "repository": {"core", "errors", "files", "workspace"},
    "schemas": {"core"},
    "client": {"core", "errors"},
}
IMPURE = {
    "time",
    "os",
    "random",
    "secrets",
    "asyncio",
    "subprocess",
    "socket",
    "pathlib",
    "sqlite3",
    "threading",
    "tempfile",
}


def modules() -> list[tuple[str, Path]]:
    found = [path for path in SOURCE.rglob("*.py") if "shims" not in path.parts]
    return [(path.relative_to(SOURCE).parts[0].removesuffix(".py"), path) for path in found]


def imported(path: Path) -> set[str]:
    """Dotted names of what a module imports, wherever in it the import stands."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def rooms_used(path: Path) -> set[str]:
    return {name.split(".")[1] for name in imported(path) if name.startswith("ratchet.")} - {"__version__", "__file__"}


def test_each_room_uses_only_the_rooms_below_it() -> None:
    for room, path in modules():
        if room in ROOMS:
            assert rooms_used(path) <= ROOMS[room], path


def test_only_surfaces_use_surfaces() -> None:
    for room, path in modules():
        if room not in ("surfaces", "__main__"):
            assert "surfaces" not in rooms_used(path), path


def test_core_is_pure() -> None:
    for room, path in modules():
        if room == "core":
            used = {name.split(".")[0] for name in imported(path)}
            assert not used & IMPURE, path
            waits = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Await)]
            assert not waits, path


def test_only_process_starts_or_kills_a_process() -> None:
    for room, path in modules():
        if room not in ("process", "supervision", "reaper"):
            text = path.read_text()
            assert "subprocess" not in text.replace("asyncio.subprocess", ""), path
            assert "os.kill" not in text and "os.fork" not in text, path


def test_unittest_mock_is_not_used() -> None:
    ours = [path for path in Path(__file__).parent.rglob("*.py") if "projects" not in path.parts]
    for path in [*SOURCE.rglob("*.py"), *ours]:
        assert not any(name.startswith("unittest.mock") for name in imported(path)), path


def test_every_module_says_what_it_promises() -> None:
    for _, path in modules():
        assert ast.get_docstring(ast.parse(path.read_text())), path
