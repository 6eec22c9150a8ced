"""Every real program and every way its provider can fail: what each cell of the matrix comes to.

A provider that fails once, after a step that went well, is got over or named; one that goes on failing is named.
Nothing is a crash, a silence or a success. `python -m tests.agents.test_matrix` prints the matrix.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import pytest

from tests.agents.real import AGENTS, needed_by, needs, pointed_at, ratchet
from tests.model_server import Fault, ModelServer, Turn

pytestmark = [pytest.mark.agents, pytest.mark.timeout(600)]
# Long enough for the slowest to begin; who goes on failing in silence is waited for to the end of it.
TIMEOUT_S, ONCE_TIMEOUT_S = "75", "300"
TASK = Turn(run=["echo hello > hello.txt", "echo ran > ran.txt"], say="DONE", text="hello.txt\n```\nhello\n```\n")
ONCE = {
    "429 once": Fault(kind="rate_limit", after_s=1),
    "529 once": Fault(kind="overloaded"),
    "overflow once": Fault(kind="context"),
    "cut once": Fault(kind="cut"),
    "error inside once": Fault(kind="inside"),
}
ALWAYS = {
    "429": Fault(kind="rate_limit", after_s=1),
    "retry-after 3600": Fault(kind="rate_limit", after_s=3600),
    "529": Fault(kind="overloaded"),
    "overflow": Fault(kind="context"),
    "401": Fault(kind="auth"),
}
REASONS = {
    "rate_limit": "rate_limited",
    "overloaded": "overloaded",
    "context": "context_overflow",
    "auth": "auth",
    "cut": "overloaded",
    "inside": "overloaded",
}
# It asks once a turn, and runs nothing: the fault meets its first request.
ASKS_ONCE = ("aider",)
# It ends well and without a word, whatever the error was: what cannot be known is not guessed.
SILENT = [("gemini", "error inside once"), ("gemini acp", "error inside once")]


def came_to(folder: Path, name: str, case: str) -> str:
    """Return the outcome of one turn of the program: `finished`, or the reason of its failure and the detail."""
    limit = ONCE_TIMEOUT_S if case in ONCE else TIMEOUT_S
    with ModelServer({"anyone": [TASK]}, lasting=ALWAYS.get(case)) as server:
        if case in ONCE:
            server.faults.extend([ONCE[case]] if name in ASKS_ONCE else [None, ONCE[case]])
        env = pointed_at(server.address, folder / "home")
        done = ratchet("agents", "try", AGENTS[name], "--json", "--timeout", limit, cwd=folder, env=env)
    assert not server.faults, "the fault was met"
    answers = next(finding for finding in json.loads(done.stdout) if finding["what"] == "answers")
    return "finished" if answers["ok"] else str(answers["detail"])


@pytest.mark.parametrize("case", ONCE)
@pytest.mark.parametrize("name", AGENTS)
def test_a_provider_that_fails_once_is_got_over_or_named(tmp_path: Path, name: str, case: str) -> None:
    needs(needed_by(name))
    came = came_to(tmp_path, name, case)
    wanted = "agent_crashed" if (name, case) in SILENT else REASONS[ONCE[case].kind]
    assert came == "finished" or came.startswith(wanted), came


@pytest.mark.parametrize("case", ALWAYS)
@pytest.mark.parametrize("name", AGENTS)
def test_a_provider_that_goes_on_failing_is_named(tmp_path: Path, name: str, case: str) -> None:
    needs(needed_by(name))
    came = came_to(tmp_path, name, case)
    assert came.startswith(REASONS[ALWAYS[case].kind]), came


def main(names: list[str]) -> None:
    cases = [*ONCE, *ALWAYS]
    print(f"{'':<18}" + "".join(f"{case:<18}" for case in cases))
    for name in names or AGENTS:
        print(f"{name:<18}", end="", flush=True)
        output = []
        for case in cases:
            with tempfile.TemporaryDirectory() as folder:
                output.append(came_to(Path(folder), name, case))
            print(f"{output[-1].partition(':')[0]:<18}", end="", flush=True)
        print()
        for case, words in zip(cases, output, strict=True):
            print(f"    {case}: {words}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
