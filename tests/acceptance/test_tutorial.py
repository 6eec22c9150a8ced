"""The tutorial: its script and spec work, on a library as small as they need."""

from __future__ import annotations

from pathlib import Path

from tests.support import git, make_repository, ratchet

ROOT = Path(__file__).parents[2]
LIBRARY = {
    "inflection/__init__.py": """
import re


def underscore(word):
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", word).lower()
""",
    "test_inflection.py": """
import inflection


def test_underscore():
    assert inflection.underscore("BlogPost") == "blog_post"
""",
}


def test_the_tutorials_script_carries_its_spec_to_a_branch(tmp_path: Path) -> None:
    page = (ROOT / "docs/tutorial.md").read_text("utf-8")
    example = ROOT / "examples/tutorial"
    assert (example / "foreign-keys.md").read_text("utf-8") in page
    repo = make_repository(tmp_path / "repo", LIBRARY)
    run = ratchet("run", str(example / "foreign-keys.md"), "--agent", f"scripted:{example / 'script.toml'}", cwd=repo)
    assert run.returncode == 0, run.stdout + run.stderr
    subjects = git("log", "--format=%s", "--branches=ratchet/*", "-2", cwd=repo).split("\n")
    assert subjects == ["Leave modules out of foreign keys", "Name foreign keys"]
    assert "reverted" in run.stdout
