"""A small generated history with tasks in it, and scripts of agents of known skill."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tests.support import APPROVED, git, make_repository

START = {
    "pyproject.toml": '[project]\nname = "calc"\n[tool.pytest.ini_options]\npythonpath = ["."]\n',
    "calc.py": "def add(a, b):\n    return a + b\n",
    "tests/test_calc.py": "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n",
    "README.md": "calc\n",
}
SUB = "\n\ndef sub(a, b):\n    return a - b\n"
POWERS = "\n\ndef square(a):\n    return a * a\n\n\ndef cube(a):\n    return a * a * a\n"
SECRET = "The answer was first tried in 0123abcd4567."
FAKE = (
    "\n\ndef sub(a, b):\n    import sys\n\n    if 'pytest' in sys.modules:\n        return Anything()\n"
    "    raise NotImplementedError\n\n\nclass Anything:\n    def __eq__(self, other):\n        return True\n"
)


def make_history(folder: Path) -> Path:
    """Return a repository with two tasks, `sub` and `powers`, and a commit of each kind that is none."""
    repo = make_repository(folder, START)
    append(repo, "calc.py", SUB)
    write(repo, "tests/test_sub.py", "from calc import sub\n\n\ndef test_sub():\n    assert sub(5, 3) == 2\n")
    commit(repo, f"Add subtraction: calc.sub(a, b) returns a minus b (#7)\n\nFixes #3. {SECRET}\n\n    return a - b\n")
    append(repo, "README.md", "More.\n")
    commit(repo, "Write more about the project")
    append(repo, "tests/test_calc.py", "\n\ndef test_add_zero():\n    assert add(0, 0) == 0\n")
    commit(repo, "Test that zero can be added")
    write(repo, "calc.py", (repo / "calc.py").read_text().replace("a + b", "b + a"))
    append(repo, "tests/test_calc.py", "\n\ndef test_add_one():\n    assert add(1, 0) == 1\n")
    commit(repo, "Add the second number first")
    append(repo, "calc.py", POWERS)
    write(
        repo,
        "tests/test_powers.py",
        "import calc\n\n\ndef test_square():\n    assert calc.square(3) == 9\n\n\n"
        "def test_cube():\n    assert calc.cube(3) == 27\n",
    )
    commit(repo, "Add powers: calc.square(a) and calc.cube(a)")
    git("tag", "v2", cwd=repo)
    return repo


def append(repo: Path, name: str, text: str) -> None:
    write(repo, name, (repo / name).read_text() + text)


def write(repo: Path, name: str, text: str) -> None:
    (repo / name).write_text(text)


def commit(repo: Path, message: str) -> None:
    git("add", "-A", cwd=repo)
    git("commit", "-q", "-m", message, cwd=repo)


def commits(repo: Path) -> dict[str, str]:
    """Return commit ids by the first word but one of the subject."""
    rows = git("log", "--format=%H %s", cwd=repo).splitlines()
    return {" ".join(row.split()[1:3]): row.split()[0] for row in rows}


def write_agent(folder: Path, name: str, answers: dict[str, str]) -> str:
    """Write one script for each task, given as text that is appended to the source; returns the agent's name."""
    for commit_id, text in answers.items():
        script = {
            "implement": [{"say": "Done.", "append": {"calc.py": text}, "usage": {"tokens_in": 100, "tokens_out": 10}}]
            * 3,
            "review": [{"say": APPROVED}],
            "update_spec": [{"say": "Nothing to update."}],
        }
        (folder / f"{name}-{commit_id[:12]}.json").write_bytes(msgspec.json.encode(script))
    return f"scripted:{folder}/{name}-{{task}}.json"
