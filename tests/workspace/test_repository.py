"""Repositories by name: what is one, and how one that is elsewhere gets here."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ratchet.engine.blocking import run_blocking
from ratchet.errors import EnvironmentCannot, UsageError
from ratchet.workspace.git import repository, task_repository
from ratchet.workspace.git.trees import snapshot
from tests.support import git, make_repository


def test_a_url_is_cloned_once_and_fetched_from_then_on(tmp_path: Path) -> None:
    origin = make_repository(tmp_path / "origin", {"a.txt": "1\n"})
    url, clones = origin.as_uri(), tmp_path / "clones"
    place = repository.fetch_repository(url, clones=clones)
    assert place == repository.clone_path(url, clones=clones) and (place / "a.txt").read_text() == "1\n"
    mark = place / ".git" / "mark"
    mark.touch()
    (origin / "a.txt").write_text("2\n")
    git("commit", "-qam", "more", cwd=origin)
    assert repository.fetch_repository(url, clones=clones) == place
    assert (place / "a.txt").read_text() == "2\n" and mark.exists()
    assert repository.find_repository(place).head == repository.find_repository(origin).head


def test_concurrent_requests_get_the_same_clone(tmp_path: Path) -> None:
    origin = make_repository(tmp_path / "origin", {"a.txt": "1\n"})
    with ThreadPoolExecutor(4) as pool:
        places = list(pool.map(lambda _: repository.fetch_repository(origin.as_uri(), clones=tmp_path / "c"), range(4)))
    assert len(set(places)) == 1 and (places[0] / "a.txt").exists()


def test_a_clone_that_was_cut_short_is_not_taken_for_one(tmp_path: Path) -> None:
    origin = make_repository(tmp_path / "origin", {"a.txt": "1\n"})
    place = repository.clone_path(origin.as_uri(), clones=tmp_path)
    half = place.with_name(f".{place.name}.half")
    (half / ".git").mkdir(parents=True)
    assert (repository.fetch_repository(origin.as_uri(), clones=tmp_path) / "a.txt").exists()


def test_a_failed_fetch_is_reported_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentCannot, match="cannot be fetched") as caught:
        repository.fetch_repository((tmp_path / "nowhere").as_uri(), clones=tmp_path / "c")
    assert "git ls-remote" in caught.value.hint
    with pytest.raises(UsageError):
        repository.fetch_repository("ext::sh -c id", clones=tmp_path)


@pytest.mark.parametrize("scheme", ["git", "ssh", "http"])
def test_a_server_that_sends_nothing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    monkeypatch.setattr(repository, "SILENCE_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(EnvironmentCannot, match=f"{port}/x cannot be fetched: .*git did not answer within"):
            repository.fetch_repository(f"{scheme}://127.0.0.1:{port}/x", clones=tmp_path)
        client, _ = server.accept()
        with client:
            client.settimeout(10)
            while client.recv(4096):  # until the program that git started has ended, too
                pass


def test_a_fetch_ends_when_nobody_waits_for_it_any_more(tmp_path: Path) -> None:
    async def fetch_and_leave(server: socket.socket) -> None:
        address = f"git://127.0.0.1:{server.getsockname()[1]}/x"
        first, second = (
            asyncio.ensure_future(run_blocking(repository.fetch_repository, address, clones=tmp_path)) for _ in range(2)
        )
        client, _ = await asyncio.to_thread(server.accept)
        with client:
            for task in (second, first):  # one of them waits for the other's lock
                task.cancel()
            await asyncio.wait({first, second})
            assert first.cancelled() and second.cancelled()

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        asyncio.run(asyncio.wait_for(fetch_and_leave(server), 50))


def test_a_servers_hooks_and_settings_do_not_run_here(tmp_path: Path) -> None:
    origin = make_repository(tmp_path / "origin", {"a.txt": "1\n"})
    git("clone", "-q", "--bare", str(origin), str(tmp_path / "bare"), cwd=tmp_path)
    ran = tmp_path / "ran"
    hooks = [tmp_path / "bare" / "hooks" / name for name in ("pre-receive", "update", "post-receive", "post-update")]
    for hook in [*hooks, tmp_path / "bare" / "hooks" / "reference-transaction", tmp_path / "program"]:
        hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
        hook.chmod(0o755)
    for key in ("core.fsmonitor", "core.alternateRefsCommand", "uploadpack.packObjectsHook"):
        git("config", key, str(tmp_path / "program"), cwd=tmp_path / "bare")
    (tmp_path / "bare" / "objects" / "info" / "alternates").write_text(f"{origin}/.git/objects\n")
    place = repository.fetch_repository((tmp_path / "bare").as_uri(), clones=tmp_path / "c")
    (place / "a.txt").write_text("2\n")
    git("-c", "user.name=T", "-c", "user.email=t@example.com", "commit", "-qam", "more", cwd=place)
    head = git("rev-parse", "HEAD", cwd=place)
    assert repository.publish_branch(place, "ratchet/x", head, instead_of="")
    assert git("rev-parse", "ratchet/x", cwd=tmp_path / "bare") == head and not ran.exists()
    repository.fetch_repository((tmp_path / "bare").as_uri(), clones=tmp_path / "c")
    assert not ran.exists()


def test_a_clone_has_the_files_as_they_were_committed_and_no_filter_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "gitconfig"
    settings.write_text('[filter "x"]\n\tsmudge = ./smudge\n\tclean = ./smudge\n\trequired = true\n')
    monkeypatch.setenv("HOME", str(tmp_path))
    settings.rename(tmp_path / ".gitconfig")
    origin = make_repository(tmp_path / "origin", {"a.txt": "1\n", "smudge": f"#!/bin/sh\ntouch {tmp_path}/ran\ncat\n"})
    (origin / "smudge").chmod(0o755)
    (origin / ".gitattributes").write_text("*.txt filter=x\n")
    git("-c", "filter.x.clean=cat", "add", "-A", cwd=origin)
    git("-c", "filter.x.clean=cat", "commit", "-qm", "filter", cwd=origin)
    place = repository.fetch_repository(origin.as_uri(), clones=tmp_path / "c")
    assert (place / "a.txt").read_text() == "1\n"
    repository.fetch_repository(origin.as_uri(), clones=tmp_path / "c")
    assert not (tmp_path / "ran").exists()


def test_progress_is_no_part_of_the_message_of_a_failed_fetch(tmp_path: Path) -> None:
    origin = make_repository(tmp_path / "origin", {f"{number}.txt": f"{number}\n" for number in range(50)})
    place = repository.fetch_repository(origin.as_uri(), clones=tmp_path / "c")
    git("checkout", "-q", "--orphan", "other", cwd=origin)
    git("commit", "-qm", "other", cwd=origin)
    (place / ".git" / "refs" / "heads" / "main.lock").touch()
    with pytest.raises(EnvironmentCannot) as caught:
        git("update-ref", "-d", "refs/heads/main", cwd=origin)
        (place / ".git" / "refs" / "remotes" / "origin" / "other.lock").touch()
        repository.fetch_repository(origin.as_uri(), clones=tmp_path / "c")
    assert "other.lock" in caught.value.message and "%" not in caught.value.message


def test_a_commit_of_endlessly_many_files_is_not_checked_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "LISTING_MAX_BYTES", 1 << 20)
    origin = make_repository(tmp_path / "origin", {"a.txt": "1\n"})
    tree = git("rev-parse", "HEAD^{tree}", cwd=origin).strip()
    for _ in range(8):
        rows = "".join(f"040000 tree {tree}\t{number}\n" for number in range(10))
        made = subprocess.run(["git", "mktree"], cwd=origin, input=rows, capture_output=True, text=True, check=True)
        tree = made.stdout.strip()
    commit = git("commit-tree", "-m", "more", tree, cwd=origin).strip()
    git("update-ref", "refs/heads/main", commit, cwd=origin)
    with pytest.raises(EnvironmentCannot, match="printed more than 1 MiB"):
        repository.fetch_repository(origin.as_uri(), clones=tmp_path / "clones")


def test_the_repository_of_a_task_is_laid_out_and_compared_without_programs_of_the_users_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = f"touch {tmp_path}/ran; cat"
    (tmp_path / "gitconfig").write_text(
        f'[filter "x"]\n\tsmudge = "{program}"\n\tclean = "{program}"\n[diff "x"]\n\ttextconv = "{program}"\n'
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    origin = make_repository(tmp_path / "origin", {"a.txt": "1\n", ".gitattributes": "*.txt filter=x diff=x\n"})
    before = git("rev-parse", "HEAD", cwd=origin).strip()
    (origin / "a.txt").write_text("2\n")
    git("commit", "-qam", "more", cwd=origin)
    (tmp_path / "gitconfig").rename(tmp_path / ".gitconfig")
    task_repository.create_repository_at(origin, before, tmp_path / "task")
    assert "+2" in task_repository.patch_between(origin, before, "HEAD", ["a.txt"])
    assert (tmp_path / "task" / "a.txt").read_text() == "1\n" and not (tmp_path / "ran").exists()


def test_a_path_is_taken_as_it_is(tmp_path: Path) -> None:
    here = make_repository(tmp_path / "here", {"a.txt": "1\n"})
    assert repository.fetch_repository(str(here), clones=tmp_path / "c") == here


def test_a_projects_prompts_can_be_committed_and_nothing_else_of_our_folder_is_seen(tmp_path: Path) -> None:
    place = make_repository(tmp_path / "p", {"a.txt": "a\n"})
    folder = repository.find_repository(place).state
    (folder / "ratchet.db").touch()
    (folder / "runs").mkdir()
    (folder / "runs" / "x").touch()
    assert git("status", "--porcelain", cwd=place) == ""
    (folder / "prompts").mkdir()
    (folder / "prompts" / "audit.md").touch()
    assert git("status", "--porcelain", "-uall", cwd=place) == "?? .ratchet/prompts/audit.md"


def test_a_repository_that_brings_our_state_folder_along_is_refused(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    place = make_repository(tmp_path / "p", {"a.txt": "a\n"})
    (place / ".ratchet").symlink_to(outside)
    with pytest.raises(UsageError, match="is a link"):
        repository.find_repository(place)
    assert not [*outside.iterdir()]


@pytest.mark.parametrize("path", [".ratchet/trees.git/config", ".ratchet/watch.json", ".Ratchet/ratchet.db"])
def test_committed_state_is_refused(tmp_path: Path, path: str) -> None:
    place = make_repository(tmp_path / "p", {"a.txt": "a\n", path: ""})
    (place / ".ratchet").mkdir(exist_ok=True)
    with pytest.raises(UsageError, match="part of its commits"):
        repository.find_repository(place)


@pytest.mark.parametrize("path", [".ratchet/trees.git/config", ".RATCHET/trees.git/config"])
def test_a_fetched_repository_cannot_reach_our_state_of_it(tmp_path: Path, path: str) -> None:
    origin, clones = make_repository(tmp_path / "origin", {"a.txt": "a\n"}), tmp_path / "clones"
    place = repository.fetch_repository(origin.as_uri(), clones=clones)
    state = repository.find_repository(place).state
    assert not state.is_relative_to(place)
    tree = snapshot(place, store=state / "trees.git")
    settings = (state / "trees.git" / "config").read_text()
    (origin / path).parent.mkdir(parents=True)
    (origin / path).write_text('[filter "x"]\n\tclean = touch ran\n')
    git("add", "-f", path.split("/", maxsplit=1)[0], cwd=origin)
    git("commit", "-qm", "state", cwd=origin)
    if path.startswith(".ratchet"):
        with pytest.raises(UsageError, match="part of its commits"):
            repository.fetch_repository(origin.as_uri(), clones=clones)
    else:
        repository.fetch_repository(origin.as_uri(), clones=clones)
    assert (place / path).exists(), "what is checked out is beside our state"
    assert (state / "trees.git" / "config").read_text() == settings
    (place / path).unlink()
    (place / path).parent.rmdir()
    (place / path).parents[1].rmdir()
    assert snapshot(place, store=state / "trees.git") == tree


def test_a_committed_link_in_our_state_folder_is_refused(tmp_path: Path) -> None:
    place = make_repository(tmp_path / "p", {"a.txt": "a\n", ".ratchet/prompts/judge.md": "be just"})
    assert repository.find_repository(place).root == place
    (place / ".ratchet" / "prompts" / "implement.md").symlink_to("/etc/passwd")
    git("add", "-f", ".ratchet", cwd=place)
    with pytest.raises(UsageError, match="part of its commits"):
        repository.find_repository(place)
