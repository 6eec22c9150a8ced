"""Text that others wrote, nested deeper than a decoder can follow, is malformed and not fatal."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ratchet.agents.drivers.cli_stream import decode_output
from ratchet.checks.detect.project import Project
from ratchet.core.line_protocol import decode_line
from ratchet.core.redact import Redactor
from ratchet.core.runner_settings import changes_runner_settings
from ratchet.core.verdict import parse_review

SOURCE = Path(__file__).parents[1] / "src" / "ratchet"
DEEP = "[" * 100_000
WITHIN_REACH = "[" * 800 + "]" * 800  # decoded, and then too deep for a walk
READERS: dict[str, Callable[[str], object]] = {
    "a line of an agent": lambda text: decode_output(text.encode(), msgspec.json.Decoder(object)),
    "a log": lambda text: Redactor().log(text.encode()),
    "a document": lambda text: Redactor().document(text.encode()),
    "a manifest": lambda text: changes_runner_settings("package.json", b"{}", text.encode()),
    "a verdict": lambda text: parse_review(f'{{"verdict": {text}}}'),
}


@pytest.mark.parametrize("text", [DEEP, WITHIN_REACH, f'{{"a": {DEEP}', '"\udcff"'.encode(errors="replace").decode()])
@pytest.mark.parametrize("reader", READERS)
def test_text_nested_without_end_is_malformed_and_not_fatal(reader: str, text: str) -> None:
    READERS[reader](text)


def test_a_line_of_the_protocol_nested_without_end_is_refused_with_a_reason() -> None:
    with pytest.raises(ValueError, match=r"\w"):
        decode_line(f'{{"more": {DEEP}'.encode())


def test_manifests_nested_without_end_are_read_as_empty(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text(f'{{"scripts": {DEEP}')
    (tmp_path / "pyproject.toml").write_text(f"x = {DEEP}")
    project = Project(tmp_path)
    assert (project.json("package.json"), project.toml("pyproject.toml")) == ({}, {})


def test_handlers_of_malformed_text_catch_endlessly_nested_text_too() -> None:
    files = [path for name in ("agents", "checks", "core") for path in (SOURCE / name).rglob("*.py")]
    caught = [(path.name, words) for path in files if path.parent.name != "reporters" for words in handlers(path)]
    decodes = [(name, words) for name, words in caught if words & {"DecodeError", "TOMLDecodeError"}]
    assert decodes
    assert [name for name, words in decodes if "RecursionError" not in words] == []


def handlers(path: Path) -> list[set[str]]:
    """Return the names in every `except` of a module."""
    tree = ast.parse(path.read_text())
    caught = [node.type for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.type]
    return [set(re.findall(r"\w+", ast.unparse(each))) for each in caught]
