"""Steps in containers: the confinement of workspaces of the kind `container`.

Each command of a step runs in a container of its own, made from the project's image. It sees the image, the workspace
and what the step needs besides, at the same paths as outside; it is not root, and gets no engine, no capabilities and,
unless that is allowed, no network.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from ratchet.errors import EnvironmentCannot, RatchetError
from ratchet.files import make_private_dir
from ratchet.paths import user_state
from ratchet.process.container_step import LABEL, UNKNOWN, ContainerStep, give
from ratchet.process.containers import (
    ContainerEngine,
    ContainerSpec,
    abandoned,
    end_container,
    find_engine,
    mark,
    new_name,
    refuse_socket,
    require_image,
    unprivileged_user,
)
from ratchet.process.spawn import CommandOutput, run_command
from ratchet.tree_files import remove_folder, temporary_folder
from ratchet.workspace.protocol import Workspace
from ratchet.workspace.sandbox import OUTPUT_MAX_BYTES, ContainerSettings
from ratchet.workspace.sandbox_view import HOME, git_settings, is_below

_PACKAGE = str(Path(__file__).parents[1])  # reporters that are loaded into the project's test runner
# What is in these is this machine's, not the image's.
_REPLACED = re.compile(r"HOME|PATH|TMPDIR|TMP|TEMP|SHELL|HOSTNAME|OLDPWD|XDG_\w+")
_PYTHON = re.compile(r"python[\d.]*")


class ContainerImage:
    """The image in which steps run. Raises EnvironmentCannot without engine or image."""

    def __init__(self, settings: ContainerSettings) -> None:
        self.settings = settings
        self.engine = find_engine(settings.engine)
        require_image(self.engine, settings.image)
        refuse_socket(settings.mounts, self.engine)
        self.path = self.engine.image_path(settings.image)
        info = self.engine.info()
        self.same_user = info.rootless and info.name == "Podman"
        remove_abandoned(self.engine)

    def sandbox(self, workspace: Workspace, **limits: Any) -> ContainerSandbox:
        return ContainerSandbox(self, workspace, **limits)

    def command(
        self,
        argv: Sequence[str],
        *,
        name: str,
        folder: Path,
        cwd: Path,
        env: Mapping[str, str],
        home: Path,
        mounts: Sequence[str],
        owned: Sequence[str],
        network: bool,
    ) -> list[str]:
        """Return the command that runs another in a container. `folder` is its own; for others see `ContainerStep`."""
        wanted = self.settings
        visible = [mount.split(":")[1] for mount in (*mounts, *wanted.mounts)]
        user = wanted.user or unprivileged_user()
        spec = ContainerSpec(
            image=wanted.image,
            command=[],
            env=inner_environment(env, visible, self.path),
            user=user,
            labels={LABEL: mark(name, user_state())},
            mounts=[*_accounts(folder, user), *wanted.mounts],
            # Images close root's home to others, and what is mounted below it must be reached.
            open_folders=[]
            if user.startswith("0")
            else [home for home in ["/root"] if any(is_below(path, [home]) for path in visible)],
            network=wanted.network if network else "none",
            memory_mb=wanted.memory_mb,
            cpus=wanted.cpus,
            processes=wanted.processes,
            tmp_mb=wanted.tmp_mb,
            same_user=self.same_user,
        )
        file = folder / "step.json"
        file.touch(mode=0o600)
        step = ContainerStep(
            engine=self.engine.address, name=name, spec=spec, folder=str(cwd), home=str(home), mounts=list(mounts),
            command=[_inner_program(argv[0], visible), *argv[1:]], owned=list(owned),
        )  # fmt: skip
        file.write_bytes(msgspec.json.encode(step))
        return [sys.executable, "-I", "-m", "ratchet.process.container_step", str(file)]


class ContainerSandbox:
    """The container of one kind of step; see `Sandbox` for the arguments. `home` is the folder of an agent's home."""

    contains = True
    has_own_programs = True

    def refused_forks(self) -> int:
        return 0

    def __init__(
        self,
        image: ContainerImage,
        workspace: Workspace,
        *,
        content: bool,
        read_only: Sequence[str],
        writable: Sequence[str],
        network: bool,
        home: str = "",
        lent: Sequence[str] = (),
    ) -> None:
        self.image, self.workspace = image, workspace
        self.content, self.read_only, self.writable = content, read_only, writable
        self.network, self.home, self.lent = network, home, lent
        self.started: list[tuple[str, Path]] = []  # containers that may not have ended, and the folders made for them

    def wrap(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], writable: Sequence[Path]
    ) -> tuple[list[str], dict[str, str]]:
        record, more = self.workspace.record, [str(path) for path in writable]
        folder = make_private_dir(make_private_dir(self.workspace.home / "steps") / secrets.token_hex(6))
        self.started.append((name := new_name("step"), folder))
        shown = dict.fromkeys((_PACKAGE, record.git_dir), "ro")
        shown |= {record.path: "rw" if self.content else "ro"} | dict.fromkeys(self.read_only, "ro")
        shown |= dict.fromkeys([*self.writable, *more], "rw")
        mounts = [f"{path}:{path}:{how}" for path, how in shown.items() if os.path.exists(path)]
        mounts += _covered_settings(record.git_dir)
        command = self.image.command(
            argv,
            name=name,
            folder=folder,
            cwd=cwd,
            env=env,
            home=self.workspace.home,
            mounts=[*mounts, *self._home_mounts(folder / "lent")],
            owned=[record.path, *([self.home] if self.home else []), *more, str(folder / "lent")],
            network=self.network,
        )
        return command, _host_environment()

    def _home_mounts(self, folder: Path) -> list[str]:
        """Mount the agent's home and copies of the files that are lent: root's own could not be read inside."""
        if not self.home:
            return []
        mounts = [f"{self.home}:{HOME}:rw"]
        for name in self.lent:
            real, copy = Path.home() / name, folder / name
            if os.access(real, os.R_OK):
                copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                shutil.copytree(real, copy, symlinks=True) if real.is_dir() else shutil.copy2(real, copy)
                mounts.append(f"{copy}:{HOME}/{name}:ro")
        return mounts

    def tidy(self) -> None:
        """End what the step has started, then make the workspace safe to read. Raises EnvironmentCannot when something
        may still run."""
        while self.started:
            name, folder = self.started[-1]
            end_container(self.image.engine, name)
            unknown = (folder / UNKNOWN).exists()
            remove_folder(folder)
            self.started.pop()
            if unknown:
                raise EnvironmentCannot(
                    "the container engine ended while a step ran, so it is not known how the step ended",
                    hint="see that the engine runs, then: ratchet resume",
                )
        with suppress(OSError):  # others may be there
            (self.workspace.home / "steps").rmdir()
        with suppress(OSError):  # the workspace may be gone with its step
            self.workspace.tidy()
        with suppress(RatchetError):
            remove_abandoned(self.image.engine)


def run_in_container(
    settings: ContainerSettings,
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    visible: Sequence[str],
    timeout_s: float,
) -> CommandOutput:
    """Run a command of the factory's own in the image, with network: it may write its folder and read `visible`."""
    image, name = ContainerImage(settings), new_name("step")
    with temporary_folder("ratchet-step-") as folder:
        mounts = [f"{cwd}:{cwd}:rw", *(f"{path}:{path}:ro" for path in visible), *_covered_settings(*visible)]
        command = image.command(
            argv, name=name, folder=Path(folder), cwd=cwd, env=env, home=cwd.parent, mounts=mounts, owned=[str(cwd)],
            network=True,
        )  # fmt: skip
        try:
            return run_command(
                command, cwd=Path("/"), env=_host_environment(), timeout_s=timeout_s, output_max_bytes=OUTPUT_MAX_BYTES
            )
        finally:
            end_container(image.engine, name)
            give(str(cwd), f"{os.getuid()}:{os.getgid()}")


def _covered_settings(*git_dirs: str) -> list[str]:
    words = git_settings(*git_dirs)
    return [f"{copy}:{file}:ro" for copy, file in zip(words[0::2], words[1::2], strict=True)]


def _accounts(folder: Path, user: str) -> list[str]:
    """Mount lists of users and groups with a name for the container's user: programs want one."""
    names = user.split(":")
    if not all(name.isdigit() for name in names) or not int(names[0]):
        return []
    others = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
    (folder / "passwd").write_text(f"{others}ratchet:x:{names[0]}:{names[-1]}::{HOME}:/bin/sh\n")
    (folder / "group").write_text(f"root:x:0:\nnogroup:x:65534:\nratchet:x:{names[-1]}:\n")
    return [f"{_readable(folder / name)}:/etc/{name}:ro" for name in ("passwd", "group")]


def _readable(file: Path) -> Path:
    file.chmod(0o644)
    return file


def remove_abandoned(engine: ContainerEngine) -> None:
    """Remove the containers of steps whose process was killed."""
    for row in abandoned(engine, LABEL, user_state()):
        engine.remove(row.id)


def remove_all_abandoned(address: str) -> None:
    """Remove the containers of steps whose worker was killed, if there is an engine."""
    with suppress(RatchetError):
        remove_abandoned(find_engine(address))


def _inner_program(program: str, visible: Sequence[str]) -> str:
    """Return the image's own program in place of this machine's."""
    if not program.startswith("/") or is_below(program, visible):
        return program
    name = os.path.basename(program)
    return "python3" if _PYTHON.fullmatch(name) else name


def inner_environment(env: Mapping[str, str], visible: Sequence[str], path: str) -> dict[str, str]:
    """Return the variables without paths of this machine that the container does not show."""
    kept = {name: _inner_paths(value, visible) for name, value in env.items() if not _REPLACED.fullmatch(name)}
    own = [place for place in env.get("PATH", "").split(":") if is_below(place, visible)]
    fixed = {"HOME": HOME, "TMPDIR": "/tmp", "PATH": ":".join([*own, path])}  # noqa: S108 — inside the container
    return {name: value for name, value in kept.items() if value or not env[name]} | fixed


def _inner_paths(value: str, visible: Sequence[str]) -> str:
    if not value.startswith("/"):
        return value
    return ":".join(part for part in value.split(":") if is_below(part, visible) or not os.path.lexists(part))


def _host_environment() -> dict[str, str]:
    return {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
