"""A prefork server for repeated pytest runs of one project: an interpreter that has imported the dependencies and
forks.

`PreforkServer.run` replaces `supervise`; a run that cannot be forked is started normally, with the same result. The
interpreter is discarded when dependencies, configuration or an already imported project module change.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePath

import msgspec

from ratchet.checks.select.affected_by_trace import CONFIGURATION
from ratchet.files import open_private
from ratchet.process.spawn import REAPER, ProcessResult
from ratchet.process.supervise import supervise

_LIFE_S = 30 * 86_400.0
_READY_S, _STOP_S = 60.0, 20.0
_PYTEST = ["-m", "pytest"]
# Set for runs whose results are not a verdict: they may skip the final garbage collection.
QUICK = "_RATCHET_QUICK"


class PreforkReady(msgspec.Struct, frozen=True):
    """The first message of the interpreter: the project files it has imported, and whether it has only one thread."""

    imported: list[str] = []
    alone: bool = True


class _Interpreter:
    """One prepared interpreter, from start to end."""

    def __init__(self, key: str, install_stamp: object) -> None:
        self.key, self.stamp = key, install_stamp
        self.ready = PreforkReady()
        self.life: asyncio.Task[ProcessResult] | None = None
        self.connection: socket.socket | None = None

    async def start(self, argv: Sequence[str], place: Path, listener: socket.socket, **how: object) -> bool:
        self.life = asyncio.create_task(
            supervise(argv, output=place / "warm.log", timeout_s=_LIFE_S, writable=[place], **how)  # type: ignore[arg-type]  # the same keywords, passed through
        )
        met = asyncio.create_task(self._accept(listener))
        try:
            await asyncio.wait({self.life, met}, timeout=_READY_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            met.cancel()  # before the listener closes: its descriptor number may be reused
            await asyncio.wait({met})
            if not met.cancelled():
                met.exception()
        return self.connection is not None and self.ready.alone

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        connection, _ = await loop.sock_accept(listener)
        connection.setblocking(False)
        line = b""
        while not line.endswith(b"\n"):
            more = await loop.sock_recv(connection, 1 << 16)
            if not more:
                raise ConnectionError("the interpreter ended while it was prepared")
            line += more
        self.ready = msgspec.json.decode(line, type=PreforkReady)
        self.connection = connection

    async def end(self) -> None:
        if self.connection:
            self.connection.close()
            self.connection = None
        if self.life:
            self.life.cancel()
            await asyncio.wait({self.life})
            if not self.life.cancelled():
                self.life.exception()


class PreforkServer:
    """Runs pytest by forking a prepared interpreter. `directory` is private and writable by runs; `root` is the project
    as its processes see it."""

    def __init__(self, directory: Path, root: str) -> None:
        self.place, self.root = directory, root
        self.modules: list[str] = []
        self.cold: dict[str, object] = {}  # the install stamps of interpreters that could not be prepared
        self._prepared: _Interpreter | None = None
        self._loads: list[str] = []  # modules that the current interpreter was asked to import
        self._asked: tuple[Sequence[str], Path, Mapping[str, str]] | None = None
        self._turn = asyncio.Lock()

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        output: Path,
        errors: Path | None = None,
        timeout_s: float,
        silence_s: float | None = None,
        activity: Sequence[Path] = (),
        writable: Sequence[Path] = (),
    ) -> ProcessResult:
        async with self._turn:
            prepared = await self._prepare(argv, cwd, env)
        if prepared is None:
            return await supervise(
                argv,
                cwd=cwd,
                env=env,
                output=output,
                errors=errors,
                timeout_s=timeout_s,
                silence_s=silence_s,
                activity=activity,
                writable=[*writable, self.place],
            )
        request = self.place / "request.json"
        wanted = {"arguments": list(argv[3:]), "env": dict(env), "bytecode": str(self.place / "bytecode")}
        request.write_bytes(msgspec.json.encode(wanted))
        with open_private(output) as out, open_private(errors or output) as err:
            return await self._ask(
                prepared,
                request,
                (out.fileno(), err.fileno()),
                timeout_s=timeout_s,
                silence_s=silence_s,
                activity=activity,
            )

    # --- one run -----------------------------------------------------------------------------------------------------

    async def _ask(
        self,
        prepared: _Interpreter,
        request: Path,
        handles: tuple[int, int],
        *,
        timeout_s: float,
        silence_s: float | None,
        activity: Sequence[Path],
    ) -> ProcessResult:
        began = time.monotonic()
        assert prepared.connection
        try:
            socket.send_fds(prepared.connection, [f"{request}\n".encode()], handles)
        except OSError:
            await self.discard()
            return ProcessResult(exit_code=-9, duration_s=0.0)
        answer = asyncio.create_task(_read_reply(prepared.connection))
        try:
            why = await _wait_for_end(answer, timeout_s, silence_s, activity)
        except asyncio.CancelledError:
            await asyncio.shield(self._stop(prepared, answer))
            raise
        if why:
            await self._stop(prepared, answer)
        status = _exit_status(answer)
        if status is None:
            await self.discard()
        code, survivors = status or (-9, 0)
        return ProcessResult(
            exit_code=code,
            duration_s=round(time.monotonic() - began, 3),
            timed_out=why == "timeout",
            silent=why == "silence",
            survivors=survivors,
        )

    async def _stop(self, prepared: _Interpreter, answer: asyncio.Task[bytes]) -> None:
        """Stop the run. When this returns no process of it is alive, because the caller then changes the files it
        used."""
        if prepared.connection and not answer.done():
            with suppress(OSError):
                prepared.connection.send(b"stop\n")
            await asyncio.wait({answer}, timeout=_STOP_S)
        if not answer.done():
            answer.cancel()
            await self.discard()
            await asyncio.wait({answer})

    # --- preparing ---------------------------------------------------------------------------------------------------

    async def prepare_ahead(self) -> None:
        """Prepare the interpreter before it is needed, if it was discarded or has more modules to import."""
        if self._asked is None:
            return
        if set(self.modules) != set(self._loads):
            await self.discard()
        async with self._turn:
            await self._prepare(*self._asked)

    async def _prepare(self, argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> _Interpreter | None:
        stamp = _install_stamp(argv[0])
        if list(argv[1:3]) != _PYTEST or self.cold.get(argv[0]) == stamp:
            return None  # not tried again until something is installed
        self._asked = argv, cwd, env
        key = repr((argv[0], str(cwd), sorted(_stable_env(env).items())))
        current = self._prepared
        if current and current.key == key and current.stamp == stamp and current.life and not current.life.done():
            return current
        await self.discard()
        return await self._start(argv[0], key, stamp, cwd, env)

    async def _start(
        self, python: str, key: str, stamp: object, cwd: Path, env: Mapping[str, str]
    ) -> _Interpreter | None:
        modules, place = self.place / "modules.json", self.place / "warm.sock"
        modules.write_bytes(msgspec.json.encode(self.modules))
        self._loads = self.modules
        place.unlink(missing_ok=True)
        made = _Interpreter(key, stamp)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(place))
            listener.listen(1)
            listener.setblocking(False)
            ours = {"_RATCHET_ROOT": self.root, "_RATCHET_REAPER": str(_copy(REAPER, self.place))}
            command = [python, "-m", "_ratchet_warm", str(place), str(modules)]
            try:
                good = await made.start(command, self.place, listener, cwd=cwd, env=_stable_env(env) | ours)
            except BaseException:
                await made.end()
                raise
        if not good:
            await made.end()
            self.cold[python] = stamp
            return None
        self._prepared = made
        return made

    def is_stale(self, changed: Sequence[str]) -> bool:
        """Return whether the interpreter has imported a changed path (relative to the root)."""
        loaded = set(self._prepared.ready.imported) if self._prepared else set()
        return any(path in loaded or PurePath(path).name in CONFIGURATION for path in changed)

    async def discard(self) -> None:
        prepared, self._prepared = self._prepared, None
        if prepared:
            await prepared.end()

    def discard_bytecode(self, paths: Sequence[str]) -> None:
        """Delete the byte code of changed files: Python checks only their mtime in seconds and their size."""
        for path in paths:
            if path.endswith(".py"):
                place = Path(f"{self.place}/bytecode{self.root}/{path}")
                for file in place.parent.glob(f"{place.stem}.*.pyc"):
                    file.unlink(missing_ok=True)


def _stable_env(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that do not change between runs."""
    changing = ("_RATCHET_", "PYTEST_ADDOPTS")
    return {name: value for name, value in env.items() if not name.startswith(changing)}


def _install_stamp(python: str) -> object:
    """Return when packages were last installed for this interpreter, by the mtime of its folders."""
    found = []
    for place in (Path(python), *Path(python).parent.parent.glob("lib/python*/site-packages")):
        with suppress(OSError):
            found.append((str(place), place.stat().st_mtime_ns))
    return found


def _copy(program: Path, place: Path) -> Path:
    """Copy the program to where runs can read it: our own folder may be hidden from them."""
    copy = place / program.name
    copy.write_bytes(program.read_bytes())
    return copy


async def _read_reply(connection: socket.socket) -> bytes:
    return await asyncio.get_running_loop().sock_recv(connection, 256)


def _exit_status(answer: asyncio.Task[bytes]) -> tuple[int, int] | None:
    if answer.cancelled() or answer.exception() is not None:
        return None
    match answer.result().split():
        case [b"exit", code, survivors]:
            return int(code), int(survivors)
        case _:
            return None


async def _wait_for_end(
    answer: asyncio.Task[bytes], timeout_s: float, silence_s: float | None, activity: Sequence[Path]
) -> str:
    """Wait for the end, the deadline or the silence limit; return which limit was reached."""
    deadline, began = time.monotonic() + timeout_s, time.time()
    while not answer.done():
        left_s = deadline - time.monotonic()
        quiet_s = time.time() - max(began, _last_activity(activity)) if silence_s else 0.0
        if left_s <= 0:
            return "timeout"
        if silence_s and quiet_s >= silence_s:
            return "silence"
        await asyncio.wait({answer}, timeout=min(left_s, silence_s - quiet_s if silence_s else left_s))
    return ""


def _last_activity(places: Sequence[Path]) -> float:
    files = [file for place in places for file in (place.iterdir() if place.is_dir() else [place])]
    return max((file.stat().st_mtime for file in files if file.exists()), default=0.0)
