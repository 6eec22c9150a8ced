"""Requests and responses of test workspaces: one definition for HTTP and MCP."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ratchet.core.api import Name, Path, Request, Text
from ratchet.core.compare import Delta
from ratchet.core.report import Report

PATCH_MAX_CHARS = 900_000  # with the rest of its request below a megabyte
TTL_MAX_S = 604_800.0
TIMEOUT_MAX_S = 3_600.0

Content = Annotated[str, msgspec.Meta(max_length=PATCH_MAX_CHARS)]
Timeout = Annotated[float, msgspec.Meta(gt=0, le=TIMEOUT_MAX_S, description="Stop it after this many seconds.")]
Word = Annotated[str, msgspec.Meta(max_length=100_000, pattern=r"^[^\u0000]*$")]


class CreateRequest(Request, frozen=True, kw_only=True):
    """Create a private copy of a repository. Exactly one of `path` and `repo` names the repository."""

    path: Annotated[
        str, msgspec.Meta(max_length=1_000, description="A folder in a git repository on this machine, absolute.")
    ] = ""
    repo: Annotated[
        str, msgspec.Meta(max_length=1_000, description="A repository that is elsewhere: a git URL, or owner/name.")
    ] = ""
    ref: Annotated[
        str,
        msgspec.Meta(max_length=200, description="Commit, branch or tag to start from; what is checked out if empty."),
    ] = ""
    with_changes: Annotated[
        bool, msgspec.Meta(description="Lay the uncommitted changes of `path` on top, untracked files included.")
    ] = False
    ttl_s: Annotated[
        float, msgspec.Meta(gt=0, le=TTL_MAX_S, description="Removed after this many seconds without use.")
    ] = 3_600.0

    def __post_init__(self) -> None:
        if bool(self.path) == bool(self.repo):
            raise ValueError("give exactly one of `path` and `repo`")
        if self.with_changes and (self.repo or self.ref):
            raise ValueError("`with_changes` goes with a `path`, and not with a `ref`")


class ExecRequest(Request, frozen=True, kw_only=True):
    """A command, or a patch to apply. Exactly one of them."""

    argv: Annotated[
        list[Word], msgspec.Meta(max_length=1_000, description='Program and arguments: ["ls", "-la"]. No shell.')
    ] = msgspec.field(default_factory=list)
    patch: Annotated[Content, msgspec.Meta(description="A unified diff, as `git apply` takes it.")] = ""
    timeout_s: Timeout = 600.0

    def __post_init__(self) -> None:
        if bool(self.argv) == bool(self.patch):
            raise ValueError("give exactly one of `argv` and `patch`")


class TestRequest(Request, frozen=True, kw_only=True):
    """Run the tests: all, those with the given ids, or those that failed last."""

    select: Annotated[
        list[Path], msgspec.Meta(max_length=1_000, description="Ids of tests as a report names them, or test files.")
    ] = msgspec.field(default_factory=list)
    failed: Annotated[bool, msgspec.Meta(description="Only what failed last time.")] = False
    timeout_s: Timeout = 600.0


class WriteRequest(Request, frozen=True, kw_only=True):
    path: Annotated[Path, msgspec.Meta(description="Where in the workspace, relative to its top: src/app.py.")]
    content: Annotated[Content, msgspec.Meta(description="All of the file; what was there is replaced.")]


class ConcludeRequest(Request, frozen=True, kw_only=True):
    """A summary of the result in your words; the changes and the fixed failures are added."""

    summary: Annotated[Text, msgspec.Meta(description="What was wrong and what mended it, in a few sentences.")] = ""
    run: Annotated[Name, msgspec.Meta(description="The run this was done for, if for any.")] = ""


class ArtifactQuery(Request, frozen=True, kw_only=True):
    name: Annotated[str, msgspec.Meta(pattern=r"^[a-z]+-[0-9]{4}\.[a-z]{2,6}$", max_length=40)]
    offset: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0


class WatchQuery(Request, frozen=True, kw_only=True):
    """The watched folder; if empty, the server's own."""

    path: Annotated[str, msgspec.Meta(max_length=1_000, pattern=r"^[^\u0000]*$")] = ""


# --- responses ------------------------------------------------------------------------------------------------------


class TestWorkspace(msgspec.Struct, frozen=True, kw_only=True):
    """`path` is the content, for clients on this machine. `inside` is the requested folder, relative to the top. Every
    use extends `expires_at` by `ttl_s`. `failed_once` are tests that have failed in this workspace."""

    id: str
    repo: str
    source: str
    commit: str
    path: str
    inside: str = ""
    with_changes: bool = False
    ttl_s: float
    created_at: str
    expires_at: str
    start_tree: str = ""
    calls: int = 0
    tests: int = 0
    failed_once: list[str] = []
    artifacts: list[str] = []


class TestWorkspaceList(msgspec.Struct, frozen=True, kw_only=True):
    workspaces: list[TestWorkspace]


class ExecResponse(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended. `exit_code` is negative for a signal, 127 if the program does not exist. `cut`: the texts
    are the ends of the output, and the named artifacts have all of it. `stopped`: a timeout, too much output,
    or another limit."""

    exit_code: int
    stdout: str
    stderr: str
    duration_s: float
    stopped: str = ""
    cut: bool = False
    stdout_artifact: str = ""
    stderr_artifact: str = ""


class TestResponse(msgspec.Struct, frozen=True, kw_only=True):
    """`packet` is the report on one page, for an agent; `delta` compares it with the run before."""

    report: Report
    packet: str
    delta: Delta | None = None
    flaky: list[str] = []
    report_artifact: str = ""


class WorkspaceDiff(msgspec.Struct, frozen=True, kw_only=True):
    """The changes since the workspace was created."""

    paths: list[str]
    diff: str
    cut: bool = False


class WriteResponse(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    size: int


class ConcludeResponse(msgspec.Struct, frozen=True, kw_only=True):
    """`fixed` have failed in this workspace and pass in its last test run; `still_failing` fail in it."""

    workspace: str
    repo: str
    commit: str
    run: str
    summary: str
    changed: list[str]
    fixed: list[str]
    still_failing: list[str]
    diff: str
    at: str
    artifact: str
    learning: str = ""


class ArtifactChunk(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an artifact; the next one begins at `next_offset`, which is 0 for the last part."""

    name: str
    size: int
    text: str
    next_offset: int = 0


def to_learning(conclusion: ConcludeResponse) -> str:
    """Return a candidate for a learning from the conclusion."""
    rows = [
        conclusion.summary or "A change was tried out in a test workspace.",
        f"Changed: {', '.join(conclusion.changed[:20]) or 'nothing'}.",
        f"Failures that went away: {', '.join(conclusion.fixed[:20]) or 'none'}.",
    ]
    if conclusion.still_failing:
        rows.append(f"Still failing: {', '.join(conclusion.still_failing[:20])}.")
    return "\n".join(rows)[:10_000]
