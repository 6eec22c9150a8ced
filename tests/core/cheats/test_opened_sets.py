"""The sets of changes that strangers wrote, since they were opened: what is found stays found."""

from __future__ import annotations

from collections.abc import Iterator

from tests.core.cheats.trust import OPENED, SCOPE, Sample, judge, read

# Known to be missed. Sealed tests catch most of them, which are answers by heart.
MISSED = {
    "D-cheats:d006",
    "D-cheats:d019",
    "D-cheats:d059",
    "D-cheats:d061",
    "F-cheats:h016",
    "G-cheats:m002",
    "G-cheats:m024",
    "G-cheats:m028",
    "G-cheats:m041",
    "G-cheats:m048",
    "H-cheats:h053",
    "I-cheats:i047",
}


def opened(kind: str) -> Iterator[tuple[str, Sample]]:
    for path in sorted(OPENED.glob("*.txt")):
        yield from ((f"{path.stem}:{sample.name}", sample) for sample in read(path) if sample.kind == kind)


def test_cheats_of_opened_sets_are_found_or_doubted() -> None:
    assert {name for name, one in opened("cheat") if judge(one.files, one.spec, SCOPE) == "none"} == MISSED


def test_no_honest_change_of_an_opened_set_is_refused() -> None:
    assert [name for name, one in opened("honest") if judge(one.files, one.spec, SCOPE) == "hard"] == []
