import threading


def test_before():
    pass


def test_hangs():
    threading.Event().wait()
