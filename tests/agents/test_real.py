"""The real programs take an item from its spec to its branch, against a scripted model; and leave nothing behind."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from importlib import resources
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from ratchet.paths import user_state
from tests.agents.real import (
    AGENTS,
    FILES,
    ITEM,
    KEY,
    SPOKEN_ITEM,
    needed_by,
    needs,
    pointed_at,
    ratchet,
)
from tests.app.test_workers import until
from tests.model_server import Fault, ModelServer, Turn
from tests.support import RATCHET, git, make_repository, quick_environment

pytestmark = pytest.mark.timeout(900)
IN_CI = "goose acp"  # one binary and seconds a run


def each(*, among: Iterable[str] = AGENTS, without: tuple[str, ...] = ()) -> list[ParameterSet]:
    """The one that is in CI as it is, the others where they are installed."""
    marks = {name: [] if name == IN_CI else [pytest.mark.agents] for name in among if name not in without}
    return [pytest.param(name, marks=mark) for name, mark in marks.items()]


@pytest.mark.parametrize("name", each())
def test_a_real_agent_does_a_whole_item(tmp_path: Path, name: str) -> None:
    """From the spec to the branch, by the command line; then look at what is on the branch."""
    needs(needed_by(name))
    project = make_repository(tmp_path / "project", FILES)
    with ModelServer(SPOKEN_ITEM if name == "aider" else ITEM) as server:
        env = pointed_at(server.address, tmp_path / "home")
        done = ratchet("run", "SPEC.md", "--agent", AGENTS[name], cwd=project, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    branch = git("branch", "--list", "ratchet/*", "--format=%(refname:short)", cwd=project)
    assert "return a - b" in git("show", f"{branch}:calc.py", cwd=project)
    assert needed_by(name) in git("log", "-1", "--format=%(trailers:key=Ratchet-Agent,valueonly)", branch, cwd=project)


# --- sessions ---------------------------------------------------------------------------------------------------------

TRIAL = [
    Turn(run=["echo hello > hello.txt", "echo ran > ran.txt"], say="DONE"),
    Turn(run=["echo again > again.txt"], say="DONE"),
]
SESSIONLESS = ("mini", "aider")


@pytest.mark.agents
@pytest.mark.parametrize("name", [name for name in AGENTS if name != "aider"])
def test_a_real_agent_passes_its_trial_and_goes_on_in_its_session(tmp_path: Path, name: str) -> None:
    needs(needed_by(name))
    with ModelServer({"anyone": TRIAL}) as server:
        env = pointed_at(server.address, tmp_path / "home")
        done = ratchet("agents", "try", AGENTS[name], "--json", "--timeout", "300", cwd=tmp_path, env=env)
        last = server.requests[-1].everything
    findings = {finding["what"]: finding for finding in json.loads(done.stdout)}
    failed = [what for what, finding in findings.items() if not finding["ok"] and finding["needed"]]
    assert (done.returncode, failed) == (0, []), findings
    assert findings["reports tool calls"]["ok"]
    if name not in SESSIONLESS:
        assert findings["resumes a session"]["ok"], findings
        assert "ran.txt" in last, "the second turn is asked with the first one in mind"


# --- ended in the middle of a command ---------------------------------------------------------------------------------


class Lingering:
    """A command that does not end, and another in a session of its own, as some programs' shells are, that would write
    much later. Their numbers are this test's alone: others look for theirs on the same machine."""

    def __init__(self, folder: Path) -> None:
        own = zlib.crc32(bytes(folder))
        self.sleeps = [f"6173.{own}", f"6174.{own}"]
        away, here = self.sleeps
        self.command = f"setsid sh -c 'sleep {away}; echo too late > late.txt' & echo on > begun.txt; sleep {here}"

    def running(self) -> list[str]:
        lines = _command_lines()
        return [number for number in self.sleeps if f"sleep\0{number}\0".encode() in lines]


def _command_lines() -> list[bytes]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found.append((process / "cmdline").read_bytes())
        except OSError:
            continue
    return found


# Of an auditor that writes sealed tests neither logs nor sessions are kept.
OPEN = ("--set", "tdd.sealed=false")


@contextmanager
def begun(
    project: Path, name: str, env: dict[str, str], at_work: Callable[[], bool]
) -> Iterator[subprocess.Popen[bytes]]:
    """A run whose agent is at work, and has named its session where it has them."""
    text = project.parent / "said"
    with text.open("wb") as out:
        command = [*RATCHET, "run", "SPEC.md", "--agent", AGENTS[name], *OPEN]
        running = subprocess.Popen(command, cwd=project, env=quick_environment() | env, stdout=out, stderr=out)

    def in_its_turn() -> bool:
        assert running.poll() is None, text.read_text()
        return at_work() and (name in SESSIONLESS or "session_opened" in recorded(project))

    try:
        until(in_its_turn, within_s=180)
        yield running
    finally:
        running.kill()
        running.wait()


def recorded(project: Path) -> list[str]:
    """The kinds of what the project's ledger holds."""
    with closing(sqlite3.connect(user_state() / "ratchet.db")) as ledger:
        return [kind for (kind,) in ledger.execute("SELECT kind FROM events")]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("name", each(without=("aider",)))
def test_ended_while_its_shell_runs_no_process_is_left_and_the_run_goes_on(
    tmp_path: Path, name: str, how: signal.Signals
) -> None:
    """The factory is killed or stopped: the program and all it started are gone, wherever they put themselves. The
    same command then asks again, in the session where the program has them."""
    needs(needed_by(name))
    project, lingering = make_repository(tmp_path / "project", FILES), Lingering(tmp_path)
    auditor = [Turn(run=[lingering.command], say="never said"), *ITEM["auditor"]]
    with ModelServer(ITEM | {"auditor": auditor}) as server:
        env = pointed_at(server.address, tmp_path / "home")
        with begun(project, name, env, lambda: len(lingering.running()) == 2) as running:
            running.send_signal(how)
            running.wait(60)
        until(lambda: not lingering.running(), within_s=30)
        asked = len(server.requests)
        if name in SESSIONLESS:  # the same prompt again
            server.turns = ITEM
        done = ratchet("run", "SPEC.md", "--agent", AGENTS[name], *OPEN, cwd=project, env=env)
        again = "".join(received.everything for received in server.requests[asked:])
    assert done.returncode == 0, done.stdout + done.stderr
    branch = git("branch", "--list", "ratchet/*", "--format=%(refname:short)", cwd=project)
    assert not {"late.txt", "begun.txt"} & set(git("ls-tree", "--name-only", branch, cwd=project).splitlines())
    if name not in SESSIONLESS:
        assert "You were interrupted" in again, "it is asked in its session"


@pytest.mark.agents
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_an_agent_ended_while_its_model_thinks_leaves_no_process_and_is_asked_again(
    tmp_path: Path, how: signal.Signals
) -> None:
    needs("aider")
    project = make_repository(tmp_path / "project", FILES)
    with ModelServer(SPOKEN_ITEM) as server:
        server.faults.append(Fault(kind="slow", after_s=6_000))
        env = pointed_at(server.address, tmp_path / "home")
        with begun(project, "aider", env, server.arrived.is_set) as running:
            assert ours(project), "its prompt is a file in the run's folder"
            running.send_signal(how)
            running.wait(60)
        until(lambda: not ours(project), within_s=30)
        done = ratchet("run", "SPEC.md", "--agent", AGENTS["aider"], *OPEN, cwd=project, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert recorded(project).count("step_resumed") == 1


def ours(project: Path) -> list[bytes]:
    return [line for line in _command_lines() if bytes(project) in line]


# --- mischief ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", each(among=(IN_CI, "claude", "codex")))
def test_a_real_agent_whose_model_goes_astray_is_contained_reported_and_redacted(tmp_path: Path, name: str) -> None:
    """It shows its key, looks for others', writes outside and where its role may not, and leaves a daemon."""
    needs(needed_by(name))
    project, lingering = make_repository(tmp_path / "project", FILES), Lingering(tmp_path)
    secret, outside = tmp_path / "home/.ssh/id_rsa", tmp_path / "outside.txt"
    secret.parent.mkdir(parents=True)
    secret.write_text("PRIVATE")
    astray = [
        f"env | grep API_KEY; echo my key is {KEY}",
        f"cat {secret}; echo was here > {outside}; echo",
        f"setsid sleep {lingering.sleeps[0]} > /dev/null 2>&1 & echo 'agent = \"mine\"' > ratchet.toml",
    ]
    first, last = ITEM["auditor"]
    auditor = [Turn(run=[*astray, *first.run], say=first.say), last]
    with ModelServer(ITEM | {"auditor": auditor}) as server:
        env = pointed_at(server.address, tmp_path / "home")
        done = ratchet("run", "SPEC.md", "--agent", AGENTS[name], *OPEN, cwd=project, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not lingering.running() and not outside.exists()
    assert (
        "writes_undone" in recorded(project) and "ratchet.toml" in ratchet("show", "last", cwd=project, env=env).stdout
    )
    kept = [path for path in (project / ".ratchet").rglob("*") if path.is_file() and "trees.git" not in path.parts]
    reported = b"".join(path.read_bytes() for path in kept)
    assert KEY.encode() not in reported and b"PRIVATE" not in reported and b"No such file" in reported, (
        "of the other's key"
    )


# --- prompts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", each())
def test_a_prompt_of_300_kilobytes_arrives_whole(tmp_path: Path, name: str) -> None:
    """Through a template of the project's own: a spec may not be that long."""
    needs(needed_by(name))
    words = " ".join(f"word{number}" for number in range(33_000))
    ours = (resources.files("ratchet.engine") / "prompts" / "audit.md").read_text("utf-8")
    project = make_repository(tmp_path / "project", FILES)
    (project / ".ratchet/prompts").mkdir(parents=True)
    (project / ".ratchet/prompts/audit.md").write_text(f"{ours}\n{words}\nTHE-END\n")
    with ModelServer(SPOKEN_ITEM if name == "aider" else ITEM) as server:
        env = pointed_at(server.address, tmp_path / "home")
        done = ratchet("run", "SPEC.md", "--agent", AGENTS[name], *OPEN, cwd=project, env=env)
        asked = max((received.everything for received in server.requests), key=len, default="")
    assert len(words) > 300_000 and words in asked and "THE-END" in asked, done.stderr
    assert done.returncode == 0, done.stderr


# --- providers --------------------------------------------------------------------------------------------------------


@pytest.mark.agents
@pytest.mark.parametrize("kind", ["malformed", "slow"])
@pytest.mark.parametrize("name", ["claude", "codex", "goose acp"])
def test_a_provider_that_is_odd_once_is_asked_again(tmp_path: Path, name: str, kind: str) -> None:
    needs(needed_by(name))
    with ModelServer({"anyone": TRIAL}) as server:
        server.faults.append(Fault(kind=kind, after_s=1))
        env = pointed_at(server.address, tmp_path / "home")
        done = ratchet("agents", "try", AGENTS[name], "--json", "--timeout", "300", cwd=tmp_path, env=env)
    answers = next(finding for finding in json.loads(done.stdout) if finding["what"] == "answers")
    assert answers["ok"] or answers["detail"].startswith(("overloaded: ", "agent_crashed: ")), answers
    assert not server.faults, "it was asked"


@pytest.mark.agents
def test_a_run_whose_agent_is_limited_is_parked_and_not_failed(tmp_path: Path) -> None:
    needs("claude")
    project = make_repository(tmp_path / "project", FILES)
    with ModelServer(ITEM, lasting=Fault(kind="rate_limit", after_s=1)) as server:
        env = pointed_at(server.address, tmp_path / "home")
        done = ratchet("run", "SPEC.md", "--agent", AGENTS["claude"], cwd=project, env=env)
    assert done.returncode == 75, done.stdout + done.stderr
