"""A change to one package of Go or Rust runs the tests of those who use it; a change nobody can follow runs all."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.checks.detect.targets import detect
from ratchet.checks.select.affected import affected
from tests.checks.support import needs, run

GO = {
    "go.mod": "module example.com/shop\n\ngo 1.18\n",
    "money/money.go": "package money\n\nfunc Cents() int { return 1 }\n",
    "money/money_test.go": 'package money\n\nimport "testing"\n\nfunc TestCents(t *testing.T) {}\n',
    "cart/cart.go": 'package cart\n\nimport (\n\t"fmt"\n\tm "example.com/shop/money"\n)\n\n'
    "func Total() string { return fmt.Sprint(m.Cents()) }\n",
    "cart/cart_test.go": 'package cart\n\nimport "testing"\n\nfunc TestTotal(t *testing.T) {}\n',
    "mail/mail.go": "package mail\n",
    "mail/mail_test.go": 'package mail\n\nimport (\n\t"testing"\n\n\t"example.com/shop/cart"\n)\n\n'
    "func TestMail(t *testing.T) { _ = cart.Total() }\n",
    "page/page.go": 'package page\n\nimport _ "example.com/shop/mail"\n',
    "page/page_test.go": 'package page\n\nimport "testing"\n\nfunc TestPage(t *testing.T) {}\n',
}
RUST_TEST = "pub fn one() -> i32 { 1 }\n\n#[test]\nfn holds_%s() {\n    assert_eq!(one(), 1);\n}\n"
RUST = {
    "Cargo.toml": '[workspace]\nmembers = ["money", "cart", "mail"]\nresolver = "2"\n',
    "money/Cargo.toml": '[package]\nname = "shop-money"\nversion = "0.1.0"\nedition = "2021"\n',
    "money/src/lib.rs": RUST_TEST % "money",
    "cart/Cargo.toml": '[package]\nname = "cart"\nversion = "0.1.0"\nedition = "2021"\n\n[dependencies]\n'
    'money = { package = "shop-money", path = "../money" }\n',
    "cart/src/lib.rs": RUST_TEST % "cart",
    "mail/Cargo.toml": '[package]\nname = "mail"\nversion = "0.1.0"\nedition = "2021"\n',
    "mail/src/main.rs": "fn main() {}\n\n#[test]\nfn holds_mail() {}\n",
}


def lay(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def chosen(folder: Path, *changed: str) -> list[str] | None:
    """The files that stand for the chosen packages: none for all of them, and nothing at all when none is reached."""
    found = affected(folder, detect(folder), list(changed))
    return next(([test.file for test in tests] for tests in found.values()), None)


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("page/page.go", ["page/page_test.go"]),
        ("cart/cart_test.go", ["cart/cart_test.go"]),
        ("money/money.go", ["cart/cart_test.go", "mail/mail_test.go", "money/money_test.go"]),
        ("mail/mail_test.go", ["mail/mail_test.go"]),
        ("mail/mail.go", ["mail/mail_test.go", "page/page_test.go"]),
        ("go.mod", []),
        ("money/rates.json", []),
        ("gone/gone.go", []),
    ],
)
def test_a_change_in_go_reaches_the_packages_that_import_it(tmp_path: Path, changed: str, tests: list[str]) -> None:
    assert chosen(lay(tmp_path, GO), changed) == tests


def test_a_package_of_go_that_no_test_reaches_needs_no_run(tmp_path: Path) -> None:
    lay(tmp_path, GO | {"cmd/main.go": "package main\n\nfunc main() {}\n"})
    assert chosen(tmp_path, "cmd/main.go") is None


@pytest.mark.parametrize("changed", ["other/other.go", "lib/lib.go"])
def test_modules_that_stand_in_for_others_are_all_run(tmp_path: Path, changed: str) -> None:
    module = "module example.com/app\n\nreplace example.com/lib => ../lib\n"
    folder = lay(tmp_path, {"app/go.mod": module, "app/a_test.go": "package app\n", changed: "package x\n"})
    assert chosen(folder, changed) == []


@pytest.mark.parametrize(
    ("changed", "manifests"),
    [
        ("cart/src/lib.rs", ["cart/Cargo.toml"]),
        ("money/src/lib.rs", ["cart/Cargo.toml", "money/Cargo.toml"]),
        ("mail/src/main.rs", ["mail/Cargo.toml"]),
        ("money/Cargo.toml", []),
        ("Cargo.lock", []),
        ("money/build.rs", []),
        ("money/src/prices.csv", []),
    ],
)
def test_a_change_in_rust_reaches_the_packages_that_depend_on_it(
    tmp_path: Path, changed: str, manifests: list[str]
) -> None:
    assert chosen(lay(tmp_path, RUST), changed) == manifests


def test_go_runs_only_the_packages_it_is_given(tmp_path: Path) -> None:
    needs("go")
    folder = lay(tmp_path / "it", GO)
    report = run(folder, only=affected(folder, detect(folder), ["cart/cart.go"]))
    assert sorted(test.name for test in report.tests) == ["TestMail", "TestTotal"]


@pytest.mark.toolchain
def test_cargo_runs_only_the_packages_it_is_given(tmp_path: Path) -> None:
    needs("cargo")
    folder = lay(tmp_path / "it", RUST)
    report = run(folder, only=affected(folder, detect(folder), ["money/src/lib.rs"]))
    assert sorted(test.id for test in report.tests) == ["cart holds_cart", "shop-money holds_money"]
    alone = run(folder, only=affected(folder, detect(folder), ["mail/src/main.rs"]))
    assert [test.id for test in alone.tests] == ["mail::bin/mail holds_mail"]
