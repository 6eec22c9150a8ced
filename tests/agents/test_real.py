"""The real programs take an item from its spec to its branch, against a scripted model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.agents.real import FILES, ITEM, SPOKEN_ITEM, needs, pointed_at, ratchet
from tests.model_server import Fault, ModelServer, Turn
from tests.support import git, make_repository

pytestmark = pytest.mark.timeout(900)
NATIVE = {
    "goose": "goose",
    "claude": "claude:claude-sonnet-4-5",
    "codex": "codex",
    "gemini": "gemini:gemini-2.5-pro",
    "opencode": "opencode:scripted/scripted-model",
    "mini": "mini:openai/scripted-model",
    "aider": "aider:openai/scripted-model",
}


ACP = {
    "goose": "acp:goose acp --with-builtin developer",
    "opencode": "acp:opencode acp",
    "gemini": "acp:gemini --acp --model gemini-2.5-pro",
}


def carry_item(tmp_path: Path, name: str, agent: str) -> None:
    """From the spec to the branch, by the command line; then look at what is on the branch."""
    needs(name)
    project = make_repository(tmp_path / "project", FILES)
    with ModelServer(SPOKEN_ITEM if name == "aider" else ITEM) as server:
        env = pointed_at(server.address, tmp_path / "home")
        done = ratchet("run", "SPEC.md", "--agent", agent, cwd=project, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    branch = git("branch", "--list", "ratchet/*", "--format=%(refname:short)", cwd=project)
    assert "return a - b" in git("show", f"{branch}:calc.py", cwd=project)
    assert name in git("log", "-1", "--format=%(trailers:key=Ratchet-Agent,valueonly)", branch, cwd=project)


@pytest.mark.agents
@pytest.mark.parametrize("name", NATIVE)
def test_a_real_agent_does_a_whole_item(tmp_path: Path, name: str) -> None:
    carry_item(tmp_path, name, NATIVE[name])


# One binary and seconds a run: this one is in CI.
def test_goose_does_a_whole_item_over_acp(tmp_path: Path) -> None:
    carry_item(tmp_path, "goose", ACP["goose"])


@pytest.mark.agents
@pytest.mark.parametrize("name", ["opencode", "gemini"])
def test_a_real_agent_does_a_whole_item_over_acp(tmp_path: Path, name: str) -> None:
    carry_item(tmp_path, name, ACP[name])


TRIAL = [
    Turn(run=["echo hello > hello.txt", "echo ran > ran.txt"], say="DONE"),
    Turn(run=["echo again > again.txt"], say="DONE"),
]


@pytest.mark.agents
@pytest.mark.parametrize("agent", [*[NATIVE[name] for name in NATIVE if name != "aider"], *ACP.values()])
def test_a_real_agent_passes_its_trial_and_goes_on_in_its_session(tmp_path: Path, agent: str) -> None:
    needs(agent.removeprefix("acp:").partition(":")[0].partition(" ")[0])
    with ModelServer({"anyone": TRIAL}) as server:
        env = pointed_at(server.address, tmp_path / "home")
        done = ratchet("agents", "try", agent, "--json", "--timeout", "300", cwd=tmp_path, env=env)
        last = server.requests[-1].everything
    findings = {finding["what"]: finding for finding in json.loads(done.stdout)}
    failed = [what for what, finding in findings.items() if not finding["ok"] and finding["needed"]]
    assert (done.returncode, failed) == (0, []), findings
    assert findings["tells what it does"]["ok"]
    if not agent.startswith("mini"):
        assert findings["resumes a session"]["ok"], findings
        assert "ran.txt" in last, "the second turn is asked with the first one in mind"


FAULTS = {
    "rate_limit": "rate_limited",
    "overloaded": "overloaded",
    "auth": "auth",
    "context": "context_overflow",
}


@pytest.mark.agents
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("agent", ["claude:claude-sonnet-4-5", "codex", "goose", ACP["goose"]])
def test_a_real_agent_whose_provider_fails_says_why(tmp_path: Path, agent: str, fault: str) -> None:
    needs(agent.removeprefix("acp:").partition(":")[0].partition(" ")[0])
    with ModelServer({"anyone": TRIAL}, lasting=Fault(kind=fault, after_s=1)) as server:
        env = pointed_at(server.address, tmp_path / "home")
        done = ratchet("agents", "try", agent, "--json", "--timeout", "300", cwd=tmp_path, env=env)
    answers = next(finding for finding in json.loads(done.stdout) if finding["what"] == "answers")
    assert (done.returncode, answers["ok"]) == (1, False)
    # Over ACP goose ends a turn that did not fit without a word: what cannot be known is not guessed.
    silent = agent.startswith("acp:goose") and fault == "context"
    assert answers["detail"].startswith("agent_crashed: " if silent else f"{FAULTS[fault]}: "), answers


@pytest.mark.agents
@pytest.mark.parametrize("kind", ["rate_limit", "overloaded", "cut", "malformed", "slow"])
@pytest.mark.parametrize("agent", ["claude:claude-sonnet-4-5", "codex", ACP["goose"]])
def test_a_provider_that_fails_once_is_asked_again(tmp_path: Path, agent: str, kind: str) -> None:
    needs(agent.removeprefix("acp:").partition(":")[0].partition(" ")[0])
    with ModelServer({"anyone": TRIAL}) as server:
        server.faults.append(Fault(kind=kind, after_s=1))
        env = pointed_at(server.address, tmp_path / "home")
        done = ratchet("agents", "try", agent, "--json", "--timeout", "300", cwd=tmp_path, env=env)
    answers = next(finding for finding in json.loads(done.stdout) if finding["what"] == "answers")
    assert answers["ok"] or answers["detail"].startswith(("overloaded: ", "agent_crashed: ")), answers
    assert not server.faults, "it was asked"


@pytest.mark.agents
def test_a_run_whose_agent_is_limited_is_parked_and_not_failed(tmp_path: Path) -> None:
    needs("claude")
    project = make_repository(tmp_path / "project", FILES)
    with ModelServer(ITEM, lasting=Fault(kind="rate_limit", after_s=1)) as server:
        env = pointed_at(server.address, tmp_path / "home")
        done = ratchet("run", "SPEC.md", "--agent", NATIVE["claude"], cwd=project, env=env)
    assert done.returncode == 75, done.stdout + done.stderr
