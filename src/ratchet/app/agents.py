"""The use case of `ratchet agents try`: gives an agent a small task in a scratch repository and checks the result."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ratchet.agents.protocol import (
    Agent,
    AgentRequest,
    Notice,
    SessionStarted,
    ToolCall,
    TurnEvent,
    TurnFinished,
    TurnOutcome,
    UsageReported,
    lent_files,
    open_agent,
)
from ratchet.app.doctor import DoctorCheck
from ratchet.config import Config, WorkspaceConfig
from ratchet.core.receipt import Usage
from ratchet.core.roles import PathRules, Role
from ratchet.errors import EnvironmentCannot
from ratchet.process.spawn import confined, this_process
from ratchet.tree_files import temporary_folder
from ratchet.workspace.from_config import open_workspaces, recipe_of, sandbox_settings
from ratchet.workspace.git.command import git, git_text
from ratchet.workspace.protocol import Workspace, WorkspaceRefused
from ratchet.workspace.sandbox import Sandboxes

TASK = """# Your task
You are being tried out in a scratch repository. Do exactly this and nothing else:
1. create the file hello.txt that holds the one line: hello
2. run this command in your shell: echo ran > ran.txt
Then answer with the one word DONE.
"""
AGAIN = """# Your task
Go on in the same session: create the file again.txt that holds the one line: again
Then answer with the one word DONE.
"""
TIMEOUT_S = 60.0


class RecordedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """One turn: its outcome, its events and the files it wrote."""

    outcome: TurnOutcome
    events: list[TurnEvent]
    files: dict[str, str]

    @property
    def spent(self) -> Usage:
        return sum((event.usage for event in self.events if isinstance(event, UsageReported)), Usage())

    @property
    def session(self) -> str:
        return next((event.session for event in reversed(self.events) if isinstance(event, SessionStarted)), "")


async def try_agent(
    spec: str, config: Config, *, env: dict[str, str], timeout_s: float = TIMEOUT_S
) -> list[DoctorCheck]:
    """Try an agent in a sandboxed workspace, as in a run, and return one check per ability."""
    agent = open_agent(spec)
    with temporary_folder("ratchet-try-") as scratch:
        place = Path(scratch)
        spaces = open_workspaces(_within(config, place))
        workspace = spaces.create(
            "trial", repo=place / "project", commit=_repository(place / "project"), kind=config.workspace.kind,
            on=config.workspace.on, recipe=recipe_of(config, place / "project"), owner=this_process(),
        )  # fmt: skip
        if isinstance(workspace, WorkspaceRefused):
            raise EnvironmentCannot(f"no workspace: {workspace.reason}", hint=workspace.hint)
        sandboxes = Sandboxes(workspace, sandbox_settings(config))
        try:
            one = _Trial(
                agent=agent, workspace=workspace, sandboxes=sandboxes, place=place, env=env, timeout_s=timeout_s
            )
            return await one.look()
        finally:
            sandboxes.close()
            spaces.destroy("trial")


def _within(config: Config, place: Path) -> Config:
    kept = {"root": str(place / "workspaces"), "bases": str(place / "bases")}
    return msgspec.structs.replace(config, workspace=WorkspaceConfig(**msgspec.structs.asdict(config.workspace) | kept))


def _repository(folder: Path) -> str:
    folder.mkdir()
    (folder / "README.md").write_text("A scratch repository.\n")
    git("init", "-q", "-b", "main", ".", cwd=folder)
    git("add", "-A", cwd=folder)
    git("-c", "user.name=ratchet", "-c", "user.email=ratchet@localhost", "commit", "-q", "-m", "start", cwd=folder)
    return git_text("rev-parse", "HEAD", cwd=folder)


class _Trial(msgspec.Struct, frozen=True, kw_only=True):
    agent: Agent
    workspace: Workspace
    sandboxes: Sandboxes
    place: Path
    env: dict[str, str]
    timeout_s: float

    async def look(self) -> list[DoctorCheck]:
        first = await self.turn("first", TASK)
        if not isinstance(first.outcome, TurnFinished) or not first.session:
            return [*_first(first, self.sandboxes), *_resumed(None)]
        return [*_first(first, self.sandboxes), *_resumed(await self.turn("second", AGAIN, session=first.session))]

    async def turn(self, name: str, prompt: str, *, session: str = "") -> RecordedTurn:
        events: list[TurnEvent] = []
        folder, scope = self.workspace.path, PathRules(tests=())
        request = AgentRequest(
            run="trial", item="trial", role=Role.IMPLEMENTER, action="implement", turn=1, key="ik:trial", snapshot="",
            prompt=prompt, inputs={}, folder=folder, log=self.place / f"{name}.log", env=self.env,
            timeout_s=self.timeout_s, session=session, scope=scope, home=self.sandboxes.agent_home(Role.IMPLEMENTER),
        )  # fmt: skip
        with confined(self.sandboxes.for_role(Role.IMPLEMENTER, scope, lent=lent_files(self.agent))):
            outcome = await self.agent.ask(request, events.append)
        names = [name for name in ("hello.txt", "ran.txt", "again.txt") if (folder / name).is_file()]
        files = {name: (folder / name).read_text(errors="replace").strip() for name in names}
        return RecordedTurn(outcome=outcome, events=events, files=files)


def _first(turn: RecordedTurn, sandboxes: Sandboxes) -> Iterator[DoctorCheck]:
    outcome, spent = turn.outcome, turn.spent
    ended = outcome.text.strip()[:80] if isinstance(outcome, TurnFinished) else _failure(outcome)
    yield DoctorCheck(what="answers", ok=isinstance(outcome, TurnFinished), detail=ended or "empty answer")
    yield DoctorCheck(what="edits files", ok=turn.files.get("hello.txt") == "hello", detail="hello.txt")
    yield DoctorCheck(what="runs commands", ok="ran.txt" in turn.files, needed=sandboxes.contains, detail="ran.txt")
    calls = sum(isinstance(event, ToolCall) for event in turn.events)
    yield DoctorCheck(what="reports tool calls", ok=calls > 0, needed=False, detail=f"{calls} tool calls")
    tokens = f"{spent.tokens_in:,} tokens in, {spent.tokens_out:,} out"
    yield DoctorCheck(what="reports tokens", ok=spent.tokens_in > 0, needed=False, detail=tokens)
    cost = f"{spent.cost_usd:.4f} USD" if spent.cost_usd else "no; set `prices` for its model to compute it"
    yield DoctorCheck(what="reports cost", ok=spent.cost_usd > 0, needed=False, detail=cost)
    for event in turn.events:
        if isinstance(event, Notice):
            yield DoctorCheck(what="notice", ok=False, needed=False, detail=event.text)


def _resumed(turn: RecordedTurn | None) -> Iterator[DoctorCheck]:
    worked = turn is not None and isinstance(turn.outcome, TurnFinished) and "again.txt" in turn.files
    detail = "no session to resume" if turn is None else "again.txt" if worked else _failure(turn.outcome)
    yield DoctorCheck(what="resumes a session", ok=worked, needed=False, detail=detail)


def _failure(outcome: TurnOutcome) -> str:
    if isinstance(outcome, TurnFinished):
        return "finished without creating the requested file"
    return f"{getattr(outcome, 'reason', 'cancelled')}: {outcome.detail}"[:200]


def environment(config: Config) -> dict[str, str]:
    names = ["PATH", "HOME", "USER", "LANG", "LC_ALL", "TERM", "TMPDIR", "SHELL", *config.env]
    return {name: os.environ[name] for name in names if name in os.environ}
