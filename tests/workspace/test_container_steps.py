"""Steps in containers of a real engine: like steps elsewhere, and with nothing of this machine in reach."""

from __future__ import annotations

import asyncio
import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from ratchet.config import Config, ContainersConfig, WorkspaceConfig
from ratchet.core.roles import PathRules, Role
from ratchet.errors import EnvironmentCannot
from ratchet.process import containers
from ratchet.process.container_step import LABEL
from ratchet.process.containers import ContainerSpec, unused_ids
from ratchet.process.spawn import Confinement, ConfinementFailed, ProcessResult, confined, this_process
from ratchet.process.supervise import supervise
from ratchet.workspace.base_cache import SetupFailed
from ratchet.workspace.container_steps import inner_environment, remove_all_abandoned
from ratchet.workspace.from_config import open_workspaces, recipe_of, sandbox_settings
from ratchet.workspace.git_workspace import GitWorkspace
from ratchet.workspace.sandbox import Sandboxes
from tests import podman as engines
from tests.podman import IMAGE, Podman
from tests.workspace.conftest import commit_all, sh

LIMIT_MB = 128


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    with engines.podman() as started:
        yield started


class Steps:
    """A workspace of the kind `container` and the confinements of its steps."""

    def __init__(
        self, podman: Podman, repo: Path, slug: str = "one", set_up: Sequence[str] = (), **containers: object
    ) -> None:
        top = repo.parent
        mounts = [mount for mount in engines.mounts() if mount.startswith("/usr")]
        bounds = {"engine": podman.address, "image": IMAGE, "memory_mb": LIMIT_MB, "max_processes": 64, "tmp_mb": 16}
        self.config = Config(
            workspace=WorkspaceConfig(
                kind="container", setup=list(set_up), root=str(top / "ws"), bases=str(top / "bases")
            ),
            containers=ContainersConfig(**bounds | {"mounts": mounts} | containers),  # type: ignore[arg-type]
        )
        self.podman, self.spaces, self.log = podman, open_workspaces(self.config), top / "log"
        commit, recipe = sh("git", "rev-parse", "HEAD", cwd=repo), recipe_of(self.config, repo)
        made = self.spaces.create(slug, repo=repo, commit=commit, kind="container", recipe=recipe)
        assert isinstance(made, GitWorkspace)
        self.workspace = made
        self.sandboxes = Sandboxes(made, sandbox_settings(self.config))

    def run(self, script: str, by: Confinement | None = None, **how: object) -> tuple[int, str]:
        ended, text = self.result(["sh", "-c", script], by, **how)
        return ended.exit_code, text

    def result(self, argv: list[str], by: Confinement | None = None, **how: object) -> tuple[ProcessResult, str]:
        self.log.unlink(missing_ok=True)

        async def run() -> ProcessResult:
            with confined(by or self.sandboxes.for_tests()):
                more = {"timeout_s": 60.0, "env": {"PATH": os.environ["PATH"]}} | how
                return await supervise(argv, cwd=self.workspace.path, output=self.log, **more)  # type: ignore[arg-type]

        ended = asyncio.run(run())
        return ended, self.log.read_text(errors="replace")

    @property
    def left(self) -> list[str]:
        return [row.name for row in self.podman.engine.containers(LABEL)]


@pytest.fixture
def steps(podman: Podman, repo: Path) -> Steps:
    return Steps(podman, repo)


def test_a_step_has_input_output_folder_and_exit_code_as_outside(steps: Steps) -> None:
    reported = steps.run("cat; pwd; echo err >&2; cat src/app.py; exit 7", stdin=b"fed\n" * 50_000)
    assert reported == (7, "fed\n" * 50_000 + f"{steps.workspace.path}\nerr\nVALUE = 1\n")
    assert steps.left == []


def test_a_step_is_not_root_and_writes_only_the_workspace_and_its_temporary_folder(steps: Steps) -> None:
    before = steps.workspace.checkpoint()
    writes = (
        "echo made > made; rm src/app.py; echo x >/tmp/x && cat /tmp/x; "
        "for d in / /usr /etc /run; do echo x >$d/x; done"
    )
    _, text = steps.run(
        f"id -u; ({writes}) 2>/dev/null; tail -n +3 /proc/net/dev | cut -d: -f1; "
        "grep -E 'CapEff|NoNewPrivs' /proc/self/status"
    )
    assert text.split() == [str(unused_ids()[0]), "x", "lo", "CapEff:", "0000000000000000", "NoNewPrivs:", "1"]
    assert steps.workspace.changes(before, steps.workspace.checkpoint()) == ["made", "src/app.py"]
    steps.workspace.reset(before)
    assert steps.run("cat src/app.py; echo again > src/app.py; git status --porcelain") == (
        0,
        "VALUE = 1\n M src/app.py\n",
    )


@pytest.mark.engines
def test_a_role_writes_only_what_it_may(steps: Steps) -> None:
    reviewer = steps.sandboxes.for_role(Role.REVIEWER, PathRules(tests=()))
    assert steps.run("echo x > made", reviewer)[0] != 0
    writer = steps.sandboxes.for_role(Role.IMPLEMENTER, PathRules(tests=(), protected=("src/**",)))
    assert steps.run("echo x > src/app.py", writer)[0] != 0
    assert steps.run("echo kept > ~/note; echo x > made", writer)[0] == 0
    assert steps.run("cat ~/note", writer) == (0, "kept\n")


@pytest.mark.engines
def test_an_agent_reads_the_login_that_is_lent_and_nothing_else_of_the_home(
    steps: Steps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir()
    for name in (".login", ".secret"):
        (tmp_path / "home" / name).write_text("of the user\n")
        (tmp_path / "home" / name).chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    agent = steps.sandboxes.for_role(Role.IMPLEMENTER, PathRules(tests=()), lent=[".login"])
    code, text = steps.run(f"cat ~/.login; cat ~/.secret {tmp_path}/home/.secret; ls {tmp_path}/home", agent)
    assert code != 0 and text.count("of the user") == 1


@pytest.mark.engines
def test_the_interpreter_of_this_machine_is_replaced_by_that_of_the_image(steps: Steps) -> None:
    code = "import os, sys; print(sys.executable, os.environ.get('THEIRS'), os.environ['OURS'])"
    env = {"PATH": os.environ["PATH"], "THEIRS": str(Path.home()), "OURS": "/nowhere/at all"}
    ended, text = steps.result([sys.executable, "-c", code], env=env)
    assert (ended.exit_code, text) == (0, "/usr/bin/python3 None /nowhere/at all\n")


def test_an_environment_keeps_the_paths_that_are_shown(tmp_path: Path) -> None:
    env = {
        "PATH": f"{tmp_path}/bin:/usr/bin",
        "PYTHONPATH": f"{tmp_path}:/usr",
        "KEY": "/abc+/=",
        "VIRTUAL_ENV": "/usr",
    }
    wanted = {"PATH": f"{tmp_path}/bin:/image", "PYTHONPATH": str(tmp_path), "KEY": "/abc+/="}
    assert inner_environment(env, [str(tmp_path)], "/image").items() >= wanted.items()
    assert "VIRTUAL_ENV" not in inner_environment(env, [str(tmp_path)], "/image")


@pytest.mark.engines
def test_a_missing_program_is_an_exit_code(steps: Steps) -> None:
    ended, text = steps.result(["no-such-program"])
    assert ended.exit_code == 127 and "no-such-program" in text


@pytest.mark.engines
def test_a_deadline_ends_all_processes_and_the_container(steps: Steps) -> None:
    began = time.monotonic()
    ended, _ = steps.result(["sh", "-c", "trap '' TERM; setsid sleep 600 & sleep 600"], timeout_s=4.0, grace_s=1.0)
    assert ended.timed_out and time.monotonic() - began < 15
    assert steps.left == []


@pytest.mark.engines
def test_a_process_that_defends_itself_against_the_end_is_ended(steps: Steps) -> None:
    kills = "for p in /proc/[0-9]*; do n=${p#/proc/}; [ $n -gt 1 ] && [ $n != $$ ] && kill -9 $n; done"
    script = f"{kills}; trap '' TERM; while :; do :; done"
    assert steps.result(["sh", "-c", script], timeout_s=4.0, grace_s=1.0)[0].timed_out
    assert steps.left == []


@pytest.mark.engines
def test_memory_is_bounded_and_the_step_says_so(steps: Steps) -> None:
    code, text = steps.run(f"/usr/bin/python3 -c 'x = bytearray({4 * LIMIT_MB} << 20)'; exit 5")
    assert code == 5 and f"out of memory (containers.memory_mb is {LIMIT_MB})" in text


@pytest.mark.engines
def test_sigint_reaches_a_program_as_a_keyboard_interrupt(steps: Steps) -> None:
    ended, text = steps.result([sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGINT)"])
    assert ended.exit_code == 128 + signal.SIGINT and "KeyboardInterrupt" in text


@pytest.mark.engines
def test_a_step_whose_engine_was_killed_has_no_result(steps: Steps) -> None:
    async def run() -> ProcessResult:
        with confined(steps.sandboxes.for_tests()):
            script = "echo first; sleep 600; exit 0"
            env, place = {"PATH": os.environ["PATH"]}, steps.workspace.path
            step = asyncio.ensure_future(
                supervise(["sh", "-c", script], cwd=place, env=env, output=steps.log, timeout_s=60)
            )
            await until(lambda: steps.log.exists() and b"first" in steps.log.read_bytes())
            steps.podman.kill()
            ended = await step
            steps.podman.start()
            return ended

    with pytest.raises(EnvironmentCannot, match="not known how the step ended"):
        asyncio.run(run())
    assert steps.run("true")[0] == 0
    assert steps.left == []


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 — of another process
            await asyncio.sleep(0.02)


WORKER = """
from tests.workspace.test_container_steps import *
config = msgspec.json.decode(sys.argv[1], type=Config)
workspace = open_workspaces(config).open("one")
with confined(Sandboxes(workspace, sandbox_settings(config)).for_tests()):
    asyncio.run(supervise(["sh", "-c", "echo begun > begun; sleep 600"], cwd=workspace.path, env=dict(os.environ),
                          output=Path(sys.argv[2]), timeout_s=600))
"""


@pytest.mark.engines
def test_a_container_whose_worker_was_killed_ends_and_is_removed_by_the_next(steps: Steps) -> None:
    argv = [sys.executable, "-c", WORKER, msgspec.json.encode(steps.config).decode(), str(steps.log)]
    with subprocess.Popen(argv, cwd=engines.ROOT) as worker:
        asyncio.run(until((steps.workspace.path / "begun").exists))
        assert len(steps.left) == 1
        worker.send_signal(signal.SIGKILL)
    (name,) = steps.left
    asyncio.run(until(lambda: not getattr(steps.podman.engine.state(name), "running", False)))
    Sandboxes(steps.workspace, sandbox_settings(steps.config))
    assert steps.left == []


def test_without_image_or_engine_the_error_says_what_to_do(podman: Podman, repo: Path, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentCannot, match="has no image localhost/none") as refused:
        Steps(podman, repo, image="localhost/none")
    assert "ratchet image --build" in (refused.value.hint or "")


@pytest.mark.engines
def test_a_container_that_cannot_start_is_no_result_of_the_step(podman: Podman, repo: Path) -> None:
    with pytest.raises(ConfinementFailed, match="sh"):
        Steps(podman, repo, mounts=[]).run("true")


@pytest.mark.engines
def test_set_up_commands_run_in_the_image(podman: Podman, repo: Path) -> None:
    (repo / ".gitignore").write_text("node_modules/\n")
    commit_all(repo)
    set_up = "mkdir node_modules && hostname > node_modules/host && id -u >> node_modules/host && pwd"
    steps = Steps(podman, repo, set_up=[set_up], network="none")
    name, user = (steps.workspace.path / "node_modules/host").read_text().split()
    assert name.startswith("ratchet-step-") and user == str(unused_ids()[0])
    with pytest.raises(SetupFailed, match=r"exit 3.*: no such thing"):
        Steps(podman, repo, slug="two", set_up=["echo no such thing >&2; exit 3"], network="none")
    assert steps.left == []


# --- what hostile code cannot do ---

FAKE = """
import os, sys
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        mem, rows = open(f"/proc/{pid}/mem", "r+b", 0), open(f"/proc/{pid}/maps").read().splitlines()
    except OSError:
        continue
    if int(pid) in (os.getpid(), os.getppid()):
        continue
    print("opened", pid)
    for row in rows:
        span, how = row.split()[:2]
        low, high = (int(part, 16) for part in span.split("-"))
        if "rw" in how and "[v" not in row:
            mem.seek(low)
            found = mem.read(high - low)
            for old, new in ((b"code=$?", b"code=0 "), (b"exit $code", b"exit 0    ")):
                at = found.find(old)
                while at >= 0:
                    mem.seek(low + at)
                    mem.write(new)
                    at = found.find(old, at + 1)
for name in os.listdir("/run/ratchet"):
    print("pipe", name)
    if os.fork() == 0:
        os.setsid()
        end = os.open(f"/run/ratchet/{name}", os.O_RDWR | os.O_NONBLOCK)
        try:
            while name in ("end", "life"):
                os.write(end, b"code=0 oom_kill=0\\n" * 9)
        except OSError:
            pass
        os._exit(0)
    os.wait()
"""


@pytest.mark.engines
def test_no_code_of_a_step_changes_its_exit_code_or_ends_its_guard(steps: Steps) -> None:
    (steps.workspace.path / "fake.py").write_text(FAKE)
    code, text = steps.run("/usr/bin/python3 fake.py; kill -9 1; exit 7")
    assert code == 7 and "opened 1\n" not in text
    assert set(text.split()) & {"in", "out", "end", "life"} == {"in", "out"}


@pytest.mark.engines
def test_no_process_of_a_step_outlives_it_or_writes_after_it(steps: Steps) -> None:
    loop = "while :; do echo x >> grows; done"
    assert steps.run(f"trap '' TERM; setsid sh -c \"trap '' TERM; {loop}\" & sleep 0.1; exit 0")[0] == 0
    size = (steps.workspace.path / "grows").stat().st_size
    assert steps.left == [] and not (steps.workspace.home / "steps").exists()
    assert steps.run("sleep 0.2; wc -c < grows") == (0, f"{size}\n")


@pytest.mark.engines
def test_a_step_whose_code_stops_all_it_can_ends_with_its_worker(steps: Steps) -> None:
    hostile = "trap '' TERM; kill -STOP -1; echo begun > begun; while :; do sleep 1; done"
    argv = [sys.executable, "-c", WORKER.replace("echo begun > begun; sleep 600", hostile)]
    with subprocess.Popen(
        [*argv, msgspec.json.encode(steps.config).decode(), str(steps.log)], cwd=engines.ROOT
    ) as worker:
        asyncio.run(until((steps.workspace.path / "begun").exists))
        worker.send_signal(signal.SIGKILL)
    (name,) = steps.left
    asyncio.run(until(lambda: not getattr(steps.podman.engine.state(name), "running", False)))
    remove_all_abandoned(steps.config.containers.engine)
    assert steps.left == []


@pytest.mark.engines
def test_nothing_outside_is_mounted_by_way_of_a_link(steps: Steps, tmp_path: Path) -> None:
    outside = tmp_path / "outside/tests"
    outside.mkdir(parents=True)
    (outside / "secret").write_text("of the machine\n")
    (steps.workspace.path / "linked").symlink_to(tmp_path / "outside")
    scope = PathRules(tests=("linked/tests/**", "../../**", "src/**"))
    writer = steps.sandboxes.for_role(Role.IMPLEMENTER, scope)
    code, text = steps.run("cat linked/tests/secret; echo x > src/app.py", writer)
    assert code != 0 and "of the machine" not in text and "Read-only" in text


@pytest.mark.engines
def test_a_folder_that_became_a_link_after_it_was_looked_at_is_not_mounted(steps: Steps, tmp_path: Path) -> None:
    writer = steps.sandboxes.for_role(Role.IMPLEMENTER, PathRules(tests=("src/**",)))
    (steps.workspace.path / "src").rename(steps.workspace.path / "old")
    (steps.workspace.path / "src").symlink_to(tmp_path)
    with pytest.raises(ConfinementFailed, match="reached by a link"):
        steps.run("true", writer)


@pytest.mark.engines
def test_containers_with_labels_that_look_like_ours_are_left_alone(steps: Steps) -> None:
    gone = msgspec.json.encode(msgspec.structs.replace(this_process(), pid=999_999)).decode()
    for number, label in enumerate(["hello", "[1", gone, f'{{"owner":{gone},"seal":"00"}}']):
        spec = ContainerSpec(image=IMAGE, command=["true"], user="0:0", labels={LABEL: label})
        steps.podman.engine.create(spec, f"innocent-{number}")
    assert steps.run("true")[0] == 0
    assert sorted(steps.left) == [f"innocent-{number}" for number in range(4)]
    for name in steps.left:
        steps.podman.engine.remove(name)


def test_the_user_of_roots_containers_has_no_account_and_is_lent_to_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = unused_ids()
    for number in (first, second):
        with pytest.raises(KeyError):
            pwd.getpwuid(number)
    lent = tmp_path / "subuid"
    lent.write_text(f"# ranges\nbob:{first}:65536\nnonsense\n")
    monkeypatch.setattr(containers, "_LENT", (str(lent),))
    unused_ids.cache_clear()
    try:
        assert unused_ids()[0] == first + 65536
    finally:
        unused_ids.cache_clear()
