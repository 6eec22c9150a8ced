"""What confined processes can and cannot do. Skipped, with doctor's reason, where bubblewrap does not work."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.core.roles import PathRules, Role, Writes
from ratchet.errors import EnvironmentCannot
from ratchet.process.cgroups import ControlGroup, ResourceLimits, remove_stale_groups
from ratchet.process.spawn import Confinement, ConfinementFailed, ProcessResult, ProgramMissing, confined
from ratchet.process.supervise import supervise
from ratchet.workspace import sandbox_view
from ratchet.workspace.git_workspace import GitWorkspace
from ratchet.workspace.registry import Workspaces
from ratchet.workspace.sandbox import (
    Sandboxes,
    SandboxSettings,
    _why_refused,
    role_paths,
    run_contained,
    why_no_sandbox,
)
from tests.workspace.conftest import commit_all, make, sh

SCOPE = PathRules(tests=("tests/**", "**/test_*.py"))


@pytest.fixture
def one(plain: Workspaces, repo: Path) -> GitWorkspace:
    (repo / "tests").mkdir()
    return make(plain, repo)


@pytest.fixture
def sandboxes(one: GitWorkspace, tmp_path: Path) -> Iterator[Sandboxes]:
    if why := why_no_sandbox():
        pytest.skip(why)
    (one.path / "tests").mkdir(exist_ok=True)
    (one.path / "tests" / "test_a.py").write_text("")
    made = Sandboxes(one, SandboxSettings(mode="on", hide=(str(tmp_path / "secret"),)))
    yield made
    made.close()


def run(confinement: Confinement | None, folder: Path, *argv: str, **env: str) -> tuple[ProcessResult, str]:
    log = folder.parent / "log"
    log.unlink(missing_ok=True)

    async def supervised() -> ProcessResult:
        with confined(confinement):
            path = {"PATH": os.environ["PATH"], **env}
            return await supervise(list(argv), cwd=folder, env=path, output=log, timeout_s=60)

    return asyncio.run(supervised()), log.read_text()


def shell(confinement: Confinement | None, folder: Path, script: str, **env: str) -> tuple[int, str]:
    ended, printed = run(confinement, folder, "sh", "-c", script, **env)
    return ended.exit_code, printed


def test_only_the_workspace_can_be_written(sandboxes: Sandboxes, one: GitWorkspace, repo: Path) -> None:
    script = f"echo x > inside && ! touch /etc/x && ! touch {repo}/x; touch {one.home}/x; true"
    assert shell(sandboxes.for_tests(), one.path, script)[0] == 0
    assert (one.path / "inside").exists()
    assert not any((folder / "x").exists() for folder in (repo, one.home, Path("/etc")))


def test_the_folder_of_a_turn_can_be_written_among_the_runs_that_are_hidden(
    sandboxes: Sandboxes, one: GitWorkspace, repo: Path
) -> None:
    turn = repo / ".ratchet" / "runs" / "run-1" / "logs" / "step-2.d"
    turn.mkdir(parents=True)
    (repo / ".ratchet" / "secret").write_text("of another run")

    async def supervised() -> ProcessResult:
        with confined(sandboxes.for_role("auditor", SCOPE)):
            script = f"echo x > {turn}/mine; ls {repo}/.ratchet; ! touch {repo}/.ratchet/new"
            return await supervise(
                ["sh", "-c", script],
                cwd=one.path,
                env={"PATH": os.environ["PATH"]},
                output=one.path.parent / "log",
                timeout_s=60,
                writable=[turn],
            )

    assert asyncio.run(supervised()).exit_code == 0, (one.path.parent / "log").read_text()
    assert (turn / "mine").exists() and not (repo / ".ratchet" / "new").exists()
    assert "secret" not in (one.path.parent / "log").read_text()


def test_tmp_and_home_are_private(sandboxes: Sandboxes, one: GitWorkspace, tmp_path: Path) -> None:
    code, printed = shell(
        sandboxes.for_tests(),
        one.path,
        "touch /tmp/mine $HOME/mine && ls /tmp",
        HOME=str(tmp_path),
        XDG_CACHE_HOME="/x",
    )
    assert code == 0
    assert "mine" in printed.split()
    assert not Path("/tmp/mine").exists()
    assert not (tmp_path / "mine").exists()


def test_what_package_managers_fetched_is_there_and_cannot_be_changed(
    one: GitWorkspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why := why_no_sandbox():
        pytest.skip(why)
    monkeypatch.setenv("HOME", str(tmp_path / "someone"))
    for name in ("go/pkg/mod", ".m2/repository", ".m2"):
        (tmp_path / "someone" / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / "someone" / name / "file").write_text(f"{name}\n")
    script = "cat $HOME/go/pkg/mod/file $HOME/.m2/repository/file $HOME/.m2/file; touch $HOME/go/pkg/mod/new"
    for hide, seen in (((), ["go/pkg/mod", ".m2/repository"]), (("~/.m2",), ["go/pkg/mod"])):
        made = Sandboxes(one, SandboxSettings(hide=hide))
        printed = shell(made.for_tests(), one.path, script)[1]
        made.close()
        assert [line for line in printed.splitlines() if ":" not in line] == seen, printed
    assert not (tmp_path / "someone" / "go" / "pkg" / "mod" / "new").exists()


def test_what_is_hidden_cannot_be_read(sandboxes: Sandboxes, one: GitWorkspace, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the key")
    _, printed = shell(sandboxes.for_tests(), one.path, f"cat {tmp_path}/secret")
    assert "the key" not in printed


def test_what_is_hidden_inside_a_shown_folder_cannot_be_read_even_if_settings_name_a_program_in_it(
    one: GitWorkspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why := why_no_sandbox():
        pytest.skip(why)
    monkeypatch.setenv("HOME", str(tmp_path / "someone"))
    place, fetched = tmp_path / "tools", tmp_path / "someone/go/pkg/mod/ours@v2"
    for folder in (place / "project" / ".venv", fetched):
        folder.mkdir(parents=True)
        (folder.parent / "answer").write_text("the answer")
        (folder / "answer").write_text("the answer")
    for script in (place / "agent", place / "project" / ".venv" / "agent"):
        seen = f"{place}/project/answer {fetched}/answer $HOME/go/pkg/mod/ours@v2/answer"
        script.write_text(f"#!/bin/sh\ncat {seen}; cat $HOME/go/pkg/mod/answer\n")
        script.chmod(0o755)
    scripts = place / "agent", place / "project" / ".venv" / "agent"
    settings = SandboxSettings(hide=(str(place / "project"), str(fetched)), show=tuple(map(str, scripts)))
    made = Sandboxes(one, settings)
    ended, said = run(made.for_tests(), one.path, str(scripts[0]))
    assert (ended.exit_code, said.count("the answer")) == (0, 1), said
    ended, said = run(made.for_tests(), one.path, str(scripts[1]))
    assert ended.exit_code != 0 and "the answer" not in said
    made.close()


def test_a_commands_words_show_nothing_but_installed_programs(
    one: GitWorkspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why := why_no_sandbox():
        pytest.skip(why)
    (home := tmp_path / "someone").mkdir()
    for name in (".local/bin", "apps/tool/lib", "apps/tool/bin", "taxes", ".ssh"):
        (home / name).mkdir(parents=True)
    for name in ("taxes/2025", ".ssh/id_ed25519", "apps/tool/lib/beside"):
        (home / name).write_text(f"content of {name}\n")
        (home / name).chmod(0o755)
    (home / "apps/tool/bin/tool").write_text(f"#!/bin/sh\ncat {home}/apps/tool/lib/beside\n")
    (home / "apps/tool/bin/tool").chmod(0o755)
    (home / ".local/bin/tool").symlink_to(home / "apps/tool/bin/tool")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{home}/.local/bin:{os.environ['PATH']}")
    made = Sandboxes(one, SandboxSettings(hide=(str(home / ".ssh"),)))
    _, said = run(made.for_tests(), one.path, str(home / ".local/bin/tool"))
    assert "content of apps/tool/lib/beside" in said
    secrets = [str(home / name) for name in ("taxes/2025", ".ssh/id_ed25519", ".local/bin/../../taxes/2025")]
    _, said = run(made.for_tests(), one.path, "cat", *secrets)
    assert "content of" not in said
    made.close()


def test_what_settings_name_is_shown_with_what_is_beside_it_but_no_secrets_and_no_homes(
    one: GitWorkspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why := why_no_sandbox():
        pytest.skip(why)
    (home := tmp_path / "someone").mkdir()
    (home / "tools").mkdir()
    for name in ("tools/helper.py", "tools/tokens.py", "tools/.env", "tools/id_rsa", "diary", "agent.py"):
        (home / name).write_text(f"content of {name}\n")
    (tmp_path / "above.sh").write_text("content of above.sh\n")
    (home / ".ssh").symlink_to(tmp_path / "keys")
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "a.pub").write_text("content of keys\n")
    monkeypatch.setenv("HOME", str(home))
    show = [str(place) for place in (home / "agent.py", home / "tools/helper.py", tmp_path / "above.sh")]
    show += [str(tmp_path / "keys" / "a.pub")]
    made = Sandboxes(one, SandboxSettings(hide=("~/.ssh",), show=tuple(show)))
    _, said = shell(made.for_tests(), one.path, f"cd {tmp_path}; cat *.sh keys/* $(find someone -type f)")
    made.close()
    shown = {line.removeprefix("content of ") for line in said.splitlines() if line.startswith("content of ")}
    assert shown == {"above.sh", "agent.py", "tools/helper.py", "tools/tokens.py"}, said


def test_a_program_beside_the_developers_secrets_does_not_show_them(
    sandboxes: Sandboxes, one: GitWorkspace, repo: Path
) -> None:
    (repo / ".env").write_text("TOKEN=1")
    (repo / ".ratchet").mkdir(exist_ok=True)
    (repo / ".ratchet" / "store").touch()
    (repo / "agent.sh").write_text(f"#!/bin/sh\ncat {repo}/.env; ls {repo}/.ratchet\n")
    (repo / "agent.sh").chmod(0o755)
    ended, printed = run(sandboxes.for_tests(), one.path, str(repo / "agent.sh"))
    assert ended.exit_code == 0 and "TOKEN" not in printed and "store" not in printed


def test_the_environment_contains_only_the_given_variables(
    sandboxes: Sandboxes, one: GitWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    _, printed = shell(sandboxes.for_tests(), one.path, "env", GIVEN="1")
    assert "GIVEN=1" in printed
    assert "s3cret" not in printed


def test_tests_have_no_network_and_agents_do(sandboxes: Sandboxes, one: GitWorkspace) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    knock = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
    with server:
        tests, _ = run(sandboxes.for_tests(), one.path, "python3", "-c", knock)
        agent, printed = run(sandboxes.for_role(Role.IMPLEMENTER, SCOPE), one.path, "python3", "-c", knock)
    assert tests.exit_code != 0
    assert agent.exit_code == 0, printed


@pytest.mark.parametrize(
    ("role", "may"),
    [
        (Role.IMPLEMENTER, {"src/new.py": True, "tests/new.py": False, "tests/test_a.py": False}),
        (Role.AUDITOR, {"tests/new.py": True}),
        (Role.REVIEWER, {"src/new.py": False, "tests/new.py": False}),
    ],
)
def test_a_role_cannot_write_what_it_may_not(
    sandboxes: Sandboxes, one: GitWorkspace, role: Role, may: dict[str, bool]
) -> None:
    for path, allowed in may.items():
        code, printed = shell(sandboxes.for_role(role, SCOPE), one.path, f"echo x >> {path}")
        assert (code == 0) == allowed, (path, printed)


def test_a_daemon_that_left_its_session_dies_with_the_step(sandboxes: Sandboxes, one: GitWorkspace) -> None:
    leave = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open('alive', 'w').write('x')
        while True:
            time.sleep(0.01)
            open('beat', 'a').write('x')
    os._exit(0)
while not os.path.exists('alive'):
    time.sleep(0.01)
"""
    ended, printed = run(sandboxes.for_tests(), one.path, "python3", "-c", leave)
    assert ended.exit_code == 0, printed
    seen = [path for path in Path("/proc").glob("[0-9]*/cmdline") if b"open('beat'" in _read(path)]
    assert seen == []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_git_works_inside_but_cannot_touch_the_source(sandboxes: Sandboxes, one: GitWorkspace, repo: Path) -> None:
    code, printed = shell(sandboxes.for_tests(), one.path, "git status --porcelain && ! git branch -f main HEAD~0")
    assert code == 0, printed


def test_what_an_agent_stages_or_commits_is_contained(sandboxes: Sandboxes, one: GitWorkspace, repo: Path) -> None:
    """The source's objects and branches are read-only in there: git says so, and what was written is still there."""
    before, tip = one.checkpoint(), one.tip()
    refs = sh("git", "for-each-ref", cwd=repo)
    script = """
echo new > agents-own.py
git add agents-own.py; echo "add $?"
git -c user.name=a -c user.email=a@localhost commit -q -am mine; echo "commit $?"
git checkout -q -b mine; echo "branch $?"
git status --porcelain; echo "status $?"
"""
    code, printed = shell(sandboxes.for_role(Role.IMPLEMENTER, SCOPE), one.path, script)
    assert code == 0
    assert "status 0" in printed
    assert not [verb for verb in ("add", "commit", "branch") if f"{verb} 0" in printed], printed
    assert "Read-only file system" in printed
    assert sh("git", "for-each-ref", cwd=repo) == refs
    assert one.tip() == tip
    after = one.checkpoint()
    assert one.changes(before, after) == ["agents-own.py"]
    commit = one.commit(tree=one.checkpoint(), message="ours\n", parent=tip, at="2026-01-01T00:00:00Z")
    assert sh("git", "show", "--format=", "--name-only", commit, cwd=repo).split() == [
        "agents-own.py",
        "tests/test_a.py",
    ]
    assert sh("git", "status", "--porcelain", cwd=one.path) == ""


def test_without_a_sandbox_what_an_agent_commits_is_put_back_and_its_work_kept(one: GitWorkspace, repo: Path) -> None:
    before, tip = one.checkpoint(), one.tip()
    (one.path / "agents-own.py").write_text("new\n")
    commit_all(one.path, "mine")
    assert one.tip() != tip
    one.put_branch_back(tip)
    assert one.tip() == tip
    assert one.changes(before, one.checkpoint()) == ["agents-own.py"]
    assert sh("git", "status", "--porcelain", cwd=one.path) == "?? agents-own.py"


def test_a_missing_program_is_distinguished_from_a_failing_one(sandboxes: Sandboxes, one: GitWorkspace) -> None:
    with pytest.raises(ProgramMissing):
        run(sandboxes.for_tests(), one.path, "no-such-program")


def test_memory_is_limited(one: GitWorkspace) -> None:
    made = Sandboxes(one, SandboxSettings(mode="auto", bounds=ResourceLimits(memory_mb=64, processes=50)))
    try:
        ended, _ = run(made.for_tests(), one.path, "python3", "-c", "x = bytearray(400 << 20); print(len(x))")
        assert ended.exit_code != 0
    finally:
        made.close()
    assert not any(folder.exists() for folder in made.group.folders)


def test_when_memory_runs_out_the_kernel_takes_a_step_first(one: GitWorkspace) -> None:
    made = Sandboxes(one, SandboxSettings(mode="auto", bounds=ResourceLimits(processes=50)))
    try:
        _, printed = run(made.for_tests(), one.path, "cat", "/proc/self/oom_score_adj")
    finally:
        made.close()
    assert printed.strip() == "1000"


def test_the_number_of_processes_is_limited(one: GitWorkspace) -> None:
    group = ControlGroup(f"ratchet-test-{os.getpid()}", ResourceLimits(processes=20))
    if not group.prefix() or group.missing:
        pytest.skip("no control group for pids")
    made = Sandboxes(one, SandboxSettings(mode="auto", bounds=ResourceLimits(processes=20)))
    try:
        bomb = "import subprocess; [subprocess.Popen(['sleep', '9']) for _ in range(50)]"
        assert run(made.for_tests(), one.path, "python3", "-c", bomb)[0].exit_code != 0
    finally:
        made.close()
        group.close()


# Goes on when it may start no more: only the limit of processes holds it, and nothing ends it.
BOMB = """
import os, time
while True:
    try:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
    except OSError:
        time.sleep(0.1)
"""


def test_a_step_that_reaches_the_limit_of_processes_is_ended(one: GitWorkspace) -> None:
    made = Sandboxes(one, SandboxSettings(mode="auto", bounds=ResourceLimits(processes=30)))
    try:
        by = made.for_tests()
        if "pids" in made.group.missing:
            pytest.skip("no control group for pids")
        ended, printed = run(by, one.path, "python3", "-c", BOMB)
        assert ended.stopped and not ended.timed_out
        assert "reached the limit of processes" in printed
        assert "still fine" in run(made.for_tests(), one.path, "echo", "still fine")[1]
    finally:
        made.close()


def test_a_command_that_cannot_enter_its_group_is_not_run_without_limits() -> None:
    group = ControlGroup("ratchet-test-gone", ResourceLimits(processes=30))
    try:
        prefix = group.prefix()
        if not group.folders:
            pytest.skip("no control group can be made here")
    finally:
        group.close()
    assert subprocess.run([*prefix, "echo", "ran"], capture_output=True, check=False).stdout == b""


def test_steps_in_one_workspace_do_not_remove_the_limits_of_each_other(one: GitWorkspace) -> None:
    first, second = (Sandboxes(one, SandboxSettings(bounds=ResourceLimits(processes=30))) for _ in range(2))
    by = second.for_tests()
    first.for_tests()
    first.close()
    try:
        assert all(folder.exists() for folder in second.group.folders)
        assert run(by, one.path, "true")[0].exit_code == 0
    finally:
        second.close()


def test_the_group_of_a_killed_worker_is_removed_and_that_of_a_living_one_stays() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    space = Path("/proc/self/ns/pid").stat().st_ino
    owners = [(space, ended.pid), (space, os.getpid()), (space + 1, ended.pid)]
    stale, own, elsewhere = groups = [
        ControlGroup(f"ratchet-x-{space}-{pid}", ResourceLimits(processes=64)) for space, pid in owners
    ]
    for group in groups:
        group.prefix()
    if not all(group.folders for group in groups):
        pytest.skip("no control group can be made here")
    try:
        assert stale.name in remove_stale_groups()
        assert not stale.folders[0].exists()
        assert own.folders[0].exists()
        assert elsewhere.folders[0].exists(), "its worker may live: the pid is of another namespace"
    finally:
        own.close()
        elsewhere.close()


def test_the_processor_is_limited() -> None:
    group = ControlGroup(f"ratchet-test-cpu-{os.getpid()}", ResourceLimits(cpus=0.25))
    try:
        if not group.prefix() or group.missing:
            pytest.skip("no control group for cpu")
        spin = "import time; t = time.monotonic()\nwhile time.process_time() < 0.25: pass\nprint(time.monotonic() - t)"
        done = subprocess.run([*group.prefix(), "python3", "-c", spin], capture_output=True, text=True, check=True)
        assert float(done.stdout) > 0.5, "a quarter of a second of work took no longer on a quarter of a processor"
    finally:
        group.close()


def test_without_control_groups_memory_is_limited_all_the_same(tmp_path: Path) -> None:
    group = ControlGroup("nowhere", ResourceLimits(memory_mb=200), mounts=tmp_path / "no-groups")
    take = "x = bytearray({} << 20)"
    codes = [
        subprocess.run(
            [*group.prefix(), "python3", "-c", take.format(size)], capture_output=True, check=False
        ).returncode
        for size in (1, 400)
    ]
    assert codes == [0, 1]
    assert group.missing == ["memory"]


def test_without_bubblewrap_steps_still_run_and_insisting_is_an_error(
    one: GitWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    why_no_sandbox.cache_clear()
    monkeypatch.setenv(
        "PATH", os.pathsep.join(p for p in os.environ["PATH"].split(":") if not (Path(p) / "bwrap").exists())
    )
    try:
        assert "not installed" in why_no_sandbox()
        with pytest.raises(EnvironmentCannot, match="not installed"):
            Sandboxes(one, SandboxSettings(mode="on"))
        loose = Sandboxes(one, SandboxSettings(mode="auto"))
        assert loose.for_tests() is None
    finally:
        why_no_sandbox.cache_clear()


def fake_bubblewrap(folder: Path, says: str) -> list[str]:
    program = folder / "bwrap"
    program.write_text(f"#!/bin/sh\necho 'bwrap: {says}' >&2\nexit 1\n")
    program.chmod(0o755)
    return [str(program)]


@pytest.mark.parametrize("says", ["Creating new namespace failed: No space left on device", "Resource busy"])
def test_a_sandbox_that_fails_to_start_now_is_no_reason_to_run_without_one(tmp_path: Path, says: str) -> None:
    with pytest.raises(ConfinementFailed, match="no sandbox can be started now"):
        _why_refused(fake_bubblewrap(tmp_path, says))


def test_where_the_kernel_permits_no_namespaces_there_is_no_sandbox(tmp_path: Path) -> None:
    says = "setting up uid map: Permission denied"
    assert says in _why_refused(fake_bubblewrap(tmp_path, says))


def test_only_patterns_that_name_something_there_can_be_mounted(tmp_path: Path) -> None:
    for name in ("tests", "src"):
        (tmp_path / name).mkdir()
    (tmp_path / "ratchet.toml").touch()
    assert role_paths(Writes.SOURCE, SCOPE, tmp_path) == (True, ["ratchet.toml", "tests"])
    assert role_paths(Writes.TESTS, SCOPE, tmp_path) == (True, ["ratchet.toml"])
    assert role_paths(Writes.NOTHING, SCOPE, tmp_path) == (False, [])


def test_nothing_is_mounted_by_way_of_a_link_in_the_place_of_a_folder(tmp_path: Path) -> None:
    for name in ("outside", "tree/real"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "id_rsa").touch()
    (tmp_path / "tree" / "linked").symlink_to(tmp_path / "outside")
    scope = PathRules(tests=("linked/id_rsa", "real/id_rsa", "../outside/id_rsa", "linked/**"))
    assert role_paths(Writes.SOURCE, scope, tmp_path / "tree") == (True, ["real/id_rsa"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can read them, and nobody else inside")
def test_settings_of_the_system_that_only_root_may_read_are_not_shown(sandboxes: Sandboxes, one: GitWorkspace) -> None:
    closed = Path("/etc/ratchet-test-closed")
    (closed / "folder").mkdir(parents=True, exist_ok=True)
    try:
        for name, mode in (("password", 0o640), ("public", 0o644), ("empty", 0o600), ("folder/key", 0o644)):
            (closed / name).write_text("" if name == "empty" else f"content of {name}\n")
            (closed / name).chmod(mode)
        (closed / "folder").chmod(0o700)
        sandbox_view._closed_to_others.cache_clear()
        script = f"cat {closed}/*; cat {closed}/folder/key; ! touch {closed}/folder/new"
        for confinement in (sandboxes.for_tests(), sandboxes.for_role("auditor", SCOPE)):
            code, printed = shell(confinement, one.path, script)
            assert code == 0 and "content of public" in printed
            assert "content of password" not in printed and "content of folder" not in printed
        ran = run_contained(["cat", str(closed / "password")], cwd=one.path, env=dict(os.environ), timeout_s=60)
        assert ran.stdout == b""
    finally:
        shutil.rmtree(closed)
        sandbox_view._closed_to_others.cache_clear()


def test_a_program_named_by_way_of_the_repository_uncovers_nothing_in_it(one: GitWorkspace, repo: Path) -> None:
    if why := why_no_sandbox():
        pytest.skip(why)
    (repo / ".env").write_text("covered\n")
    program = repo.parent / "agent.sh"
    program.write_text(f"#!/bin/sh\necho started; cat {repo}/.env\n")
    program.chmod(0o755)
    made = Sandboxes(one, SandboxSettings(mode="on", show=(f"{repo}/../agent.sh",)))
    _, printed = run(made.for_role("auditor", SCOPE), one.path, f"{repo}/../agent.sh")
    made.close()
    assert "started" in printed and "covered" not in printed
