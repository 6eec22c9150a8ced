"""Making, finding and removing workspaces: bad input, limits, crowds, owners that died."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from ratchet.errors import DiskFull, GitFailed, NotFound, RatchetError, UsageError
from ratchet.process.spawn import this_process
from ratchet.workspace.base_cache import Recipe, SetupFailed
from ratchet.workspace.capacity import CapacityLimits
from ratchet.workspace.git.command import git
from ratchet.workspace.kinds.overlay import Overlay
from ratchet.workspace.kinds.selection import KindMissing
from ratchet.workspace.owners import is_owned_elsewhere
from ratchet.workspace.protocol import WorkspaceRefused
from ratchet.workspace.registry import SlugTaken, Workspaces
from tests.workspace.conftest import SMALL, commit_all, make, sh

Disk = Callable[..., Path]


@pytest.mark.parametrize("slug", ["a/b", "..", ".", "", "a\0b", "x" * 300, "-x", "a..b", "a.lock", "a b", "a\n"])
def test_a_slug_that_cannot_name_a_folder_and_a_branch_is_refused(plain: Workspaces, repo: Path, slug: str) -> None:
    with pytest.raises(UsageError):
        make(plain, repo, slug)
    assert plain.records() == []


def test_a_slug_is_taken_once(plain: Workspaces, repo: Path) -> None:
    make(plain, repo)
    with pytest.raises(SlugTaken):
        make(plain, repo)


def test_a_source_that_will_not_do_is_named(plain: Workspaces, repo: Path, tmp_path: Path) -> None:
    commit = sh("git", "rev-parse", "HEAD", cwd=repo)
    (tmp_path / "plain").mkdir()
    for folder, why in ((tmp_path / "gone", "does not exist"), (tmp_path / "plain", "not in a git repository")):
        with pytest.raises(UsageError, match=why):
            plain.create("x", repo=folder, commit=commit)
    one = make(plain, repo)
    with pytest.raises(UsageError, match="inside the workspace one"):
        plain.create("x", repo=one.path, commit=commit)
    with pytest.raises(UsageError, match="full commit id"):
        plain.create("x", repo=repo, commit="HEAD")


def test_a_commit_that_does_not_exist_leaves_nothing_behind(plain: Workspaces, repo: Path) -> None:
    with pytest.raises(RatchetError):
        plain.create("x", repo=repo, commit="1" * 40)
    assert plain.records() == []
    assert sh("git", "branch", "--list", "ratchet/*", cwd=repo) == ""
    assert not [path for path in plain.root.iterdir() if not path.name.startswith(".")]


def test_a_forced_kind_that_cannot_be_had_says_why_and_what_would_work(repo: Path, tmp_path: Path, disk: Disk) -> None:
    apart = Workspaces(tmp_path / "ws", bases=disk("other", "size=64m") / "bases", limits=SMALL)
    with pytest.raises(KindMissing, match=r"reflink: source and target are on different file systems; \w+ would work"):
        make(apart, repo, kind="reflink")
    with pytest.raises(UsageError, match="there is no workspace kind"):
        make(apart, repo, kind="hologram")


def test_below_the_limits_a_workspace_is_refused_with_the_reason(repo: Path, tmp_path: Path) -> None:
    commit = sh("git", "rev-parse", "HEAD", cwd=repo)
    for limits, on, why in (
        (CapacityLimits(max_count=1), "auto", "at most 1 are allowed"),
        (CapacityLimits(min_free_ram_bytes=1 << 60), "ram", "of RAM are free"),
        (CapacityLimits(min_free_disk_bytes=1 << 60), "disk", "are free on the disk"),
    ):
        spaces = Workspaces(tmp_path / on, bases=tmp_path / "bases", limits=limits)
        first = spaces.create("a", repo=repo, commit=commit, on=on)
        second = spaces.create("b", repo=repo, commit=commit, on=on)
        refused = next(made for made in (first, second) if isinstance(made, WorkspaceRefused))
        assert why in refused.reason
        assert refused.hint
        spaces.destroy("a")


def test_with_room_in_ram_the_layer_is_there_under_the_slugs_name(plain: Workspaces, repo: Path) -> None:
    one = make(plain, repo, f"named-{os.getpid()}")
    if not isinstance(one, Overlay):
        pytest.skip(f"{one.record.kind} has no layer")
    assert one.record.layer.startswith(f"/dev/shm/ratchet-named-{os.getpid()}-")
    assert one.record.on == "ram"


def test_where_mounts_are_not_permitted_another_kind_is_taken_and_the_error_says_so(repo: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("giving up the right to mount needs root and setpriv (package util-linux)")
    code = f"""
from pathlib import Path
from ratchet.errors import RatchetError
from ratchet.workspace.registry import Workspaces
spaces = Workspaces(Path({str(tmp_path / "ws")!r}), bases=Path({str(tmp_path / "bases")!r}))
wanted = dict(repo=Path({str(repo)!r}), commit={sh("git", "rev-parse", "HEAD", cwd=repo)!r})
print(spaces.create("auto", **wanted).record.kind)
spaces.destroy("auto")
try:
    spaces.create("forced", kind="overlay", **wanted)
except RatchetError as error:
    print(error.message)
print([path.name for path in spaces.root.iterdir()])
"""
    without = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]
    done = subprocess.run([*without, sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kind, why, left = done.stdout.splitlines()
    assert kind in ("reflink", "worktree")
    assert why == f"overlay: mounts are not permitted here; {kind} would work"
    assert left == "[]"


def test_a_large_file_survives_every_verb(plain: Workspaces, repo: Path) -> None:
    block = os.urandom(1 << 20)
    (repo / "large.bin").write_bytes(block * 6)
    commit_all(repo)
    one = make(plain, repo)
    before = one.checkpoint()
    with (one.path / "large.bin").open("ab") as file:
        file.write(block * 2)
    after = one.checkpoint()
    one.reset(before)
    assert (one.path / "large.bin").stat().st_size == 6 << 20
    one.reset(after)
    assert (one.path / "large.bin").read_bytes() == block * 8


def test_without_room_in_ram_the_layer_goes_to_disk(repo: Path, tmp_path: Path) -> None:
    spaces = Workspaces(tmp_path / "ws", bases=tmp_path / "bases", limits=CapacityLimits(min_free_ram_bytes=1 << 60))
    assert make(spaces, repo).record.on == "disk"
    spaces.destroy("one")


def test_fifty_callers_at_once_all_get_their_own(plain: Workspaces, repo: Path) -> None:
    slugs = [f"w{n}" for n in range(50)]
    with ThreadPoolExecutor(50) as crowd:
        made = list(crowd.map(lambda slug: make(plain, repo, slug), slugs))
        assert len({one.checkpoint() for one in made}) == 1
        assert sorted(record.slug for record in plain.records()) == sorted(slugs)
        assert len(plain.bases.list()) == 1
        assert all(crowd.map(plain.destroy, slugs))
    assert plain.records() == []
    assert sh("git", "worktree", "list", cwd=repo).count("\n") == 0


def test_fifty_callers_for_one_slug_give_one_workspace(plain: Workspaces, repo: Path) -> None:
    def attempt(_n: int) -> str:
        try:
            return make(plain, repo, "same").record.id
        except SlugTaken:
            return ""

    with ThreadPoolExecutor(50) as crowd:
        made = [name for name in crowd.map(attempt, range(50)) if name]
        assert [record.id for record in plain.records()] == made
        assert len(made) == 1
        gone = list(crowd.map(lambda _n: plain.destroy("same"), range(50)))
    assert sum(gone) == 1


# --- bases ----------------------------------------------------------------------------------------------------


def test_setup_runs_once_for_many_callers_and_again_for_another_commit(
    plain: Workspaces, repo: Path, tmp_path: Path
) -> None:
    count = tmp_path / "count"
    install = f"echo x >> {count}; mkdir -p node_modules; cp -n package.json node_modules/installed"
    recipe = Recipe(setup=(install, "mkdir -p built; cp src/app.py built/app.py"), sandbox=False)
    (repo / "package.json").write_text("{}")
    commit_all(repo)
    with ThreadPoolExecutor(8) as crowd:
        made = list(crowd.map(lambda n: make(plain, repo, f"w{n}", recipe=recipe), range(8)))
    assert count.read_text() == "x\n"
    assert all((one.path / "node_modules" / "installed").read_text() == "{}" for one in made)
    (repo / "src" / "app.py").write_text("VALUE = 7\n")
    commit_all(repo)
    other = make(plain, repo, "same-deps", recipe=recipe)
    assert count.read_text() == "x\nx\n"
    assert (other.path / "built" / "app.py").read_text() == "VALUE = 7\n", "not built from another commit's source"


def test_only_dependency_folders_of_another_commit_are_there_when_setup_runs(plain: Workspaces, repo: Path) -> None:
    recipe = Recipe(
        setup=("ls -d node_modules built > there.log || true; mkdir -p node_modules built; touch node_modules/x",)
    )
    (repo / "package.json").write_text("{}")
    commit_all(repo)
    make(plain, repo, "first", recipe=recipe)
    (repo / "src" / "app.py").write_text("VALUE = 7\n")
    commit_all(repo)
    same = make(plain, repo, "same", recipe=recipe)
    assert (Path(same.base.folder) / "there.log").read_text() == "node_modules\n"
    (repo / "package.json").write_text('{"a": 1}')
    commit_all(repo)
    assert (Path(make(plain, repo, "new", recipe=recipe).base.folder) / "there.log").read_text() == ""


def test_a_failed_setup_leaves_no_base_and_its_output_is_in_the_error(plain: Workspaces, repo: Path) -> None:
    with pytest.raises(SetupFailed, match=r"exit 3.*no such package"):
        make(plain, repo, recipe=Recipe(setup=("echo no such package >&2; exit 3",)))
    assert plain.bases.list() == []
    assert plain.records() == []


def test_a_preparation_killed_half_way_is_never_taken_for_a_base(plain: Workspaces, repo: Path, tmp_path: Path) -> None:
    reached = tmp_path / "reached"
    os.mkfifo(reached)
    stuck = f"[ -e {tmp_path}/again ] || {{ echo > {reached}; sleep 600; }}"
    code = f"""
from pathlib import Path
from ratchet.workspace.base_cache import Recipe
from ratchet.workspace.registry import Workspaces
Workspaces(Path({str(plain.root)!r}), bases=Path({str(plain.bases.root)!r})).create(
    "one", repo=Path({str(repo)!r}), commit={sh("git", "rev-parse", "HEAD", cwd=repo)!r},
    recipe=Recipe(setup=({stuck!r},), sandbox=False))
"""
    child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    reached.read_text()
    os.killpg(child.pid, 9)
    child.wait()
    (tmp_path / "again").touch()
    one = make(plain, repo, recipe=Recipe(setup=(stuck,), sandbox=False))
    assert (one.path / "src" / "app.py").exists()
    plain.gc()
    assert [path.name for path in plain.bases.root.iterdir() if path.name.startswith(".making")] == []


def test_the_least_recently_used_base_goes_first_and_one_in_use_never(plain: Workspaces, repo: Path) -> None:
    for n in range(3):
        (repo / "n").write_text(str(n))
        commit_all(repo)
        make(plain, repo, f"w{n}")
    plain.destroy("w0")
    plain.destroy("w2")
    oldest = plain.bases.list()[0].path
    assert plain.bases.evict(max_bytes=sum(base.size_bytes for base in plain.bases.list()) - 1) == [oldest]
    plain.bases.evict(max_bytes=0)
    assert [base.path for base in plain.bases.list()] == [plain.open("w1").record.base]


def test_a_base_deleted_by_hand_is_made_again(plain: Workspaces, repo: Path) -> None:
    one = make(plain, repo, kind="auto")
    plain.destroy("one")
    for what in ("tree", "."):
        subprocess.run(["rm", "-rf", f"{one.record.base}/{what}"], check=False)
        assert (make(plain, repo, "again").path / "src" / "app.py").exists()
        plain.destroy("again")


def test_a_base_survives_the_deletion_of_the_projects_own_store(plain: Workspaces, repo: Path) -> None:
    tree = make(plain, repo).checkpoint()
    plain.destroy("one")
    subprocess.run(["rm", "-rf", str(repo / ".ratchet")], check=True)
    one = make(plain, repo)
    (one.path / "new").write_text("x")
    assert one.changes(tree, one.checkpoint()) == ["new"]


def test_a_workspace_whose_base_was_deleted_is_lost_and_can_be_destroyed(plain: Workspaces, repo: Path) -> None:
    one = make(plain, repo)
    subprocess.run(["rm", "-rf", one.record.base], check=True)
    with pytest.raises(NotFound, match="has lost its base"):
        plain.open("one")
    assert plain.destroy("one")
    assert make(plain, repo).checkpoint()


# --- owners ----------------------------------------------------------------------------------------------------


def orphan(spaces: Workspaces, repo: Path, slug: str, **more: str) -> None:
    """A workspace whose owner was killed."""
    code = f"""
import os
from pathlib import Path
from ratchet.process.spawn import this_process
from ratchet.workspace.registry import Workspaces
Workspaces(Path({str(spaces.root)!r}), bases=Path({str(spaces.bases.root)!r})).create(
    {slug!r}, repo=Path({str(repo)!r}), commit={sh("git", "rev-parse", "HEAD", cwd=repo)!r},
    owner=this_process(), **{more!r})
os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9


def test_orphans_of_dead_owners_are_removed_and_live_ones_are_not(plain: Workspaces, repo: Path) -> None:
    orphan(plain, repo, "dead")
    orphan(plain, repo, "kept", kept_until="2999-01-01T00:00:00Z")
    make(plain, repo, "alive", owner=this_process())
    make(plain, repo, "unowned")
    (plain.root / "half-made").mkdir()
    layer = Path(plain.open("dead").record.layer)
    assert plain.gc() == ["dead", "half-made"]
    assert not layer.exists()
    assert [record.slug for record in plain.records()] == ["alive", "kept", "unowned"]
    assert plain.gc(now="2999-01-02T00:00:00Z") == ["kept"]


def test_a_workspace_of_an_earlier_boot_is_removed_and_one_of_another_host_left_alone(
    plain: Workspaces, repo: Path
) -> None:
    for slug, changed in (("earlier", {"boot_id": "b"}), ("elsewhere", {"boot_id": "b", "host": "other"})):
        record = msgspec.structs.replace(make(plain, repo, slug, owner=this_process()).record, **changed)
        (plain.root / slug / "workspace.json").write_bytes(msgspec.json.encode(record))
    assert plain.gc() == ["earlier"]


def test_a_lost_mount_is_mounted_again_with_what_was_in_it(plain: Workspaces, repo: Path) -> None:
    one = make(plain, repo)
    if not isinstance(one, Overlay):
        pytest.skip(f"{one.record.kind} has no mount to lose")
    (one.path / "written").write_text("before")
    one.unmount()
    assert (plain.open("one").path / "written").read_text() == "before"


def test_a_workspace_that_lost_its_layer_is_not_found_and_can_be_made_again(plain: Workspaces, repo: Path) -> None:
    one = make(plain, repo)
    if not isinstance(one, Overlay):
        pytest.skip(f"{one.record.kind} has no layer to lose")
    one.unmount()
    subprocess.run(["rm", "-rf", one.record.layer], check=True)
    with pytest.raises(NotFound, match="was lost with the RAM disk"):
        plain.open("one")
    assert plain.records() == []
    assert plain.gc() == ["one"]
    assert list((repo / ".git" / "worktrees").iterdir()) == []
    assert make(plain, repo).checkpoint()


def test_a_name_a_reboot_has_left_never_leads_to_the_workspace_of_another_folder(repo: Path, tmp_path: Path) -> None:
    slug = f"left-{os.getpid()}"
    ours, theirs = (Workspaces(tmp_path / name, bases=tmp_path / "bases", limits=SMALL) for name in ("x", "y"))
    one = make(ours, repo, slug)
    if not isinstance(one, Overlay) or one.record.on != "ram":
        pytest.skip("there is no RAM disk here to lose")
    one.unmount()
    subprocess.run(["rm", "-rf", one.record.layer], check=True)
    other = make(theirs, repo, slug)
    assert other.record.layer != one.record.layer, "names on the RAM disk are never used again"
    assert ours.records() == []
    with pytest.raises(NotFound, match="was lost"):
        ours.open(slug)
    assert ours.gc() == [slug]
    assert make(ours, repo, slug).record.layer != other.record.layer
    assert ours.destroy(slug)
    assert (other.path / "src" / "app.py").exists()
    assert theirs.destroy(slug)


def test_what_is_left_of_a_try_whose_process_was_killed_is_removed_and_a_young_one_is_not(
    plain: Workspaces, repo: Path
) -> None:
    make(plain, repo)
    places = (plain.root, plain.bases.root, plain.ram)
    old, young = ([place / f".ratchet-try-{age}-{os.getpid()}" for place in places] for age in ("old", "young"))
    for path in (*old, *young):
        (path / "upper").mkdir(parents=True)
    for path in old:
        os.utime(path, (0, 0))
    plain.gc()
    left = [path.exists() for path in (*old, *young)]
    for path in young:
        shutil.rmtree(path)
    assert left == [False] * 3 + [True] * 3


def test_a_fork_whose_content_cannot_be_laid_leaves_neither_a_copy_nor_a_branch(
    repo: Path, tmp_path: Path, disk: Disk
) -> None:
    spaces = Workspaces(
        tmp_path / "ws",
        bases=tmp_path / "bases",
        limits=CapacityLimits(min_free_ram_bytes=0),
        ram=disk("ram", "size=1m"),
    )
    one = make(spaces, repo, kind="overlay-ram")
    (one.path / "large").write_bytes(os.urandom(600 << 10))
    with pytest.raises(DiskFull):
        spaces.fork("one", "two")
    assert [record.slug for record in spaces.records()] == ["one"]
    [left] = spaces.ram.iterdir()
    assert left.name.startswith("ratchet-one-")
    assert sh("git", "branch", "--list", "ratchet/two", cwd=repo) == ""
    spaces.destroy("one")


def test_what_a_root_that_was_deleted_by_hand_had_in_ram_is_removed(plain: Workspaces, repo: Path) -> None:
    one = make(plain, repo, f"nameless-{os.getpid()}")
    if not isinstance(one, Overlay) or one.record.on != "ram":
        pytest.skip("there is no RAM disk here")
    shutil.rmtree(plain.root, ignore_errors=True)  # nobody can remove a folder where files are mounted
    plain.gc()
    assert not Path(one.record.layer).exists()
    assert one.record.path not in Path("/proc/self/mounts").read_text()


def test_no_folder_above_a_workspace_in_ram_can_be_written_by_others(plain: Workspaces, repo: Path) -> None:
    one = make(plain, repo, f"above-{os.getpid()}")
    if not isinstance(one, Overlay) or one.record.on != "ram":
        pytest.skip("there is no RAM disk here")
    path = Path(one.record.path)
    assert path.resolve() == path and path.is_relative_to(plain.root) and not path.is_relative_to(plain.ram)
    assert Path(one.record.layer).is_relative_to(plain.ram)
    with pytest.raises(GitFailed, match="not trusted"):
        git("status", cwd=path)
    plain.destroy(one.record.slug)
    assert not path.exists()


def test_a_living_owners_workspace_in_ram_outlives_a_sweep_by_a_process_that_cannot_see_its_name(
    plain: Workspaces, repo: Path
) -> None:
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("hiding a folder from one process needs root and unshare (package util-linux)")
    one = make(plain, repo, f"hidden-{os.getpid()}", owner=this_process())
    if not isinstance(one, Overlay) or one.record.on != "ram":
        pytest.skip("there is no RAM disk here")
    code = "import sys; from pathlib import Path; from ratchet.workspace.registry import Workspaces; "
    code += "Workspaces(Path(sys.argv[1]), bases=Path(sys.argv[2])).gc()"
    elsewhere = ["sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(plain.root)]
    own = [str(plain.root / "own"), str(plain.root / "own-bases")]
    sh("unshare", "-m", "--propagation", "private", *elsewhere, sys.executable, "-c", code, *own, cwd=repo)
    assert (one.path / "src" / "app.py").read_text() == "VALUE = 1\n"
    plain.destroy(one.record.slug)


def test_an_owner_in_another_pid_namespace_is_not_mistaken_for_the_process_with_its_number_here(
    plain: Workspaces, repo: Path
) -> None:
    record = make(plain, repo, owner=this_process()).record
    assert not is_owned_elsewhere(record)
    assert is_owned_elsewhere(msgspec.structs.replace(record, owner_machine=f"{record.boot_id}:1"))
    assert not is_owned_elsewhere(msgspec.structs.replace(record, owner_machine="b:1", boot_id="b"))


def test_the_same_slug_in_another_folder_of_workspaces_is_another_workspace(repo: Path, tmp_path: Path) -> None:
    both = [Workspaces(tmp_path / name, bases=tmp_path / "bases", limits=SMALL) for name in ("x", "y")]
    first, second = (make(spaces, repo) for spaces in both)
    (first.path / "mine").write_text("1")
    assert not (second.path / "mine").exists()
    for spaces in both:
        assert spaces.destroy("one")
