import threading
import unittest


class It(unittest.TestCase):
    def test_a_before(self):
        pass

    def test_hangs(self):
        threading.Event().wait()
