"""What the factory itself does with what hostile programs leave behind: it runs nothing of it, follows no link, never
waits, and reads no more than its bounds."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ratchet import tree_files
from ratchet.app.test_workspaces.test_call import WorkspaceSuite
from ratchet.checks.detect.project import Project
from ratchet.checks.run.sides import with_sides
from ratchet.checks.run.test_fingerprints import with_fingerprints
from ratchet.checks.runners import c_subtests, meson_log
from ratchet.config import Config
from ratchet.core.report import Failure, TestResult, TestStatus
from ratchet.engine.steps.canaries import add_canaries
from ratchet.errors import EnvironmentCannot, GitFailed
from ratchet.process import spawn, supervise
from ratchet.process.cgroups import ControlGroup, ResourceLimits
from ratchet.workspace import sandbox, sandbox_view
from ratchet.workspace.base_cache import Recipe
from ratchet.workspace.git.command import git
from ratchet.workspace.git.filters import lay_over
from ratchet.workspace.git_workspace import GitWorkspace
from ratchet.workspace.protocol import TREE, WorkspaceRefused
from ratchet.workspace.registry import Workspaces
from ratchet.workspace.sandbox import Sandboxes, SandboxSettings, why_no_sandbox
from ratchet.workspace.sandbox_view import git_settings, private_files
from tests.test_architecture import SOURCE
from tests.workspace.conftest import SMALL, commit_all, sh

pytestmark = pytest.mark.timeout(60)

# Replaces `.git` by one whose settings name a program: git starts it to fetch an object that is missing.
FETCHES_BY_A_PROGRAM = """
rm -rf .git && git init -q . && mkdir -p x.git/objects x.git/refs && echo "ref: refs/heads/main" > x.git/HEAD
printf '#!/bin/sh\\ntouch %s/escaped\\n' "$CANARY" > evil.sh && chmod +x evil.sh
git config core.repositoryformatversion 1 && git config extensions.partialclone evil
git config remote.evil.promisor true && git config remote.evil.url "$PWD/x.git"
git config remote.evil.uploadpack "$PWD/evil.sh"
echo 1111111111111111111111111111111111111111 > .git/refs/heads/main && echo "ref: refs/heads/main" > .git/HEAD
"""


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (folder := tmp_path / "outside").mkdir()
    return folder


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    (folder := tmp_path / "repo").mkdir()
    sh("git", "init", "-q", "-b", "main", cwd=folder)
    (folder / "app.py").write_text("VALUE = 1\n")
    (folder / ".gitignore").write_text(".env\nnode_modules/\n")
    commit_all(folder, "start")
    return folder


@pytest.fixture
def spaces(tmp_path: Path) -> Iterator[Workspaces]:
    made = Workspaces(tmp_path / "ws", bases=tmp_path / "bases", limits=SMALL)
    yield made
    for record in made.records():
        made.destroy(record.slug)


def workspace(spaces: Workspaces, repo: Path, recipe: Recipe | None = None) -> GitWorkspace:
    made = spaces.create("one", repo=repo, commit=sh("git", "rev-parse", "HEAD", cwd=repo), recipe=recipe, kind="copy")
    assert not isinstance(made, WorkspaceRefused)
    return made


# --- paths that tests and tools name --------------------------------------------------------------------------------

WRITERS: dict[str, Callable[[Path, str], object]] = {
    "write": lambda top, path: tree_files.write_inside(top, path, b"x"),
    "replace": lambda top, path: tree_files.replace_inside(top, path, b"x"),
    "link": lambda top, path: tree_files.link_inside(top, path, b"x"),
    "make a folder": tree_files.make_folder_inside,
    "remove": tree_files.remove_inside,
    "remove links": tree_files.remove_links,
    "remove an empty folder": tree_files.remove_empty_folder,
}


@pytest.mark.parametrize("absolute", [True, False])
@pytest.mark.parametrize("how", WRITERS)
def test_a_path_that_leaves_the_folder_is_refused(tmp_path: Path, outside: Path, how: str, absolute: bool) -> None:
    (top := tmp_path / "top").mkdir()
    (outside / "kept").mkdir()
    for name in ("kept", "new"):
        with pytest.raises(tree_files.NotRegularFile):
            WRITERS[how](top, str(outside / name) if absolute else f"../outside/{name}")
    assert os.listdir(outside) == ["kept"]  # noqa: PTH208


def test_a_canary_is_not_added_to_a_file_that_a_report_names_by_an_absolute_path(tmp_path: Path, outside: Path) -> None:
    (top := tmp_path / "top").mkdir()
    named = outside / "test_a.py"
    (there := top / str(named).lstrip("/")).parent.mkdir(parents=True)
    there.write_text("def test_a(): pass\n")
    assert add_canaries(top, [str(named)]).files == {}
    assert not named.exists()


@pytest.mark.parametrize("leads", ["pipe", "pipe by link", "own descriptor", "endless device", "secret"])
def test_a_file_that_a_result_names_is_read_only_if_it_is_one_of_the_project(
    tmp_path: Path, outside: Path, leads: str
) -> None:
    (top := tmp_path / "top").mkdir()
    os.mkfifo(outside / "pipe")
    (outside / "secret.py").write_text("def secret(): assert 1 == value()\n")
    reading, writing = os.pipe()
    targets = {
        "pipe": outside / "pipe",
        "pipe by link": outside / "pipe",
        "own descriptor": Path(f"/proc/self/fd/{reading}"),
        "endless device": Path("/dev/zero"),
        "secret": outside / "secret.py",
    }
    file = str(targets[leads])
    if leads != "pipe":
        (top / "test_a.py").symlink_to(file)
        file = "test_a.py"
    failure = Failure(expected="1", actual="2", file=file, line=1)
    test = TestResult(id="t", name="t", file=file, line=1, status=TestStatus.FAILED, failure=failure)
    assert with_sides(with_fingerprints([test], top), top) == [test]
    assert Project(top).text(file) == ""
    os.close(reading)
    os.close(writing)


def test_a_link_within_the_tree_is_followed_from_a_folder_of_it(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "setup.cfg").write_text("[tool:pytest]\n")
    (tmp_path / "part" / "setup.cfg").symlink_to("../setup.cfg")
    assert Project(tmp_path / "part").text("setup.cfg") == ""
    with tree_files.links_may_lead(tmp_path):
        assert Project(tmp_path / "part").text("setup.cfg") == "[tool:pytest]\n"


def test_a_folder_too_deep_for_a_path_does_not_end_detection(tmp_path: Path) -> None:
    at = os.open(tmp_path, os.O_RDONLY)
    for _ in range(40):
        os.mkdir("n" * 200, dir_fd=at)
        below = os.open("n" * 200, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    assert Project(tmp_path).files == []
    tree_files.remove_inside(tmp_path, "n" * 200)


def test_a_folder_of_tests_that_became_a_link_is_not_looked_into(tmp_path: Path, outside: Path) -> None:
    (top := tmp_path / "top").mkdir()
    (outside / "test_secret.py").write_text("def test_secret(): pass\n")
    (top / "part").symlink_to(outside)
    assert not tree_files.is_source_folder(top, "part")
    assert not tree_files.is_source_folder(top, "../outside")
    assert tree_files.is_source_folder(top, ".")


def test_logs_of_a_build_are_not_deleted_through_a_link(tmp_path: Path, outside: Path) -> None:
    (build := tmp_path / "build").mkdir()
    (outside / "testlog.json").write_text("{}")
    (build / "meson-logs").symlink_to(outside)
    meson_log.forget(build)
    assert (outside / "testlog.json").exists()


def test_results_of_a_program_are_read_from_the_channel_only(tmp_path: Path) -> None:
    inside = f"{tmp_path}/x"
    rows = {
        "a": {"library": "gtest", "file": "/etc/passwd"},
        "b": {"library": "none", "file": inside},
        "c": {"library": "gtest", "file": inside},
    }
    (tmp_path / "inside.json").write_text(json.dumps(rows))
    assert list(c_subtests.programs(tmp_path)) == ["c"]


# --- bounds ----------------------------------------------------------------------------------------------------------


def test_a_file_larger_than_a_disk_is_removed_from_the_channel(tmp_path: Path) -> None:
    (tmp_path / "records.ndjson").touch()
    os.truncate(tmp_path / "records.ndjson", 1 << 40)
    spawn.tidy(tmp_path)
    assert not (tmp_path / "records.ndjson").exists()


def test_a_program_that_floods_its_output_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "WRITTEN_MAX_BYTES", 1 << 20)
    flood = supervise.supervise(
        ["cat", "/dev/zero"], cwd=tmp_path, env=dict(os.environ), output=tmp_path / "log", timeout_s=50
    )
    ended = asyncio.run(flood)
    assert ended.stopped and not ended.timed_out


# --- git --------------------------------------------------------------------------------------------------------------


def test_git_is_never_run_with_the_settings_of_a_workspace(spaces: Workspaces, repo: Path, outside: Path) -> None:
    one = workspace(spaces, repo)
    sh("env", f"CANARY={outside}", "sh", "-c", FETCHES_BY_A_PROGRAM, cwd=one.path)
    with pytest.raises(GitFailed, match="is in a workspace"):
        git("rev-parse", "HEAD^{commit}", cwd=one.path)
    assert WorkspaceSuite(one, "", Config(), state=outside, start="").repo is None
    assert one.path.name == TREE
    one.checkpoint()
    assert not (outside / "escaped").exists()


def test_git_is_not_run_in_a_workspace_to_which_a_link_leads(
    spaces: Workspaces, repo: Path, outside: Path, tmp_path: Path
) -> None:
    one = workspace(spaces, repo)
    sh("env", f"CANARY={outside}", "sh", "-c", FETCHES_BY_A_PROGRAM, cwd=one.path)
    (tmp_path / "link").symlink_to(one.path)
    with pytest.raises(GitFailed, match="is in a workspace"):
        git("rev-parse", "HEAD^{commit}", cwd=tmp_path / "link")
    with pytest.raises(GitFailed, match="is in a workspace"):
        git("rev-parse", "HEAD^{commit}", env={"GIT_DIR": str(one.path / ".git")})
    (home := Sandboxes(one, SandboxSettings()).agent_home("implementer") / "project").mkdir()
    with pytest.raises(GitFailed, match="is in a workspace"):
        git("rev-parse", "HEAD^{commit}", cwd=home)
    assert not (outside / "escaped").exists()


@pytest.mark.parametrize("name", ["../../store", "{repo}/store"])
def test_a_commit_does_not_choose_from_where_a_submodule_is_checked_out(
    spaces: Workspaces, repo: Path, outside: Path, name: str
) -> None:
    commit = with_submodule_store(repo, outside)
    (repo / ".git" / "modules").mkdir()  # as a real submodule leaves it
    named = name.format(repo=repo)
    (repo / ".gitmodules").write_text(f'[submodule "{named}"]\n\tpath = sub\n\turl = nowhere\n')
    sh("git", "add", "-A", cwd=repo)
    sh("git", "update-index", "--add", "--cacheinfo", f"160000,{commit},sub", cwd=repo)
    sh("git", "-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-qm", "hostile", cwd=repo)
    one = workspace(spaces, repo)
    assert not (one.path / "sub" / "file").exists()
    assert not (outside / "escaped").exists()


def with_submodule_store(repo: Path, outside: Path) -> str:
    """Commit a bare repository as plain files, whose settings name a program; returns its commit."""
    (inner := repo.parent / "inner").mkdir()
    sh("git", "init", "-q", "-b", "main", cwd=inner)
    (inner / ".gitattributes").write_text("* filter=evil\n")
    (inner / "file").write_text("content\n")
    commit = commit_all(inner)
    sh("git", "config", "core.bare", "true", cwd=inner)
    sh("git", "config", "filter.evil.smudge", f"touch {outside}/escaped; cat", cwd=inner)
    (inner / ".git").rename(repo / "store")
    return commit


def test_a_submodule_is_not_looked_for_behind_a_link(spaces: Workspaces, repo: Path, outside: Path) -> None:
    commit = with_submodule_store(repo, outside)
    (repo / "store").rename(outside / ".git")
    sh("git", "update-index", "--add", "--cacheinfo", f"160000,{commit},sub", cwd=repo)
    sh("git", "-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-qm", "hostile", cwd=repo)
    (repo / "sub").symlink_to(outside)
    assert not (workspace(spaces, repo).path / "sub" / "file").exists()
    assert not (outside / "escaped").exists()


def test_settings_that_a_setup_command_leaves_are_not_obeyed(spaces: Workspaces, repo: Path, outside: Path) -> None:
    (repo / "setup.sh").write_text(FETCHES_BY_A_PROGRAM)
    commit_all(repo)
    recipe = Recipe(setup=(f"CANARY={outside} sh setup.sh",), sandbox=False)
    one = workspace(spaces, repo, recipe)
    assert sh("git", "status", "--porcelain", "--untracked-files=no", cwd=one.path) == ""
    assert not (outside / "escaped").exists()


def setup_fails(spaces: Workspaces, repo: Path, command: str, bounds: ResourceLimits | None = None) -> str:
    if why := why_no_sandbox():
        pytest.skip(why)
    with pytest.raises(EnvironmentCannot) as failed:
        workspace(spaces, repo, Recipe(setup=(command,), bounds=bounds))
    return failed.value.message


def test_a_setup_command_that_floods_its_output_is_stopped(
    spaces: Workspaces, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "OUTPUT_MAX_BYTES", 1 << 20)
    assert "printed more than 1 MiB" in setup_fails(spaces, repo, "cat /dev/zero")


def test_a_setup_command_may_not_start_processes_without_end(spaces: Workspaces, repo: Path) -> None:
    group = ControlGroup("ratchet-test-setup", bounds := ResourceLimits(processes=30))
    group.prefix()
    group.close()
    if group.missing:
        pytest.skip("no control group for pids")
    start = "import subprocess; started = [subprocess.Popen(['sleep', '9']) for _ in range(60)]"
    assert "temporarily unavailable" in setup_fails(spaces, repo, f'python3 -c "{start}"', bounds)


def test_files_of_a_commit_are_laid_over_without_running_its_filters_outside(
    spaces: Workspaces, repo: Path, outside: Path
) -> None:
    if why := why_no_sandbox():
        pytest.skip(why)
    (repo / ".gitattributes").write_text("*.txt filter=mark\n")
    (repo / "mark.sh").write_text("sed s/a/b/\n")
    (repo / "data.txt").write_text("a\n")
    sh("git", "config", "filter.mark.smudge", "sh mark.sh", cwd=repo)
    first = commit_all(repo)
    (repo / "mark.sh").write_text(f"touch {outside}/escaped; sed s/a/c/\n")
    (repo / "gone.txt").write_text("a\n")
    commit_all(repo)
    one = workspace(spaces, repo)
    lay_over(one.path, Path(one.record.git_dir), first, ["data.txt", "gone.txt"])
    assert (one.path / "data.txt").read_text() == "c\n"  # by the filter as it is there, in a sandbox
    assert not (one.path / "gone.txt").exists()
    assert not (outside / "escaped").exists()


def test_dependencies_that_were_installed_for_a_commit_of_agents_are_not_taken_over(
    spaces: Workspaces, repo: Path
) -> None:
    if why := why_no_sandbox():
        pytest.skip(why)
    recipe = Recipe(setup=("mkdir -p node_modules && [ -e node_modules/by ] || cp by node_modules/by",))
    (repo / "by").write_text("an agent\n")
    commit_all(repo, "a change\n\nRatchet-Run: run-1\n")
    assert (workspace(spaces, repo, recipe).path / "node_modules" / "by").read_text() == "an agent\n"
    spaces.destroy("one")
    sh("git", "update-ref", "-d", "refs/heads/ratchet/one", cwd=repo)
    (repo / "by").write_text("people\n")
    commit_all(repo)
    assert (workspace(spaces, repo, recipe).path / "node_modules" / "by").read_text() == "people\n"


# --- programs of the workspace ----------------------------------------------------------------------------------------


def start_step(one: GitWorkspace, script: str, **env: str) -> str:
    """Run a script as a test, with programs of the workspace first on the PATH."""
    log = one.path.parent / "log"
    made = Sandboxes(one, SandboxSettings(mode="on", bounds=ResourceLimits(processes=200)))
    path = {"PATH": f"{one.path}/node_modules/.bin:{os.environ['PATH']}", **env}
    try:
        with spawn.confined(made.for_tests()):
            asyncio.run(supervise.supervise(["sh", "-c", script], cwd=one.path, env=path, output=log, timeout_s=50))
    finally:
        made.close()
    return log.read_text()


@pytest.mark.parametrize("name", ["sh", "bwrap", "nsenter", "setpriv"])
def test_programs_of_the_workspace_do_not_start_its_sandbox(
    spaces: Workspaces, repo: Path, outside: Path, name: str
) -> None:
    if why := why_no_sandbox():
        pytest.skip(why)
    one = workspace(spaces, repo)
    (bins := one.path / "node_modules" / ".bin").mkdir(parents=True)
    (bins / name).write_text(f'#!/bin/sh\n/usr/bin/touch {outside}/escaped\nexec /bin/{name} "$@"\n')
    (bins / name).chmod(0o755)
    assert "ran" in start_step(one, "echo ran")
    assert not (outside / "escaped").exists()


def test_libraries_that_a_variable_names_are_loaded_only_inside(spaces: Workspaces, repo: Path, outside: Path) -> None:
    if why := why_no_sandbox():
        pytest.skip(why)
    one = workspace(spaces, repo)
    (one.path / "not-a-library.so").write_text("no library\n")
    printed = start_step(one, 'echo "loads $LD_PRELOAD"', LD_PRELOAD=f"{one.path}/not-a-library.so")
    assert f"loads {one.path}/not-a-library.so" in printed
    assert "cannot be preloaded" in printed  # by the programs inside
    own = Sandboxes(one, SandboxSettings(mode="on")).for_tests()
    assert own
    _, env = own.wrap(
        ["true"], cwd=one.path, env={"LD_PRELOAD": "x", "LD_LIBRARY_PATH": "y", "PATH": "/bin"}, writable=[]
    )
    assert not any(variable.startswith("LD_") for variable in env)


@pytest.mark.parametrize("link", ["node_modules/.bin/python3", "node_modules/.bin/jest"])
def test_a_link_in_the_workspace_shows_nothing_of_the_machine(
    spaces: Workspaces, repo: Path, outside: Path, link: str
) -> None:
    if why := why_no_sandbox():
        pytest.skip(why)
    (outside / "id_ed25519").write_text("the-secret-of-somebody-else")
    (outside / "id_ed25519").chmod(0o755)
    one = workspace(spaces, repo)
    (one.path / link).parent.mkdir(parents=True)
    (one.path / link).symlink_to(outside / "id_ed25519")
    printed = start_step(one, f"cat {outside}/id_ed25519; echo $0")
    words = sandbox_view.installed([str(one.path / link)], (str(one.path),))
    assert "the-secret" not in printed and str(outside) not in words


# --- what a base is made from ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", ["d/id_rsa", "d", "../keys/id_rsa"])
def test_nothing_is_carried_by_way_of_a_link_that_a_commit_has(
    spaces: Workspaces, repo: Path, tmp_path: Path, recipe: str
) -> None:
    (keys := tmp_path / "keys").mkdir()
    (keys / "id_rsa").write_text("the-secret-of-somebody-else")
    (repo / ".gitignore").write_text("d/\n")
    commit_all(repo, "ignores")
    (repo / "d").symlink_to(keys)
    one = workspace(spaces, repo, Recipe(carry=(recipe,)))
    assert not os.path.lexists(one.path / "d") and not list(one.path.rglob("id_rsa"))


def test_nothing_is_carried_to_where_a_link_in_a_commit_leads(spaces: Workspaces, repo: Path, tmp_path: Path) -> None:
    (place := tmp_path / "place").mkdir()
    (repo / "d").symlink_to(place)
    (repo / ".gitignore").write_text("authorized_keys\n")
    commit_all(repo, "has a link")
    (repo / "d").unlink()
    (repo / "d").mkdir()
    (repo / "d" / "authorized_keys").write_text("a key\n")
    workspace(spaces, repo, Recipe(carry=("d/authorized_keys",)))
    assert not list(place.iterdir())


def test_filters_of_submodules_run_in_a_sandbox(
    spaces: Workspaces, repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why := why_no_sandbox():
        pytest.skip(why)
    (inner := tmp_path / "inner").mkdir()
    sh("git", "init", "-q", "-b", "main", cwd=inner)
    (inner / ".gitattributes").write_text("*.up filter=up\n")
    (inner / "word.up").write_text("word\n")
    (inner / "smudge.sh").write_text(f"touch {tmp_path}/ran; tr a-z A-Z\n")
    commit_all(inner, "a filter")
    sh("git", "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "lib", cwd=repo)
    commit_all(repo, "a submodule")
    (settings := tmp_path / "gitconfig").write_text('[filter "up"]\n\tsmudge = sh ./smudge.sh\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".gitconfig").write_text(settings.read_text())
    one = workspace(spaces, repo)
    assert not (tmp_path / "ran").exists()
    assert (one.path / "lib" / "word.up").read_text() == "WORD\n"


@pytest.mark.parametrize("author", ["people", "agents"])
def test_set_up_of_an_agents_commit_gets_the_usual_variables_only(
    spaces: Workspaces, repo: Path, monkeypatch: pytest.MonkeyPatch, author: str
) -> None:
    if why := why_no_sandbox():
        pytest.skip(why)
    for name in ("GITHUB_PAT", "DB_PASS", "DATABASE_URL", "CARGO_HOME"):
        monkeypatch.setenv(name, f"value-of-{name}")
    (repo / "work").write_text(author)
    commit_all(repo, "work" + ("\n\nRatchet-Run: run-1\n" if author == "agents" else ""))
    one = workspace(spaces, repo, Recipe(setup=("mkdir node_modules && env > node_modules/env",)))
    seen = (one.path / "node_modules" / "env").read_text()
    assert "value-of-CARGO_HOME" in seen and "GITHUB_PAT" not in seen and "DB_PASS" not in seen
    assert ("DATABASE_URL" in seen) == (author == "people")


# --- secrets of the checkout -----------------------------------------------------------------------------------------


def test_logins_in_the_settings_of_git_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(
        '[remote "origin"]\n\turl = https://me:secret1@host/x.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n'
        '[http "https://host/"] extraheader = AUTHORIZATION: basic secret2 \\\n secret3\n'
        "[sendemail]\n\tsmtpPass = secret4\n"
    )
    copy, file = git_settings(str(tmp_path))
    text = Path(copy).read_text()
    assert file == str(tmp_path / "config")
    assert "secret" not in text and "https://host/x.git" in text and "fetch = +refs" in text


def test_logins_of_submodules_and_of_repositories_in_the_checkout_are_not_shown(spaces: Workspaces, repo: Path) -> None:
    if why := why_no_sandbox():
        pytest.skip(why)
    for name in ("modules/lib", "modules/third_party/objects/very/deep", "modules/lib/modules/inner/most"):
        sh("git", "init", "-q", "--bare", str(repo / ".git" / name), cwd=repo)
    sh("git", "init", "-q", "vendored/other", cwd=repo)
    nested = [*(repo / ".git" / "modules").rglob("config"), repo / "vendored/other/.git/config"]
    for number, file in enumerate(nested):
        file.write_text(f'[remote "origin"]\n\turl = https://me:hush-{number}@host/x.git\n')
    assert len(nested) == 4
    printed = start_step(workspace(spaces, repo), f"cat {' '.join(map(str, nested))}")
    assert printed.count("url = https://host/x.git") == 4 and "hush" not in printed


def test_files_with_secrets_are_hidden_wherever_they_are_in_the_checkout(spaces: Workspaces, repo: Path) -> None:
    for name in ("backend/.env", "backend/app/service.pem", ".npmrc", "node_modules/a/.env", "notes.txt"):
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).write_text("hush-hush\n")
    hidden = {Path(path).relative_to(repo).as_posix() for path in private_files(str(repo))}
    assert {"backend/.env", "backend/app/service.pem", ".npmrc"} <= hidden
    assert not {"notes.txt", "app.py", "node_modules"} & hidden
    if why := why_no_sandbox():
        pytest.skip(why)
    sh("git", "remote", "add", "origin", "https://me:hush-hush@host/x.git", cwd=repo)
    one = workspace(spaces, repo)
    sandboxes = Sandboxes(one, SandboxSettings(mode="on"))
    look = f"cat {repo}/backend/.env {repo}/.npmrc {repo}/.git/config; git config remote.origin.url"
    with spawn.confined(sandboxes.for_tests()):
        env = {"PATH": os.environ["PATH"]}
        asyncio.run(
            supervise.supervise(["sh", "-c", look], cwd=one.path, env=env, output=one.home / "log", timeout_s=30)
        )
    sandboxes.close()
    said = (one.home / "log").read_text()
    assert "hush-hush" not in said and "https://host/x.git" in said


# --- the class, not the instance -------------------------------------------------------------------------------------

# What these modules open by path is outside of what tests can write, or in the channel after it was made safe.
OPENS = {
    "checks/detect/targets.py", "checks/run/ci_log.py", "checks/run/executor.py", "checks/run/prefork.py",
    "checks/run/test_history.py", "checks/runners/__init__.py", "checks/runners/command.py", "checks/runners/cpp.py",
    "checks/runners/python.py", "engine/steps/builtin_gates.py", "engine/steps/check_task.py",
    "engine/steps/context.py", "engine/steps/test_commit_revert.py",
}  # fmt: skip


def test_what_tests_may_have_written_is_opened_by_one_module() -> None:
    found = set()
    for part in ("checks", "engine/steps"):
        for path in sorted((SOURCE / part).rglob("*.py")):
            calls = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)]
            names = {call.func.attr for call in calls if isinstance(call.func, ast.Attribute)}
            names |= {call.func.id for call in calls if isinstance(call.func, ast.Name)}
            if names & {"read_text", "read_bytes", "open", "unlink"} and "reporters" not in path.parts:
                found.add(path.relative_to(SOURCE).as_posix())
    assert found <= OPENS


def test_every_module_that_may_open_by_path_still_does() -> None:
    assert all((SOURCE / name).is_file() for name in OPENS)


def test_folders_are_made_for_a_time_and_removed_by_one_module() -> None:
    """Python's own removal gives up, or fails, where a hostile program has nested folders without end."""
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if {"TemporaryDirectory", "rmtree"} & set(re.findall(r"\w+", path.read_text("utf-8")))
    }
    assert not found


# Counts the folders that are read while the output of a step is measured.
COUNTS_FOLDERS = """
import os, sys
from pathlib import Path
from ratchet.process import spawn
wide, deep = Path("wide"), Path("deep")
for number in range(12_000):
    (wide / str(number)).mkdir(parents=True)
deep.mkdir()
at = os.open(deep, os.O_RDONLY)
for _ in range(1_500):
    os.mkdir("d", dir_fd=at)
    below = os.open("d", os.O_RDONLY, dir_fd=at)
    os.close(at)
    at = below
counted = []
sys.addaudithook(lambda event, _: counted.append(event) if event == "os.scandir" else None)
for place in (wide, deep):
    counted.clear()
    spawn.bytes_written([place])
    print(len(counted))
"""


def test_output_is_measured_in_a_bounded_number_of_folders(tmp_path: Path) -> None:
    counted = sh(sys.executable, "-c", COUNTS_FOLDERS, cwd=tmp_path)
    wide, deep = map(int, counted.split())
    tree_files.remove_inside(tmp_path, "deep")
    assert wide <= 10_001 and deep <= 50
