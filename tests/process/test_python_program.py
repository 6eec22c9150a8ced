"""Programs of our own are never taken from the folder that they are started in: its files may be anybody's."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

import ratchet
from ratchet.process.spawn import python_program


@pytest.mark.parametrize("name", ["ratchet.py", "msgspec.py", "asyncio.py", "uuid.py"])
def test_a_module_of_the_folder_is_not_imported(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("raise SystemExit('a module of the project ran')\n")
    done = subprocess.run([*python_program("ratchet"), "--version"], cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_every_interpreter_that_is_started_ignores_its_folder() -> None:
    """Except those that load a project's tests, in a sandbox."""
    top = Path(ratchet.__file__).parent
    files = [file for file in top.rglob("*.py") if file.parent.name != "reporters"]
    lists = [
        (file.name, [item.value for item in node.elts if isinstance(item, ast.Constant)])
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.List) and node.elts and ast.unparse(node.elts[0]) == "sys.executable"
    ]
    assert len(lists) > 3
    assert [(name, words) for name, words in lists if not {"-P", "-I"} & set(words)] == []
