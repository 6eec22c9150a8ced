"""Docs that tests keep true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ratchet.config import Tests
from ratchet.core.report import ReportStatus
from ratchet.interfaces.cli import test
from ratchet.interfaces.docs import generated

ROOT = Path(__file__).parents[1]
NEEDED = {"command", "event", "heartbeat", "snapshot-manifest", "receipt", "run-state", "item", "report"}


@pytest.mark.parametrize("name", sorted(generated()))
def test_a_generated_file_is_what_the_code_says(name: str) -> None:
    assert (ROOT / name).read_text("utf-8") == generated()[name], "stale: run `make docs`"


def test_every_promised_schema_is_there() -> None:
    assert {path.name.split(".")[0] for path in (ROOT / "schemas/v1").iterdir()} >= NEEDED


def test_nothing_generated_is_left_over() -> None:
    there = {
        str(path.relative_to(ROOT)) for path in [*(ROOT / "schemas/v1").iterdir(), *(ROOT / "docs/reference").iterdir()]
    }
    assert there == set(generated())


def test_links_in_the_documents_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_page_about_tests_names_every_option_status_and_key() -> None:
    page = (ROOT / "docs/testing.md").read_text("utf-8")
    (command,) = test.COMMANDS
    common = {"--repo", "--set", "--quiet", "--verbose"}
    for option in {name for param in command.params for name in param.opts if name.startswith("--")} - common:
        assert f"{option} " in page or f"{option}`" in page, option
    for status in ReportStatus:
        assert f"`{status}`" in page, status
    for name in set(Tests.__struct_fields__) - {"env", "paths"}:  # these two are for runs of the factory
        assert re.search(rf"^ +{name} = ", page, re.MULTILINE), name


def test_the_readme_fits_on_one_screen() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 60
