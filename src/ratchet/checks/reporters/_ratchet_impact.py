"""A pytest plugin that records which functions, data files and processes each test used, at low cost.

Each process writes a JSON file to the folder in _RATCHET_IMPACT when the session ends. Functions are seen by
`sys.monitoring` (3.12+), where each costs once per test, else by cProfile's profiler in C. The plugin is loaded with
`-p` and must never break the host.
"""

import json
import os
import sys
import threading

import pytest

_ROOT = os.environ.get("_RATCHET_ROOT", "")
_STARTS = {
    "subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "pty.spawn",
}  # fmt: skip
_used = set()  # code objects of the running test
_read = set()  # data files that it opened, and folders that it listed
_flags = set()
_outside = set()  # read while no test ran: any test may depend on it
_fixtures = {}  # what a shared fixture used
_tests = {}
_codes = {}
_running = False


class _Monitored:
    """Python 3.12 and later: the interpreter calls back only at the first call of a function after each `drain`."""

    def __init__(self):
        self.seen = set()
        self.tool = next(number for number in (4, 3, 2) if sys.monitoring.get_tool(number) is None)
        sys.monitoring.use_tool_id(self.tool, "ratchet")
        seen, disable = self.seen, sys.monitoring.DISABLE

        def started(code, _offset, add=seen.add):
            add(code)
            return disable

        sys.monitoring.register_callback(self.tool, sys.monitoring.events.PY_START, started)

    def start(self):
        sys.monitoring.set_events(self.tool, sys.monitoring.events.PY_START)
        self.drain()

    def drain(self):
        found = set(self.seen)
        self.seen.clear()
        sys.monitoring.restart_events()
        return found

    def stop(self):
        found = set(self.seen)
        sys.monitoring.set_events(self.tool, 0)
        return found


class _Profiled:
    """Before 3.12: a profiler in C. It is stopped to be read: its counters must not be freed while in use."""

    def __init__(self):
        import _lsprof  # noqa: PLC0415 — only there before 3.12

        self.make = lambda: _lsprof.Profiler(subcalls=False, builtins=False)
        self.mine, self.threads = self.make(), []
        threading.setprofile(self._in_thread)

    def _in_thread(self, *_event):
        if _running:
            self.threads.append(self.make())
            self.threads[-1].enable()
        else:
            sys.setprofile(None)

    def start(self):
        if sys.getprofile() is not None:
            _flags.add("unsure")
            return
        self.mine.clear()
        self.mine.enable()

    def drain(self):
        found = self.stop()
        self.start()
        return found

    def stop(self):
        if sys.getprofile() is not self.mine:
            _flags.add("unsure")  # the test uses a profiler of its own
            return set()
        self.mine.disable()
        found = {row.code for row in self.mine.getstats()}
        for other in self.threads:
            found |= {row.code for row in other.getstats()}
        self.threads.clear()
        return {code for code in found if not isinstance(code, str)}


_recorder = None


def _on_audit_event(event, args):
    """The audit hook. It cannot be removed: it lives as long as this process, which is one run."""
    try:
        if event == "open" or event == "os.listdir" or event == "os.scandir":
            path = args[0]
            if isinstance(path, str) and not path.endswith((".py", ".pyc")):
                (_read if _running else _outside).add(path if event == "open" else path + "/")
        elif _running and event in _STARTS:
            _flags.add("starts")
    except Exception:
        pass


def pytest_configure(config):
    global _recorder
    if os.environ.get("_RATCHET_IMPACT") and _recorder is None:
        try:
            _recorder = _Monitored() if hasattr(sys, "monitoring") else _Profiled()
            sys.addaudithook(_on_audit_event)
        except Exception:
            _recorder = None


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    global _running
    if _recorder is None:
        yield
        return
    for each in (_used, _read, _flags):
        each.clear()
    _running = True
    _recorder.start()
    yield
    _used.update(_recorder.stop())
    _running = False
    try:
        for fixture in _shared(item):
            _used.update(_fixtures.get(fixture, ()))
        _tests[item.nodeid] = (_numbers(_used), _inside(_read), sorted(_flags))
    except Exception:
        _tests.pop(item.nodeid, None)


@pytest.hookimpl(hookwrapper=True)
def pytest_fixture_setup(fixturedef, request):
    """Attribute what a shared fixture uses to all tests that use the fixture, not only to the first."""
    if _recorder is None or not _running or fixturedef.scope == "function":
        yield
        return
    _used.update(_recorder.drain())
    yield
    found = _recorder.drain()
    _used.update(found)
    _fixtures.setdefault(id(fixturedef), set()).update(found)


def _shared(item):
    known = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    asked = getattr(getattr(item, "_request", None), "_fixture_defs", {})
    return {id(each) for every in known.values() for each in every} | {id(each) for each in asked.values()}


def _numbers(codes):
    own = [code for code in codes if code.co_filename.startswith(_ROOT) and "site-packages" not in code.co_filename]
    return [_codes.setdefault((code.co_filename, code.co_firstlineno), len(_codes)) for code in own]


def _inside(paths):
    here = [os.path.abspath(path) + ("/" if path.endswith("/") else "") for path in paths]
    inside = {path[len(_ROOT) + 1 :] for path in here if path.startswith(_ROOT + os.sep)}
    return sorted(path.encode("utf-8", "replace").decode() for path in inside)


def _modules():
    """Return the modules that a prepared interpreter may have loaded: none of the project's own."""
    found = []
    for name, module in list(sys.modules.items()):
        origin = getattr(getattr(module, "__spec__", None), "origin", None) or ""
        ours = name.startswith("_ratchet") or name == "__main__"
        if not ours and (origin in ("built-in", "frozen") or not origin.startswith(_ROOT + os.sep)) and origin:
            found.append(name)
    return found


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    folder = os.environ.get("_RATCHET_IMPACT")
    if _recorder is None or not folder:
        return
    try:
        record = {
            "codes": [(name[len(_ROOT) + 1 :], line) for name, line in _codes],
            "tests": _tests,
            "outside": _inside(_outside),
            "modules": _modules(),
        }
        path = os.path.join(folder, str(os.getpid()))
        with open(path + ".part", "w") as file:
            json.dump(record, file)
        os.replace(path + ".part", path + ".json")
    except Exception:
        pass
