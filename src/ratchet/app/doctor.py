"""The use case of `ratchet doctor`: checks the machine for required and optional tools."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import msgspec

from ratchet import config
from ratchet.agents.installed_agents import NATIVE, find_agents, login_command
from ratchet.checks.detect.set_up import set_up_advice
from ratchet.checks.detect.targets import detect
from ratchet.checks.protocol import Target
from ratchet.errors import RatchetError, UntrustedRepository
from ratchet.plugins import install_extra
from ratchet.process import cgroups
from ratchet.process.containers import find_engine
from ratchet.process.spawn import run_command
from ratchet.workspace import sandbox
from ratchet.workspace.from_config import open_workspaces
from ratchet.workspace.git import repository
from ratchet.workspace.git.command import git
from ratchet.workspace.registry import Workspaces

GIT_NEEDED = (2, 36)
CAP_SYS_ADMIN = 21
_UNCONFINED = "runs, proofs and tests work in git worktrees, without a sandbox"
# What unshare(1) prints, and what it means.
_NO_NAMESPACES = {
    "No space left on device": f"none are allowed (user.max_user_namespaces): {_UNCONFINED}; "
    "as root: sysctl -w user.max_user_namespaces=15000",
    "unshare failed: Operation not permitted": f"not permitted: {_UNCONFINED}; in a container: "
    "docker run --security-opt seccomp=unconfined; else as root: sysctl -w kernel.unprivileged_userns_clone=1",
    "": f"made without rights, as by Ubuntu's AppArmor: {_UNCONFINED}; as root: "
    "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile for bwrap",
}
# Settings that change what git commits and checks out, where they apply to every repository.
_GIT_SETTINGS = r"^(core\.(autocrlf|eol|hookspath)|commit\.gpgsign|init\.templatedir)$"


class DoctorCheck(msgspec.Struct, frozen=True, kw_only=True):
    what: str
    ok: bool
    detail: str
    needed: bool = True


def examine(folder: Path) -> list[DoctorCheck]:
    return list(_findings(folder))


def _findings(folder: Path) -> Iterator[DoctorCheck]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield DoctorCheck(what="python", ok=sys.version_info >= (3, 11), detail=f"{version} (needs 3.11 or newer)")
    yield _git()
    yield DoctorCheck(what="sqlite", ok=sqlite3.sqlite_version_info >= (3, 37), detail=sqlite3.sqlite_version)
    proc = Path("/proc/self/stat").exists()
    yield DoctorCheck(
        what="process tree",
        ok=proc,
        needed=False,
        detail="all descendant processes of a step are killed with it"
        if proc
        else "no /proc: only process groups are killed",
    )
    yield from _privileges()
    yield _sandbox()
    yield _limits()
    yield _engine(folder)
    yield from _workspaces(folder)
    yield from _session()
    yield from _git_settings()
    yield from _extras()
    yield from _agents()
    yield from _project(folder)


def _limits() -> DoctorCheck:
    bounds = cgroups.ResourceLimits(memory_mb=64, cpus=1.0, processes=64)
    group = cgroups.ControlGroup(cgroups.group_name("doctor"), bounds)
    group.prefix()
    missing = ", ".join(group.missing)
    group.close()
    unbounded = "; root has no other limit of processes" if "pids" in group.missing and os.geteuid() == 0 else ""
    detail = (
        f"no control group for {missing}: using rlimits where possible{unbounded}"
        if missing
        else "control groups: memory, cpu, pids"
    )
    return DoctorCheck(what="limits", ok=not missing, needed=False, detail=detail)


def _privileges() -> Iterator[DoctorCheck]:
    if os.geteuid() == 0:
        admin = _has_capability(CAP_SYS_ADMIN)
        lost = f"root without CAP_SYS_ADMIN, as in a container: {_UNCONFINED}; docker run --cap-add SYS_ADMIN"
        yield DoctorCheck(what="privileges", ok=admin, needed=False, detail="root can mount" if admin else lost)
    yield _user_namespaces()


def _has_capability(number: int) -> bool:
    try:
        effective = re.search(r"^CapEff:\s*(\w+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    except OSError:
        return True
    return effective is None or bool(int(effective[1], 16) >> number & 1)


def _user_namespaces() -> DoctorCheck:
    """Make one with a mount in it: unshare(1) makes its mounts private, which a namespace without rights cannot."""
    what = "user namespaces"
    try:
        tried = run_command(["unshare", "--user", "--map-root-user", "--mount", "true"], timeout_s=20)
    except RatchetError as error:
        return DoctorCheck(what=what, ok=False, needed=False, detail=f"unknown: {error.message} (package util-linux)")
    printed = tried.stderr.decode(errors="replace")
    lost = next(detail for words, detail in _NO_NAMESPACES.items() if words in printed)
    return DoctorCheck(what=what, ok=not tried.exit_code, needed=False, detail=lost if tried.exit_code else "allowed")


def _sandbox() -> DoctorCheck:
    try:
        missing = sandbox.why_no_sandbox()
    except RatchetError as error:
        return DoctorCheck(what="sandbox", ok=False, needed=False, detail=f"{error.message}: runs fail until it can")
    detail = "bubblewrap: steps have a read-only root, a private /tmp and home, and no network unless allowed"
    if missing:
        cure = "as root: apt install bubblewrap" if "not installed" in missing else "see user namespaces"
        detail = f"{missing}: writes outside a role's paths are reverted after the step, not prevented; {cure}"
    return DoctorCheck(what="sandbox", ok=not missing, needed=False, detail=detail)


def _engine(folder: Path) -> DoctorCheck:
    what = "container engine"
    try:
        wanted = config.load(folder).config.containers
        engine = find_engine(wanted.engine)
        info, there = engine.info(), engine.has_image(wanted.image)
    except RatchetError as error:
        detail = f"{error.message}: workers cannot run in containers (--launcher docker)"
        return DoctorCheck(what=what, ok=False, needed=False, detail=detail)
    image = wanted.image if there else f"no image {wanted.image}: ratchet image --build"
    how = " without root" if info.rootless else ""
    detail = f"{info.name} {info.version}{how} at {engine.address}; {image}"
    return DoctorCheck(what=what, ok=there, needed=False, detail=detail)


def _workspaces(folder: Path) -> Iterator[DoctorCheck]:
    try:
        spaces = open_workspaces(config.load(folder).config)
        yield from _kinds(spaces)
    except (RatchetError, OSError) as error:
        yield DoctorCheck(what="workspaces", ok=False, detail=str(error))
        return
    no_ram = spaces.capacity.why_no_ram()
    slower = f"{no_ram}: workspaces are on disk, which is slower; in a container: docker run --shm-size=2g"
    yield DoctorCheck(
        what=str(spaces.ram), ok=not no_ram, needed=False, detail=slower if no_ram else "workspaces are in RAM"
    )
    fuse = Path("/dev/fuse").exists()
    lost = "missing: nothing is lost, no kind of workspace uses FUSE; for tests that do: docker run --device /dev/fuse"
    yield DoctorCheck(what="/dev/fuse", ok=fuse, needed=False, detail="there, and not needed" if fuse else lost)


def _session() -> Iterator[DoctorCheck]:
    """What the user's session is like: folders, umask, locale."""
    place = tempfile.gettempdir()
    noexec = bool(os.statvfs(place).f_flag & os.ST_NOEXEC)
    lost = "mounted noexec: all commands work; for programs that are built and started there: export TMPDIR=~/tmp"
    yield DoctorCheck(
        what=place, ok=not noexec, needed=False, detail=lost if noexec else "programs can be started there"
    )
    home = str(Path("~").expanduser())
    plain = home.isascii() and not re.search(r"\s", home)
    lost = f"{home} has spaces or non-ASCII letters: all commands work; for tools that fail there: [workspace] root = …"
    yield DoctorCheck(what="home", ok=plain, needed=False, detail=home if plain else lost)
    mask = os.umask(0)
    os.umask(mask)
    open_to_others = mask & 0o055 != 0o055
    lost = f"{mask:03o}: new files are yours alone, all commands work; for tests that share files: umask 022"
    yield DoctorCheck(what="umask", ok=open_to_others, needed=False, detail=f"{mask:03o}" if open_to_others else lost)
    yield _locale()


def _locale() -> DoctorCheck:
    # Python itself sets LC_CTYPE where there is no locale (PEP 538): the user did not choose it.
    chosen = os.environ.get("LC_ALL") or os.environ.get("LANG") or "none set"
    utf8 = re.search(r"utf-?8", chosen, re.IGNORECASE) is not None
    lost = f"{chosen}: Ratchet reads and writes UTF-8 all the same; for tests that do not: export LC_ALL=C.UTF-8"
    return DoctorCheck(what="locale", ok=utf8, needed=False, detail=chosen if utf8 else lost)


def _git_settings() -> Iterator[DoctorCheck]:
    try:
        found = git("config", "--show-scope", "-z", "--get-regexp", _GIT_SETTINGS, ok=(0, 1)).decode(errors="replace")
    except RatchetError:
        return  # the line about git has the reason
    words = found.split("\0")
    rows = [(scope, *row.partition("\n")[::2]) for scope, row in zip(words[::2], words[1::2], strict=False)]
    named = dict.fromkeys(name for scope, name, value in rows if scope in ("system", "global") and value != "false")
    detail = (
        f"{', '.join(named)} apply to every repository: Ratchet's commits and checkouts ignore them; "
        f"for agents and tests that run git: git config --global --unset {next(iter(named))}"
        if named
        else "nothing that changes commits or checkouts"
    )
    yield DoctorCheck(what="git settings", ok=not named, needed=False, detail=detail)


def _kinds(spaces: Workspaces) -> Iterator[DoctorCheck]:
    """Check each kind of workspace, best first; `auto` uses the first that works."""
    probes = spaces.probe_kinds()
    chosen = next((probe.kind for probe in probes if probe.works), "")
    for probe in probes:
        good = "works (used by auto)" if probe.kind == chosen else "works"
        yield DoctorCheck(what=f"workspace {probe.kind}", ok=probe.works, needed=False, detail=probe.why or good)


def _git() -> DoctorCheck:
    try:
        version = run_command(["git", "--version"]).stdout.decode().split()[2]
    except RatchetError as error:
        return DoctorCheck(what="git", ok=False, detail=error.message)
    numbers = tuple(int(part) for part in version.split(".")[:2])
    return DoctorCheck(what="git", ok=numbers >= GIT_NEEDED, detail=f"{version} (needs 2.36 or newer)")


def _collection(target: Target, root: Path) -> DoctorCheck:
    """Load the tests without running them, where the runner can: a project that is not set up fails here."""
    what = f"loads ({target.name})"
    words = _COLLECT.get(target.runner)
    program = target.command[0]
    search = os.pathsep.join([str(root / target.root / "node_modules/.bin"), os.environ.get("PATH", os.defpath)])
    if shutil.which(program, path=search) is None:
        return DoctorCheck(
            what=what, ok=False, needed=False, detail=f"{program} is not installed; {_advice(target, root)}"
        )
    if words is None:
        return DoctorCheck(
            what=what, ok=True, detail=f"{program} is installed; {target.runner} has no way to load tests only"
        )
    env = {**os.environ, "PATH": search, "PYTHONDONTWRITEBYTECODE": "1", "CI": "1"}
    try:
        done = run_command([*target.command, *words], cwd=root / target.root, env=env, timeout_s=COLLECT_S)
    except RatchetError as error:
        return DoctorCheck(what=what, ok=False, needed=False, detail=f"{error.message}; {_advice(target, root)}")
    if not done.exit_code:
        return DoctorCheck(what=what, ok=True, detail="all test files load")
    printed = (done.stdout + done.stderr).decode(errors="replace")
    why = load_error(printed) or f"exit code {done.exit_code}"
    return DoctorCheck(
        what=what, ok=False, needed=False, detail=f"not all test files load: {why[:200]}; {_advice(target, root)}"
    )


def load_error(printed: str) -> str:
    """Return the line of a runner's output that says why tests do not load: the last one if none looks like it."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    marked = [line.removeprefix("E").strip() for line in lines if line.startswith("E  ")]
    errors = [line for line in lines if _ERROR.search(line) and "::" not in line]  # no test whose name has "error"
    return next(iter([*marked, *errors, *lines[-1:]]), "")


# The words after a runner's command that load the tests without running them.
_COLLECT = {
    "pytest": ["--collect-only", "-q", "-p", "no:cacheprovider"], "jest": ["--listTests"], "vitest": ["list"],
    "mocha": ["--dry-run"], "go": ["-list", "."], "cargo": ["--no-run"], "playwright": ["--list"],
}  # fmt: skip
_ERROR = re.compile(r"Error\b|error\[|cannot find|No module named|unrecognized arguments", re.IGNORECASE)
COLLECT_S = 60


def _advice(target: Target, root: Path) -> str:
    return "; ".join(set_up_advice([target], root).splitlines()) or "install what the project needs"


def _agents() -> Iterator[DoctorCheck]:
    """List the installed agents and whether a login was found."""
    found = [one for one in asyncio.run(find_agents()) if one.installed]
    for one in found:
        login = f"logged in by {one.login}" if one.login else f"no login found; log in with: {login_command(one.name)}"
        yield DoctorCheck(
            what=f"agent {one.name}", ok=bool(one.login), needed=False, detail=f"{one.version or '?'}, {login}"
        )
    if not found:
        detail = f"none of {', '.join(NATIVE)} is installed; any program works with --agent command:PROGRAM"
        yield DoctorCheck(what="agents", ok=False, needed=False, detail=detail)


def _extras() -> Iterator[DoctorCheck]:
    for extra, module, use in _EXTRAS:
        there = _is_installed(module)
        detail = use if there else f"{use}: {install_extra(extra)}"
        yield DoctorCheck(what=f"extra {extra}", ok=there, needed=False, detail=detail)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its parent is missing
        return False


_EXTRAS = (
    ("server", "uvicorn", "`ratchet serve`"), ("mcp", "mcp", "`ratchet mcp`"), ("acp", "acp", "agents over ACP"),
    ("postgres", "psycopg", "a store on PostgreSQL"), ("ray", "ray", "workers on a Ray cluster"),
    ("otel", "opentelemetry.sdk", "traces and metrics over OTLP"), ("plots", "matplotlib", "plots of reports"),
    ("demo", "pytest", "`ratchet demo`"),
)  # fmt: skip


def _project(folder: Path) -> Iterator[DoctorCheck]:
    try:
        repo = repository.find_repository(folder)
    except UntrustedRepository as error:
        detail = f"{error.message}: `ratchet test` works, runs, proofs and watch do not; {error.hint}"
        yield DoctorCheck(what="repository", ok=False, needed=False, detail=detail)
        return
    except RatchetError as error:
        yield DoctorCheck(what="repository", ok=False, needed=False, detail=error.message)
        return
    state = "uncommitted changes are not included in runs" if repo.dirty else "clean"
    yield DoctorCheck(what="repository", ok=True, detail=f"{repo.root} at {repo.head[:10]}, {state}")
    targets = detect(repo.root)
    for target in targets:
        yield DoctorCheck(what="tests", ok=True, detail=f"{target.name}: {' '.join(target.command)} ({target.why})")
        yield _collection(target, repo.root)
    if not targets:
        yield DoctorCheck(what="tests", ok=False, needed=False, detail="none found: set [test] command in ratchet.toml")
