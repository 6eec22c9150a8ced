"""A tree's id follows from its content alone."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from ratchet.core.snapshot import EXECUTABLE, REGULAR, FileEntry, manifest, path_text

ENTRIES = st.lists(
    st.builds(
        FileEntry,
        path=st.text("abc/é", min_size=1),
        mode=st.sampled_from([REGULAR, EXECUTABLE]),
        size=st.integers(0, 9),
        sha256=st.sampled_from(["0" * 64, "1" * 64]),
    ),
    unique_by=lambda entry: entry.path,
)


@given(ENTRIES)
def test_the_order_in_which_files_are_found_does_not_matter(entries: list[FileEntry]) -> None:
    once = manifest(entries)
    assert once == manifest(sorted(entries, key=lambda entry: entry.sha256 + entry.path[::-1]))
    assert [entry.path for entry in once.files] == sorted(entry.path for entry in entries)


@given(ENTRIES, ENTRIES)
def test_two_trees_have_one_id_only_if_they_are_equal(one: list[FileEntry], other: list[FileEntry]) -> None:
    first, second = manifest(one), manifest(other)
    assert (first.digest == second.digest) == (first.files == second.files) == (first.snapshot_id == second.snapshot_id)


def test_the_id_begins_as_the_digest_of_mode_size_content_and_path_of_each_file() -> None:
    second = FileEntry(path="b", mode=REGULAR, size=1, sha256="2")
    made = manifest([second, FileEntry(path="a", mode="120000", size=3, sha256="4")])
    digest = hashlib.sha256(b"120000 3 4 a\x00100644 1 2 b\x00").hexdigest()
    assert (made.digest, made.snapshot_id) == (f"sha256:{digest}", f"snap-{digest[:12]}")


@given(st.binary(), st.binary())
def test_two_paths_never_have_the_same_text(one: bytes, other: bytes) -> None:
    assert (path_text(one) == path_text(other)) == (one == other)


def test_a_path_is_written_as_it_is_but_for_backslashes_and_foreign_bytes() -> None:
    assert path_text("src/é.py".encode()) == "src/é.py"
    assert path_text(b"a\\b\xff") == "a\\\\b\\xff"
