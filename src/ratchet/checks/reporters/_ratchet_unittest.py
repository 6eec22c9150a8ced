"""A reporter for unittest and Django: writes events as JSON lines to the file named by _RATCHET_REPORT.

`python -m _ratchet_unittest …` takes the arguments of `python -m unittest …`; Django takes `DjangoRunner` as its test
runner. Standard library only. It must never break the host, which may be as old as Python 3.6.
"""

import faulthandler
import json
import os
import re
import signal
import sys
import time
import unittest

_LIMIT = 20_000
_ROOT = os.getcwd()
# unittest's stand-ins for a file that was not loaded.
_FAILED = ("_FailedTest", "ModuleImportFailure", "LoadTestsFailure")
_out = None
_collected = []


def _open():
    global _out
    path = os.environ.get("_RATCHET_REPORT")
    if path and _out is None:
        _print_stack_on_signals()
        _out = open(path, "a", encoding="utf-8", errors="backslashreplace")
        version = ".".join(map(str, sys.version_info[:3]))
        _write_record({"kind": "start", "nonce": os.environ.get("_RATCHET_NONCE", ""), "version": version})


def _print_stack_on_signals():
    """Print the stack on fatal signals and on the one that ends what takes too long, as the pytest plugin does."""
    try:
        faulthandler.enable()
        faulthandler.register(signal.SIGTERM, all_threads=False, chain=True)
        os.register_at_fork(after_in_child=lambda: faulthandler.unregister(signal.SIGTERM))
    except Exception:  # stderr has no file descriptor, or the signals do not exist
        pass


def _write_record(record):
    if _out is not None:
        try:
            _out.write(json.dumps(record, default=str) + "\n")
            _out.flush()
        except Exception:
            pass


def _end(code):
    _write_record({"kind": "end", "nonce": os.environ.get("_RATCHET_NONCE", ""), "exit": code})


def _clip(text):
    text = str(text)
    return text if len(text) <= _LIMIT else text[:_LIMIT] + f"… ({len(text)} characters)"


def _relative(path):
    return os.path.relpath(path, _ROOT) if os.path.isabs(path) else path


def _message_of(value):
    """Return the message of an exception with its notes, where Hypothesis puts its example, and with the members of a
    group."""
    lines = [str(value), *(f"note: {note}" for note in getattr(value, "__notes__", None) or ())]
    inner = getattr(value, "exceptions", None)
    if isinstance(inner, tuple):
        lines += [f"note: {type(each).__name__}: {_message_of(each)}" for each in inner]
    return "\n".join(lines)


def _failure(error):
    kind, value, tb = error
    found = {"type": kind.__name__, "message": _clip(_message_of(value)), "frames": []}
    while tb is not None:
        code, known = tb.tb_frame.f_code, tb.tb_frame.f_locals
        file = code.co_filename
        if file.startswith(_ROOT + os.sep) and "site-packages" not in file:
            found["frames"].append({"file": _relative(file), "line": tb.tb_lineno, "function": code.co_name})
        if file.endswith(("unittest/case.py", "unittest\\case.py")) and "actual" not in found:
            found.update(_compared(code.co_name, known))
        tb = tb.tb_next
    found["frames"] = found["frames"][-20:]
    return found


# Names of the actual and the expected value in the assertions, and the operator.
_NAMES = (("first", "second"), ("member", "container"), ("expr1", "expr2"), ("a", "b"))
_ASKED = {
    "assertNotEqual": "!=", "assertIn": "in", "assertNotIn": "not in", "assertIs": "is", "assertIsNot": "is not",
    "assertLess": "<", "assertLessEqual": "<=", "assertGreater": ">", "assertGreaterEqual": ">=",
}  # fmt: skip


def _compared(name, known):
    for actual, expected in _NAMES if name.startswith("assert") else ():
        if actual in known and expected in known:
            return {
                "operator": _ASKED.get(name, name),
                "actual": _clip(repr(known[actual])),
                "expected": _clip(repr(known[expected])),
            }
    return {}


def _doctest(test, found):
    """Return the first failed example; doctest keeps only its text."""
    own = getattr(test, "_dt_test", None)
    if own is None:
        return found
    frames = [{"file": _relative(own.filename or ""), "line": (own.lineno or 0) + 1, "function": own.name}]
    example = _EXAMPLE.search(found["message"])
    if not example:
        return {**found, "frames": frames}
    frames[0]["line"] = int(example["line"])
    values = {name: _unindented(example[name]) for name in ("expected", "actual") if example[name] is not None}
    return {**found, **values, "frames": frames, "message": f"Failed example: {_unindented(example['example'])}"}


_EXAMPLE = re.compile(
    r'File "[^"\n]*", line (?P<line>\d+), in .*\nFailed example:\n(?P<example>(?:    .*\n)+)'
    r"(?:Expected:\n(?P<expected>(?:    .*\n|\n)*?)Got:\n(?P<actual>(?:    .*(?:\n|$)|\n(?=\s))*))?"
)


def _unindented(text):
    return "\n".join(line[4:] for line in text.rstrip("\n").split("\n"))


def _name(test):
    # Python prints `test_it (module.Class.test_it)`; the id has the rest.
    return re.sub(r"^(\w+) \([\w.<>]+\)", r"\1", str(test))


def _id(test):
    """Return the id on one line: nose2 appends values on further lines."""
    return test.id().split("\n")[0]


def _place(test):
    own = getattr(test, "_dt_test", None)
    if own:
        name = f"{own.name} (doctest)"
        return {"file": _relative(own.filename or ""), "line": (own.lineno or 0) + 1, "name": name}
    try:
        method = getattr(test, "_testFunc", None) or getattr(type(test), test._testMethodName)
        code = getattr(method, "__wrapped__", method).__code__
        return {"file": _relative(code.co_filename), "line": code.co_firstlineno}
    except Exception:
        return {}


def _flat(suite):
    for test in suite:
        try:
            yield from _flat(test)
        except TypeError:
            yield test


def _never_run(holder):
    """Return the tests that do not run because the set-up of their class or module failed; a teardown counts alone."""
    what, _, place = holder.id().partition(" (")
    if what.startswith("setUp"):
        below = place.rstrip(")") + "."
        return [test for test in _collected if test.id().startswith(below)] or [holder]
    return [holder]


class Telling:
    """A result class that reports each outcome before the host's own, which trims the traceback in place."""

    _began = 0.0
    _phase = None

    def startTest(self, test):
        self._began = time.perf_counter()
        self._phase = None
        if type(test).__name__ not in _FAILED:
            _write_record({"kind": "test_start", "id": _id(test), **_place(test)})
        super().startTest(test)

    def stopTest(self, test):
        super().stopTest(test)
        if type(test).__name__ not in _FAILED:
            self._report(test, {**(self._phase or {"outcome": "passed"}), "last": True})
        self._phase = None  # Python 3.12.1 calls stopTest without startTest for skipped tests

    def _report(self, test, phase):
        try:
            took = time.perf_counter() - self._began
            record = {"kind": "phase", "id": _id(test), "when": "call", "duration": took, "name": _name(test)}
            record["suite"] = _id(test).split(".")[:-1]
            _write_record({**record, **_place(test), **phase})
        except Exception:
            pass

    def _note(self, test, phase):
        # Anything that is not a test case is a class or module whose set-up or teardown failed.
        if isinstance(test, unittest.TestCase):
            self._phase = phase if self._phase is None or phase["outcome"] == "failed" else self._phase
        else:
            self._began = time.perf_counter()
            for each in _never_run(test):
                self._report(each, {**phase, "when": "setup", "last": True})

    def addError(self, test, err):
        try:
            if type(test).__name__ in _FAILED:
                self._broken(test, getattr(test, "_exception", err[1]))
            else:
                self._note(test, {"outcome": "failed", "error": True, **_doctest(test, _failure(err))})
        except Exception:
            pass
        super().addError(test, err)

    def _broken(self, test, error):
        # The loader keeps only the text of the exception; its last line is type and message.
        text = str(error).strip().splitlines()
        kind, _, message = text[-1].partition(": ") if text else ("ImportError", "", "")
        name = test._testMethodName
        places = [line.strip() for line in text if line.strip().startswith('File "')]
        own = [place for place in places if place.startswith(f'File "{_ROOT}{os.sep}') and "site-packages" not in place]
        places = own or places
        file, line = name.replace(".", "/") + ".py", 0
        if places:
            words = places[-1].split('"')
            file, line = _relative(words[1]), int("".join(c for c in words[2].split(",")[1] if c.isdigit()) or 0)
        _write_record(
            {"kind": "broken", "file": file, "line": line, "type": kind, "message": _clip(message), "tool": "unittest"}
        )

    def addFailure(self, test, err):
        self._note(test, {"outcome": "failed", **_doctest(test, _failure(err))})
        super().addFailure(test, err)

    def addSkip(self, test, reason):
        self._note(test, {"outcome": "skipped", "reason": _clip(reason)})
        super().addSkip(test, reason)

    def addExpectedFailure(self, test, err):
        self._note(test, {"outcome": "skipped", "xfail": "expected failure"})
        super().addExpectedFailure(test, err)

    def addUnexpectedSuccess(self, test):
        text = "passed although it was expected to fail"
        self._note(test, {"outcome": "failed", "type": "UnexpectedSuccess", "message": text})
        super().addUnexpectedSuccess(test)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            failed = issubclass(err[0], test.failureException)
            phase = {"outcome": "failed", "error": not failed, **_failure(err)}
            if self._phase is None or self._phase["outcome"] != "failed":
                self._phase = {**phase, "message": f"{subtest._subDescription()} {phase['message']}"}
        super().addSubTest(test, subtest, err)


class Result(Telling, unittest.TextTestResult):
    pass


def _chosen(suite):
    """Select the requested tests: a test by its id, all tests of a module, class or file by theirs."""
    path = os.environ.get("_RATCHET_ONLY")
    if not path:
        return suite
    with open(path, encoding="utf-8") as file:
        wanted = file.read().splitlines()
    whole, below = set(wanted), tuple(name + "." for name in wanted)
    kept = [test for test in _flat(suite) if _is_asked(test, whole, below)]
    return unittest.TestSuite(kept)


def _is_asked(test, whole, below):
    if type(test).__name__ in _FAILED:
        module = test._testMethodName
        return any(name == module or name.startswith(module + ".") for name in whole)
    name = test.id()
    return name in whole or name.startswith(below) or _place(test).get("file") in whole


class ReportingRunner(unittest.TextTestRunner):
    resultclass = Result

    def run(self, test):
        test = _chosen(test)
        _open()
        _collected[:] = [each for each in _flat(test) if type(each).__name__ not in _FAILED]
        _write_record({"kind": "collected", "ids": [each.id() for each in _collected]})
        return super().run(test)


try:
    from django.conf import settings
    from django.test.runner import DiscoverRunner
    from django.test.utils import get_runner

    _Theirs = get_runner(settings)  # the project's subclass of Django's runner

    class _Found(_Theirs):
        test_runner = ReportingRunner
        run_suite = DiscoverRunner.run_suite

        def get_resultclass(self):
            return Result

        def run_tests(self, *args, **kwargs):
            failures = super().run_tests(*args, **kwargs)
            _end(1 if failures else 0)
            return failures

    class _Another(_Theirs):
        """A runner that shares nothing with Django's and starts pytest, as the manual of pytest-django shows."""

        def __init__(self, *args, **kwargs):
            kwargs.pop("parallel", None)
            super().__init__(*args, **kwargs)

        @classmethod
        def add_arguments(cls, parser):
            parser.add_argument("--parallel")  # we set it for all of them
            parser.conflict_handler = "resolve"
            super().add_arguments(parser)

        def run_tests(self, *args, **kwargs):
            os.environ["PYTEST_ADDOPTS"] = os.environ.pop("_RATCHET_PYTEST", "")
            return super().run_tests(*args, **kwargs)

    DjangoRunner = _Found if issubclass(_Theirs, DiscoverRunner) else _Another

except Exception:  # Django is missing or not configured
    pass


def main():
    program = unittest.main(
        module=None, argv=["python -m unittest", *sys.argv[1:]], testRunner=ReportingRunner, exit=False
    )
    result = getattr(program, "result", None)
    good = result is not None and result.wasSuccessful()
    code = 0 if good else 1
    # Python 3.12 and newer exit with 5 if no test ran. If only some were requested, others may exist.
    idle = result is not None and good and result.testsRun == 0 and not result.skipped
    if idle and sys.version_info >= (3, 12) and not os.environ.get("_RATCHET_ONLY"):
        code = 5
    _end(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
