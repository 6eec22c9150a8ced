"""Parses Open Test Reporting of the JUnit Platform: start and finish events, linked to their parents."""

from __future__ import annotations

from datetime import datetime
from typing import BinaryIO

import msgspec

from ratchet.checks.formats import Parsed, distinct, recover
from ratchet.checks.formats.text import strip_control_characters
from ratchet.checks.formats.trees import Tree, TreeDialect, read
from ratchet.core.report import RED, Failure, TestResult, TestStatus

_STATUS = {
    "SUCCESSFUL": TestStatus.PASSED,
    "FAILED": TestStatus.FAILED,
    "ERRORED": TestStatus.ERROR,
    "SKIPPED": TestStatus.SKIPPED,
    "ABORTED": TestStatus.SKIPPED,  # an assumption failed
}
_DEEPEST = 50


class _Node(msgspec.Struct):
    name: str
    parent: str
    kind: str
    group: str
    method: str
    began: str
    ended: str = ""
    status: str = ""
    reason: str = ""
    failure: Failure | None = None


def parse(stream: BinaryIO) -> Parsed:
    """Return the tests and the containers that failed by themselves. What started without finishing was running."""
    nodes: dict[str, _Node] = {}

    def dialects(_parsed: Parsed) -> dict[str, TreeDialect]:
        nodes.clear()
        wanted = frozenset({"e:started", "e:finished", "started", "finished"})
        return dict.fromkeys(("e:events", "events"), TreeDialect(wanted, lambda tree, _around: _take(tree, nodes)))

    parsed = read(stream, dialects)
    parents = {node.parent for node in nodes.values()}
    tests = {key: node for key, node in nodes.items() if _is_test(key, node, parents)}
    failed = [
        _result(nodes, node) for key, node in nodes.items() if key not in tests and _STATUS.get(node.status) in RED
    ]
    parsed.tests = distinct([*(_result(nodes, node) for node in tests.values() if node.status), *failed])
    parsed.running = [_id(nodes, node) for node in tests.values() if not node.status]
    parsed.ended = parsed.ended and bool(nodes) and not parsed.running
    return parsed


def _is_test(key: str, node: _Node, parents: set[str]) -> bool:
    return "TEST" in node.kind if node.kind else key not in parents


def _take(tree: Tree, nodes: dict[str, _Node]) -> None:
    key = tree.get("id")
    if tree.name.endswith("started"):
        nodes[key] = _begun(tree)
    elif known := nodes.get(key):
        result = _local(tree, "result") or tree
        known.status, known.ended = result.get("status") or "NOT TOLD", tree.get("time")
        if _STATUS.get(known.status, TestStatus.ERROR) in RED:
            known.failure = _failure(result)
        else:
            known.reason = result.text_at("reason")


def _begun(tree: Tree) -> _Node:
    sources = _local(tree, "sources") or tree
    source = _local(sources, "methodSource") or _local(sources, "classSource") or tree
    kind = _local(_local(tree, "metadata") or tree, "type")
    return _Node(
        name=tree.get("name"),
        parent=tree.get("parentId"),
        kind=kind.text if kind else "",
        group=source.get("className"),
        method=source.get("methodName"),
        began=tree.get("time"),
    )


def _local(tree: Tree, name: str) -> Tree | None:
    """Return the first child of this name, in any namespace."""
    return next((child for child in tree.children if child.name.rpartition(":")[2] == name), None)


def _failure(result: Tree) -> Failure:
    thrown = _local(result, "throwable")
    stack = strip_control_characters(thrown.text) if thrown else ""
    message = result.text_at("reason") or stack.partition("\n\tat ")[0] or f"its status is {result.get('status')}"
    return recover.failure(stack, message=message, type=thrown.get("type") if thrown else "")


def _id(nodes: dict[str, _Node], node: _Node) -> str:
    if not node.method:
        return " > ".join([*_above(nodes, node), node.name])
    own = f"{node.group}#{node.method}"
    return own if node.name.partition("(")[0] == node.method else f"{own} {node.name}"


def _above(nodes: dict[str, _Node], node: _Node) -> list[str]:
    names: list[str] = []
    here = nodes.get(node.parent)
    while here and len(names) < _DEEPEST:
        names.insert(0, here.name)
        here = nodes.get(here.parent)
    return names


def _result(nodes: dict[str, _Node], node: _Node) -> TestResult:
    status = _STATUS.get(node.status, TestStatus.ERROR)
    return TestResult(
        id=_id(nodes, node),
        name=node.name,
        suite=_above(nodes, node),
        status=status,
        file=node.failure.file if node.failure else "",
        duration_s=_between(node.began, node.ended),
        reason=node.reason,
        failure=node.failure,
    )


def _between(began: str, ended: str) -> float:
    try:
        return round(max(0.0, (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()), 6)
    except (ValueError, TypeError):
        return 0.0
