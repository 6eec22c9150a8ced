"""Copies of the project that a sandbox would show are found by the names in its manifests."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.app.backtest.bench import SOURCE, Bench
from ratchet.app.backtest.copies import find_copies
from ratchet.errors import EnvironmentCannot
from ratchet.workspace.git.repository import find_repository
from tests.support import make_repository

SITE = ".local/share/pipx/venvs/tool/lib/python3.11/site-packages"


@pytest.mark.parametrize(
    ("manifest", "text", "copies", "others"),
    [
        (
            "pyproject.toml",
            '[project]\nname = "Our-Thing"\n',
            [f"{SITE}/our_thing-2.0.dist-info", f"{SITE}/thing", f"{SITE}/_thing.py"],
            [f"{SITE}/our_thing_extra-2.0.dist-info", f"{SITE}/other"],
        ),
        (
            "go.mod",
            "module github.com/Us/thing/v2\n",
            [
                "go/pkg/mod/github.com/!us/thing@v1.0.0",
                "go/pkg/mod/github.com/!us/thing/v3@v3.0.0",
                "go/pkg/mod/cache/download/github.com/!us/thing/@v",
            ],
            ["go/pkg/mod/github.com/!us/things@v1.0.0"],
        ),
        (
            "Cargo.toml",
            '[package]\nversion = "1.0.0"\nname = "thing"\n',
            [".cargo/registry/src/index/thing-2.0.0", ".cargo/registry/cache/index/thing-2.0.0.crate"],
            [".cargo/registry/src/index/thing-derive-2.0.0"],
        ),
        ("package.json", '{"name": "@us/thing"}', [".npm-global/lib/node_modules/@us/thing"], []),
        ("thing.gemspec", "", [".gem/ruby/3.1.0/gems/thing-2.0.0"], [".gem/ruby/3.1.0/gems/thing-rails-2.0.0"]),
        (
            "pom.xml",
            "<project><parent><groupId>org.us</groupId><artifactId>all</artifactId></parent>"
            "<artifactId>thing</artifactId></project>",
            [".m2/repository/org/us/thing"],
            [".m2/repository/org/us/all"],
        ),
    ],
)
def test_copies_are_found_by_name(
    tmp_path: Path, manifest: str, text: str, copies: list[str], others: list[str]
) -> None:
    root, home = tmp_path / "thing", tmp_path / "home"
    root.mkdir()
    (root / manifest).write_text(text)
    for name in (*copies, *others):
        (home / name).mkdir(parents=True)
    if manifest == "pyproject.toml":
        record = "our_thing-2.0.dist-info/RECORD,,\nthing/__init__.py,,\n_thing.py,,\n../../../bin/thing,,\n"
        (home / copies[0] / "RECORD").write_text(record)
    assert sorted(find_copies(root, home)) == sorted(str(home / name) for name in copies)


def test_a_manifest_that_cannot_be_read_has_no_copies(tmp_path: Path) -> None:
    for name in ("package.json", "go.mod", "Cargo.toml", "pom.xml"):
        (tmp_path / name).write_bytes(b"\xff[1")
    assert find_copies(tmp_path, tmp_path / "home") == []


def test_a_backtest_of_ratchet_by_itself_is_refused() -> None:
    with pytest.raises(EnvironmentCannot, match="source of this Ratchet"):
        Bench(find_repository(SOURCE))


def test_state_that_a_sandbox_shows_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/opt/state-of-nobody")
    with pytest.raises(EnvironmentCannot, match="/opt/state-of-nobody"):
        Bench(find_repository(make_repository(tmp_path / "calc", {"README.md": ""})))
