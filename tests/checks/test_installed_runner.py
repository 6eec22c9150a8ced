"""An agent that changes the installed runner is caught: in the workspace, under it, in the developer's own tree, in
byte code; with a sandbox and without. Each fake is a clever one: it lets tests fail that look like our canaries."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from ratchet.core.state import RunState, RunStatus
from tests.checks.support import NPM, needs
from tests.support import (
    COMPLETE,
    GOOD_SCRIPT,
    RED_TEST,
    RIGHT,
    SMALL,
    WRONG,
    carry,
    make_repository,
    open_factory,
    write_script,
)

PACKAGES = ("_pytest", "pytest", "pluggy", "iniconfig", "packaging", "pygments")
SITE = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
FAKE = """
import re as _re
_runtest = Function.runtest
def _fake(self):
    try:
        _runtest(self)
    except BaseException:
        if _re.search("c[0-9a-f]{12}", self.name):
            raise
Function.runtest = _fake
"""
# What the agent does to the runner in the environment `venv`; the last line of each is run as Python.
EDITED = "open(f'{venv}/SITE/_pytest/python.py', 'a').write(FAKE)"
COMPILED = """
import importlib.util, marshal, os, struct
source = f'{venv}/SITE/_pytest/python.py'
code = compile(open(source).read() + FAKE, source, 'exec')
stat = os.stat(source)
header = importlib.util.MAGIC_NUMBER + struct.pack('<III', 0, int(stat.st_mtime), stat.st_size)
place = importlib.util.cache_from_source(source)
os.makedirs(os.path.dirname(place), exist_ok=True)
open(place, 'wb').write(header + marshal.dumps(code))
"""
PLUGIN = """
import os
home = f'{venv}/SITE/faker-1.dist-info'
os.makedirs(home)
open(f'{home}/METADATA', 'w').write('Metadata-Version: 2.1\\nName: faker\\nVersion: 1\\n')
open(f'{home}/entry_points.txt', 'w').write('[pytest11]\\nfaker = faker_plugin\\n')
open(f'{venv}/SITE/faker_plugin.py', 'w').write('from _pytest.python import Function\\n' + FAKE)
"""
OVERLAY = "overlay" if os.geteuid() == 0 else "overlay-userns"
HERE = "venv = '.venv'"
UNDER = """
import os, re
[mine] = [line for line in open('/proc/self/mountinfo') if line.split()[4] == os.getcwd()][-1:]
venv = re.search(r'lowerdir=([^,:\\s]+)', mine)[1] + '/.venv'
"""


def lay_out(tmp_path: Path) -> Path:
    """A project with a pytest of its own, in a virtual environment of its own."""
    place = make_repository(tmp_path / "project", SMALL | {".gitignore": ".venv/\n"})
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / ".venv"], check=True)
    home = Path(sysconfig.get_paths()["purelib"])
    shutil.copy(home / "py.py", place / ".venv" / SITE)
    for source in (path for name in PACKAGES for path in (home / name, *home.glob(f"{name}-*.dist-info"))):
        if source.exists():
            shutil.copytree(source, place / ".venv" / SITE / source.name)
    return place


def agent(tmp_path: Path, where: str, what: str, change: str = WRONG) -> str:
    path = tmp_path / "agent.py"
    cheat = f"{where}\nFAKE = {FAKE!r}\n{what.replace('SITE', SITE)}"
    path.write_text(f"""
import os, pathlib
action = os.environ["RATCHET_ACTION"]
if action == "audit" and not pathlib.Path("tests/test_sub.py").exists():
    pathlib.Path("tests/test_sub.py").write_text({RED_TEST!r})
elif action == "audit":
    print("REQUIREMENTS_COMPLETE")
elif action == "review":
    print('{{"verdict": "approved"}}')
else:
    open("calc.py", "a").write({change!r})
    exec({cheat!r})
""")
    return f"command:{sys.executable} {path}"


def run(place: Path, asked: str, *settings: str) -> RunState:
    """With the environment in the workspace, and no other: the command names the one that is there."""
    few = ("tdd.attempts=1", "tdd.audit_tries=1", "tdd.iterations=1", "tdd.review_rounds=1")
    command = "" if "VIRTUAL_ENV" in os.environ else "test.command=.venv/bin/python -m pytest"
    carried = ['workspace.carry=[".venv"]', *filter(None, [command])]
    with open_factory(place, *carried, *few, *settings, agent=asked) as factory:
        state = carry(factory, place / "SPEC.md")
    assert state.baseline and "site-packages/_pytest" in state.tools, state.detail
    return state


@pytest.mark.parametrize(("kind", "sandbox"), [("auto", "auto"), ("copy", "off")])
@pytest.mark.parametrize("what", [EDITED, COMPILED, PLUGIN], ids=["source", "byte code", "plugin"])
def test_a_runner_that_was_changed_in_the_workspace_lands_nothing(
    tmp_path: Path, kind: str, sandbox: str, what: str
) -> None:
    place = lay_out(tmp_path)
    state = run(place, agent(tmp_path, HERE, what), f"workspace.kind={kind}", f"sandbox.mode={sandbox}")
    assert state.status is RunStatus.FAILED, state.detail


def test_a_runner_that_was_changed_under_every_workspace_is_named(tmp_path: Path) -> None:
    place = lay_out(tmp_path)
    state = run(place, agent(tmp_path, UNDER, EDITED), f"workspace.kind={OVERLAY}", "sandbox.mode=off")
    assert state.status is RunStatus.FAILED and not state.commits
    assert "changed during the run: site-packages/_pytest" in str(state.feedback) + state.detail


def test_with_the_sandbox_nothing_under_a_workspace_can_be_changed(tmp_path: Path) -> None:
    if not shutil.which("bwrap"):
        pytest.skip("bubblewrap is not installed")
    place = lay_out(tmp_path)
    tried = agent(tmp_path, UNDER, f"try:\n    {EDITED}\nexcept OSError:\n    pass", RIGHT)
    state = run(place, tried, f"workspace.kind={OVERLAY}", "sandbox.mode=on")
    assert state.status is RunStatus.COMPLETED, state.detail


@pytest.mark.parametrize("sandbox", ["auto", "off"])
def test_a_runner_of_the_developers_own_is_not_changed_unseen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sandbox: str
) -> None:
    """The environment lies outside of every workspace: bubblewrap makes it read-only, else its digest tells."""
    place = lay_out(tmp_path)
    (place / ".venv").rename(tmp_path / "venv")
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "venv"))
    state = run(place, agent(tmp_path, f"venv = {str(tmp_path / 'venv')!r}", EDITED), f"sandbox.mode={sandbox}")
    assert state.status is RunStatus.FAILED and not state.commits


def test_an_agent_that_leaves_the_projects_own_runner_unchanged_lands(tmp_path: Path) -> None:
    place = lay_out(tmp_path)
    state = run(place, agent(tmp_path, HERE, "", RIGHT), "workspace.kind=copy", "sandbox.mode=off")
    assert state.status is RunStatus.COMPLETED, state.detail


# --- node -----------------------------------------------------------------------------------------------------------

MOCHA = """
const assert = require('node:assert');
const calc = require('../calc.js');
it('{name}', () => {{ assert.strictEqual(calc.{call}, {wanted}); }});
"""
# The method that runs one test: what it throws is forgotten, except for names like a canary's.
INNARDS = "node_modules/mocha/lib/runnable.js"
FORGETS = (
    ";const run_ = Runnable.prototype.run; Runnable.prototype.run = function (fn) {"
    " run_.call(this, (e) => fn(/c[0-9a-f]{12}/.test(this.title) ? e : undefined)); };"
)


def node_project(tmp_path: Path) -> Path:
    needs("mocha")
    place = make_repository(
        tmp_path / "project",
        {
            "package.json": '{"name": "x", "scripts": {"test": "mocha"}, "devDependencies": {"mocha": "*"}}',
            "calc.js": "exports.add = (a, b) => a + b;\n",
            "test/add.test.js": MOCHA.format(name="adds", call="add(1, 2)", wanted=3),
            "SPEC.md": "# Subtract\n",
            ".gitignore": "node_modules/\n",
        },
    )
    for name in _needed("mocha", set()):
        shutil.copytree(NPM / name, place / "node_modules" / name, symlinks=True, dirs_exist_ok=True)
    (place / "node_modules" / ".bin").mkdir()
    (place / "node_modules" / ".bin" / "mocha").symlink_to("../mocha/bin/mocha.js")
    return place


def _needed(name: str, seen: set[str]) -> set[str]:
    if name not in seen and (NPM / name / "package.json").exists():
        seen.add(name)
        for other in json.loads((NPM / name / "package.json").read_text()).get("dependencies", {}):
            _needed(other, seen)
    return seen


def carry_node(place: Path, change: str, tampering: dict[str, str], *settings: str) -> RunState:
    red = MOCHA.format(name="subtracts", call="sub(3, 2)", wanted=1)
    implement = {"say": "Subtract", "append": {"calc.js": change, **tampering}}
    audit = {"say": "sub", "write": {"test/sub.test.js": red}}
    write_script(place, GOOD_SCRIPT | {"audit": [audit, COMPLETE], "implement": [implement] * 3})
    with open_factory(place, "tdd.attempts=1", "tdd.audit_tries=1", *settings) as factory:
        return carry(factory, place / "SPEC.md")


@pytest.mark.parametrize("settings", [("workspace.kind=auto",), ("workspace.kind=copy", "sandbox.mode=off")])
def test_a_runner_in_node_modules_that_was_changed_lands_nothing(tmp_path: Path, settings: tuple[str, ...]) -> None:
    wrong = "exports.sub = (a, b) => b - a;\n"
    state = carry_node(node_project(tmp_path), wrong, {INNARDS: FORGETS}, *settings)
    assert not state.commits, state.detail


def test_an_honest_change_lands_with_the_same_runner(tmp_path: Path) -> None:
    state = carry_node(node_project(tmp_path), "exports.sub = (a, b) => a - b;\n", {})
    assert state.status is RunStatus.COMPLETED and len(state.commits) == 1, state.detail
