"""The table of machines: hostile but ordinary conditions, each made for real around a command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

import ratchet
from tests.machines import machine as maker

MAKER = [sys.executable, "-I", "-S", str(Path(maker.__file__))]
# What an installed Ratchet and its interpreter need to be readable.
NEEDED = tuple(dict.fromkeys([sys.prefix, sys.base_prefix, str(Path(ratchet.__file__).parents[2])]))
HOSTILE_GIT = """
[core]
    autocrlf = true
    hooksPath = {folder}/hooks
[commit]
    gpgsign = true
[init]
    templateDir = {folder}/template
"""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table, and of docs/platforms.md.

    `doctor` has the names of the lines in which `ratchet doctor` reports the condition, each with words from it.
    `fails` has the commands that cannot work, each with words from the sentence that is printed instead. `in_ci` rows
    are part of every run of the tests, the others of `make test-machines`.
    """

    name: str
    doctor: dict[str, str] = {}
    fails: dict[str, str] = {}
    in_ci: bool = True
    user: str = "ordinary"
    env: dict[str, str] = {}
    unset: tuple[str, ...] = ()
    home: str = "home"
    umask: int = 0o022
    hidden: tuple[str, ...] = ()
    shm_mb: int = 0
    bare_dev: bool = False
    noexec_tmp: bool = False
    no_user_namespaces: bool = False
    few_capabilities: bool = False
    seccomp: str = ""
    hostile_git: bool = False
    foreign: bool = False

    @property
    def needs_mounts(self) -> bool:
        kinds = (self.hidden, self.shm_mb, self.bare_dev, self.noexec_tmp, self.no_user_namespaces, self.seccomp)
        return any(kinds) or self.user == "root" or os.geteuid() == 0

    def why_not(self) -> str:
        """Return why this machine cannot be made here; empty when it can."""
        if self.foreign and os.geteuid():
            return "files of another user can be made by root only"
        if not self.needs_mounts:
            return ""
        with tempfile.TemporaryDirectory(prefix="ratchet-machines-") as folder:
            tried = subprocess.run([*MAKER, self._words(Path(folder), {}), "true"], capture_output=True, check=False)
        return (tried.stderr.decode().splitlines() or [""])[-1]

    def _words(self, folder: Path, env: dict[str, str]) -> str:
        given: dict[str, Any] = {name: getattr(self, name) for name in self.__struct_fields__}
        given |= {"env": env, "folder": str(folder), "needed": NEEDED, "namespaces": self.needs_mounts}
        return json.dumps(given)

    def prepare(self, folder: Path, project: Path) -> Path:
        """Lay out a home with a copy of the project in it, and return the copy."""
        home = folder / self.home
        home.mkdir(parents=True)
        copy = shutil.copytree(project, home / "project", symlinks=True)
        shutil.copy(project.parent / "script.json", home)
        if self.hostile_git:
            _write_hostile_git(folder, home)
        if self.user != "root" and not os.geteuid():
            for path in [home, *home.rglob("*")]:
                os.chown(path, maker.UID, maker.UID, follow_symlinks=False)
        if self.foreign:
            for path in [copy, *copy.rglob("*")]:
                os.chown(path, maker.UID + 1, maker.UID + 1, follow_symlinks=False)
                path.chmod(path.stat().st_mode | 0o666)
        return copy

    def run(self, folder: Path, *args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run Ratchet in the machine."""
        env = {
            "HOME": str(folder / self.home),
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
            "LANG": "C.UTF-8",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }
        env = {name: value for name, value in (env | self.env).items() if name not in self.unset}
        return subprocess.run(
            [*MAKER, self._words(folder, env), sys.executable, "-m", "ratchet", *args],
            cwd=cwd, capture_output=True, encoding="utf-8", errors="replace", check=False, timeout=120,
        )  # fmt: skip


def _write_hostile_git(folder: Path, home: Path) -> None:
    for place in ("hooks", "template/hooks"):
        (folder / place).mkdir(parents=True)
        for name in ("pre-commit", "commit-msg", "post-checkout", "reference-transaction", "post-commit"):
            hook = folder / place / name
            hook.write_text("#!/bin/sh\necho a hook was run >&2\nexit 1\n")
            hook.chmod(0o755)
    (home / ".gitconfig").write_text(HOSTILE_GIT.format(folder=folder))


BWRAP = shutil.which("bwrap") or ""
NO_MOUNTS = "runs, proofs and tests work in git worktrees, without a sandbox"
CONTAINER: dict[str, Any] = {"few_capabilities": True, "seccomp": "container", "shm_mb": 64, "bare_dev": True}
OF_ANOTHER = "belongs to another user, so "
MACHINES = (
    Machine(name="ordinary user", in_ci=False),
    Machine(
        name="no bubblewrap",
        hidden=(BWRAP,) if BWRAP else (),
        doctor={"sandbox": "bubblewrap is not installed"},
    ),
    Machine(name="no /dev/fuse", bare_dev=True, doctor={"/dev/fuse": "missing: nothing is lost"}),
    Machine(
        name="no user namespaces",
        no_user_namespaces=True,
        doctor={"user namespaces": f"none are allowed (user.max_user_namespaces): {NO_MOUNTS}"},
    ),
    Machine(
        name="restricted user namespaces",
        seccomp="apparmor",
        doctor={"user namespaces": f"made without rights, as by Ubuntu's AppArmor: {NO_MOUNTS}"},
    ),
    Machine(name="/tmp is noexec", noexec_tmp=True, doctor={"/tmp": "mounted noexec: all commands work"}),
    Machine(name="small /dev/shm", shm_mb=64, doctor={"/dev/shm": "workspaces are on disk, which is slower"}),
    Machine(
        name="container",
        user="root",
        **CONTAINER,
        doctor={
            "privileges": f"root without CAP_SYS_ADMIN, as in a container: {NO_MOUNTS}",
            "user namespaces": f"not permitted: {NO_MOUNTS}",
            "/dev/shm": "workspaces are on disk, which is slower",
        },
    ),
    Machine(
        name="container, ordinary user",
        in_ci=False,
        **CONTAINER,
        doctor={
            "user namespaces": f"not permitted: {NO_MOUNTS}",
            "/dev/shm": "workspaces are on disk, which is slower",
        },
    ),
    Machine(name="odd home", home="Jörg Müller/家", doctor={"home": "has spaces or non-ASCII letters"}),
    Machine(name="umask 077", umask=0o077, doctor={"umask": "077: new files are yours alone"}),
    Machine(
        name="repository of another user",
        foreign=True,
        doctor={"repository": OF_ANOTHER},
        fails={"run": OF_ANOTHER, "verify": OF_ANOTHER, "watch": OF_ANOTHER},
    ),
    Machine(
        name="LANG=C",
        env={"LANG": "C", "LC_ALL": "C"},
        home="Jörg",
        doctor={"locale": "C: Ratchet reads and writes UTF-8"},
    ),
    Machine(
        name="no locale",
        unset=("LANG",),
        home="Jörg",
        in_ci=False,
        doctor={"locale": "none set: Ratchet reads and writes UTF-8"},
    ),
    Machine(
        name="git settings",
        hostile_git=True,
        doctor={"git settings": "Ratchet's commits and checkouts ignore them"},
    ),
)
