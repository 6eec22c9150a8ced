"""Prompts: templates filled in, and how much of the past goes into them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.core import prompts
from ratchet.engine.prompts import load_templates
from ratchet.engine.workflow_registry import open_workflow, workflow_names
from ratchet.errors import ConfigError

EMPTY = dict.fromkeys(prompts.PLACEHOLDERS, "")


def test_a_section_with_nothing_to_say_is_left_out_and_headings_in_the_spec_are_no_sections() -> None:
    template = "# Task\nDo it for $$5.\n\n# Failures\n$failures\n\n# Spec\n$spec\n"
    reported = prompts.render(template, EMPTY | {"spec": "# Greet\n\n# Loudly $spec"})
    assert reported == "# Task\nDo it for $5.\n\n# Spec\n# Greet\n\n# Loudly $spec\n"


@pytest.mark.parametrize(("template", "why"), [("$sepc", "$sepc"), ("it costs 5 $ ", "$$"), ("$spec", "")])
def test_what_is_wrong_with_a_template(template: str, why: str) -> None:
    assert (why in prompts.template_error(template)) if why else prompts.template_error(template) == ""


@pytest.mark.parametrize("name", workflow_names())
def test_every_workflow_has_its_templates_and_they_can_be_filled_in(name: str, tmp_path: Path) -> None:
    for template in load_templates(open_workflow(name), tmp_path, "").values():
        assert prompts.render(template, EMPTY | {"spec_path": "SPEC.md"}).startswith("# Your task\nYou ")


def test_a_projects_own_template_takes_the_place_of_ours_and_a_wrong_one_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "fix.md").write_text("# Mend\n$failures")
    assert load_templates(open_workflow("fix"), tmp_path, "")["fix"] == "# Mend\n$failures"
    (tmp_path / "fix.md").write_text("# Mend\n$faliures")
    with pytest.raises(ConfigError, match=r"fix\.md cannot be filled in: unknown placeholder \$faliures"):
        load_templates(open_workflow("fix"), tmp_path, "")


@pytest.mark.parametrize("outside", ["secrets/fix.md", "secrets"])
def test_a_projects_template_behind_a_link_out_of_the_repository_is_refused(tmp_path: Path, outside: str) -> None:
    secrets, root = tmp_path / "secrets", tmp_path / "project"
    for folder in (secrets, root):
        folder.mkdir()
    (secrets / "fix.md").write_text("the key of somebody")
    if outside == "secrets":
        (root / "mine").symlink_to(secrets)
    else:
        (root / "mine").mkdir()
        (root / "mine" / "fix.md").symlink_to(secrets / "fix.md")
    with pytest.raises(ConfigError, match="is no file of the repository"):
        load_templates(open_workflow("fix"), root, "mine")
    assert load_templates(open_workflow("fix"), root, str(secrets))["fix"] == "the key of somebody"


@given(st.lists(st.text(min_size=1, max_size=300), max_size=8), st.integers(0, 300))
def test_the_last_history_entries_that_fit_are_kept_whole(output: list[str], tokens: int) -> None:
    entries = [prompts.history_entry(n, "auditor", text) for n, text in enumerate(output)]
    reported = prompts.recent_entries("".join(entries), tokens)
    assert len(reported) <= tokens * prompts.CHARS_A_TOKEN + 1
    assert reported.endswith("…") or "".join(entries).endswith(reported)
