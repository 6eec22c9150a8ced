"""What is asked and answered of test workspaces: one definition for HTTP, MCP and their descriptions."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ratchet.core.api import Ask, Name, Path, Text
from ratchet.core.compare import Delta
from ratchet.core.report import Report

PATCH_MAX_CHARS = 900_000  # with the rest of its request below a megabyte
TTL_MAX_S = 604_800.0
TIMEOUT_MAX_S = 3_600.0

Content = Annotated[str, msgspec.Meta(max_length=PATCH_MAX_CHARS)]
Timeout = Annotated[float, msgspec.Meta(gt=0, le=TIMEOUT_MAX_S, description="Stop it after so many seconds.")]
Word = Annotated[str, msgspec.Meta(max_length=100_000, pattern=r"^[^\u0000]*$")]


class Create(Ask, frozen=True, kw_only=True):
    """A private copy of a repository to try things out in. Exactly one of `path` and `repo` says of which."""

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
        float, msgspec.Meta(gt=0, le=TTL_MAX_S, description="It is removed when unused for so many seconds.")
    ] = 3_600.0

    def __post_init__(self) -> None:
        if bool(self.path) == bool(self.repo):
            raise ValueError("give exactly one of `path` and `repo`")
        if self.with_changes and (self.repo or self.ref):
            raise ValueError("`with_changes` goes with a `path`, and not with a `ref`")


class Exec(Ask, frozen=True, kw_only=True):
    """A command, or a patch to apply. Exactly one of them."""

    argv: Annotated[
        list[Word], msgspec.Meta(max_length=1_000, description='Program and arguments: ["ls", "-la"]. No shell.')
    ] = msgspec.field(default_factory=list)
    patch: Annotated[Content, msgspec.Meta(description="A unified diff, as `git apply` takes it.")] = ""
    timeout_s: Timeout = 600.0

    def __post_init__(self) -> None:
        if bool(self.argv) == bool(self.patch):
            raise ValueError("give exactly one of `argv` and `patch`")


class Test(Ask, frozen=True, kw_only=True):
    """Run the tests: all, those named by their ids, or what failed last."""

    select: Annotated[
        list[Path], msgspec.Meta(max_length=1_000, description="Ids of tests as a report names them, or test files.")
    ] = msgspec.field(default_factory=list)
    failed: Annotated[bool, msgspec.Meta(description="Only what failed last time.")] = False
    timeout_s: Timeout = 600.0


class Write(Ask, frozen=True, kw_only=True):
    path: Annotated[Path, msgspec.Meta(description="Where in the workspace, relative to its top: src/app.py.")]
    content: Annotated[Content, msgspec.Meta(description="All of the file; what was there is replaced.")]


class Conclude(Ask, frozen=True, kw_only=True):
    """What it came to, in your words; what changed and which failures went away is added."""

    summary: Annotated[Text, msgspec.Meta(description="What was wrong and what mended it, in a few sentences.")] = ""
    run: Annotated[Name, msgspec.Meta(description="The run this was done for, if for any.")] = ""


class ArtifactAsk(Ask, frozen=True, kw_only=True):
    name: Annotated[str, msgspec.Meta(pattern=r"^[a-z]+-[0-9]{4}\.[a-z]{2,6}$", max_length=40)]
    offset: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0


class WatchAsk(Ask, frozen=True, kw_only=True):
    """Of which folder; the server's own when empty."""

    path: Annotated[str, msgspec.Meta(max_length=1_000, pattern=r"^[^\u0000]*$")] = ""


# --- answers ------------------------------------------------------------------------------------------------------


class TestWorkspace(msgspec.Struct, frozen=True, kw_only=True):
    """`path` is its content, for whoever can see this machine's files. `inside` is the folder asked for, from its top.
    Every use puts `expires_at` off by `ttl_s`. `failed_once` are tests that were seen red in it."""

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


class Executed(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended; `exit_code` is negative for a signal, 127 when there is no such program. Where `cut`, the
    texts are the ends of what was said, and all of it is in the artifacts named. `stopped`: timeout or output."""

    exit_code: int
    stdout: str
    stderr: str
    duration_s: float
    stopped: str = ""
    cut: bool = False
    stdout_artifact: str = ""
    stderr_artifact: str = ""


class Tested(msgspec.Struct, frozen=True, kw_only=True):
    """`packet` is the report in a page, made for whoever has to mend it; `delta` compares with the run before."""

    report: Report
    packet: str
    delta: Delta | None = None
    flaky: list[str] = []
    report_artifact: str = ""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Against how the workspace began."""

    paths: list[str]
    diff: str
    cut: bool = False


class Written(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    size: int


class Concluded(msgspec.Struct, frozen=True, kw_only=True):
    """`fixed` were red in this workspace and are green in its last test run; `still_failing` are red in it."""

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


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of an artifact; the next begins at `next_offset`, 0 when this was the last."""

    name: str
    size: int
    text: str
    next_offset: int = 0


def lesson_of(told: Concluded) -> str:
    """A report as a candidate for a learning."""
    rows = [
        told.summary or "A change was tried out in a test workspace.",
        f"Changed: {', '.join(told.changed[:20]) or 'nothing'}.",
        f"Failures that went away: {', '.join(told.fixed[:20]) or 'none'}.",
    ]
    if told.still_failing:
        rows.append(f"Still failing: {', '.join(told.still_failing[:20])}.")
    return "\n".join(rows)[:10_000]
