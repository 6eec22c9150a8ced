"""One small task for an agent in a scratch repository, and what of it worked: `ratchet agents try`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ratchet.agents import Agent, Ask, Finished, Noticed, Outcome, Said, SessionOpened, Spent, ToolCall, open_agent
from ratchet.config import Config, WorkspaceConfig
from ratchet.core.receipt import Usage
from ratchet.core.roles import Role, Scope
from ratchet.doctor import Finding
from ratchet.errors import EnvironmentCannot
from ratchet.places import open_workspaces, recipe_of, sandbox_settings
from ratchet.process import confined, this_process
from ratchet.workspace import Refused, Workspace
from ratchet.workspace.git import git, text
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


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """A turn: how it ended, what was said on the way, and the files it left."""

    outcome: Outcome
    said: list[Said]
    files: dict[str, str]

    @property
    def spent(self) -> Usage:
        return sum((said.usage for said in self.said if isinstance(said, Spent)), Usage())

    @property
    def session(self) -> str:
        return next((said.session for said in reversed(self.said) if isinstance(said, SessionOpened)), "")


async def trial(spec: str, config: Config, *, env: dict[str, str], timeout_s: float = TIMEOUT_S) -> list[Finding]:
    """The agent as a run would have it: in a workspace, in the sandbox."""
    agent = open_agent(spec)
    with tempfile.TemporaryDirectory(prefix="ratchet-try-", ignore_cleanup_errors=True) as scratch:
        place = Path(scratch)
        spaces = open_workspaces(_within(config, place))
        workspace = spaces.create(
            "trial", repo=place / "project", commit=_repository(place / "project"), kind=config.workspace.kind,
            on=config.workspace.on, recipe=recipe_of(config, place / "project"), owner=this_process(),
        )  # fmt: skip
        if isinstance(workspace, Refused):
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
    return text("rev-parse", "HEAD", cwd=folder)


class _Trial(msgspec.Struct, frozen=True, kw_only=True):
    agent: Agent
    workspace: Workspace
    sandboxes: Sandboxes
    place: Path
    env: dict[str, str]
    timeout_s: float

    async def look(self) -> list[Finding]:
        first = await self.turn("first", TASK)
        if not isinstance(first.outcome, Finished) or not first.session:
            return [*_first(first, self.sandboxes), *_resumed(None)]
        return [*_first(first, self.sandboxes), *_resumed(await self.turn("second", AGAIN, session=first.session))]

    async def turn(self, name: str, prompt: str, *, session: str = "") -> Heard:
        said: list[Said] = []
        folder, scope = self.workspace.path, Scope(tests=())
        ask = Ask(
            run="trial", item="trial", role=Role.IMPLEMENTER, action="implement", turn=1, key="ik:trial", snapshot="",
            prompt=prompt, inputs={}, folder=folder, log=self.place / f"{name}.log", env=self.env,
            timeout_s=self.timeout_s, session=session, scope=scope,
        )  # fmt: skip
        with confined(self.sandboxes.for_role(Role.IMPLEMENTER, scope)):
            outcome = await self.agent.ask(ask, said.append)
        names = [name for name in ("hello.txt", "ran.txt", "again.txt") if (folder / name).is_file()]
        files = {name: (folder / name).read_text(errors="replace").strip() for name in names}
        return Heard(outcome=outcome, said=said, files=files)


def _first(heard: Heard, sandboxes: Sandboxes) -> Iterator[Finding]:
    outcome, spent = heard.outcome, heard.spent
    ended = outcome.text.strip()[:80] if isinstance(outcome, Finished) else _failure(outcome)
    yield Finding(what="answers", ok=isinstance(outcome, Finished), detail=ended or "nothing")
    yield Finding(what="edits files", ok=heard.files.get("hello.txt") == "hello", detail="hello.txt")
    yield Finding(what="runs commands", ok="ran.txt" in heard.files, needed=bool(sandboxes.bwrap), detail="ran.txt")
    calls = sum(isinstance(said, ToolCall) for said in heard.said)
    yield Finding(what="tells what it does", ok=calls > 0, needed=False, detail=f"{calls} tool calls")
    tokens = f"{spent.tokens_in:,} tokens in, {spent.tokens_out:,} out"
    yield Finding(what="counts tokens", ok=spent.tokens_in > 0, needed=False, detail=tokens)
    cost = f"{spent.cost_usd:.4f} USD" if spent.cost_usd else "no; set `prices` for its model to have it counted"
    yield Finding(what="says what it cost", ok=spent.cost_usd > 0, needed=False, detail=cost)
    for said in heard.said:
        if isinstance(said, Noticed):
            yield Finding(what="notice", ok=False, needed=False, detail=said.text)


def _resumed(heard: Heard | None) -> Iterator[Finding]:
    worked = heard is not None and isinstance(heard.outcome, Finished) and "again.txt" in heard.files
    detail = "no session to resume" if heard is None else "again.txt" if worked else _failure(heard.outcome)
    yield Finding(what="resumes a session", ok=worked, needed=False, detail=detail)


def _failure(outcome: Outcome) -> str:
    if isinstance(outcome, Finished):
        return "it ended well, without the file it was asked for"
    return f"{getattr(outcome, 'reason', 'cancelled')}: {outcome.detail}"[:200]


def environment(config: Config) -> dict[str, str]:
    names = ["PATH", "HOME", "USER", "LANG", "LC_ALL", "TERM", "TMPDIR", "SHELL", *config.env]
    return {name: os.environ[name] for name in names if name in os.environ}
