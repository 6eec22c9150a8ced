"""Sandboxes: limit what a step's processes can see, write, connect to and consume, with bubblewrap.

The system is read-only, the workspace writable except where the role may not write, `/tmp` and home are private,
nothing of the real home is visible but what is lent (`sandbox_view`), and all processes are in a pid namespace that
ends with the step. Without bubblewrap steps run unconfined, and the checks after each step still apply.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ratchet.core.roles import PathRules, Writes, default_writes
from ratchet.errors import EnvironmentCannot, RatchetError
from ratchet.files import make_private_dir, require_own_settings
from ratchet.process.cgroups import ControlGroup, ResourceLimits, group_name, memory_bytes, own_program
from ratchet.process.spawn import (
    START_TRIES,
    CommandOutput,
    Confinement,
    ConfinementFailed,
    namespace_prefix,
    path_in_namespace,
    run_command,
)
from ratchet.tree_files import is_without_links
from ratchet.workspace import sandbox_view as view
from ratchet.workspace.protocol import AGENT_HOME, CONTAINER, Workspace, WorkspaceRecord
from ratchet.workspace.seccomp import filter_file

if TYPE_CHECKING:
    from ratchet.workspace.container_steps import ContainerImage

_NAMESPACES = ["--unshare-pid", "--unshare-ipc", "--unshare-uts"]
# Capabilities that root keeps inside: change users and file owners. No mounts, devices, tracing or modules.
_ROOT_KEEPS = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID")
OUTPUT_MAX_BYTES = 256 << 20  # of a command of the factory's own
_FILTER_FD = "8"
_LOADER = ("LD_", "GCONV_PATH", "LOCPATH", "BASH_", "ENV", "SHELLOPTS")
# Opens the filter before any namespace is entered, where its file need not be visible.
_WITH_FILTER = [own_program("sh"), "-c", f'exec {_FILTER_FD}<"$1"; shift; exec "$@"', "sh"]


class ContainerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where containers run and their bounds; 0 is no limit. An empty `user` is this process's, or for
    root one that no account has."""

    engine: str = ""
    image: str
    memory_mb: int = 0
    cpus: float = 0.0
    processes: int = 0
    tmp_mb: int = 0
    user: str = ""
    network: str = ""
    mounts: tuple[str, ...] = ()


class SandboxSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of all sandboxes. `share` are paths that agents may write besides the workspace; `hide` are hidden, and
    `show` are files and folders that the user's own settings name, which are shown unless they are hidden.

    `secret` are hidden whatever is shown: with our own token, a process could send any request to the server.
    `tmp_bytes` bounds each temporary folder; 0 is no limit. `container` is what workspaces of that kind use.
    """

    mode: str = "auto"
    agent_network: bool = True
    test_network: bool = False
    gate_network: bool = False
    bounds: ResourceLimits = ResourceLimits()
    share: tuple[str, ...] = ()
    hide: tuple[str, ...] = ()
    show: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()
    tmp_bytes: int = 0
    container: ContainerSettings | None = None


# What the kernel or a profile does not permit stays so. Anything else may pass, and another step may have caused it.
_LASTING = re.compile(
    r"not permitted|permission denied|no permissions|not supported|not implemented|unknown option|invalid argument",
    re.IGNORECASE,
)


@lru_cache(maxsize=1)
def why_no_sandbox() -> str:
    """Return why sandboxes do not work here, or an empty string. Raises ConfinementFailed if they only fail now.

    A step must not run without a sandbox because another one has used up what sandboxes need.
    """
    program = shutil.which("bwrap")
    if not program:
        return "bubblewrap is not installed (package bubblewrap)"
    return _why_refused([program])


@lru_cache(maxsize=1)
def seccomp_filter() -> str:
    """Return the file with the system call filter; empty where there is none or the kernel cannot use it."""
    file, program = filter_file(), shutil.which("bwrap")
    if file is None or not program:
        return ""
    return "" if _why_refused([*_WITH_FILTER, str(file), program, "--seccomp", _FILTER_FD]) else str(file)


def _why_refused(start: list[str]) -> str:
    probe = [*start, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", *_NAMESPACES, "--unshare-net", "true"]
    for _ in range(START_TRIES):
        try:
            tried = run_command(probe, timeout_s=20)
        except RatchetError as error:
            message = error.message
            continue
        if tried.exit_code == 0:
            return ""
        message = tried.stderr.decode(errors="replace").strip()[-200:]
        if _LASTING.search(message) or not _may_make_namespaces():
            return f"bubblewrap does not work here: {message}"
    raise ConfinementFailed(f"no sandbox can be started now: {message}", hint="ratchet doctor; try again later")


def _may_make_namespaces() -> bool:
    try:
        return Path("/proc/sys/user/max_user_namespaces").read_text().strip() != "0"
    except OSError:
        return True


class Sandbox(msgspec.Struct, frozen=True, kw_only=True):
    """The sandbox of one kind of step. Paths are absolute; `content` is whether the workspace is writable."""

    record: WorkspaceRecord
    bwrap: str
    content: bool = True
    read_only: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    hide: tuple[str, ...] = ()
    show: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()
    network: bool = False
    limits: tuple[str, ...] = ()
    tmp_bytes: int = 0
    home: AgentHome | None = None
    workspace: Workspace
    group: ControlGroup

    def wrap(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], writable: Sequence[Path]
    ) -> tuple[list[str], dict[str, str]]:
        inside, door = path_in_namespace(str(cwd)), namespace_prefix(cwd)
        if not self.bwrap:
            # Without a namespace prefix the command starts in / and must change to its folder.
            go = door or ["sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", inside]
            return [*self.limits, *go, *argv], dict(env)
        command = [
            *self.limits,
            *_filtered(door, self.bwrap),
            *self._options([str(path) for path in writable], argv, env.get("PATH", "")),
        ]
        # What changes how programs are loaded may name an agent's files: it is set inside only.
        later = [name for name in env if name.startswith(_LOADER)]
        settings = [word for name in later for word in ("--setenv", name, env[name])]
        outer = {name: value for name, value in _own_home(env).items() if name not in later}
        return [*command, *settings, "--chdir", inside, "--", *argv], outer

    @property
    def contains(self) -> bool:
        return bool(self.bwrap)

    @property
    def has_own_programs(self) -> bool:
        return False

    def refused_forks(self) -> int:
        return self.group.refused_forks()

    def tidy(self) -> None:
        try:
            self.workspace.tidy()
        except OSError:
            if self.workspace.path.exists():  # else it is gone with its step
                raise

    def _options(self, more: list[str], argv: Sequence[str], path: str) -> list[str]:
        network = [] if self.network else ["--unshare-net"]
        record = self.record
        covers, seals = view.sealed(view.hidden(view.private_files(record.repo)))
        own, away = (record.path, path_in_namespace(record.path), record.repo), view.expanded(self.hide)
        lent = view.lent_folders(self.show, away)
        there = view.interpreter()  # a file in it may be a link, over which nothing can be mounted
        found = dict.fromkeys([*lent, *view.lent_folders(view.installed(argv, own), away)])
        named = [folder for folder in found if folder in there or not view.is_below(folder, there)]
        around = [folder for folder in named if view.is_below(record.repo, [folder])]  # else it would uncover the repo
        shown = [
            *view.lent_tools(away, path, own[:2]),
            *view.bind("--ro-bind-try", self._masked([*around, record.repo, *there])),
            *covers,
            *view.bind("--ro-bind-try", self._masked([record.git_dir, record.base, f"{record.layer}/upper"])),
            *view.bind("--ro-bind-try", [folder for folder in named if folder not in around]),
        ]
        hidden, late = view.sealed(view.hidden_among([*away, *view.own_state(), *view.secrets_beside(lent)], shown))
        return [
            *("--die-with-parent", *_NAMESPACES, *network, *_capabilities()),
            *view.system(self.tmp_bytes),
            *(self.home.options() if self.home else ["--dir", view.HOME]),
            *shown,
            *hidden,
            *view.covered_settings(record.git_dir, f"{record.repo}/.git", *view.nested_git_dirs(record.repo)),
            *("--bind" if self.content else "--ro-bind", record.path, record.path),
            # Bound without a look: an ordinary user's workspace is seen in its own namespace only.
            *(word for path in self.read_only for word in ("--ro-bind-try", path, path)),
            *_shared(self.writable),
            *view.bind("--bind", more),
            *seals,
            *late,
            *view.hidden(self.secret),
            *view.closed(),
        ]

    def _masked(self, paths: list[str]) -> list[str]:
        return [path for path in paths if view.is_below(path, view.masks())]


def run_contained(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    writable: Sequence[str] = (),
    read_only: Sequence[str] = (),
    visible: Sequence[str] = (),
    lent: Sequence[str] = (),
    network: bool = False,
    stdin: bytes = b"",
    bounds: ResourceLimits | None = None,
    timeout_s: float,
) -> CommandOutput:
    """Run a command of the factory's own that may call what an agent wrote: git's filters, set-up commands.

    `read_only` are paths inside what is `writable`. Where there are no sandboxes, it runs as it is, within `bounds`.
    """
    with closing(ControlGroup(group_name("contained"), bounds or _default_bounds())) as group:
        return _run_contained(
            [*group.prefix()], argv, cwd=cwd, env=env, writable=writable, read_only=read_only, visible=visible,
            lent=lent, network=network, stdin=stdin, timeout_s=timeout_s,
        )  # fmt: skip


def _default_bounds() -> ResourceLimits:
    return ResourceLimits(memory_mb=max(512, (memory_bytes() // 2) >> 20), processes=4096, strict=False)


def _run_contained(
    limits: list[str],
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    writable: Sequence[str],
    read_only: Sequence[str],
    visible: Sequence[str],
    lent: Sequence[str],
    network: bool,
    stdin: bytes,
    timeout_s: float,
) -> CommandOutput:
    program = shutil.which("bwrap")
    if why_no_sandbox() or not program:
        return run_command(
            [*limits, *argv], cwd=cwd, env=env, stdin=stdin, timeout_s=timeout_s, output_max_bytes=OUTPUT_MAX_BYTES
        )
    inside, door = path_in_namespace(str(cwd)), namespace_prefix(cwd)
    options = [
        *("--die-with-parent", *_NAMESPACES, *([] if network else ["--unshare-net"]), *_capabilities()),
        *view.system(0),
        *("--dir", view.HOME, *_lend(lent)),
        *view.lent_tools((), env.get("PATH", "")),
        *view.bind("--ro-bind-try", [*view.interpreter(), inside, *visible]),
        *view.bind("--bind", writable),
        *(word for path in read_only for word in ("--ro-bind", path, path)),
        *view.covered_settings(*visible),
        *view.closed(),
    ]
    command = [*limits, *_filtered(door, program), *options, "--chdir", inside, "--", *argv]
    for _ in range(START_TRIES):
        done = run_command(
            command, cwd=Path("/"), env=_own_home(env), stdin=stdin, timeout_s=timeout_s,
            output_max_bytes=OUTPUT_MAX_BYTES,
        )  # fmt: skip
        if not (done.exit_code and done.stderr.startswith(b"bwrap: ")):
            break
    return done


def _capabilities() -> list[str]:
    keeps = [word for name in _ROOT_KEEPS for word in ("--cap-add", f"CAP_{name}")] if os.geteuid() == 0 else []
    return ["--cap-drop", "ALL", *keeps]


def _filtered(door: list[str], program: str) -> list[str]:
    calls = seccomp_filter()
    return [*_WITH_FILTER, calls, *door, program, "--seccomp", _FILTER_FD] if calls else [*door, program]


class AgentHome(msgspec.Struct, frozen=True, kw_only=True):
    """The home of an agent: a folder of its own that outlives the step, and files of the user's home that are lent.

    It keeps sessions, so that an interrupted turn can be resumed; nothing that an agent writes reaches the user's home.
    """

    folder: str
    lent: tuple[str, ...] = ()

    def options(self) -> list[str]:
        return ["--bind", self.folder, view.HOME, *_lend(self.lent)]


def _lend(names: Sequence[str]) -> list[str]:
    """Show files of the real home, read-only, at their places in the private one."""
    real = Path.home()
    files = [name for name in names if os.access(real / name, os.R_OK)]
    return [word for name in files for word in ("--ro-bind", str(real / name), f"{view.HOME}/{name}")]


def _shared(paths: Sequence[str]) -> list[str]:
    """Bind writable paths; those in the real home also at the same place in the private home."""
    words: list[str] = []
    real = str(Path.home())
    for name in paths:
        path = str(Path(name).expanduser())
        if os.path.exists(path):
            words += ["--bind", path, path]
            if path.startswith(f"{real}/"):
                words += ["--bind", path, view.HOME + path.removeprefix(real)]
    return words


def _own_home(env: Mapping[str, str]) -> dict[str, str]:
    real = Path.home()
    known = {name: str(real / place) for name, place in view.TOOL_VARIABLES.items() if (real / place).is_dir()}
    kept = {name: value for name, value in env.items() if not name.startswith("XDG_")}
    return known | kept | {"HOME": view.HOME, "TMPDIR": "/tmp"}  # noqa: S108


class Sandboxes:
    """Makes the sandboxes of a run's steps in one workspace. `close` removes their control group."""

    def __init__(self, workspace: Workspace, settings: SandboxSettings) -> None:
        self.workspace, self.settings = workspace, settings
        self.containers: ContainerImage | None = None
        missing = why_no_sandbox() if settings.mode != "off" else "switched off"
        if workspace.record.kind == CONTAINER and settings.container:
            from ratchet.workspace.container_steps import ContainerImage  # noqa: PLC0415 — the engine's client

            self.containers, missing = ContainerImage(settings.container), "not used"
        elif missing and settings.mode == "on":
            raise EnvironmentCannot(f"no sandbox: {missing}", hint='install it, or set sandbox.mode = "auto"')
        self.bwrap = "" if missing else shutil.which("bwrap") or ""
        if not (self.bwrap or self.containers):
            require_own_settings(Path(workspace.record.path))
        self.group = ControlGroup(group_name(workspace.record.slug), settings.bounds)

    def for_role(
        self,
        role: str,
        scope: PathRules,
        writes: Writes | None = None,
        *,
        network: bool | None = None,
        lent: Sequence[str] = (),
    ) -> Confinement | None:
        """Return the sandbox of an agent; `lent` are files in the real home that its program reads."""
        content, read_only = role_paths(writes or default_writes(role), scope, self.workspace.path)
        top = self.workspace.record.path
        return self._make(
            network=self.settings.agent_network if network is None else network,
            content=content,
            read_only=tuple(f"{top}/{path}" for path in read_only),
            writable=self.settings.share,
            home=AgentHome(folder=str(self.agent_home(role)), lent=tuple(lent)),
        )

    def agent_home(self, role: str) -> Path:
        """Return the folder that is a role's home: one for each, so that none prepares another's settings."""
        return make_private_dir(self.workspace.home / AGENT_HOME / role)

    def for_tests(self) -> Confinement | None:
        return self._make(network=self.settings.test_network)

    def for_gate(self) -> Confinement | None:
        return self._make(network=self.settings.gate_network)

    @property
    def contains(self) -> bool:
        """Whether steps can write only what they are given."""
        return bool(self.bwrap or self.containers)

    def close(self) -> None:
        self.group.close()

    def _make(
        self,
        *,
        network: bool,
        content: bool = True,
        read_only: tuple[str, ...] = (),
        writable: tuple[str, ...] = (),
        home: AgentHome | None = None,
    ) -> Confinement | None:
        if self.containers:
            return self.containers.sandbox(
                self.workspace, content=content, read_only=read_only, writable=_existing(writable), network=network,
                home=home.folder if home else "", lent=home.lent if home else (),
            )  # fmt: skip
        limits = tuple(self.group.prefix())
        if not (self.bwrap or limits):
            return None
        return Sandbox(
            record=self.workspace.record,
            workspace=self.workspace,
            bwrap=self.bwrap,
            content=content,
            read_only=read_only,
            writable=writable,
            hide=self.settings.hide,
            show=self.settings.show,
            secret=self.settings.secret,
            network=network,
            limits=limits,
            group=self.group,
            tmp_bytes=self.settings.tmp_bytes,
            home=home,
        )


def _existing(paths: Sequence[str]) -> list[str]:
    return [str(path) for path in (Path(name).expanduser() for name in paths) if path.exists()]


def role_paths(writes: Writes, scope: PathRules, folder: Path) -> tuple[bool, list[str]]:
    """Return whether a role may write in the workspace at all, and which existing paths are read-only for it.

    Only patterns that name a folder or file can be mounted; others (`**/test_*.py`) are checked after the step.
    """
    if writes is Writes.NOTHING:
        return False, []
    reaches_tests = writes in (Writes.TESTS, Writes.ADDITIONS)
    patterns = scope.protected if reaches_tests else (*scope.protected, *scope.tests)
    named = {pattern.removesuffix("/**") for pattern in patterns}
    plain = {name for name in named if not set(name) & set("*?[") and not name.startswith(".git")}
    # Where a parent is a link too: what is mounted there could be anything of this machine.
    return True, sorted(name for name in plain if is_without_links(folder, name))
