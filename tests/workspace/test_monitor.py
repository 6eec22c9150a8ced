"""`git status` asks the layer: whatever is done to a workspace, it says what looking at every file would say."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from ratchet.process.spawn import namespace_prefix, run_command
from ratchet.workspace.git import fsmonitor, fsmonitor_setup
from ratchet.workspace.git_workspace import GitWorkspace
from ratchet.workspace.kinds.overlay import Overlay
from ratchet.workspace.registry import Workspaces
from ratchet.workspace.sandbox import Sandboxes, SandboxSettings, why_no_sandbox
from tests.workspace.conftest import make, outside, sh

STATUS = ("status", "--porcelain", "-uall", "--no-renames")
NAMES = ["a", "b", "c", "d/a", "d/b", "d/e/a", "d/e/b", "f/a", "f/b"]


@pytest.fixture
def one(plain: Workspaces, repo: Path, monkeypatch: pytest.MonkeyPatch) -> GitWorkspace:
    monkeypatch.setattr(fsmonitor_setup, "MANY", 0)
    for name in NAMES:
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).write_text(name)
    sh("git", "add", "-A", cwd=repo)
    sh("git", "-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-qm", "more", cwd=repo)
    made = make(plain, repo)
    if not isinstance(made, Overlay):
        pytest.skip(f"{made.record.kind} has no layer to ask")
    return made


def git(one: GitWorkspace, *words: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    done = subprocess.run(
        [*namespace_prefix(one.path), "git", *who, *words], cwd=outside(one.path), capture_output=True, check=False
    )
    return done.stdout.decode(errors="surrogateescape")


def asking(one: GitWorkspace) -> str:
    return git(one, *STATUS)


def looking(one: GitWorkspace) -> str:
    return git(one, "--no-optional-locks", "-c", "core.fsmonitor=false", *STATUS)


def valid(one: GitWorkspace) -> int:
    """How many files git would not look at."""
    rows = git(one, "ls-files", "-f", "-z")
    return sum(row[:1].islower() for row in rows.split("\0"))


def test_in_a_fresh_workspace_git_looks_at_no_file(one: GitWorkspace) -> None:
    assert asking(one) == ""
    tracked = git(one, "ls-files", "-z").count("\0")
    assert valid(one) == tracked
    (one.path / "d" / "e" / "a").write_text("changed")
    assert asking(one) == " M d/e/a\n"
    assert valid(one) >= tracked - 1, "a change costs what changed"


def test_a_file_added_to_the_index_and_then_deleted_is_seen(one: GitWorkspace) -> None:
    for folder in ("d", "."):
        (one.path / folder / "new").write_text("x")
        git(one, "update-index", "--add", f"{folder}/new".removeprefix("./"))  # git does not ask for this one
        (one.path / folder / "new").unlink()
        assert asking(one) == looking(one)
        assert "AD" in asking(one)
        git(one, "reset", "-q")


def write(path: Path, chance: random.Random) -> None:
    if path.parent.is_file() or path.parent.is_symlink():
        path.parent.unlink()
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        shutil.rmtree(path)
    path.write_text(str(chance.random()))


def drop(path: Path, _chance: random.Random) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def become_folder(path: Path, chance: random.Random) -> None:
    drop(path, chance)
    write(path / "inside", chance)


def become_file(path: Path, chance: random.Random) -> None:
    folder = path.parent
    if not folder.is_mount():
        drop(folder, chance)
        write(folder, chance)


def empty_folder(path: Path, chance: random.Random) -> None:
    """Removed and made again: what the base had in it is hidden."""
    if not path.parent.is_mount() and path.parent.is_dir():
        drop(path.parent, chance)
        path.parent.mkdir()


def move(path: Path, chance: random.Random) -> None:
    if path.exists():
        shutil.move(path, path.with_name(f"moved{chance.randrange(3)}"))


def change_mode(path: Path, _chance: random.Random) -> None:
    if path.is_file():
        path.chmod(0o755 if not os.access(path, os.X_OK) else 0o644)


def link(path: Path, chance: random.Random) -> None:
    if path.parent.is_dir():
        drop(path, chance)
        path.symlink_to("nowhere")


ACTS: list[Callable[[Path, random.Random], None]] = [
    write, write, drop, become_folder, become_file, empty_folder, move, change_mode, link,
]  # fmt: skip
GIT: list[tuple[str, ...]] = [
    ("add", "-A"),
    ("add", "d"),
    ("update-index", "--add", "--remove", "d/new"),
    ("commit", "-qam", "theirs"),
    ("stash", "-q", "-u"),
    ("stash", "pop", "-q"),
    ("checkout", "-q", "--", "."),
    ("reset", "-q", "--hard"),
    ("rm", "-rfq", "f"),
    ("mv", "a", "moved9"),
]


def act(one: GitWorkspace, chance: random.Random, start: str) -> str:
    if (dice := chance.random()) < 0.6:
        doing, name = chance.choice(ACTS), chance.choice([*NAMES, "new", "d/new", "d/e/new", "g/new"])
        try:
            doing(one.path / name, chance)
        except OSError:
            return "-"
        return f"{doing.__name__} {name}"
    if dice < 0.95:
        words = chance.choice(GIT)
        git(one, *words)
        return " ".join(words)
    one.reset(start)
    return "reset"


@pytest.mark.parametrize("seed", range(3))
def test_asking_the_layer_says_what_looking_at_every_file_says(one: GitWorkspace, seed: int) -> None:
    chance, start, done = random.Random(seed), one.checkpoint(), []
    for _ in range(40):
        done.append(act(one, chance, start))
        if chance.random() < 0.7:
            wanted = looking(one)
            assert asking(one) == wanted, done


def test_inside_the_sandbox_too(one: GitWorkspace) -> None:
    if why := why_no_sandbox():
        pytest.skip(why)
    (one.path / "d" / "a").unlink()
    (one.path / "b").write_text("changed")
    sandbox = Sandboxes(one, SandboxSettings(mode="on")).for_tests()
    assert sandbox
    argv, env = sandbox.wrap(["git", *STATUS], cwd=one.path, env={"PATH": os.environ["PATH"]}, writable=[])
    assert run_command(argv, env=env).stdout.decode() == " M b\n D d/a\n"
    argv, env = sandbox.wrap(
        ["git", "ls-files", "-f", "c"], cwd=one.path, env={"PATH": os.environ["PATH"]}, writable=[]
    )
    assert run_command(argv, env=env).stdout == b"h c\n", "the layer is seen in there: git asked it"


def test_where_there_is_no_layer_git_looks_for_itself(one: GitWorkspace, tmp_path: Path) -> None:
    shutil.copytree(one.path, tmp_path / "elsewhere", symlinks=True)
    (tmp_path / "elsewhere" / "d" / "a").write_text("changed")
    assert sh("git", *STATUS, cwd=tmp_path / "elsewhere") == "M d/a"


def test_paths_in_the_layer_now_or_at_the_last_token_are_reported_as_changed(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    below = (tmp_path / "d").stat().st_mtime_ns
    reported = partial(fsmonitor.changed, lower=os.fsencode(tmp_path))
    assert reported({b"a": 0}, {b"b": 0}) == {b"a", b"a/", b"b", b"b/"}
    assert reported({b"d/": below}, {}) == set()
    assert reported({b"d/": below + 1}, {}) == {b"d", b"d/"}, "git may have taken in what is gone, without asking first"
    assert reported({b"d/": 5}, {b"d/": 5}) == set()
    assert reported({b"d/": 5}, {b"d/": 0}) == {b"d", b"d/"}, "too young to tell"
    assert reported({b"/": 5}, {b"/": 4}) == {b"/"}


def test_a_token_of_another_layer_or_none_proves_nothing(tmp_path: Path) -> None:
    here, other = tmp_path / "here", tmp_path / "other"
    here.mkdir()
    other.mkdir()
    token = fsmonitor.encode(os.fsencode(here), {b"a": 0})
    assert fsmonitor.decode(os.fsencode(here), token) == {b"a": 0}
    assert fsmonitor.decode(os.fsencode(other), token) is None
    assert fsmonitor.decode(os.fsencode(here), b"large") is None
    assert fsmonitor.decode(os.fsencode(here), b"1794801512295976344") is None
