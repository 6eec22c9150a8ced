"""A pytest plugin that writes events as JSON lines to the file named by _RATCHET_REPORT.

It is loaded with `-p`, imports only what pytest has loaded anyway, and must never break the host, which may be as old
as Python 3.6.
"""

import faulthandler
import json
import os
import re
import signal
import sys
import time

import pytest

_LIMIT = 20_000
_out = None
_comparison = None
_root = ""
_nonce = ""
_options = ""  # how this plugin was loaded
_quiet = {}  # durations of passed phases that were not reported separately
_reported = set()  # tests with other records
_called = set()  # tests in progress beyond their set-up


_encode = json.JSONEncoder(default=str).encode
_text = json.encoder.encode_basestring_ascii


def _write_record(record):
    _write(_encode(record))


def _write(line):
    if _out is not None:
        try:
            _out.write(line + "\n")
            _out.flush()
        except Exception:
            pass


def _clip(text):
    text = str(text)
    return text if len(text) <= _LIMIT else text[:_LIMIT] + f"… ({len(text)} characters)"


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """Report the first session of the process; plugins' tests start others inside of it."""
    global _out, _root, _nonce
    _root = _root or str(getattr(config, "rootpath", None) or config.rootdir)  # the only way before pytest 6.1
    path = os.environ.pop("_RATCHET_REPORT", "")
    if hasattr(config, "workerinput"):
        _leave_children_alone()
        _ask_for_all(config)
    if path and not hasattr(config, "workerinput"):
        _nonce = os.environ.pop("_RATCHET_NONCE", "")
        _leave_children_alone()
        _ask_for_all(config)
        _out = open(path, "a", encoding="utf-8", errors="backslashreplace")
        _print_stack_on_timeout()
        _write_record({"kind": "start", "nonce": _nonce, "version": pytest.__version__, "root": _root})
        config.pluginmanager.register(_Guest(), "_ratchet_guest")
        if os.environ.pop("_RATCHET_PART", ""):
            _ask_no_coverage(config)


def _print_stack_on_timeout():
    """Print the stack when the process gets the signal of a timeout. Forks of a test do not."""
    try:
        # Output during a test is captured, but not at this point.
        faulthandler.register(signal.SIGTERM, file=os.dup(sys.stderr.fileno()), all_threads=False, chain=True)
        os.register_at_fork(after_in_child=lambda: faulthandler.unregister(signal.SIGTERM))
    except Exception:  # stderr has no file descriptor, or the signals do not exist
        pass


def _ask_for_all(config):
    """Run all tests: options such as `--lf` in the user's settings select only the last failures."""
    for name in ("lf", "stepwise", "stepwise_skip"):
        if getattr(config.option, name, False):
            setattr(config.option, name, False)


def _ask_no_coverage(config):
    """Switch off the required coverage: some of the tests cannot reach it."""
    coverage = config.pluginmanager.getplugin("_cov")
    if hasattr(getattr(coverage, "options", None), "cov_fail_under"):
        coverage.options.cov_fail_under = 0


def _short_of_coverage(config):
    """Return pytest-cov's message if the run fails for it and no test failed."""
    try:
        coverage = config.pluginmanager.getplugin("_cov")
        wanted, found = coverage.options.cov_fail_under, coverage.cov_total
        if wanted and found is not None and found < wanted:
            return f"required test coverage of {wanted:g}% not reached: total coverage is {found:.2f}%"
    except Exception:
        pass
    return ""


def _leave_children_alone():
    """Remove our variables: a pytest that a test starts must behave as without this plugin."""
    global _options
    _options = os.environ.get("PYTEST_ADDOPTS", "")
    theirs = _options.partition("-p _ratchet_pytest")[0].strip()
    if theirs:
        os.environ["PYTEST_ADDOPTS"] = theirs
    else:
        os.environ.pop("PYTEST_ADDOPTS", None)


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector):
    outcome = yield
    try:
        report = outcome.get_result()
        call = getattr(report, "call", None)
        if report.failed and call is not None and call.excinfo is not None:
            report._ratchet = _broken(call.excinfo, collector.nodeid.split("::")[0])
    except Exception:
        pass


def _broken(excinfo, file):
    value = excinfo.value
    # pytest wraps an exception of an import in CollectError: report its cause.
    while value.__cause__ is not None and type(value.__cause__).__name__ != "ImportPathMismatchError":
        value = value.__cause__
    frames = _frames(value.__traceback__)
    found = {"type": type(value).__name__, "message": _clip(_message_of(value)), "frames": frames}
    at = {name: frames[-1][name] for name in ("file", "line")} if frames else {"file": file}
    if isinstance(value, SyntaxError):
        at = {"file": _relative(value.filename or file), "line": value.lineno or 0, "column": value.offset or 0}
        found["message"] = _clip(value.msg)
    # A conftest.py does not load.
    if at["file"] == file or not os.path.isfile(os.path.join(_root, file)):
        return {**found, **at}
    # Another file is broken: the line of the test file is that of its import.
    asks = [frame["line"] for frame in frames if frame["file"] == file]
    place = ":".join(str(part) for part in at.values() if part)
    return {**found, "line": asks[-1] if asks else 0, "message": f"{found['message']} ({place})"}


def pytest_assertrepr_compare(config, op, left, right):
    global _comparison
    try:
        _comparison = (op, _clip(repr(left)), _clip(repr(right)))
    except Exception:
        _comparison = None


@pytest.hookimpl(hookwrapper=True, trylast=True)
def pytest_runtest_makereport(item, call):
    global _comparison
    before = call.excinfo  # a hook of the project may remove it; for a TestCase pytest adds it only now
    outcome = yield
    raised = before if call.excinfo is None else call.excinfo
    if call.when == "setup" and raised is None:
        _comparison = None
    if raised is not None:
        try:
            report = outcome.get_result()
            report._ratchet = {"raised": True}
            report._ratchet.update(_failure(raised))
        except Exception:
            pass


def _message_of(value):
    """Return the message of an exception with its notes, where Hypothesis puts its example, and with the members of a
    group."""
    lines = [str(value), *(f"note: {note}" for note in getattr(value, "__notes__", None) or ())]
    inner = getattr(value, "exceptions", None)
    if isinstance(inner, tuple):
        lines += [f"note: {type(each).__name__}: {_message_of(each)}" for each in inner]
    return "\n".join(lines)


def _inside(value, tb):
    """Return the exception of a group that is reported: the only one, or the first of several, for its location."""
    frames = _frames(tb)
    inner = getattr(value, "exceptions", None)
    while isinstance(inner, tuple) and inner:
        frames += _frames(inner[0].__traceback__)
        if len(inner) > 1:
            break
        value = inner[0]
        inner = getattr(value, "exceptions", None)
    return value, frames[-20:]


def _failure(excinfo):
    global _comparison
    value, frames = _inside(excinfo.value, excinfo.tb)
    failure = {"type": type(value).__name__, "message": _clip(_message_of(value)), "frames": frames}
    if _comparison is not None and isinstance(value, AssertionError):
        op, left, right = _comparison
        # Most assertions are written `assert actual == expected`; the operator is kept as well.
        failure.update(operator=op, actual=left, expected=right)
    else:
        failure.update(_unittest_values(excinfo.tb) or _doctest_values(value))
    _comparison = None
    return failure


# Names of the actual and the expected value in unittest's assertions, and the operator.
_NAMES = (("first", "second"), ("member", "container"), ("expr1", "expr2"), ("a", "b"))
_ASKED = {
    "assertNotEqual": "!=", "assertIn": "in", "assertNotIn": "not in", "assertIs": "is", "assertIsNot": "is not",
    "assertLess": "<", "assertLessEqual": "<=", "assertGreater": ">", "assertGreaterEqual": ">=",
}  # fmt: skip


def _unittest_values(tb):
    """Return the values that `assertEqual` and similar methods compared, from their local variables."""
    while tb is not None:
        code, known = tb.tb_frame.f_code, tb.tb_frame.f_locals
        if code.co_filename.endswith(("unittest/case.py", "unittest\\case.py")) and code.co_name.startswith("assert"):
            for actual, expected in _NAMES:
                if actual in known and expected in known:
                    return {
                        "operator": _ASKED.get(code.co_name, code.co_name),
                        "actual": _clip(repr(known[actual])),
                        "expected": _clip(repr(known[expected])),
                    }
        tb = tb.tb_next
    return {}


def _doctest_values(value):
    failures = getattr(value, "failures", None) or [value]
    first = failures[0]
    example, test = getattr(first, "example", None), getattr(first, "test", None)
    if example is None or test is None:
        return {}
    found = {"expected": _clip(example.want.rstrip("\n")), "message": f"Failed example: {example.source.strip()}"}
    if hasattr(first, "got"):
        found["actual"] = _clip(first.got.rstrip("\n"))
    else:
        error = first.exc_info[1]
        found.update(type=type(error).__name__, message=_clip(error))
    line = (test.lineno or 0) + example.lineno + 1
    found["frames"] = [{"file": _relative(test.filename), "line": line, "function": test.name}]
    return found


def _frames(tb):
    frames = []
    while tb is not None:
        file = tb.tb_frame.f_code.co_filename
        if file.startswith(_root + os.sep) and "site-packages" not in file:
            frames.append({"file": _relative(file), "line": tb.tb_lineno, "function": tb.tb_frame.f_code.co_name})
        tb = tb.tb_next
    return frames[-20:]


def _relative(path):
    path = str(path)
    return os.path.relpath(path, _root) if os.path.isabs(path) else path


def _passed(report):
    """Record a passed phase, once at the end of the test: three records for each would be noticeable in large suites.
    Returns the duration for tests with other records, which the caller reports."""
    name = report.nodeid
    taken = _quiet.pop(name, 0.0) + report.duration
    if report.when != "teardown":
        _quiet[name] = taken
    elif name in _reported:
        return taken
    elif name in _called:
        _called.discard(name)
        file, line, own = report.location
        line = 0 if line is None else line + 1
        _write(
            f'{{"kind": "phase", "id": {_text(name)}, "when": "call", "outcome": "passed", "duration": {taken:.9f}, '
            f'"file": {_text(str(file))}, "line": {line}, "name": {_text(str(own))}, "last": true}}'
        )
    else:
        # --setup-only runs no test, and reports success.
        _write_record({"kind": "test_over", "id": name})
    return None


def _phase(report, duration):
    file, line, name = report.location
    return {
        "kind": "phase",
        "id": report.nodeid,
        "when": report.when,
        # Plugins that retry tests use outcomes of their own.
        "outcome": report.outcome if report.outcome in ("passed", "failed", "skipped") else "rerun",
        "duration": duration,
        "file": file,
        "line": 0 if line is None else line + 1,
        "name": name,
    }


def _without(start, text):
    return text[len(start) :] if text.startswith(start) else text


def _circumstances(report, context):
    """Return whether the test was expected to fail, why it was skipped, and its subtest."""
    found = {}
    if hasattr(report, "wasxfail"):
        found["xfail"] = _without("reason: ", _clip(report.wasxfail))
    if report.skipped and isinstance(report.longrepr, tuple):
        found["reason"] = _without("Skipped: ", _clip(report.longrepr[2]))
    if context is not None:
        found["subtest"] = _clip(getattr(context, "msg", "") or getattr(context, "kwargs", ""))
    return found


def _failed(report, extra):
    """Return the fields of a failure besides the exception."""
    if not report.failed:
        return {}
    found = {"stdout": report.capstdout[-4000:], "stderr": report.capstderr[-4000:]}
    text = report.longrepr if isinstance(report.longrepr, str) else ""
    if text.startswith("[XPASS(strict)]"):
        why = text.partition("] ")[2]
        message = "passed although it was expected to fail"
        found.update(type="UnexpectedSuccess", message=f"{message}: {why}" if why else message)
    elif not extra and " crashed while running " in str(report.longrepr):
        found["type"] = "Crashed"  # xdist reports it for a worker
    if not extra.get("message") and "message" not in found:
        found.update(_softly(str(report.longrepr)) or {})
        crash = getattr(report.longrepr, "reprcrash", None)
        found.setdefault("message", _clip(crash or report.longrepr))
    return found


_SOFT = re.compile(r"^(?P<file>\S+\.py):(?P<line>\d+) in (?P<function>\w+)", re.M)


def _softly(text):
    """Return the failures that pytest-check collected: no exception was raised, and only their text exists."""
    at = text.find("FAILURE: ")
    if at < 0:
        return None
    first = text[at : text.find("FAILURE: ", at + 1)]
    frames = [{**found.groupdict(), "line": int(found["line"])} for found in _SOFT.finditer(first)]
    return {"message": _clip(text[at:]), "frames": frames}


def _skipped(report):
    """Record a file that is skipped by a statement at its beginning: its tests are never reported."""
    file = _relative(report.nodeid.split("::")[0])
    name = {"kind": "phase", "id": report.nodeid, "when": "collect", "outcome": "skipped", "file": file}
    return {**name, **_circumstances(report, None)}


class _Guest:
    """Reports the session that it is registered with, and no other."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self):
        # Workers load this plugin too, also those that replace crashed ones: they have the values and frames.
        os.environ["PYTEST_ADDOPTS"] = _options

    def pytest_collectreport(self, report):
        if report.skipped:
            _write_record(_skipped(report))
        if report.failed:
            record = {"kind": "broken", "file": _relative(report.nodeid.split("::")[0] or str(report.fspath))}
            record.update(getattr(report, "_ratchet", None) or {"message": _clip(report.longrepr)})
            _write_record(record)

    def pytest_collection_finish(self, session):
        if not hasattr(session.config, "workerinput"):
            ids = [item.nodeid for item in session.items]
            for at in range(0, len(ids), 200):  # one record per line
                _write_record({"kind": "collected", "ids": ids[at : at + 200]})
            if not ids:
                _write_record({"kind": "collected", "ids": []})

    def pytest_deselected(self, items):
        _write_record({"kind": "deselected", "count": len(items)})

    def pytest_runtest_logstart(self, nodeid, location):
        global _comparison
        _comparison = None
        file, line = _text(str(location[0])), 0 if location[1] is None else location[1] + 1
        _write(f'{{"kind": "test_start", "id": {_text(nodeid)}, "file": {file}, "line": {line}}}')

    def pytest_runtest_logreport(self, report):
        extra, context = getattr(report, "_ratchet", None) or {}, getattr(report, "context", None)
        duration = report.duration
        if report.when == "call":
            _called.add(report.nodeid)
        if not (report.passed and context is None and not extra and not hasattr(report, "wasxfail")):
            _reported.add(report.nodeid)
        else:
            duration = _passed(report)
            if duration is None:
                return
        if report.when == "teardown":
            _reported.discard(report.nodeid)
            _called.discard(report.nodeid)
        _write_record(
            {**_phase(report, duration), **_circumstances(report, context), **extra, **_failed(report, extra)}
        )

    @pytest.hookimpl(hookwrapper=True)
    def pytest_sessionfinish(self, session, exitstatus):
        global _out
        # Other hooks run now and may take long: pytest removes the folders of earlier sessions, however large.
        _write_record({"kind": "all_over"})
        outcome = yield
        if _out is not None and outcome.excinfo is None and not hasattr(session.config, "workerinput"):
            text = _short_of_coverage(session.config)
            if text:
                _write_record({"kind": "broken", "type": "Coverage", "message": text, "tool": "pytest-cov"})
            _write_record(
                {
                    "kind": "end",
                    "nonce": _nonce,
                    "exit": int(exitstatus),
                    "at": time.time(),
                }
            )
            _out.close()
            _out = None
