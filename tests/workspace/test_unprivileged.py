"""The same contract without root: the suite again, in a process that has dropped to another user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).parents[2]
NOBODY = 65534


def as_nobody(argv: list[str], **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", **env},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def python() -> str:
    """An interpreter that user can start, with our packages."""
    if os.geteuid() != 0:
        pytest.skip("dropping to another user needs root")
    for candidate in (sys.executable, shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")):
        if not candidate:
            continue
        try:
            tried = as_nobody([candidate, "-c", "import msgspec, pytest, ratchet"], PYTHONPATH=packages())
        except OSError:
            continue
        if tried.returncode == 0:
            return candidate
    pytest.skip("no interpreter with our packages can be started by another user")


def packages() -> str:
    return os.pathsep.join([str(ROOT / "src"), str(ROOT), str(Path(msgspec.__file__).parents[1])])


def test_every_promise_holds_in_a_user_namespace(python: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    home = Path("/tmp") / f"ratchet-nobody-{os.getpid()}"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    try:
        plain = [python, "-m", "pytest", "-q", "-rs", "-p", "no:xdist", f"--basetemp={home}/base"]
        done = as_nobody(
            [*plain, "tests/workspace/test_contract.py", "-k", "userns"], PYTHONPATH=packages(), HOME=str(home)
        )
    finally:
        shutil.rmtree(home)
    assert done.returncode == 0, done.stdout + done.stderr
    if "passed" not in done.stdout and "SKIPPED" in done.stdout:
        pytest.skip(next(line for line in done.stdout.splitlines() if line.startswith("SKIPPED")))


def test_a_sandbox_works_inside_the_namespace(python: str) -> None:
    home = Path("/tmp") / f"ratchet-nobody-exec-{os.getpid()}"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    script = f"""set -e
export HOME={home}
cd {home} && git init -q repo && cd repo
git config user.name t && git config user.email t@localhost
echo one > a && git add -A && git commit -q -m one
ratchet() {{ {python} -m ratchet "$@"; }}
ratchet workspace create w >/dev/null
ratchet workspace exec w -- sh -c 'cat a; echo two > b; touch /etc/x 2>/dev/null || echo refused'
ratchet workspace diff w | grep '^+two'
ratchet workspace destroy w
"""
    try:
        done = as_nobody(["sh", "-c", script], PYTHONPATH=packages())
    finally:
        shutil.rmtree(home)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["one", "refused", "+two"]


STARTS_SIXTY = """
import subprocess
started = []
try:
    for _ in range(60):
        started.append(subprocess.Popen(["sleep", "60"]))
except OSError:
    pass
print(len(started))
for each in started:
    each.kill()
"""


def test_the_number_of_processes_is_limited_without_control_groups(python: str) -> None:
    code = f"""
import subprocess, sys
from pathlib import Path
from ratchet.process.cgroups import ControlGroup, ResourceLimits
group = ControlGroup("nowhere", ResourceLimits(processes=20), mounts=Path("/nowhere"))
done = subprocess.run([*group.prefix(), sys.executable, "-c", {STARTS_SIXTY!r}], capture_output=True, text=True)
print(done.stdout + done.stderr)
"""
    done = as_nobody([python, "-c", code], PYTHONPATH=packages())
    assert 0 < int(done.stdout) <= 20, done.stderr


def test_a_source_that_cannot_be_read_is_named(python: str) -> None:
    closed = Path("/tmp") / f"ratchet-closed-{os.getpid()}"
    closed.mkdir(mode=0o700)
    code = f"""
from pathlib import Path
from ratchet.errors import UsageError
from ratchet.workspace.registry import Workspaces
try:
    Workspaces(Path("/tmp/unused")).create("x", repo=Path({str(closed)!r}), commit="1" * 40)
except UsageError as error:
    print(error.message)
"""
    try:
        done = as_nobody([python, "-c", code], PYTHONPATH=packages())
    finally:
        closed.rmdir()
    assert done.stdout == f"{closed} is not readable\n", done.stderr
