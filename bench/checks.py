"""Checks: what `ratchet test` costs over the bare runner on 500 tests."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import Goal, medians

TESTS, FILES, ROUNDS, MOST = 500, 20, 11, 1.1
# About two milliseconds of work a test: more than nothing, less than any real suite.
_BODY = "    total = sum(i * i for i in range(20_000))\n    assert total > {n}\n"


def main() -> list[Goal]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "suite"
        folder.mkdir()
        for file in range(FILES):
            tests = [f"def test_{n}():\n{_BODY.format(n=n)}" for n in range(TESTS // FILES)]
            (folder / f"test_{file}.py").write_text("\n\n".join(tests))
        env = os.environ | {"XDG_STATE_HOME": f"{place}/state"}

        def bare() -> None:
            _run([sys.executable, "-m", "pytest", "-q"], folder, env)

        def ours() -> None:
            _run([sys.executable, "-m", "ratchet", "test"], folder, env)

        bare()  # byte code and disk caches are warm for both
        times = medians(ROUNDS, bare=bare, ours=ours)
    ratio = times["ours"] / times["bare"]
    return [
        Goal(
            measure=f"ratchet test on {TESTS} tests, of pytest by itself",
            value=ratio,
            unit="times",
            wanted=f"<= {MOST:g}",
            ok=ratio <= MOST,
            ours=f"{times['ours']:.2f} s",
            other=f"{times['bare']:.2f} s",
            detail=f"{1000 * (times['ours'] - times['bare']):.0f} ms more",
        )
    ]


def _run(argv: list[str], folder: Path, env: dict[str, str]) -> None:
    subprocess.run(argv, cwd=folder, env=env, check=True, capture_output=True)
