"""Reports from other runners of unittest's tests: `python -m _ratchet_others nose2 …` takes the arguments of nose2, `…
zope …` those of zope.testrunner. It must never break the host."""

import sys
import traceback

from _ratchet_unittest import Telling, _end, _open, _relative, _write_record


def _reporting(result):
    return type(result.__name__, (Telling, result), {})


def _nose2():
    from nose2 import discover, runner  # noqa: PLC0415 — one of the two is there

    runner.PluggableTestRunner.resultClass = _reporting(runner.PluggableTestRunner.resultClass)
    discover()


def _zope():
    from zope.testrunner import runner  # noqa: PLC0415

    runner.TestResult = _reporting(runner.TestResult)
    running = runner.Runner(args=sys.argv, script_parts=[sys.executable, "-m", "zope.testrunner"])
    running.run()
    for failed in running.import_errors:
        _unloaded(failed)
    sys.exit(1 if running.failed else 0)


def _unloaded(failed):
    kind, value, tb = failed.exc_info if getattr(failed, "exc_info", None) else (ImportError, "", None)
    last = traceback.extract_tb(tb)[-1:] if tb else []
    place = {"file": _relative(last[0].filename), "line": last[0].lineno} if last else {}
    name = getattr(failed, "module", "")
    _write_record(
        {
            "kind": "broken",
            "file": name.replace(".", "/") + ".py",
            "type": kind.__name__,
            "message": str(value),
            "tool": "zope.testrunner",
            **place,
        }
    )


def main():
    host = sys.argv.pop(1)
    _open()
    code = 0
    try:
        {"nose2": _nose2, "zope": _zope}[host]()
    except SystemExit as end:
        code = int(end.code) if isinstance(end.code, int) else 1 if end.code else 0
    _end(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
