"""A prefork server for repeated pytest runs of one project: an interpreter that has imported the dependencies and
forks.

`PreforkServer.run` replaces `supervise`; a run that cannot be forked is started normally, with the same result. The
interpreter is discarded when dependencies, configuration or an already imported project module change.

The interpreter and the runs are the project's: they may replace what they are given at any time, also by links and
pipes. What is written for them is put there by descriptors of folders, and what they say is bounded.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePath

import msgspec

from ratchet.checks.select.affected_by_trace import CONFIGURATION
from ratchet.files import open_private
from ratchet.process.spawn import REAPER, Deadlines, ProcessResult
from ratchet.process.supervise import ResourceUse, look, supervise
from ratchet.tree_files import names_inside, remove_inside, replace_inside

_LIFE_S = 30 * 86_400.0
_READY_S, _STOP_S, _LOOK_S = 60.0, 20.0, 1.0
_READY_MAX_BYTES = 16 << 20
_REPLY = re.compile(rb"exit (-?\d{1,3}) (\d{1,6})\s*")
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

    async def start(self, argv: Sequence[str], listener: socket.socket, **how: object) -> bool:
        self.life = asyncio.create_task(
            supervise(argv, timeout_s=_LIFE_S, **how)  # type: ignore[arg-type]  # the same keywords, passed through
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
        line = bytearray()
        try:
            while not line.endswith(b"\n"):
                more = await loop.sock_recv(connection, 1 << 16)
                if not more or len(line) > _READY_MAX_BYTES:
                    raise ConnectionError("the interpreter ended while it was prepared, or says too much")
                line += more
            self.ready = msgspec.json.decode(line, type=PreforkReady)
        except BaseException:
            connection.close()
            raise
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
    """Runs pytest by forking a prepared interpreter. `directory` is private; `root` is the project as its processes see
    it. Runs may write `shared`, and `channel`, which is for their results."""

    def __init__(self, directory: Path, root: str) -> None:
        self.place, self.root = directory, root
        self.shared, self.channel = directory / "shared", directory / "channel"
        for folder in (self.shared, self.channel):
            folder.mkdir(mode=0o700)
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
                writable=[*writable, self.shared],
            )
        wanted = {"arguments": list(argv[3:]), "env": dict(env), "bytecode": str(self.shared / "bytecode")}
        replace_inside(self.shared, "request.json", msgspec.json.encode(wanted), 0o600)
        with open_private(output) as out, open_private(errors or output) as err:
            written = [output, *([errors] if errors else []), *activity]
            return await self._ask(
                prepared,
                self.shared / "request.json",
                (out.fileno(), err.fileno()),
                deadlines=Deadlines(written, timeout_s=timeout_s, silence_s=silence_s),
                use=ResourceUse(written),
            )

    # --- one run -----------------------------------------------------------------------------------------------------

    async def _ask(
        self,
        prepared: _Interpreter,
        request: Path,
        handles: tuple[int, int],
        *,
        deadlines: Deadlines,
        use: ResourceUse,
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
            why = await _wait_for_end(answer, deadlines, use)
        except asyncio.CancelledError:
            await asyncio.shield(self._stop(prepared, answer))
            raise
        if why:
            await self._stop(prepared, answer)
        if use.exceeded:
            os.write(handles[1], f"\nratchet: stopped: it {use.exceeded}\n".encode())
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
        modules, place = self.shared / "modules.json", self.shared / "warm.sock"
        replace_inside(self.shared, modules.name, msgspec.json.encode(self.modules), 0o600)
        # A copy: our own folder may be hidden from runs.
        replace_inside(self.shared, REAPER.name, REAPER.read_bytes())
        remove_inside(self.shared, place.name)
        self._loads = self.modules
        made = _Interpreter(key, stamp)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(place))
            listener.listen(1)
            listener.setblocking(False)
            ours = {"_RATCHET_ROOT": self.root, "_RATCHET_REAPER": str(self.shared / REAPER.name)}
            command = [python, "-m", "_ratchet_warm", str(place), str(modules)]
            try:
                good = await made.start(
                    command,
                    listener,
                    cwd=cwd,
                    env=_stable_env(env) | ours,
                    output=self.place / "warm.log",
                    writable=[self.shared, self.channel],
                )
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
                place = PurePath(f"bytecode{self.root}/{path}")
                for name in names_inside(self.shared, str(place.parent)):
                    if name.startswith(f"{place.stem}."):
                        remove_inside(self.shared, f"{place.parent}/{name}")


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


async def _read_reply(connection: socket.socket) -> bytes:
    return await asyncio.get_running_loop().sock_recv(connection, 256)


def _exit_status(answer: asyncio.Task[bytes]) -> tuple[int, int] | None:
    if answer.cancelled() or answer.exception() is not None:
        return None
    found = _REPLY.fullmatch(answer.result())
    return (int(found[1]), int(found[2])) if found else None


async def _wait_for_end(answer: asyncio.Task[bytes], deadlines: Deadlines, use: ResourceUse) -> str:
    """Wait for the end or a limit; return which limit was reached."""
    while not answer.done():
        left_s, why = await look(deadlines, use)
        if why:
            return why
        await asyncio.wait({answer}, timeout=min(left_s, _LOOK_S))
    return ""
