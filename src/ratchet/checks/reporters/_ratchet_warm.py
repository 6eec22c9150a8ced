"""A Python process that has loaded the project's dependencies and forks for each run of its pytest.

Started as `python -m _ratchet_warm SOCKET MODULES`, in the folder and environment of a cold run. A request is a line
with a file name, and two descriptors for the output; the answer is `exit CODE SURVIVORS`. `stop`, or the end of the
connection, ends the run with all its processes. The parent never imports a module of the project.
"""

import atexit
import importlib
import importlib.util
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
import traceback
import warnings
from importlib.metadata import distributions

_ROOT = os.environ.get("_RATCHET_ROOT", "")
_reaper = None


def main():
    place, wanted = sys.argv[1], sys.argv[2]
    _load_reaper()
    _reaper.adopt_orphans()
    noisy = _load(_names(wanted))
    if noisy:
        _start_without(wanted, noisy)
    if "pytest" not in sys.modules:
        return  # it is not installed or does not load: a cold run says so
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(place)
    known = _project_modules()
    alone = len(os.listdir("/proc/self/task")) == 1 if os.path.isdir("/proc/self/task") else True
    _send(connection, json.dumps({"imported": known, "alone": alone}))
    _serve(connection)


def _load_reaper():
    global _reaper
    spec = importlib.util.spec_from_file_location("_ratchet_reaper", os.environ["_RATCHET_REAPER"])
    _reaper = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(_reaper)


# --- preloading ----------------------------------------------------------------------------------------------------


def _names(file):
    try:
        with open(file) as text:
            names = json.load(text)
    except (OSError, ValueError):
        names = []
    plugins = _plugin_packages()
    return ["pytest", *[name for name in names if name.split(".")[0] not in plugins]]


def _plugin_packages():
    """Return packages that must not be preloaded: pytest rewrites the assertions of its plugins while it loads them."""
    found = {"_ratchet_warm", "coverage", "xdist"}
    for each in distributions():
        try:
            points = each.entry_points
            if any(point.group == "pytest11" for point in points):
                found.update(str(file).split("/")[0].split(".")[0] for file in each.files or ())
        except Exception:
            pass
    return found - {"pytest", "_pytest"}


def _load(names):
    """Load modules; return those that issued warnings, which a cold run may turn into errors."""
    noisy = []
    for name in names:
        if name in sys.modules:
            continue
        with warnings.catch_warnings(record=True) as issued:
            warnings.simplefilter("always")
            try:
                importlib.import_module(name)
            except BaseException:
                pass
        if issued:
            noisy.append(name)
    return noisy


def _start_without(file, noisy):
    """Start again without these modules: a loaded module cannot be unloaded."""
    with open(file) as text:
        names = json.load(text)
    with open(file, "w") as text:
        json.dump([name for name in names if name not in noisy], text)
    os.execv(sys.executable, [sys.executable, "-m", "_ratchet_warm", *sys.argv[1:]])  # noqa: S606 — us again


def _project_modules():
    files = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
    return sorted({file[len(_ROOT) + 1 :] for file in files if file.startswith(_ROOT + os.sep)})


# --- runs -----------------------------------------------------------------------------------------------------------


def _serve(connection):
    wake, waker = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(waker, False)
    while True:
        message, handles, _, _ = socket.recv_fds(connection, 4096, 2)
        if not message:
            return
        if len(handles) != 2:
            continue  # `stop` for a run that has ended
        with open(message.decode().strip()) as file:
            request = json.load(file)
        signal.set_wakeup_fd(waker)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        child = os.fork()
        if child == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            connection.close()
            _run(request, handles)
        for handle in handles:
            os.close(handle)
        code = _wait(child, connection, wake)
        left = _reaper.sweep(child)
        _reaper.reap(child)
        _send(connection, f"exit {code} {left}")


def _wait(child, connection, wake):
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    poll.register(wake, select.POLLIN)
    while True:
        code = _reaper.reap(child)
        if code is not None:
            return code
        for ready, _ in poll.poll():
            if ready == wake:
                try:
                    os.read(wake, 512)
                except BlockingIOError:
                    pass
            else:
                connection.recv(4096)
                poll.unregister(connection)
                _reaper.kill_tree(child)


def _run(request, handles):
    """In the child: become what `python -m pytest …` would be. Never returns."""
    code = 70
    try:
        os.setsid()
        os.dup2(handles[0], 1)
        os.dup2(handles[1], 2)
        os.environ.clear()
        os.environ.update(request["env"])
        sys.dont_write_bytecode = False
        sys.pycache_prefix = request["bytecode"]
        sys.argv[:] = ["pytest", *request["arguments"]]
        # `-m` puts the current folder first in both; sys.argv[0] had the name of this module.
        sys.modules.pop("__main__", None)
        _no_late_warnings()
        if request["env"].get("_RATCHET_QUICK"):
            _no_garbage()
        code = _pytest()
    except BaseException:
        traceback.print_exc()
    finally:
        _leave(code)


def _pytest():
    try:
        runpy.run_module("pytest", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if ended.code is None:
            return 0
        return int(ended.code) if isinstance(ended.code, int) else 1
    return 0


def _no_late_warnings():
    """Suppress warnings about modules that were loaded before pytest could rewrite them: a cold pytest has none."""
    try:
        from _pytest.assertion.rewrite import AssertionRewritingHook  # noqa: PLC0415 — the project's pytest

        before = AssertionRewritingHook._warn_already_imported
        loaded = frozenset(sys.modules)

        def warn(self, name):
            if name not in loaded:
                before(self, name)

        AssertionRewritingHook._warn_already_imported = warn
    except Exception:
        pass


def _no_garbage():
    """Skip pytest's five garbage collections after the last test, which can only warn, for runs whose results are no
    verdict."""
    try:
        from _pytest import unraisableexception  # noqa: PLC0415 — the project's pytest

        unraisableexception.gc_collect_harder = lambda *_: None
    except Exception:
        pass


def _leave(code):
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        pass
    os._exit(code)


def _send(connection, text):
    connection.sendall(text.encode() + b"\n")


if __name__ == "__main__":
    main()
