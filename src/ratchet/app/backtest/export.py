"""Exports mined tasks in the form of SWE-bench: one JSON object a line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from ratchet.app.backtest.bench import Bench
from ratchet.core.backtest.task import MinedTask
from ratchet.files import write_whole
from ratchet.workspace.git.task_repository import origin_name, patch_between


def export_tasks(bench: Bench, tasks: Sequence[MinedTask], file: Path) -> None:
    write_whole(file, b"".join(msgspec.json.encode(_instance(bench, task)) + b"\n" for task in tasks))


def _instance(bench: Bench, task: MinedTask) -> dict[str, str]:
    root = bench.repo.root
    return {
        "instance_id": task.id,
        "repo": origin_name(root),
        "base_commit": task.base_commit,
        "environment_setup_commit": task.base_commit,
        "patch": patch_between(root, task.base_commit, task.commit, task.source_paths),
        "test_patch": patch_between(root, task.base_commit, task.commit, task.test_paths),
        "problem_statement": task.spec,
        "hints_text": "",
        "created_at": task.created_at,
        "version": "",
        "FAIL_TO_PASS": msgspec.json.encode(task.fail_to_pass).decode(),  # a string, as in the published datasets
        "PASS_TO_PASS": msgspec.json.encode(task.pass_to_pass).decode(),
    }
