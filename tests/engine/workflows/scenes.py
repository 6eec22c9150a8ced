"""One scene for each workflow: a small repository, what is asked, and the script that takes it to a good end.

The same scenes are played whole, with a failure at each step, and with the power cut at each durable write.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ratchet.app.runs import RunService
from ratchet.core import events as ev
from ratchet.core.item import Item
from ratchet.core.ledger import Entry
from ratchet.core.state import RunState
from tests.support import APPROVED, SMALL, make_repository, open_factory, write_script

Script = dict[str, list[dict[str, Any]]]

WANTS = json.dumps(
    {"verdict": "changes_requested", "findings": [{"file": "calc.py", "line": 5, "issue": "no docstring"}]}
)
SPEC = """# Calculator

The calculator grows.

### T001: subtract
`calc.sub(a, b)` subtracts.

### T002: multiply
`calc.mul(a, b)` multiplies.

## Status
Nothing is done.
"""
CHECKLIST = """# Calculator

- [x] add
- [ ] subtract
  Verify: `python3 -c "from calc import sub; assert sub(3, 2) == 1"`
- [ ] multiply
"""


def function(name: str, sign: str) -> str:
    return f"\n\ndef {name}(a, b):\n    return a {sign} b\n"


def test_of(name: str, result: int) -> str:
    return f"from calc import {name}\n\n\ndef test_{name}():\n    assert {name}(3, 2) == {result}\n"


def built(name: str, sign: str, result: int) -> dict[str, Any]:
    return {
        "say": f"Add {name}",
        "append": {"calc.py": function(name, sign)},
        "write": {f"tests/test_{name}.py": test_of(name, result)},
        "usage": {"cost_usd": 0.01},
    }


SUB, MUL = built("sub", "-", 1), built("mul", "*", 6)
DOC = {
    "say": "Say what sub does",
    "replace": [{"path": "calc.py", "old": "    return a - b", "new": '    """a - b"""\n    return a - b'}],
}


def noted(old: str, new: str) -> dict[str, Any]:
    return {"say": f"Note: {new}", "replace": [{"path": "SPEC.md", "old": old, "new": new}]}


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """`commits` are the subjects of what must be kept in the end, oldest first."""

    workflow: str
    files: dict[str, str]
    script: Script
    commits: list[str]
    settings: list[str] = []


BROKEN = SMALL | {
    "calc.py": "def add(a, b):\n    return a - b\n\n\ndef neg(a):\n    return a\n",
    "tests/test_calc.py": SMALL["tests/test_calc.py"]
    + "\n\ndef test_neg():\n    from calc import neg\n\n    assert neg(1) == -1\n",
}
FIX_ADD = {
    "say": "Add, not subtract",
    "replace": [{"path": "calc.py", "old": "a - b", "new": "a + b"}],
    "usage": {"cost_usd": 0.02},
}
FIX_NEG = {"say": "Negate", "replace": [{"path": "calc.py", "old": "return a\n", "new": "return -a\n"}]}
FIX_BOTH = {
    "say": "Both",
    "replace": [*FIX_ADD["replace"], *FIX_NEG["replace"]],
    "usage": {"cost_usd": 0.02},
}
WORSE = {"say": "Worse", "write": {"calc.py": "def add(a, b):\n    return 0\n"}, "usage": {"cost_usd": 0.05}}

SCENES = {
    "build": Scene(
        workflow="build",
        files=SMALL | {"SPEC.md": SPEC},
        script={
            "implement": [SUB, MUL],
            "review": [{"say": WANTS}, {"say": APPROVED}, {"say": APPROVED}],
            "implement_changes": [DOC],
            "update_spec": [
                noted("Nothing is done.", "T001 is done."),
                noted("T001 is done.", "All is done."),
            ],
        },
        commits=["Add sub", "Say what sub does", "Note: T001 is done.", "Add mul", "Note: All is done."],
    ),
    "fix": Scene(
        workflow="fix",
        files=BROKEN,
        script={"fix": [WORSE, FIX_ADD, FIX_NEG]},
        commits=["Add, not subtract", "Negate"],
    ),
    "swarm": Scene(
        workflow="swarm",
        files=BROKEN,
        script={"fix": [WORSE, FIX_BOTH, {"say": "slow", "delay_s": 60.0}]},
        commits=["Both"],
        settings=["swarm.parallel=3"],
    ),
    "loop": Scene(
        workflow="loop",
        files=SMALL | {"SPEC.md": CHECKLIST},
        script={"implement": [{"say": "thinking"}, SUB, MUL]},
        commits=["Add sub", "Add mul"],
    ),
}


def lay_out(folder: Path, scene: Scene, script: Script | None = None) -> Path:
    place = make_repository(folder / "project", scene.files)
    write_script(place, scene.script if script is None else script)
    return place


def ask(factory: RunService, scene: Scene, place: Path) -> Item:
    if scene.workflow in ("fix", "swarm"):
        spec = "# Fix it\n\nMake it green.\n"
        return factory.store.add(factory.new_item(spec, name="fix", workflow=scene.workflow, metadata={}))
    return factory.add(place / "SPEC.md", workflow=scene.workflow)


def open_scene(place: Path, scene: Scene, *settings: str) -> RunService:
    return open_factory(place, *scene.settings, *settings)


def carry(
    place: Path, scene: Scene, *settings: str, also: Callable[[ev.Event], None] = lambda _event: None
) -> tuple[RunState, list[ev.Event]]:
    received: list[ev.Event] = []

    def watch(_entry: Entry, event: ev.Event, _state: RunState) -> None:
        received.append(event)
        also(event)

    with open_scene(place, scene, *settings) as factory:
        lease = factory.claim(ask(factory, scene, place).id)
        state = asyncio.run(factory.work(lease, watch=watch, on_agent_event=lambda _text: None))
    return state, received


def play(
    tmp_path: Path, name: str, script: Script | None = None, *settings: str, files: dict[str, str] | None = None
) -> tuple[RunState, list[ev.Event], Path]:
    """A scene from its beginning, with turns of the script replaced."""
    scene = msgspec.structs.replace(SCENES[name], files=SCENES[name].files | (files or {}))
    place = lay_out(tmp_path, scene, scene.script | (script or {}))
    return *carry(place, scene, *settings), place
