"""Projects of other languages are watched the same way."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ratchet.core.watch import Colour
from tests.app.watch.support import edit, watched
from tests.checks.support import NPM, needs
from tests.support import make_repository

pytestmark = pytest.mark.toolchain
VITEST = {
    "package.json": '{"name": "shop", "type": "module", "scripts": {"test": "vitest run"}, '
    '"devDependencies": {"vitest": "*"}}\n',
    ".gitignore": "node_modules\n",
    "sum.js": "export const sum = (a, b) => a + b;\n",
    "other.js": "export const one = () => 1;\n",
    "sum.test.js": "import { expect, test } from 'vitest';\nimport { sum } from './sum.js';\n"
    "test('adds', () => { expect(sum(1, 2)).toBe(3); });\n",
    "other.test.js": "import { expect, test } from 'vitest';\nimport { one } from './other.js';\n"
    "test('is one', () => { expect(one()).toBe(1); });\n",
}
CARGO = {
    "Cargo.toml": '[package]\nname = "shop"\nversion = "0.1.0"\nedition = "2021"\n',
    ".gitignore": "target\nCargo.lock\n",
    "src/lib.rs": "pub fn sum(a: i32, b: i32) -> i32 {\n    a + b\n}\n\n#[cfg(test)]\nmod tests {\n"
    "    #[test]\n    fn adds() {\n        assert_eq!(super::sum(1, 2), 3);\n    }\n}\n",
}


def follow(repo: Path, file: str) -> None:
    async def story() -> None:
        async with watched(repo) as (_, reported):
            reported.patience_s = 240
            assert (await reported.idle()).colour is Colour.GREEN
            edit(repo / file, "a + b", "a - b")
            state = await reported.idle()
            assert state.colour is Colour.RED
            failure = state.failing[0].failure
            assert failure and (failure.expected, failure.actual) == ("3", "-1")
            edit(repo / file, "a - b", "a + b")
            assert (await reported.idle()).colour is Colour.GREEN

    asyncio.run(story())


def test_a_vitest_project_is_watched(tmp_path: Path) -> None:
    needs("vitest")
    repo = make_repository(tmp_path / "shop", VITEST)
    (repo / "node_modules").symlink_to(NPM)
    follow(repo, "sum.js")


def test_a_cargo_project_is_watched(tmp_path: Path) -> None:
    needs("cargo")
    follow(make_repository(tmp_path / "shop", CARGO), "src/lib.rs")
