"""The sandbox: what a step's processes can see, write, reach and use up. Bubblewrap does it; this says what.

The root is read-only, the workspace writable except where the role may not write, `/tmp` and home are private, secrets
in the real home are covered, and everything is in a pid namespace that ends with the step. Without bubblewrap steps
run as they are, and the checks after each step still hold.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import msgspec

from ratchet.core.roles import Scope, Writes, writes_of
from ratchet.errors import EnvironmentCannot, RatchetError
from ratchet.process import Confinement, as_seen_inside, call, enter
from ratchet.workspace import Record, Workspace
from ratchet.workspace.limits import Bounds, Group

HOME = "/tmp/home"  # noqa: S108 — inside the sandbox, where /tmp is its own
_MASKED = ("/tmp", "/var/tmp", "/run", "/dev/shm")  # noqa: S108 — covered by empty folders
_NAMESPACES = ["--unshare-pid", "--unshare-ipc", "--unshare-uts"]
# What root may still do inside: be any user and own any file there. Mounts, devices, tracing, modules: not.
_ROOT_KEEPS = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID")
# Where tools that live in the real home are found although HOME is another.
_TOOLS = {"PYTHONUSERBASE": ".local", "RUSTUP_HOME": ".rustup", "CARGO_HOME": ".cargo", "PYENV_ROOT": ".pyenv"}
# What package managers have fetched there: builds without network find it in the private home, and cannot change it.
_FETCHED = (
    ".m2/repository", "go/pkg/mod", ".gem/ruby", ".local/share/gem", ".mix", ".hex/packages", ".nuget/packages",
    ".cache/deno", ".cache/coursier", ".cabal/packages", ".cabal/store",
)  # fmt: skip


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """`share` are paths agents may write besides the workspace; `hide` are covered for everyone, and `secret` are even
    for who names them: with our own token, what runs in a workspace could ask the server for anything."""

    mode: str = "auto"
    agent_network: bool = True
    test_network: bool = False
    gate_network: bool = False
    bounds: Bounds = Bounds()
    share: tuple[str, ...] = ()
    hide: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()


@lru_cache(maxsize=1)
def why_not() -> str:
    """Why there can be no sandbox here; empty when there can."""
    program = shutil.which("bwrap")
    if not program:
        return "bubblewrap is not installed (package bubblewrap)"
    try:
        tried = call([program, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", *_NAMESPACES,
                      "--unshare-net", "true"], timeout_s=20)  # fmt: skip
    except RatchetError as error:
        return error.message
    said = tried.stderr.decode(errors="replace").strip()
    return "" if tried.exit_code == 0 else f"bubblewrap does not work here: {said[-200:]}"


class Sandbox(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of step's confinement. `read_only` and `writable` are absolute; `content` says whether the workspace
    itself may be written."""

    record: Record
    bwrap: str
    content: bool = True
    read_only: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    hide: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()
    network: bool = False
    limits: tuple[str, ...] = ()

    def wrap(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], writable: Sequence[Path]
    ) -> tuple[list[str], dict[str, str]]:
        inside, door = as_seen_inside(str(cwd)), enter(cwd)
        if not self.bwrap:
            # A plain `cd`: whoever is not let in by a namespace is started in / and must get to its folder.
            go = door or ["sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", inside]
            return [*self.limits, *go, *argv], dict(env)
        command = [*self.limits, *door, self.bwrap, *self._options([str(path) for path in writable], argv)]
        return [*command, "--chdir", inside, "--", *argv], _own_home(env)

    @property
    def contains(self) -> bool:
        return bool(self.bwrap)

    def _options(self, more: list[str], argv: Sequence[str]) -> list[str]:
        network = [] if self.network else ["--unshare-net"]
        keeps = [word for name in _ROOT_KEEPS for word in ("--cap-add", f"CAP_{name}")] if os.geteuid() == 0 else []
        return [
            *("--die-with-parent", *_NAMESPACES, *network, "--cap-drop", "ALL", *keeps),
            *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
            *("--tmpfs", "/tmp", "--tmpfs", "/var/tmp", "--tmpfs", "/run", "--dir", HOME),  # noqa: S108
            *("--ro-bind-try", "/run/systemd/resolve", "/run/systemd/resolve"),
            *_covered(self.hide),
            *_fetched(self.hide),
            *_bind("--ro-bind-try", [*self._still_seen(), *_named(argv)]),
            *("--bind" if self.content else "--ro-bind", self.record.path, self.record.path),
            *_bind("--ro-bind-try", self.read_only),
            *_shared(self.writable),
            *_bind("--bind", more),
            *_covered(self.secret),
        ]

    def _still_seen(self) -> list[str]:
        """What must stay visible although the folder it is in is covered: all that git needs, the interpreter, us."""
        git = [self.record.repo, self.record.git_dir, self.record.base, f"{self.record.layer}/upper"]
        needed = [*git, sys.prefix, sys.base_prefix, str(Path(__file__).parents[2])]
        return [path for path in needed if path.startswith(tuple(f"{mask}/" for mask in _MASKED))]


def _covered(names: Sequence[str]) -> list[str]:
    words: list[str] = []
    for name in names:
        path = str(Path(name).expanduser())
        if os.path.isdir(path):
            words += ["--tmpfs", path]
        elif os.path.exists(path):
            words += ["--ro-bind", "/dev/null", path]
    return words


def _fetched(hidden: Sequence[str]) -> list[str]:
    real, kept_away = Path.home(), [Path(name).expanduser() for name in hidden]
    lent = [name for name in _FETCHED if not any((real / name).is_relative_to(path) for path in kept_away)]
    return [word for name in lent for word in ("--ro-bind-try", str(real / name), f"{HOME}/{name}")]


def _named(argv: Sequence[str]) -> list[str]:
    """The folders of programs and scripts the command names by path: they must be seen, wherever they are kept."""
    masks = tuple(f"{mask}/" for mask in _MASKED)
    files = [place for word in argv if os.path.isfile(word) for place in (word, os.path.realpath(word))]
    return list(dict.fromkeys(str(_with_its_kind(Path(file))) for file in files if file.startswith(masks)))


def _with_its_kind(file: Path) -> Path:
    """A program's folder; of a virtual environment's or a package's all of it, without which the program is another."""
    if "node_modules" in file.parts:
        return Path(*file.parts[: file.parts.index("node_modules") + 1])
    if (file.parent.parent / "pyvenv.cfg").is_file():
        return file.parent.parent
    return file if str(file.parent) in _MASKED else file.parent


def _bind(how: str, paths: Sequence[str]) -> list[str]:
    return [word for path in paths for word in (how, path, path)]


def _shared(paths: Sequence[str]) -> list[str]:
    """Writable paths; those in the real home appear in the private one too, for that is where programs look."""
    words: list[str] = []
    real = str(Path.home())
    for name in paths:
        path = str(Path(name).expanduser())
        if os.path.exists(path):
            words += ["--bind", path, path]
            if path.startswith(f"{real}/"):
                words += ["--bind", path, HOME + path.removeprefix(real)]
    return words


def _own_home(env: Mapping[str, str]) -> dict[str, str]:
    real = Path.home()
    tools = {name: str(real / place) for name, place in _TOOLS.items() if name not in env and (real / place).is_dir()}
    kept = {name: value for name, value in env.items() if not name.startswith("XDG_")}
    return kept | tools | {"HOME": HOME, "TMPDIR": "/tmp"}  # noqa: S108


class Sandboxes:
    """The confinements of one run's steps in one workspace. `close` gives back what they held."""

    def __init__(self, workspace: Workspace, settings: Settings) -> None:
        missing = why_not() if settings.mode != "off" else "switched off"
        if missing and settings.mode == "on":
            raise EnvironmentCannot(f"no sandbox: {missing}", hint='install it, or set sandbox.mode = "auto"')
        self.workspace, self.settings = workspace, settings
        self.bwrap = "" if missing else shutil.which("bwrap") or ""
        self.group = Group(f"ratchet-{workspace.record.slug}-{os.getpid()}", settings.bounds)

    def for_role(
        self, role: str, scope: Scope, writes: Writes | None = None, *, network: bool | None = None
    ) -> Confinement | None:
        content, read_only = role_paths(writes or writes_of(role), scope, self.workspace.path)
        top = self.workspace.record.path
        return self._make(
            network=self.settings.agent_network if network is None else network,
            content=content,
            read_only=tuple(f"{top}/{path}" for path in read_only),
            writable=self.settings.share,
        )

    def for_tests(self) -> Confinement | None:
        return self._make(network=self.settings.test_network)

    def for_gate(self) -> Confinement | None:
        return self._make(network=self.settings.gate_network)

    def close(self) -> None:
        self.group.close()

    def _make(
        self, *, network: bool, content: bool = True, read_only: tuple[str, ...] = (), writable: tuple[str, ...] = ()
    ) -> Confinement | None:
        limits = tuple(self.group.prefix())
        if not (self.bwrap or limits):
            return None
        return Sandbox(
            record=self.workspace.record,
            bwrap=self.bwrap,
            content=content,
            read_only=read_only,
            writable=writable,
            hide=self.settings.hide,
            secret=self.settings.secret,
            network=network,
            limits=limits,
        )


def role_paths(writes: Writes, scope: Scope, folder: Path) -> tuple[bool, list[str]]:
    """Whether a role may write in the workspace at all, and which existing paths in it are read-only to it.

    Only patterns that name a folder or a file can be mounted; the rest (`**/test_*.py`) is checked after the step.
    """
    if writes is Writes.NOTHING:
        return False, []
    reaches_tests = writes in (Writes.TESTS, Writes.ADDITIONS)
    patterns = scope.protected if reaches_tests else (*scope.protected, *scope.tests)
    named = {pattern.removesuffix("/**") for pattern in patterns}
    plain = {name for name in named if not set(name) & set("*?[") and not name.startswith(".git")}
    return True, sorted(name for name in plain if (folder / name).exists() and not (folder / name).is_symlink())
