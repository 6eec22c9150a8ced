"""Every way a pytest test can end, but those that take the runner along."""

import unittest

import pytest

from shop import price, total


def test_passes():
    assert total([1, 2]) == 3


def test_fails():
    assert total([1, 2]) == 4


def test_errors_in_the_code_under_test():
    price("missing")


@pytest.fixture
def broken():
    raise RuntimeError("no set-up")


@pytest.fixture
def broken_after():
    yield
    raise RuntimeError("no teardown")


def test_set_up_fails(broken):
    pass


def test_teardown_fails(broken_after):
    pass


@pytest.mark.skip(reason="not today")
def test_skipped():
    pass


@pytest.mark.xfail(reason="known")
def test_expected_to_fail():
    assert False


@pytest.mark.xfail(reason="was known")
def test_unexpectedly_passes():
    pass


@pytest.mark.parametrize("n", [1, 2, 3])
def test_each(n):
    assert n != 2


class TestGroup:
    def test_inside(self):
        print("said by the test")
        assert [1, {"a": 2}] == [1, {"a": 3}]


class Old(unittest.TestCase):
    def test_old(self):
        self.assertEqual(1 + 1, 3)

    def test_subtests(self):
        for n in range(3):
            with self.subTest(n=n):
                self.assertNotEqual(n, 1)
