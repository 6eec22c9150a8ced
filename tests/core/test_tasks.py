"""Which tasks a spec lists."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ratchet.core.tasks import parse_tasks

BLOCKS = """# Plan

### T001: first
- Status: passed
- Size: S

**Verify:** `make one`

### T002: second
Do it well.

#### Deliverables
- Verify: pytest -k "two and more"

## Notes
- [ ] not a task where there are blocks
"""


def test_blocks_with_their_status_and_their_command() -> None:
    first, second = parse_tasks(BLOCKS)
    assert (first.id, first.title, first.done, first.verify) == ("T001", "first", True, "make one")
    assert (second.id, second.done, second.verify) == ("T002", False, 'pytest -k "two and more"')
    assert "Deliverables" in second.body and "not a task" not in second.body


def test_boxes_with_what_is_indented_below_them() -> None:
    found = parse_tasks("- [x] one\n- [ ] two\n  more\n  Verify: true\nVerify: false\n* [X] three\n")
    assert [(task.id, task.title, task.done, task.verify) for task in found] == [
        ("task-1", "one", True, ""),
        ("task-2", "two", False, "true"),
        ("task-3", "three", True, ""),
    ]
    assert [task.body for task in found] == ["", "more\n  Verify: true", ""]


def test_an_example_in_a_code_block_is_no_task() -> None:
    assert [task.id for task in parse_tasks("```\n- [ ] shown\n### T001: shown\n```\n- [ ] real\n")] == ["task-1"]


def test_a_spec_without_a_list_is_one_task_and_two_of_one_name_are_two() -> None:
    assert [(task.id, task.title) for task in parse_tasks("# Do it\n")] == [("all", "the whole spec")]
    assert [task.id for task in parse_tasks("### T001: a\n### T001: b\n")] == ["T001", "T001-2"]


@given(st.text(alphabet="#T01: -[]x\n`Verify", max_size=200))
def test_any_text_has_tasks_of_different_names(spec: str) -> None:
    names = [task.id for task in parse_tasks(spec)]
    assert names and len(names) == len(set(names))
