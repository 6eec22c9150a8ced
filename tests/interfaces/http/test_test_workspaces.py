"""Test workspaces over HTTP, on a real project with real tests: made, worked in, reported on, gone."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ratchet import paths
from ratchet.app import test_workspaces
from ratchet.app.test_workspaces import FETCHES_PER_SERVER, ServiceLimits, WorkspaceService
from ratchet.core.watch import Colour, WatchState
from ratchet.process.spawn import path_in_namespace
from ratchet.store.protocols import open_store
from tests.interfaces.http.serving import TOKEN, Answer, Served, serving
from tests.support import git, make_repository

BROKEN = {
    "app.py": "def add(a, b):\n    return a - b\n",
    "test_app.py": "from app import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n\n\ndef test_zero():\n"
    "    assert add(0, 0) == 0\n",
}
FIXED = "def add(a, b):\n    return a + b\n"
PATCH = "--- a/app.py\n+++ b/app.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a - b\n+    return a + b\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project", BROKEN)


def make(served: Served, project: Path, **more: Any) -> str:
    answer = served.ask("POST", "/test-workspace", {"path": str(project)} | more)
    assert answer.status == 201, answer.body
    return str(answer.json["id"])


def post(served: Served, name: str, verb: str, **body: Any) -> Any:
    answer = served.ask("POST", f"/test-workspace/{name}/{verb}", body)
    assert answer.status == 200, answer.body
    return answer.json


def test_a_failing_project_is_mended_and_reported_without_any_run_or_queue(served: Served, project: Path) -> None:
    name = make(served, project)
    red = post(served, name, "test")
    assert red["report"]["status"] == "failed" and red["report"]["totals"]["failed"] == 1
    assert "test_app.py::test_add" in red["packet"] and "expected: 5" in red["packet"]

    applied = post(served, name, "exec", patch=PATCH)
    assert (applied["exit_code"], applied["stderr"]) == (0, "")
    one = post(served, name, "test", failed=True)
    assert one["report"]["totals"] == red["report"]["totals"] | {"tests": 1, "passed": 1, "failed": 0}
    whole = post(served, name, "test")
    assert whole["report"]["status"] == "passed"

    reported = post(served, name, "report", summary="add subtracted")
    assert reported["changed"] == ["app.py"] and "+    return a + b" in reported["diff"]
    assert reported["fixed"] == ["test_app.py::test_add"] and reported["still_failing"] == []
    (lesson,) = served.store.learnings(str(project), query="subtracted")
    assert lesson.id == reported["learning"] and "candidate" in lesson.tags
    assert (project / "app.py").read_text() == BROKEN["app.py"], "the developer's tree is never touched"
    kept = served.ask("GET", f"/test-workspace/{name}/artifact?name={reported['artifact']}").json
    assert msgspec.json.decode(kept["text"]) == reported

    assert served.ask("DELETE", f"/test-workspace/{name}").json == {"changed": True}
    assert served.ask("DELETE", f"/test-workspace/{name}").json == {"changed": False}
    assert served.ask("GET", f"/test-workspace/{name}").status == 404
    assert git("branch", "--list", "ratchet/*", cwd=project) == ""


def test_a_run_is_compared_with_the_one_before(served: Served, project: Path) -> None:
    name = make(served, project)
    post(served, name, "write", path="app.py", content=FIXED)
    assert post(served, name, "test", select=["test_app.py::test_add"])["report"]["totals"]["passed"] == 1
    assert post(served, name, "test")["delta"] is None
    post(served, name, "write", path="app.py", content=BROKEN["app.py"])
    assert post(served, name, "test")["delta"]["new_failures"] == ["test_app.py::test_add"]


def test_a_report_is_stored_with_the_run_it_was_made_for(served: Served, project: Path) -> None:
    folder = project / ".ratchet" / "runs" / "run-1"
    folder.mkdir(parents=True)
    name = make(served, project)
    reported = post(served, name, "report", summary="nothing", run="run-1")
    assert msgspec.json.decode((folder / "test-workspaces" / f"{name}.json").read_bytes()) == reported
    assert served.ask("POST", f"/test-workspace/{name}/report", {"run": "../x"}).status == 422
    assert served.ask("POST", f"/test-workspace/{name}/report", {"run": "run-2"}).status == 422


def test_a_failing_command_is_an_answer_and_state_stays_between_calls(served: Served, project: Path) -> None:
    name = make(served, project)
    output = post(served, name, "exec", argv=["sh", "-c", "echo out; echo err >&2; echo kept > left; exit 3"])
    assert (output["exit_code"], output["stdout"], output["stderr"]) == (3, "out\n", "err\n")
    assert post(served, name, "exec", argv=["cat", "left"])["stdout"] == "kept\n"
    assert post(served, name, "exec", argv=["no-such-program"])["exit_code"] == 127
    assert post(served, name, "exec", argv=["sh", "-c", "kill -9 $$"])["exit_code"] == 137
    assert post(served, name, "exec", patch="nonsense")["exit_code"] == 128
    assert served.ask("GET", f"/test-workspace/{name}/diff").json["paths"] == ["left"]


# Nests folders in the folder for results: it is writable for tests.
NESTS = """
import os, signal
def test_deep():
    (place,) = [line.split()[4] for line in open("/proc/self/mountinfo") if line.split()[4].endswith("/channel")]
    os.chdir(place)
    for _ in range(1_500):
        os.mkdir("d")
        os.chdir("d")
    signal.pause()
"""


def test_a_test_that_nests_folders_in_its_results_is_answered_and_leaves_nothing(
    served: Served, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ours := tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(ours))
    name = make(served, project)
    post(served, name, "write", path="test_deep.py", content=NESTS)
    ran = post(served, name, "test", select=["test_deep.py::test_deep"], timeout_s=4)
    assert ran["report"]["status"] == "timeout"
    assert not list(ours.iterdir())


def test_uncommitted_changes_and_old_revisions_can_be_asked_for(served: Served, project: Path) -> None:
    (project / "app.py").write_text(FIXED)
    (project / "new.txt").write_text("new\n")
    changed = make(served, project, with_changes=True)
    assert post(served, changed, "test")["report"]["status"] == "passed"
    assert post(served, changed, "exec", argv=["cat", "new.txt"])["stdout"] == "new\n"
    assert served.ask("GET", f"/test-workspace/{changed}/diff").json["paths"] == []
    git("commit", "-qam", "mended", cwd=project)
    old = make(served, project, ref="HEAD~1")
    assert post(served, old, "exec", argv=["cat", "app.py"])["stdout"] == BROKEN["app.py"]


def test_an_editable_install_leads_into_the_workspace_and_not_to_the_developers_tree(
    served: Served, project: Path
) -> None:
    site = project / ".venv" / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    (site / "editable.pth").write_text(f"{project}/src\n")
    (project / ".venv" / "bin").mkdir()
    (project / ".venv" / "bin" / "python").symlink_to(sys.executable)
    name = make(served, project)
    top = path_in_namespace(served.ask("GET", f"/test-workspace/{name}").json["path"])
    output = post(served, name, "exec", argv=["printenv", "PYTHONPATH"])["stdout"]
    assert f"{top}/src" in output.strip().split(":") and str(project / "src") not in output.split(":")


def test_a_repository_elsewhere_is_fetched(served: Served, project: Path) -> None:
    answer = served.ask("POST", "/test-workspace", {"repo": f"file://{project}"})
    assert answer.status == 201, answer.body
    assert post(served, answer.json["id"], "test")["report"]["totals"]["failed"] == 1
    missing = served.ask("POST", "/test-workspace", {"repo": f"file://{project}-not"})
    assert (missing.status, missing.code) == (422, "invalid")


def test_a_repository_elsewhere_that_brings_our_state_along_is_refused(served: Served, project: Path) -> None:
    (project / ".ratchet" / "trees.git").mkdir(parents=True)
    (project / ".ratchet" / "trees.git" / "config").write_text('[filter "x"]\n\tclean = touch ran\n')
    git("add", "-f", ".ratchet", cwd=project)
    git("commit", "-qm", "state", cwd=project)
    answer = served.ask("POST", "/test-workspace", {"repo": f"file://{project}"})
    assert answer.status == 422 and "part of its commits" in str(answer.json)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"path": "relative"},
        {"path": "/nonexistent"},
        {"path": "/", "repo": "a/b"},
        {"repo": "ext::sh -c true"},
        {"repo": "a/b", "with_changes": True},
        {"path": "/", "ttl_s": 0},
        {"path": "/", "nonsense": 1},
    ],
)
def test_what_cannot_be_made_is_refused(served: Served, body: dict[str, Any]) -> None:
    assert served.ask("POST", "/test-workspace", body).status == 422


@pytest.mark.parametrize("path", ["../out", "/etc/out", ".git/config", "a/../../out", "link/out", "", "file/", "a\0b"])
def test_nothing_is_written_outside(served: Served, project: Path, tmp_path: Path, path: str) -> None:
    (tmp_path / "outside").mkdir()
    (project / "link").symlink_to(tmp_path / "outside")
    git("add", "link", cwd=project)
    git("commit", "-qm", "a link", cwd=project)
    name = make(served, project)
    answer = served.ask("POST", f"/test-workspace/{name}/write", {"path": path, "content": "x"})
    assert answer.status == 422, answer.body
    assert not any((tmp_path / "outside").iterdir())


def test_a_command_reaches_nothing_outside(served: Served, project: Path, tmp_path: Path) -> None:
    name = make(served, project)
    target = tmp_path / "outside"
    post(served, name, "exec", argv=["sh", "-c", f"echo x > {target}"])
    assert post(served, name, "exec", argv=["sh", "-c", f"echo x > {project}/app.py"])["exit_code"] != 0
    assert not target.exists() and (project / "app.py").read_text() == BROKEN["app.py"]
    patch = "--- /dev/null\n+++ b/../out\n@@ -0,0 +1 @@\n+x\n"
    assert post(served, name, "exec", patch=patch)["exit_code"] != 0


def test_a_command_does_not_see_the_servers_token(served: Served, project: Path) -> None:
    kept = paths.token_file()
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text("a-secret")
    name = make(served, project)
    for argv in (["cat", str(kept)], ["sh", "-c", f"cat {kept}"]):
        assert "a-secret" not in post(served, name, "exec", argv=argv)["stdout"]


@pytest.mark.parametrize(
    ("name", "status"), [("..", 200), (".", 200), ("tw-none", 200), ("%2e%2e%2fx", 404), ("workspace", 200)]
)
def test_names_that_are_none(served: Served, project: Path, name: str, status: int) -> None:
    kept = make(served, project)
    assert served.ask("DELETE", f"/test-workspace/{name}").status == status
    assert served.ask("GET", f"/test-workspace/{kept}").status == 200, "only what was named is removed"
    assert served.ask("GET", f"/test-workspace/{name}").status == 404
    assert served.ask("POST", f"/test-workspace/{name}/exec", {"argv": ["ls"]}).status == 404
    assert served.ask("GET", f"/test-workspace/{name}/artifact?name=exec-0001.stdout").status == 404


def test_long_output_is_cut_and_all_of_it_is_an_artifact(served: Served, project: Path) -> None:
    name = make(served, project)
    output = post(served, name, "exec", argv=["sh", "-c", "seq 100000"])
    assert output["cut"] and output["stdout"].startswith("1\n2\n") and output["stdout"].endswith("\n100000\n")
    assert output["stdout_artifact"] in output["stdout"] and len(output["stdout"]) < 21_000
    text, offset = "", 0
    while True:
        ask = f"/test-workspace/{name}/artifact?name={output['stdout_artifact']}&offset={offset}"
        piece = served.ask("GET", ask).json
        text, offset = text + piece["text"], piece["next_offset"]
        if not offset:
            break
    assert text.splitlines() == [str(number) for number in range(1, 100_001)]


def test_time_and_output_have_an_end(served: Served, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = make(served, project)
    late = post(served, name, "exec", argv=["sh", "-c", "sleep 600 & sleep 600"], timeout_s=0.3)
    assert late["stopped"] == "timeout" and late["duration_s"] < 30
    endless = post(served, name, "exec", argv=["yes"], timeout_s=100)
    assert endless["stopped"] == "output" and endless["duration_s"] < 90


def test_there_are_only_so_many(served: Served, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = served.store
    monkeypatch.setattr(test_workspaces, "ServiceLimits", lambda: ServiceLimits(workspaces=1))
    with serving(store) as small:
        name = make(small, project)
        refused = small.ask("POST", "/test-workspace", {"path": str(project)})
        assert (refused.status, refused.code) == (409, "conflict") and refused.json["hint"]
        small.ask("DELETE", f"/test-workspace/{name}")
        make(small, project)


def test_destroying_one_ends_what_runs_in_it(served: Served, project: Path) -> None:
    name = make(served, project)
    answers: list[Answer] = []

    def run() -> None:
        answers.append(
            served.ask("POST", f"/test-workspace/{name}/exec", {"argv": ["sh", "-c", "touch on; sleep 300"]})
        )

    asking = threading.Thread(target=run)
    asking.start()
    path = Path(served.ask("GET", f"/test-workspace/{name}").json["path"]) / "on"
    wait_until(path.exists)
    assert served.ask("DELETE", f"/test-workspace/{name}").json == {"changed": True}
    asking.join(20)
    assert answers[0].status == 409 and "destroyed" in answers[0].json["error"]


def test_a_restart_loses_nothing_and_removes_what_expired(tmp_path: Path, project: Path) -> None:
    store = open_store(tmp_path / "ratchet.db")
    with serving(store) as served:
        kept, short = make(served, project), make(served, project)
        post(served, kept, "exec", argv=["touch", "left"])
        path = Path(served.ask("GET", f"/test-workspace/{short}").json["path"])
    record = paths.user_state() / "test-workspaces" / short / "record.json"
    record.write_bytes(msgspec.json.encode(msgspec.json.decode(record.read_bytes()) | {"expires_at": "2020"}))
    with serving(store) as again:
        assert post(again, kept, "exec", argv=["ls", "left"])["exit_code"] == 0
        assert again.ask("GET", f"/test-workspace/{short}").status == 404
        wait_until(lambda: not path.exists())
        assert [one["id"] for one in again.ask("GET", "/test-workspace").json["workspaces"]] == [kept]
    store.close()


def test_using_one_puts_its_end_off(served: Served, project: Path) -> None:
    name = make(served, project, ttl_s=100)
    before = served.ask("GET", f"/test-workspace/{name}").json["expires_at"]
    post(served, name, "exec", argv=["true"], timeout_s=1_000)
    after = served.ask("GET", f"/test-workspace/{name}").json["expires_at"]
    assert after > before


def test_a_request_without_a_token_gets_nothing(served: Served) -> None:
    assert served.ask("POST", "/test-workspace", {"path": "/"}, token=None).status == 401
    assert served.ask("GET", "/api/watch", token=None).status == 401


def test_what_a_watch_says_is_streamed(served: Served, project: Path) -> None:
    place = project / ".ratchet" / "watch.json"
    place.parent.mkdir()
    place.write_bytes(msgspec.json.encode(WatchState(colour=Colour.RED, at="1")))
    assert served.ask("GET", "/api/watch?path=/nonexistent").status == 422
    link = HTTPConnection("127.0.0.1", served.port, timeout=20)
    link.request("GET", f"/api/watch?path={project}", headers={"authorization": f"Bearer {TOKEN}"})
    received = events(link)
    assert next(received)["colour"] == "red"
    newer = place.with_name("newer")
    newer.write_bytes(msgspec.json.encode(WatchState(colour=Colour.GREEN, at="2")))
    newer.replace(place)
    assert next(received)["colour"] == "green"
    link.close()


@pytest.mark.parametrize("kind", ["pipe", "endless", "another's"])
def test_what_another_user_puts_in_place_of_a_watchs_state_is_no_state(
    served: Served, project: Path, kind: str
) -> None:
    place = project / ".ratchet" / "watch.json"
    place.parent.mkdir()
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "endless":
        place.symlink_to("/dev/zero")
    elif os.geteuid() == 0:
        place.write_bytes(msgspec.json.encode(WatchState(colour=Colour.RED, at="1")))
        os.chown(place, 12345, 12345)
    link = HTTPConnection("127.0.0.1", served.port, timeout=20)
    link.request("GET", f"/api/watch?path={project}", headers={"authorization": f"Bearer {TOKEN}"})
    received = events(link)
    assert served.ask("GET", "/health").status == 200
    newer = place.with_name("newer")
    newer.write_bytes(msgspec.json.encode(WatchState(colour=Colour.GREEN, at="2")))
    newer.replace(place)
    assert next(received)["colour"] == "green"
    link.close()


@pytest.mark.parametrize("verb", ["exec", "test"])
def test_a_call_ends_with_its_client_and_gives_up_its_seat(
    served: Served, project: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setattr(test_workspaces, "ServiceLimits", lambda: ServiceLimits(running=1))
    (project / "test_slow.py").write_text(
        "import pathlib, time\ndef test_slow():\n    pathlib.Path('on').touch()\n    time.sleep(300)\n"
    )
    body = {"argv": ["sh", "-c", "touch on; sleep 300"], "timeout_s": 3_600} if verb == "exec" else {"timeout_s": 3_600}
    with serving(served.store) as small:
        one, other = (make(small, project, with_changes=True) for _ in range(2))
        link = HTTPConnection("127.0.0.1", small.port, timeout=20)
        headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
        link.request("POST", f"/test-workspace/{one}/{verb}", msgspec.json.encode(body), headers)
        wait_until((Path(small.ask("GET", f"/test-workspace/{one}").json["path"]) / "on").exists)
        link.close()
        assert post(small, other, "exec", argv=["true"])["exit_code"] == 0
        assert post(small, one, "exec", argv=["true"])["exit_code"] == 0


def test_what_was_made_for_a_client_that_is_gone_is_removed(
    served: Served, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, gone = threading.Event(), threading.Event()
    finish = WorkspaceService._finish

    def slow(*args: Any) -> Any:
        begun.set()
        assert gone.wait(20)
        return finish(*args)

    monkeypatch.setattr(WorkspaceService, "_finish", slow)
    link = HTTPConnection("127.0.0.1", served.port, timeout=20)
    headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
    link.request("POST", "/test-workspace", msgspec.json.encode({"path": str(project)}), headers)
    assert begun.wait(20)
    folder = paths.user_state() / "test-workspaces"
    assert list(folder.iterdir())
    link.close()
    gone.set()
    wait_until(lambda: not list(folder.iterdir()))


def test_a_workspace_that_cannot_be_removed_stops_neither_the_others_nor_the_sweep(
    served: Served, project: Path, tmp_path: Path
) -> None:
    lost = make_repository(tmp_path / "lost", BROKEN)
    expired = make(served, lost, ttl_s=1)
    record = paths.user_state() / "test-workspaces" / expired / "record.json"
    record.write_bytes(
        msgspec.json.encode(msgspec.json.decode(record.read_bytes()) | {"expires_at": "2000-01-01T00:00:00Z"})
    )
    shutil.rmtree(lost)
    lost.write_text("no folder")
    kept = make(served, project)
    listed = served.ask("GET", "/test-workspace").json["workspaces"]
    assert [one["id"] for one in listed] == [kept]
    assert not record.exists()


def events(link: HTTPConnection) -> Iterator[Any]:
    answer = link.getresponse()
    assert answer.status == 200 and answer.headers["content-type"] == "text/event-stream"
    while line := answer.readline():
        if line.startswith(b"data: "):
            yield msgspec.json.decode(line[6:])


def wait_until(happens: Any, within_s: float = 20.0) -> None:
    deadline = time.monotonic() + within_s
    while not happens():
        assert time.monotonic() < deadline
        os.sched_yield()


def test_names_that_are_not_utf8_are_shown_in_a_diff(served: Served, project: Path) -> None:
    name = make(served, project)
    post(served, name, "exec", argv=["sh", "-c", "touch \"$(printf 'bad-\\377')\""])
    assert served.ask("GET", f"/test-workspace/{name}/diff").json["paths"] == ["bad-\ufffd"]


def test_a_folder_that_became_a_link_out_is_not_looked_into(served: Served, project: Path, tmp_path: Path) -> None:
    (project / "part").mkdir()
    (project / "part" / "test_part.py").write_text("def test_part(): pass\n")
    git("add", "-A", cwd=project)
    git("commit", "-q", "-m", "part", cwd=project)
    (outside := tmp_path / "outside").mkdir()
    (outside / "test_secret.py").write_text("def test_secret(): pass\n")
    name = make(served, project, path=str(project / "part"))
    post(served, name, "exec", argv=["sh", "-c", f"rm -r ../part && ln -s {outside} ../part"])
    tested = post(served, name, "test")
    assert "secret" not in msgspec.json.encode(tested).decode()
    assert {test["id"] for test in tested["report"]["tests"]} == {"test_app.py::test_add", "test_app.py::test_zero"}


def test_the_settings_of_a_fetched_repository_decide_nothing_about_this_machine(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST_VALUE", "of-this-machine")
    monkeypatch.setenv("PIP_INDEX_URL", "https://user:login@index.example")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".netrc").write_text("machine example login me password of-this-machine\n")
    outside = tmp_path / "outside"
    outside.mkdir()
    settings = (
        f'[sandbox]\nmode = "off"\nshare = ["{outside}"]\n[test]\nenv = ["HOST_VALUE"]\n'
        "[workspace]\nsetup = [\"sh -c 'touch OUTSIDE/ran; mkdir node_modules; env > node_modules/seen; "
        "cat ~/.netrc >> node_modules/seen; true'\"]\n"
    )
    origin = make_repository(
        tmp_path / "origin",
        {**BROKEN, "ratchet.toml": settings.replace("OUTSIDE", str(outside)), ".gitignore": "node_modules/\n"},
    )
    answer = served.ask("POST", "/test-workspace", {"repo": origin.as_uri()})
    assert answer.status == 201, answer.body
    shown = post(served, answer.json["id"], "exec", argv=["env"])["stdout"]
    assert "HOST_VALUE" not in shown and not [*outside.iterdir()]
    seen = post(served, answer.json["id"], "exec", argv=["cat", "node_modules/seen"])["stdout"]
    assert "PATH=" in seen and "of-this-machine" not in seen and "login" not in seen


def test_servers_that_never_answer_keep_no_other_call_waiting(served: Served, project: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"

        def fetch(name: int) -> None:
            with suppress(OSError, HTTPException):
                served.ask("POST", "/test-workspace", {"repo": f"{address}/{name}.git"})

        threads = [threading.Thread(target=fetch, args=[number]) for number in range(12)]
        for thread in threads:
            thread.start()
        held = [silent.accept()[0] for _ in range(FETCHES_PER_SERVER)]
        name = make(served, project)
        assert post(served, name, "exec", argv=["echo", "here"])["stdout"] == "here\n"
        other = served.ask("POST", "/test-workspace", {"repo": f"file://{project}"})
        assert other.status == 201, "servers do not wait for each other"
        silent.close()
        for link in held:
            link.close()
        for thread in threads:
            thread.join()
