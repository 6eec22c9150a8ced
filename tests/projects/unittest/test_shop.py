import unittest

PRICES = {"apple": 3}


class Shop(unittest.TestCase):
    def test_passes(self):
        self.assertEqual(1 + 2, 3)

    def test_fails(self):
        self.assertEqual(1 + 2, 4)

    def test_errors(self):
        PRICES["missing"]

    @unittest.skip("not today")
    def test_skipped(self):
        pass

    @unittest.expectedFailure
    def test_expected_to_fail(self):
        self.fail("known")

    def test_subtests(self):
        for n in range(3):
            with self.subTest(n=n):
                self.assertNotEqual(n, 1)


class NoSetUp(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise RuntimeError("no set-up")

    def test_never_run(self):
        pass


class Later(unittest.IsolatedAsyncioTestCase):
    async def test_async(self):
        self.assertTrue(True)
