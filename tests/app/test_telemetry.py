"""Traces and metrics over OTLP, received by a real receiver."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ratchet.app.telemetry import CLOSE_S, Exporter
from ratchet.core.events import RunFailed
from ratchet.core.failure import Reason
from ratchet.core.state import RunStatus
from ratchet.core.telemetry import RunTrace
from tests.otlp_receiver import Receiver, receiving
from tests.support import (
    AUDIT,
    COMPLETE,
    GOOD_SCRIPT,
    IMPLEMENT,
    RATCHET,
    REVIEW,
    carry,
    open_factory,
    quick_environment,
    ratchet,
    small_project,
    write_script,
)

USED = {"tokens_in": 100, "tokens_out": 10, "cost_usd": 0.25}


def named(found: Receiver, name: str) -> list[dict[str, object]]:
    return [span for span in found.spans.values() if span["name"] == name]


def test_a_run_is_received_as_one_trace_with_usage_and_durations(tmp_path: Path) -> None:
    script = GOOD_SCRIPT | {"implement": [IMPLEMENT | {"usage": USED}]}
    with receiving() as found, open_factory(small_project(tmp_path, script)) as quiet:
        assert carry(quiet, quiet.repo.root / "SPEC.md").status is RunStatus.COMPLETED
        assert not found.received, "off unless an endpoint is set"
    with receiving() as found:
        place = small_project(tmp_path / "second", script)
        with open_factory(place, f"telemetry.endpoint={found.address}/") as factory:
            state = carry(factory, place / "SPEC.md")
    (root,) = named(found, "invoke_workflow tdd")
    assert root["attributes"]["gen_ai.conversation.id"] == state.run  # type: ignore[index]
    assert {span["trace"] for span in found.spans.values()} == {root["trace"]}
    parents = {span["parent"] for span in found.spans.values()} - {""}
    assert parents <= set(found.spans), "every parent was received"
    assert len(found.received) == len(found.spans), "every span was sent once"
    (step,) = named(found, "step implement")
    calls = [span for span in found.spans.values() if found.spans.get(str(span["parent"])) is step]
    assert [call["attributes"]["gen_ai.usage.input_tokens"] for call in calls] == [100]
    assert named(found, "execute_tool verify_red") and named(found, "execute_tool judge")
    assert found.resources[0]["service.name"] == "ratchet"
    tokens = {
        dict(key)["gen_ai.token.type"]: value for key, value in found.metrics["gen_ai.client.token.usage"].items()
    }
    assert tokens == {"input": 100, "output": 10}
    assert sum(found.metrics["ratchet.cost"].values()) == 0.25
    assert len(found.metrics["gen_ai.workflow.duration"]) == 1


def test_a_killed_run_continues_its_trace(tmp_path: Path) -> None:
    place = small_project(tmp_path, GOOD_SCRIPT | {"implement": [{"fail": "hang"}]})
    argv = ["run", "SPEC.md", "--agent", f"scripted:{tmp_path}/script.json", "--set", "tdd.sealed=false"]
    with receiving() as found:
        env = quick_environment() | {"OTEL_EXPORTER_OTLP_ENDPOINT": found.address}
        with subprocess.Popen([*RATCHET, *argv], cwd=place, env=env, stdout=subprocess.DEVNULL) as running:
            while not any('"implement"' in file.read_text() for file in place.glob(".ratchet/runs/*/ledger.ndjson")):
                assert running.poll() is None
            running.kill()
        write_script(place, {"audit": [AUDIT, COMPLETE], "implement": [IMPLEMENT], "review": [REVIEW]})
        done = ratchet(*argv, cwd=place, OTEL_EXPORTER_OTLP_ENDPOINT=found.address)
        assert done.returncode == 0, done.stderr
    (root,) = named(found, "invoke_workflow tdd")
    assert [str(event).split()[0] for event in root["events"]] == ["claimed", "claimed"]  # type: ignore[attr-defined]
    (step,) = named(found, "step implement")
    assert step["events"] == ["interrupted; resumed"]
    assert {span["trace"] for span in found.spans.values()} == {root["trace"]}
    assert len(named(found, "step audit")) == 2, "what the killed worker had not sent was sent again"


@pytest.mark.parametrize("answers", [False, True], ids=["refuses", "never answers"])
def test_an_endpoint_that_is_down_neither_fails_nor_delays_a_run(tmp_path: Path, answers: bool) -> None:
    place = small_project(tmp_path)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if answers:
            silent.listen(16)
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with open_factory(place, f"telemetry.endpoint={address}") as factory:
            assert carry(factory, place / "SPEC.md").status is RunStatus.COMPLETED
        sends = Exporter(address)
        trace = RunTrace("run-1")
        trace.add(1, "2026-11-19T01:00:00Z", RunFailed(reason=Reason.NO_PROGRESS, detail=""))
        sends.send(*trace.take())
        began = time.monotonic()
        sends.close()
        assert time.monotonic() - began < CLOSE_S + 1


def test_without_an_endpoint_the_sdk_is_not_imported(tmp_path: Path) -> None:
    place = small_project(tmp_path)
    code = "import sys; from ratchet.app import runs; print([name for name in sys.modules if 'opentelemetry' in name])"
    done = subprocess.run([sys.executable, "-c", code], cwd=place, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
