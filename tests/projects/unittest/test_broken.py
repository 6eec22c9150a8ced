import unittest
import missing_module


class Never(unittest.TestCase):
    def test_never_seen(self):
        pass
