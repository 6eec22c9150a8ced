"""A backtest of one repository: its settings, its state on disk, and how tests are run at a commit."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from ratchet import config
from ratchet.app.backtest.copies import find_copies
from ratchet.checks.protocol import Target
from ratchet.checks.run.path_redirect import editable_folders, installed_copy
from ratchet.checks.run.tool_digests import BYTE_CODE
from ratchet.core.report import Report
from ratchet.engine.blocking import run_blocking
from ratchet.engine.run_setup import find_targets, open_checks
from ratchet.errors import EnvironmentCannot, UsageError
from ratchet.files import make_private_dir, write_whole
from ratchet.paths import bases, user_state
from ratchet.process.spawn import confined
from ratchet.tree_files import remove_folder, remove_inside, write_inside
from ratchet.workspace import sandbox_view
from ratchet.workspace.from_config import sandbox_settings
from ratchet.workspace.git.repository import Repository
from ratchet.workspace.git.task_repository import create_repository_at
from ratchet.workspace.sandbox import Sandboxes, why_no_sandbox
from ratchet.workspace.scratch import workspace_at

T = TypeVar("T")
SOURCE = Path(config.__file__).parent
Prepare = Callable[[Path], None]


class Bench:
    """`flags` are the `--set` settings of the command; `network` lets agents reach the network."""

    def __init__(self, repo: Repository, flags: Sequence[str] = (), *, network: bool = False) -> None:
        self.repo = repo
        own = config.load(repo.root, flags=flags).config
        if own.sandbox.mode != "off" and (why := why_no_sandbox()):
            raise EnvironmentCannot(
                f"without a sandbox agents can read the answers in {repo.root}: {why}",
                hint="install bubblewrap, or accept that with --set sandbox.mode=off",
            )
        copies = find_copies(repo.root, Path.home())
        _refuse_visible(repo.root, own, copies)
        hidden = [*own.sandbox.hide, str(repo.root), str(user_state()), *copies]
        self.given = [f"sandbox.agent_network={str(network).lower()}", *flags]
        self.flags = [*self.given, f"sandbox.hide={msgspec.json.encode(hidden).decode()}"]
        self.config = self.with_settings([])
        self.python = _own_python(repo.root, self.config)
        digests = open_checks(repo.root, self.config, self.targets(repo.root)).tool_digests(repo.root)
        self.tools = {name: digest for name, digest in digests.items() if not name.endswith(BYTE_CODE)}
        _refuse_installed_copy(repo.root, self.targets(repo.root))
        digest = hashlib.sha256(str(repo.root).encode()).hexdigest()[:12]
        self.state = make_private_dir(user_state() / "backtest" / f"{repo.root.name}-{digest}")

    def with_settings(self, settings: Sequence[str]) -> config.Config:
        """Return the configuration of today's checkout with further settings: the history's own is not used."""
        return config.load(self.repo.root, flags=[*self.flags, *settings]).config

    # --- state ---------------------------------------------------------------------------------------------------

    def read(self, kind: str, key: str, type: type[T]) -> T | None:
        try:
            return msgspec.json.decode((self.state / kind / f"{key}.json").read_bytes(), type=type)
        except (OSError, msgspec.MsgspecError):
            return None

    def write(self, kind: str, key: str, value: object) -> None:
        folder = make_private_dir(self.state / kind)
        write_whole(folder / f"{key}.json", msgspec.json.format(msgspec.json.encode(value)))

    def digest(self, *parts: object) -> str:
        return hashlib.sha256(msgspec.json.encode(parts, enc_hook=str)).hexdigest()[:16]

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the right to run trials: two commands would work in the same repositories."""
        with (self.state / "trials.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise EnvironmentCannot(
                    f"another backtest of {self.repo.root} is running", hint="wait for it, or stop it"
                ) from error
            yield

    # --- repositories and tests ------------------------------------------------------------------------------------

    def open_repository(self, commit: str, name: str) -> Repository:
        """Return a repository with the history up to a commit; one of an interrupted trial is used again."""
        place = make_private_dir(self.state / "repositories") / name
        if not place.exists():
            create_repository_at(self.repo.root, commit, place)
        return Repository(root=place, head=commit)

    def remove_repository(self, name: str) -> None:
        remove_folder(self.state / "repositories" / name)

    @contextmanager
    def temporary_repository(self, commit: str) -> Iterator[Repository]:
        name = f"tmp-{secrets.token_hex(4)}"
        try:
            yield self.open_repository(commit, name)
        finally:
            self.remove_repository(name)

    async def run_tests(
        self, repo: Path, commit: str, targets: list[Target], *, prepare: Prepare = lambda _folder: None
    ) -> Report:
        """Run all tests at a commit as a run would: in a workspace with dependencies, and in the sandbox of tests."""
        log = make_private_dir(self.state / "logs") / f"{secrets.token_hex(4)}.log"
        with workspace_at(commit, repo, self.config) as made, self.own_environment(repo):
            sandboxes = Sandboxes(made, sandbox_settings(self.config))
            try:
                await run_blocking(prepare, made.path)
                with confined(sandboxes.for_tests()):
                    return await open_checks(repo, self.config, targets).run(made.path, log=log)
            finally:
                sandboxes.close()
                log.unlink(missing_ok=True)

    def targets(self, repo: Path) -> list[Target]:
        """Return the targets of a repository as it is, not as today's checkout is."""
        with self.own_environment(repo):
            try:
                return find_targets(repo, self.config)
            except UsageError:
                return []

    @contextmanager
    def own_environment(self, repo: Path) -> Iterator[None]:
        """Use the checkout's own virtual environment for another repository, which has none.

        Folders that are installed from the checkout are imported from the repository instead: the installation points
        to a tree that is hidden. A module path that names folders of `repo` follows it into its workspaces.
        """
        if self.python is None:
            yield
            return
        folders = [str(repo / folder) for folder in editable_folders(str(self.python), self.repo.root)]
        path = os.pathsep.join([*folders, *filter(None, [os.environ.get("PYTHONPATH")])])
        with _variables({"VIRTUAL_ENV": str(self.python.parent.parent), **({"PYTHONPATH": path} if path else {})}):
            yield


@contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            os.environ.update({name: value} if value is not None else {})


def _own_python(root: Path, settings: config.Config) -> Path | None:
    """Return the interpreter of a virtual environment inside the checkout, if its tests use one."""
    try:
        commands = [Path(target.command[0]) for target in find_targets(root, settings)]
    except UsageError:
        return None
    return next((path for path in commands if path.is_absolute() and path.is_relative_to(root)), None)


def _refuse_installed_copy(root: Path, targets: Sequence[Target]) -> None:
    for python in {target.command[0] for target in targets if target.language == "python"}:
        if found := installed_copy(python, root):
            raise EnvironmentCannot(
                f"{found} is an installed copy of the project, in which agents could read answers",
                hint="install it with `pip install -e`, or use an environment without it",
            )


def lay_files(folder: Path, files: Mapping[str, bytes | None]) -> None:
    """Write files into a workspace; None deletes one."""
    for path, content in files.items():
        if content is None:
            remove_inside(folder, path)
        else:
            write_inside(folder, path, content)


def _refuse_visible(root: Path, settings: config.Config, copies: Sequence[str]) -> None:
    """Refuse to start where sandboxes must show what holds answers."""
    if settings.sandbox.mode == "off":
        return
    if SOURCE.is_relative_to(root) or str(SOURCE) in copies:
        raise EnvironmentCannot(
            f"agents would see the source of this Ratchet, in {SOURCE}, which may be newer than a task",
            hint="run the backtest with a Ratchet of a version before the tasks, installed elsewhere",
        )
    wanted = settings.workspace
    for place in (user_state(), Path(wanted.bases).absolute() if wanted.bases else bases()):
        if not sandbox_view.is_below(str(place), sandbox_view.masks()):
            raise EnvironmentCannot(
                f"agents would see {place}, which holds answers",
                hint="keep Ratchet's state and cache in a home: see XDG_STATE_HOME, XDG_CACHE_HOME, workspace.bases",
            )
