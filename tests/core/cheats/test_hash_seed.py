"""Findings depend on the trees alone: not on the order in which sets and dictionaries happen to be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
from ratchet.core.cheats import find_cheats
from tests.core.cheats.test_cheats import CHEATS, HONEST, SCOPE

for sample in [*CHEATS, *HONEST]:
    changes = sample.changes
    tests = [(change.path, change.after) for change in changes if change.after and SCOPE.is_test(change.path)]
    for order in (changes, changes[::-1]):
        print(sample.name, [str(cheat) + str(cheat.doubt) for cheat in find_cheats(order, SCOPE, tests=tests)])
"""


def findings(seed: str) -> str:
    env = os.environ | {"PYTHONHASHSEED": seed}
    folder = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=folder, env=env, capture_output=True, text=True, check=True, timeout=300
    )
    return done.stdout


def test_findings_are_the_same_whatever_the_hash_seed() -> None:
    first, *others = [findings(seed) for seed in ("0", "1", "42", "4711")]
    assert first.count("\n") > 100
    for other in others:
        assert other == first
