"""What `doctor` says about tests that do not load."""

from __future__ import annotations

from ratchet.app.doctor import load_error


def test_the_error_is_named_and_not_a_test_whose_name_has_the_word_in_it() -> None:
    printed = (
        "tests/test_async.py::TestTransitions::test_dispatch_with_error\n\n==== ERRORS ====\n"
        "____ ERROR collecting tests/test_codestyle.py ____\n"
        "tests/test_codestyle.py:5: in <module>\n    import pycodestyle\n"
        "E   ModuleNotFoundError: No module named 'pycodestyle'\n1 error in 0.52s\n"
    )
    assert load_error(printed) == "ModuleNotFoundError: No module named 'pycodestyle'"


def test_an_error_of_unknown_form_is_the_last_line() -> None:
    printed = "go: errors parsing go.mod:\n/p/go.mod:3: invalid go version '1.21.0': must match format 1.23\n\n"
    assert load_error(printed) == "/p/go.mod:3: invalid go version '1.21.0': must match format 1.23"
    assert load_error("") == ""
