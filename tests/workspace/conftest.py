"""A real repository with everything odd in it, and every kind of workspace this machine can make."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ratchet.process.spawn import namespace_prefix
from ratchet.workspace.capacity import CapacityLimits
from ratchet.workspace.git_workspace import GitWorkspace
from ratchet.workspace.protocol import WorkspaceRefused
from ratchet.workspace.registry import Workspaces

SMALL = CapacityLimits(min_free_ram_bytes=1 << 20, min_free_disk_bytes=1 << 20)
# An ordinary user's overlay is the one in a user namespace; the privileged one is root's alone.
PRIVILEGED = ["overlay-ram", "overlay-disk"] if os.geteuid() == 0 else []
# These need a disk with btrfs, which only root can mount; root's run tests them.
ON_BTRFS = ["btrfs", "reflink"] if os.geteuid() == 0 else []
KINDS = [*PRIVILEGED, "overlay-userns", *ON_BTRFS, "worktree", "copy", "container"]


def outside(folder: Path) -> Path:
    """Where to start a program that `enter` leads into a folder."""
    return Path("/") if namespace_prefix(folder) else folder


def sh(*argv: str, cwd: Path) -> str:
    done = subprocess.run([*namespace_prefix(cwd), *argv], cwd=outside(cwd), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode(errors="surrogateescape").strip()


def commit_all(repo: Path, message: str = "more") -> str:
    sh("git", "add", "-A", cwd=repo)
    sh("git", "-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-q", "-m", message, cwd=repo)
    return sh("git", "rev-parse", "HEAD", cwd=repo)


def fill(repo: Path) -> None:
    (repo / "src").mkdir()
    (repo / "src" / "app.py").write_text("VALUE = 1\n")
    (repo / "src" / "run").write_text("#!/bin/sh\n")
    (repo / "src" / "run").chmod(0o755)
    (repo / "link").symlink_to("src/app.py")
    (repo / "dangling").symlink_to("nowhere")
    (repo / "with space.txt").write_text("space\n")
    (repo / "with\nnewline.txt").write_text("newline\n")
    (repo / "folder\nnewline").mkdir()
    (repo / "folder\nnewline" / "file").write_text("inside\n")
    Path(os.fsdecode(os.fsencode(repo) + b"/bad-\xff-name")).write_text("bytes\n")
    (repo / "crlf.txt").write_bytes(b"one\r\ntwo\r\n")
    (repo / ".gitattributes").write_text("crlf.txt text eol=crlf\n")
    (repo / ".gitignore").write_text("*.log\nnode_modules/\nbuilt/\n")
    with (repo / "sparse.bin").open("wb") as file:
        file.write(b"head")
        file.truncate(1 << 20)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    sh("git", "init", "-q", "-b", "main", cwd=folder)
    fill(folder)
    commit_all(folder, "start")
    return folder


@pytest.fixture(scope="session")
def btrfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A loop-mounted btrfs, or a skip that says what is missing."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    if not shutil.which("mkfs.btrfs"):
        pytest.skip("mkfs.btrfs is not installed (package btrfs-progs)")
    folder = tmp_path_factory.mktemp("btrfs")
    image, mounted = folder / "image", folder / "mounted"
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(256 << 20)
    for argv in (["mkfs.btrfs", "-q", str(image)], ["mount", "-o", "loop", str(image), str(mounted)]):
        done = subprocess.run(argv, capture_output=True, check=False)
        if done.returncode:
            pytest.skip(f"no loop-mounted btrfs here: {done.stderr.decode().strip()}")
    yield mounted
    subprocess.run(["umount", "-l", str(mounted)], check=False)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Mounts small disks: `disk("name", "size=1m")` a RAM disk, `disk("name", mib=8)` an ext4 in a file."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    mounted: list[Path] = []

    def mount(name: str, options: str = "loop", *, mib: int = 0) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        source = _image(tmp_path / f"{name}.image", mib) if mib else "t"
        argv = ["mount", "-t", "ext4" if mib else "tmpfs", "-o", options, str(source), str(folder)]
        done = subprocess.run(argv, capture_output=True, check=False)
        if done.returncode:
            pytest.skip(f"no such disk can be mounted here: {done.stderr.decode().strip()}")
        mounted.append(folder)
        return folder

    yield mount
    for folder in reversed(mounted):
        subprocess.run(["umount", "-l", str(folder)], check=True)


def _image(path: Path, mib: int) -> Path:
    if not shutil.which("mkfs.ext4"):
        pytest.skip("mkfs.ext4 is not installed (package e2fsprogs)")
    with path.open("wb") as file:
        file.truncate(mib << 20)
    subprocess.run(["mkfs.ext4", "-q", str(path)], check=True)
    return path


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def spaces(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Workspaces]:
    """The folder of workspaces for one kind; whatever a test leaves is removed."""
    place = tmp_path
    if kind in ("btrfs", "reflink"):
        place = request.getfixturevalue("btrfs") / request.node.name.translate(str.maketrans("[]/", "---"))
    made = Workspaces(place / "ws", bases=place / "bases", limits=SMALL)
    name = kind.removesuffix("-ram").removesuffix("-disk")
    why = next((rung.why for rung in made.probe_kinds() if rung.kind == name), "")
    if why:
        pytest.skip(f"{name}: {why}")
    yield made
    for slug in [path.name for path in made.root.iterdir() if not path.name.startswith(".")]:
        made.destroy(slug)
    made.bases.evict(max_bytes=0)


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Workspaces]:
    """The same for tests that hold whatever the kind."""
    made = Workspaces(tmp_path / "ws", bases=tmp_path / "bases", limits=SMALL)
    yield made
    for slug in (
        [path.name for path in made.root.iterdir() if not path.name.startswith(".")] if made.root.exists() else []
    ):
        made.destroy(slug)


def make(spaces: Workspaces, repo: Path, slug: str = "one", kind: str = "auto", **more: object) -> GitWorkspace:
    on = kind.removeprefix("overlay-") if kind in ("overlay-ram", "overlay-disk") else "auto"
    made = spaces.create(
        slug,
        repo=repo,
        commit=sh("git", "rev-parse", "HEAD", cwd=repo),
        kind=kind.removesuffix("-ram").removesuffix("-disk"),
        on=on,
        **more,  # type: ignore[arg-type]
    )
    assert not isinstance(made, WorkspaceRefused), made
    return made


def inside(workspace: GitWorkspace, *argv: str) -> str:
    """Run a program where the content is."""
    return sh(*argv, cwd=workspace.path)
