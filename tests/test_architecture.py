"""The architecture: what each package may import, a pure core, no import cycles, one meaning per class name."""

from __future__ import annotations

import ast
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "ratchet"

# Every package and flat module, and what it may import besides itself.
# interfaces → app → engine → {store, workspace, agents, checks} → process, core; none in braces imports another.
_BASE = {"core", "errors", "files", "tree_files"}
_PARTS = {"store", "workspace", "agents", "checks"}
_SHARED = _BASE | {"config", "paths", "plugins", "process"}
ALLOWED: dict[str, set[str]] = {
    "__init__": set(),
    "errors": set(),
    "plugins": set(),
    "core": set(),
    "files": {"errors"},
    "tree_files": set(),
    "config": {"core", "errors", "files", "tree_files"},
    "paths": {"config", "files"},
    "process": _BASE,
    "store": _BASE,
    "workspace": _BASE | {"config", "paths", "process"},
    "agents": _BASE | {"plugins", "process"},
    "checks": _BASE | {"paths", "plugins", "process"},
    "engine": _SHARED | _PARTS,
    "app": _SHARED | _PARTS | {"engine"},
    "interfaces": _SHARED | _PARTS | {"engine", "app"},
    "__main__": {"interfaces", "process"},
}
FLAT_MODULES_MAX = 6
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
# Public class names that still have several meanings. Shrink this list, never extend it.
AMBIGUOUS: set[str] = set()


def sources(top: Path = SOURCE) -> Iterator[tuple[str, Path]]:
    """Dotted name (without `ratchet.`) and path of each module, except the reporters: they run in other processes."""
    for path in sorted(top.rglob("*.py")):
        parts = path.relative_to(top).with_suffix("").parts
        if "reporters" not in parts[:-1]:
            yield ".".join(parts).removesuffix(".__init__"), path


def unit(module: str) -> str:
    return module.partition(".")[0]


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def imports(nodes: Iterable[ast.AST]) -> set[str]:
    """Dotted names of what the nodes import."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def own(names: Iterable[str]) -> set[str]:
    return {name.removeprefix("ratchet.") for name in names if name.startswith("ratchet.")}


def violations(top: Path) -> list[str]:
    """Imports that the table does not allow, and packages or flat modules that it does not know."""
    known = {unit(module) for module, _ in sources(top)}
    found = [f"{name} is not in the table" for name in sorted(known - set(ALLOWED))]
    for module, path in sources(top):
        for name in sorted(own(imports(ast.walk(parse(path))))):
            target = unit(name) if unit(name) in known else "__init__"
            if target not in {unit(module), "__init__", *ALLOWED.get(unit(module), set())}:
                found.append(f"{module} imports {name}")
    return found


def import_time(tree: ast.Module) -> Iterator[ast.AST]:
    """Statements that run when the module is imported: nothing in functions, nothing for type checkers only."""
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop()
        yield node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            todo += node.orelse
        else:
            todo += ast.iter_child_nodes(node)


def cycles(top: Path) -> list[list[str]]:
    """Groups of modules that import each other at import time (strongly connected components)."""
    paths = dict(sources(top))
    graph = {
        module: {name if name in paths else name.rpartition(".")[0] for name in own(imports(import_time(parse(path))))}
        & set(paths) - {module}
        for module, path in paths.items()
    }
    return [sorted(group) for group in components(graph) if len(group) > 1]


def components(graph: dict[str, set[str]]) -> list[list[str]]:
    """Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            at = stack.index(node)
            found.append(stack[at:])
            del stack[at:]

    for node in graph:
        if node not in index:
            visit(node)
    return found


def public_classes(top: Path) -> dict[str, list[str]]:
    """Where each public class name is defined."""
    places: dict[str, list[str]] = defaultdict(list)
    for module, path in sources(top):
        for node in parse(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(module)
    return places


def test_every_module_imports_only_what_the_table_allows() -> None:
    assert violations(SOURCE) == []


def test_there_are_at_most_six_flat_modules() -> None:
    flat = {path.stem for path in SOURCE.glob("*.py")} - {"__init__", "__main__"}
    assert len(flat) <= FLAT_MODULES_MAX, sorted(flat)


def test_modules_do_not_import_each_other_in_a_cycle() -> None:
    assert cycles(SOURCE) == []


def test_a_public_class_name_has_one_meaning() -> None:
    several = {name: places for name, places in public_classes(SOURCE).items() if len(places) > 1}
    assert {name: several[name] for name in several.keys() - AMBIGUOUS} == {}
    assert several.keys() >= AMBIGUOUS, f"remove from the list: {sorted(AMBIGUOUS - several.keys())}"


UPWARD = [(unit, other) for unit in ALLOWED for other in ALLOWED if other not in {unit, "__init__", *ALLOWED[unit]}]


@pytest.mark.parametrize(("importer", "imported"), UPWARD)
def test_an_upward_import_is_found_in_every_package(tmp_path: Path, importer: str, imported: str) -> None:
    for name in ALLOWED:
        (tmp_path / f"{name}.py").touch()
    (tmp_path / f"{importer}.py").write_text(f"def later():\n    from ratchet.{imported} import thing\n")
    assert violations(tmp_path) == [f"{importer} imports {imported}.thing"]


def test_upward_imports_in_a_copy_of_this_tree_are_found_in_every_package(tmp_path: Path) -> None:
    copy = tmp_path / "ratchet"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    modules = {unit(name): (name, path) for name, path in sources(copy)}
    for importer, imported in UPWARD:
        with modules[importer][1].open("a") as file:
            file.write(f"\ndef _to_{imported.strip('_')}():\n    from ratchet.{imported} import thing\n")
    planted = {f"{modules[importer][0]} imports {imported}.thing" for importer, imported in UPWARD}
    assert set(violations(copy)) == planted


def test_an_unknown_package_is_found(tmp_path: Path) -> None:
    (tmp_path / "helpers").mkdir()
    (tmp_path / "helpers" / "strings.py").write_text("from ratchet import helpers\n")
    assert violations(tmp_path) == ["helpers is not in the table"]


@pytest.mark.parametrize(
    "line", ["from ratchet.store.b import B", "from ratchet.store import b", "import ratchet.store.b"]
)
def test_an_import_cycle_is_found_and_a_type_checkers_import_is_none(tmp_path: Path, line: str) -> None:
    store = tmp_path / "store"
    store.mkdir()
    for name in ("__init__", "a"):
        (store / f"{name}.py").touch()
    (store / "b.py").write_text("from ratchet.store.a import A\n")
    (store / "a.py").write_text(f"{line}\n")
    assert cycles(tmp_path) == [["store.a", "store.b"]]
    (store / "a.py").write_text(f"if TYPE_CHECKING:\n    {line}\n\ndef later():\n    {line}\n")
    assert cycles(tmp_path) == []


def test_core_is_pure() -> None:
    for module, path in sources():
        if unit(module) == "core":
            tree = parse(path)
            assert not {name.partition(".")[0] for name in imports(ast.walk(tree))} & IMPURE, path
            assert not any(isinstance(node, ast.Await) for node in ast.walk(tree)), path


def test_only_process_starts_or_kills_a_process() -> None:
    for module, path in sources():
        if unit(module) != "process":
            text = path.read_text("utf-8")
            assert "subprocess" not in text.replace("asyncio.subprocess", ""), path
            assert "os.kill" not in text and "os.fork" not in text, path


def test_unittest_mock_is_not_used() -> None:
    ours = [path for path in Path(__file__).parent.rglob("*.py") if "projects" not in path.parts]
    for path in [*SOURCE.rglob("*.py"), *ours]:
        names = imports(node for node in ast.walk(parse(path)) if not getattr(node, "level", 0))
        assert not any(name.startswith("unittest.mock") for name in names), path


def test_every_module_has_a_docstring() -> None:
    for _, path in sources():
        assert ast.get_docstring(parse(path)), path
