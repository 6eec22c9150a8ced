"""A machine with secrets and neighbours around a workspace, and three places from which an attempt can be made."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from ratchet.app.test_workspaces import WorkspaceService
from ratchet.config import Config, ContainersConfig, SandboxConfig, WorkspaceConfig
from ratchet.core.api.test_workspaces import CreateRequest, ExecRequest
from ratchet.core.learning import Learning
from ratchet.core.roles import PathRules, Role
from ratchet.process.spawn import Confinement, confined
from ratchet.process.supervise import supervise
from ratchet.workspace.from_config import open_workspaces, sandbox_settings
from ratchet.workspace.git_workspace import GitWorkspace
from ratchet.workspace.sandbox import Sandboxes, why_no_sandbox

PLACES = ["agent", "test", "exec"]
KINDS = [*(["overlay"] if os.geteuid() == 0 else ["overlay-userns"]), "copy", "worktree"]
SECRET = "the-secret-of-somebody-else"
# Files that an agent on this machine has no business with. Each holds SECRET.
SECRETS = (
    "home/.env", "home/.bash_history", "home/.pgpass", "home/.netrc", "home/.git-credentials", "home/.ssh/id_ed25519",
    "home/.aws/credentials", "home/.cargo/credentials.toml", "home/.config/rclone/rclone.conf",
    "home/.docker/config.json",
    "home/.claude.json", "home/.claude/projects/other/session.jsonl", "home/.codex/history.jsonl", "home/other/.env",
    "home/other/.ratchet/ratchet.db", "home/.local/state/ratchet/server-token", "home/.local/state/ratchet/ratchet.db",
    "project/.env", "project/.env.local", "project/.ratchet/ratchet.db", "project/.ratchet/runs/run-1/history.md",
)  # fmt: skip


def git(*argv: str, cwd: Path) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    done = subprocess.run(["git", *who, *argv], cwd=cwd, capture_output=True, check=True)
    return done.stdout.decode().strip()


class Machine:
    """`outside` is everything that an attempt may not change; `attempt` runs a script in the workspace."""

    def __init__(self, top: Path, kind: str, place: str, containers: ContainersConfig | None = None) -> None:
        self.top, self.kind, self.place = top, kind, place
        self.project, self.outside = top / "project", top / "outside"
        self.config = Config(
            workspace=WorkspaceConfig(kind=kind, root=str(top / "workspaces"), bases=str(top / "bases")),
            sandbox=SandboxConfig(mode="on", memory_mb=512, tmp_mb=32, max_processes=64),
            containers=containers or ContainersConfig(),
        )
        self._fill()
        self.spaces = open_workspaces(self.config)
        self.service = WorkspaceService(self.config, learn=_learn_nothing)
        self._slug = "attempt" if place != "exec" else self._test_workspace()
        self.workspace = self._made() if place != "exec" else self.service.workspaces.open(self._slug)
        self.sandboxes = Sandboxes(self.workspace, sandbox_settings(self.config))

    def _fill(self) -> None:
        for name in SECRETS:
            (self.top / name).parent.mkdir(parents=True, exist_ok=True)
            (self.top / name).write_text(SECRET)
        for name in ("poetry.lock", "index.lock", "data.txt", "folder/inner.txt"):
            (self.outside / name).parent.mkdir(parents=True, exist_ok=True)
            (self.outside / name).write_text("untouched\n")
        (self.project / "tools").mkdir()
        (self.project / "tests").mkdir()
        (self.project / "lib").mkdir()
        (self.project / "tools/strip.py").write_text("import sys\nsys.stdout.write(sys.stdin.read())\n")
        (self.project / "tests/test_app.py").write_text("def test_one():\n    assert True\n")
        (self.project / "lib/app.py").write_text("VALUE = 1\n")
        (self.project / "data.strip").write_text("content\n")
        (self.project / ".gitattributes").write_text("*.strip filter=strip\n")
        (self.project / ".gitignore").write_text(".env*\n.ratchet/\n")
        git("init", "-q", "-b", "main", cwd=self.project)
        git("config", "filter.strip.clean", "python3 tools/strip.py", cwd=self.project)
        git("config", "filter.strip.smudge", "python3 tools/strip.py", cwd=self.project)
        git("config", "extensions.worktreeConfig", "true", cwd=self.project)
        git("add", "-A", cwd=self.project)
        git("commit", "-q", "-m", "start", cwd=self.project)

    def _made(self) -> GitWorkspace:
        commit = git("rev-parse", "HEAD", cwd=self.project)
        made = self.spaces.create(self._slug, repo=self.project, commit=commit, kind=self.kind)
        assert isinstance(made, GitWorkspace), made
        return made

    def _test_workspace(self) -> str:
        return asyncio.run(self.service.create(CreateRequest(path=str(self.project)))).id

    # --- attempts ----------------------------------------------------------------------------------------------------

    def attempt(self, script: str, *, timeout_s: float = 30.0) -> str:
        """Run a script as an agent's step, as a test, or by a test workspace's `exec`; returns what it printed."""
        script = f"OUTSIDE='{self.outside}'; PROJECT='{self.project}'; TOP='{self.top}'\n{script}"
        if self.place == "exec":
            request = ExecRequest(argv=["sh", "-c", script], timeout_s=timeout_s)
            done = asyncio.run(self.service.exec(self._slug, request))
            return done.stdout + done.stderr
        return self._supervised(self.confinement(), script, timeout_s)

    def confinement(self) -> Confinement | None:
        scope = PathRules(tests=("tests/**",))
        return self.sandboxes.for_role(Role.IMPLEMENTER, scope) if self.place == "agent" else self.sandboxes.for_tests()

    def _supervised(self, by: Confinement | None, script: str, timeout_s: float) -> str:
        log = self.top / "log"
        log.unlink(missing_ok=True)

        async def run() -> None:
            env = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
            with confined(by):
                await supervise(
                    ["sh", "-c", script], cwd=self.workspace.path, env=env, output=log, timeout_s=timeout_s, grace_s=1
                )

        asyncio.run(run())
        return log.read_text(errors="replace")

    # --- what must hold afterwards -----------------------------------------------------------------------------------

    def fingerprint(self) -> dict[str, str]:
        """Return path, kind and content of everything outside: homes, projects, git directories, bases."""
        found: dict[str, str] = {}
        for name in ("home", "outside", "project", "bases"):
            for root, folders, files in os.walk(self.top / name):
                folders[:] = [each for each in folders if not (each == "ratchet" and name == "home")]
                for each in files:
                    path = Path(root) / each
                    if not _changes_by_itself(path.relative_to(self.top).as_posix()):
                        found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "other"
        return found

    def factory_goes_on(self) -> None:
        """Do what the factory does after a step, then run the next step."""
        base = self.workspace.record.base_tree
        tree = self.workspace.checkpoint()
        self.workspace.diff(base, tree)
        head = git("rev-parse", "HEAD", cwd=self.project)
        self.workspace.unlock()
        self.workspace.follow(head)
        if tests := [path for path in self.workspace.changes(base, tree) if "tests/" in path]:
            self.workspace.restore(tests, base)
        self.workspace.reset(base)
        assert self.workspace.checkpoint() == base
        assert "still fine" in self.attempt("echo still fine")

    def commit(self) -> str:
        return self.workspace.commit(
            tree=self.workspace.settle(), message="an agent's work", at="2026-01-01T00:00:00Z",
            parent=git("rev-parse", "HEAD", cwd=self.project),
        )  # fmt: skip

    def close(self) -> None:
        self.sandboxes.close()
        if self.place == "exec":
            asyncio.run(self.service.destroy(self._slug))
        else:
            self.spaces.destroy(self._slug)


def _changes_by_itself(path: str) -> bool:
    """What the factory writes for every workspace: objects, branches, registrations, its tree store, marks of use."""
    ours = ("project/.git/objects/", "project/.git/worktrees/", "project/.git/refs/", "project/.git/logs/",
            "project/.ratchet/trees.git", "project/.ratchet/.gitignore")  # fmt: skip
    return path.startswith(ours) or "/users/" in path or (path.endswith((".lock", "/base.json")) and "bases/" in path)


def _learn_nothing(request: object) -> Learning:
    raise AssertionError(msgspec.json.encode(request))


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Machine]]:
    if why := why_no_sandbox():
        pytest.skip(why)
    for name in [name for name in os.environ if name.startswith("XDG_")]:
        monkeypatch.delenv(name)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
    made: list[Machine] = []

    def make(kind: str, place: str, containers: ContainersConfig | None = None) -> Machine:
        made.append(Machine(tmp_path, kind, place, containers))
        return made[-1]

    yield make
    for machine in made:
        machine.close()
