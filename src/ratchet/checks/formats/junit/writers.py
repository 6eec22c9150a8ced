"""Identifies the tool that wrote a document, and what it means by a name, a file and a line."""

# All rules for ids have the same three parameters.
# ruff: noqa: ARG001, ARG005

from __future__ import annotations

import re
from collections.abc import Callable, Collection

Identify = Callable[[str, str, str], str]

_SUITE_NAMES = {
    "pytest": "pytest",
    "bun test": "bun",
    "deno test": "deno",
    "vitest": "vitest",
    "jest tests": "title",
    "mocha tests": "title",
    "rspec": "rspec",
    "nextest-run": "nextest",
    "testresults": "swift",
    "nunit": "dotted",
}


def of_suite(attributes: dict[str, str]) -> str:
    name = attributes.get("name", "").lower()
    for known, writer in _SUITE_NAMES.items():
        if name.startswith(known):
            return writer
    if "surefire" in attributes.get("xsi:noNamespaceSchemaLocation", ""):
        return "jvm"
    return "dotted" if name.endswith(".dll") else ""


_JVM_CLASS = re.compile(r"^(?:[a-z_]\w*\.)*[A-Z][\w$]*$")


def of_case(case: dict[str, str]) -> str:
    group, name = case.get("classname", ""), case.get("name", "")
    return of_look(group, case.get("status", ""), group == name, case.keys())


def of_look(group: str, status: str, is_named_alike: bool, keys: Collection[str]) -> str:
    """Return the tool whose cases have this class, status and these attributes; whether the name equals the class."""
    if "class" in keys and "assertions" in keys:
        return "phpunit"
    if "result" in keys and status in {"run", "notrun"}:
        return "dotted"
    if is_named_alike and status in {"run", "fail", "notrun", "disabled"}:
        return "name"
    if group in {"test", "suite"}:
        return "node"
    if "." not in group:
        return ""
    if group.endswith(".global") or ".global." in group:
        return "catch2"
    if group.endswith(".bats") or (".lua:" in group and re.search(r"\.lua:\d+$", group)):
        return "file"
    if group.removesuffix("\n").endswith(_SOURCES):
        return "source"
    return "jvm" if _JVM_CLASS.match(group) and "file" not in keys else ""


_SOURCES = (".cc", ".cpp", ".cxx", ".c", ".hpp", ".h")


def plain_id(group: str, name: str, file: str) -> str:
    if not group or name.startswith(group):
        return name
    if "/" in group or " " in group:
        return f"{group}::{name}"
    return f"{group}.{name}"


def pytest_id(group: str, name: str, file: str) -> str:
    """Return the node id: from the `file` attribute if there is one, else from the module name."""
    parts = group.split(".") if group else []
    module = file.removesuffix(".py").replace("/", ".")
    if file and group.startswith(module):
        classes = [part for part in group[len(module) :].split(".") if part]
        return "::".join([file, *classes, name])
    first = next((i for i, part in enumerate(parts) if part[:1].isupper()), len(parts))
    path = "/".join(parts[:first]) + ".py" if parts[:first] else ""
    return "::".join(part for part in [path, *parts[first:], name] if part)


def _bun_id(group: str, name: str, file: str) -> str:
    inside = f"{group} > {name}" if group and group != file else name
    return f"{file}::{inside}" if file else inside


IDENTIFY: dict[str, Identify] = {
    "pytest": pytest_id,
    "jvm": lambda group, name, file: f"{group}#{name}" if group and name else group or name,
    "phpunit": lambda group, name, file: f"{group.replace('.', chr(92))}::{name}",
    "name": lambda group, name, file: name,
    "title": lambda group, name, file: name,
    "catch2": lambda group, name, file: name,
    "source": lambda group, name, file: name,
    "dotted": lambda group, name, file: f"{group}.{name}" if group else name,
    "file": lambda group, name, file: f"{group.rpartition(':')[0] if '.lua:' in group else group}::{name}",
    "vitest": lambda group, name, file: f"{group}::{name}",
    "deno": lambda group, name, file: f"{group.removeprefix('./')}::{name}",
    "bun": _bun_id,
    "rspec": lambda group, name, file: f"{file or group}::{name}",
    "nextest": lambda group, name, file: f"{group} {name}",
    "swift": lambda group, name, file: f"{group}/{name}",
}
# Tools whose ids are the class and then the name.
BY_PREFIX = {"pytest", "jvm", "phpunit", "dotted", "file", "vitest", "deno", "nextest", "swift"}
# Tools whose ids contain the file.
BY_FILE = {"pytest"}
# Tools whose ids are the name alone.
BY_NAME = {"name", "title", "catch2", "source"}
# Tools that have the file in another attribute.
FILE_ELSEWHERE = {"vitest", "deno", "source", "file", "pytest"}


def file_of(writer: str, group: str, test_id: str) -> str:
    """Return the file from another attribute of this tool."""
    if writer not in FILE_ELSEWHERE:
        return ""
    if writer != "pytest":
        return re.sub(r"(\.lua):\d+$", r"\1", group).removeprefix("./")
    head, found, _ = test_id.partition("::")
    return head if found and head.endswith(".py") else ""


def line_number(digits: str, writer: str) -> int:
    if not digits or not digits.isdecimal() or len(digits) > 9:
        return 0
    return int(digits) + 1 if writer == "pytest" else int(digits)
