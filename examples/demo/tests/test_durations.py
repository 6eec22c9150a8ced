from durations import parse


def test_seconds():
    assert parse("45s") == 45
