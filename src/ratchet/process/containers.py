"""A client of container engines that speak Docker's HTTP API: Docker and Podman, on a Unix socket or over TCP.

Synchronous: callers use a thread for each container they wait for. A container outlives a restart of its engine, so
`wait` asks again until the engine answers.
"""

from __future__ import annotations

import grp
import hashlib
import hmac
import http.client
import os
import pwd
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from ratchet.core.lease import Holder
from ratchet.errors import EnvironmentCannot, UsageError
from ratchet.files import make_private_dir, write_whole
from ratchet.process.former_owner import ended_with_its_boot
from ratchet.process.spawn import is_gone, this_process

T = TypeVar("T")
VERSION = "v1.40"
TIMEOUT_S = 60.0
AWAY_S = 0.2  # between two questions whether the engine is back
BUILD_S = 7200.0
ANSWER_MAX_BYTES = 64 << 20
LOG_MAX_MB = 16  # of a container, which the engine keeps
_GONE = (404, 409)  # no such container; it is being removed, or has stopped already
_CHUNK = 1 << 16
# Above what systems, directory services and containers of others give out (systemd's table of user ids).
_LENT = ("/etc/subuid", "/etc/subgid")
_FREE_IDS = range(1_900_000_000, 2_000_000_000)


class EngineAway(EnvironmentCannot):
    """The engine does not answer: start it, or give another address."""


class EngineRefused(EnvironmentCannot):
    """The engine answered with an error."""

    @property
    def status(self) -> int:
        return int(str(self.ids["status"]))


class ContainerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to run and its bounds; 0 is no limit. `mounts` are `SOURCE:TARGET[:ro]`, `tmp_mb` is the size of `/tmp`.

    The root is read-only, there are no capabilities and no way to gain them. An empty `network` is the engine's own.
    `open_folders` are empty folders that all may enter.
    """

    image: str
    command: Sequence[str]
    env: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}
    user: str
    folder: str = "/tmp"  # noqa: S108 — inside the container
    mounts: Sequence[str] = ()
    network: str = ""
    memory_mb: int = 0
    cpus: float = 0.0
    processes: int = 0
    tmp_mb: int = 0
    open_folders: Sequence[str] = ()
    same_user: bool = False

    def request(self, name: str) -> dict[str, Any]:
        size = f",size={self.tmp_mb}m" if self.tmp_mb else ""
        host: dict[str, Any] = {
            "Binds": list(self.mounts),
            "ReadonlyRootfs": True,
            "Tmpfs": {"/tmp": f"rw,exec,nosuid,nodev,mode=1777{size}"}  # noqa: S108 — inside the container
            | dict.fromkeys(self.open_folders, "rw,nosuid,nodev,mode=755,size=1m"),
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "Memory": self.memory_mb << 20,
            "MemorySwap": self.memory_mb << 20,  # as much as the memory: no swap
            "NanoCpus": int(self.cpus * 1e9),
            "PidsLimit": self.processes or None,
            "NetworkMode": self.network or "default",
            "LogConfig": {"Type": "json-file", "Config": {"max-size": f"{LOG_MAX_MB}m"}},
        }
        if self.same_user:
            host["UsernsMode"] = "keep-id"
        return {
            "Image": self.image,
            "Cmd": list(self.command),
            "Entrypoint": [],
            "Env": [f"{key}={value}" for key, value in self.env.items()],
            "Labels": dict(self.labels),
            "User": self.user,
            "WorkingDir": self.folder,
            "Hostname": name,  # by which the store knows the worker
            "HostConfig": host,
        }


def unprivileged_user() -> str:
    """Return the user of containers: this process's, or for root one that no account of this machine has.

    An account with the same number could enter the container by way of `/proc`, and read what is lent to it.
    """
    return f"{os.getuid()}:{os.getgid()}" if os.getuid() else f"{unused_ids()[0]}:{unused_ids()[0]}"


def guard_user(user: str) -> str:
    """Return a user whose processes the container's user can neither signal nor trace."""
    if user == unprivileged_user() and not os.getuid():
        return f"{unused_ids()[1]}:{unused_ids()[1]}"
    return "65533:65533" if user.startswith("65534") else "65534:65534"  # rootless engines know no larger numbers


@lru_cache(maxsize=1)
def unused_ids() -> tuple[int, int]:
    """Return two numbers that are no user, no group, and in no range that is lent to user namespaces."""
    lent = [each for file in _LENT for each in _lent_ids(file)]
    free = (number for number in _FREE_IDS if not any(number in each for each in lent) and not _is_known(number))
    return next(free), next(free)


def _lent_ids(file: str) -> Iterator[range]:
    with suppress(OSError):
        for row in Path(file).read_text(errors="replace").splitlines():
            if found := re.fullmatch(r"[^:]*:(\d{1,10}):(\d{1,10})", row.strip()):
                yield range(int(found[1]), int(found[1]) + int(found[2]))


def _is_known(number: int) -> bool:
    for find in (pwd.getpwuid, grp.getgrgid):
        with suppress(KeyError):
            find(number)
            return True
    return False


def new_name(what: str = "") -> str:
    return f"ratchet-{what}{'-' if what else ''}{secrets.token_hex(5)}"


class ContainerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A container in the engine's list."""

    id: str = msgspec.field(name="Id")
    names: list[str] | None = msgspec.field(name="Names", default=None)
    state: str = msgspec.field(name="State", default="")
    labels: dict[str, str] | None = msgspec.field(name="Labels", default=None)

    @property
    def name(self) -> str:
        return self.names[0].lstrip("/") if self.names else self.id[:12]


class ContainerState(msgspec.Struct, frozen=True, kw_only=True):
    """How a container is, or how it ended."""

    running: bool = msgspec.field(name="Running", default=False)
    exit_code: int = msgspec.field(name="ExitCode", default=0)
    out_of_memory: bool = msgspec.field(name="OOMKilled", default=False)
    error: str = msgspec.field(name="Error", default="")


class ExecState(msgspec.Struct, frozen=True, kw_only=True):
    """How a command is that was started in a running container, or how it ended."""

    running: bool = msgspec.field(name="Running")
    exit_code: int | None = msgspec.field(name="ExitCode", default=None)


class _Made(msgspec.Struct, frozen=True, kw_only=True):
    id: str = msgspec.field(name="Id")


class _Inspected(msgspec.Struct, frozen=True, kw_only=True):
    state: ContainerState = msgspec.field(name="State")


class _ImageConfig(msgspec.Struct, frozen=True, kw_only=True):
    env: list[str] | None = msgspec.field(name="Env", default=None)


class _InspectedImage(msgspec.Struct, frozen=True, kw_only=True):
    config: _ImageConfig | None = msgspec.field(name="Config", default=None)


class _Progress(msgspec.Struct, frozen=True, kw_only=True):
    """A line that the engine prints while it builds."""

    status: str = ""
    stream: str = ""
    error: str = ""


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    version: str
    rootless: bool


class _Connection(http.client.HTTPConnection):
    """A connection by TCP, or to the Unix socket at `path`, that can be cut while another thread waits for it."""

    def __init__(self, place: str, path: str, timeout_s: float | None) -> None:
        super().__init__(place or "engine", timeout=timeout_s)
        self._path, self._opened, self.was_cut = path, self.sock, False

    def connect(self) -> None:
        if not self._path:
            super().connect()
        else:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(self.timeout)
            self.sock.connect(self._path)
        self._opened = self.sock

    def cut(self) -> None:
        self.was_cut = True
        with suppress(OSError, AttributeError):  # not connected yet: that has a timeout of its own
            self._opened.shutdown(socket.SHUT_RDWR)


def refuse_socket(mounts: Iterable[str], engine: ContainerEngine) -> None:
    """Refuse mounts that hold the socket of an engine of this machine: write access to one is root access."""
    known = [*engine_addresses(), *_usual_addresses()]
    others = [urlsplit(each).path for each in known if each.startswith("unix:")]
    sockets = {Path(each).resolve() for each in [engine.socket, *filter(os.path.exists, others)] if each}
    for mount in mounts:
        source = Path(mount.partition(":")[0]).resolve()
        if any(each.is_relative_to(source) for each in sockets):
            raise UsageError(
                f"containers.mounts has {mount}, which holds an engine's socket: a worker could take over the machine",
                hint="mount a folder without it",
            )


def require_image(engine: ContainerEngine, image: str) -> None:
    """Raise EnvironmentCannot when the engine has no such image."""
    if not engine.has_image(image):
        raise EnvironmentCannot(
            f"the engine at {engine.address} has no image {image}",
            hint="ratchet image --build, or name one: containers.image = NAME",
        )


def engine_addresses() -> list[str]:
    """Return where an engine may listen: what `DOCKER_HOST` says, else the sockets of Docker and Podman."""
    given = os.environ.get("DOCKER_HOST", "")
    return [given] if given else _usual_addresses()


def _usual_addresses() -> list[str]:
    own = os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
    places = ["/var/run/docker.sock", f"{own}/docker.sock", f"{own}/podman/podman.sock", "/run/podman/podman.sock"]
    return [f"unix://{place}" for place in places]


class _Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A label of a container of ours. The seal is made with a key of this user: images can have labels too."""

    owner: Holder
    seal: str


def mark(name: str, state: Path) -> str:
    """Return the label of a container with this name that belongs to this process. `state` is the user's folder."""
    owner = this_process()
    return msgspec.json.encode(_Mark(owner=owner, seal=_seal(name, owner, _key(state)))).decode()


def _seal(name: str, owner: Holder, key: bytes) -> str:
    return hmac.new(key, name.encode() + b"\0" + msgspec.json.encode(owner), hashlib.sha256).hexdigest()


def _key(state: Path) -> bytes:
    file = make_private_dir(state) / "container-key"
    try:
        return file.read_bytes()
    except FileNotFoundError:
        made = file.with_name(f"{file.name}.{secrets.token_hex(6)}")
        write_whole(made, secrets.token_bytes(32))
        with suppress(FileExistsError):  # another process was first
            os.link(made, file)
        made.unlink()
        return file.read_bytes()


def _owner(row: ContainerRow, label: str, key: bytes) -> Holder | None:
    """Return the process that a container belongs to; None unless it is certainly one of this user's Ratchet."""
    with suppress(msgspec.MsgspecError, RecursionError):
        found = msgspec.json.decode((row.labels or {}).get(label, ""), type=_Mark)
        if hmac.compare_digest(found.seal.encode(), _seal(row.name, found.owner, key).encode()):
            return found.owner
    return None


def abandoned(engine: ContainerEngine, label: str, state: Path) -> Iterator[ContainerRow]:
    """Yield the containers of this user's Ratchet whose process has ended."""
    for row in engine.containers(label):
        owner = _owner(row, label, _key(state))
        if owner and (is_gone(owner) or ended_with_its_boot(owner)):
            yield row


def end_container(engine: ContainerEngine, name: str, *, within_s: float = TIMEOUT_S) -> None:
    """Remove a container; when this returns, none of its processes is left. Raises EnvironmentCannot."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            engine.remove(name)
            if engine.state(name) is None:
                return
        except EngineAway:
            pass
        if time.monotonic() > deadline:
            raise EnvironmentCannot(
                f"the container {name} cannot be ended: what it runs may still write",
                hint=f"see whether the engine at {engine.address} works, then: ratchet workspace gc",
            )
        time.sleep(AWAY_S)


def find_engine(address: str = "") -> ContainerEngine:
    """Return the engine at the address, or the first that answers. Raises EngineAway."""
    tried = [address] if address else engine_addresses()
    for each in tried:
        engine = ContainerEngine(each)
        with suppress(EngineAway):
            engine.ping()
            return engine
    raise EngineAway(
        f"no container engine answers at {', '.join(tried)}",
        hint="start one (systemctl start docker, or podman system service --time 0), or name its address: "
        "containers.engine = unix:///…",
    )


class ContainerEngine:
    """The engine at an address: `unix:///run/podman/podman.sock` or `tcp://host:2375`."""

    def __init__(self, address: str) -> None:
        self.address, parts = address, urlsplit(address)
        if parts.scheme not in ("unix", "tcp", "http"):
            raise EnvironmentCannot(f"{address} is no engine's address", hint="write unix:///path or tcp://host:port")
        self.socket = parts.path if parts.scheme == "unix" else ""
        self._place = parts.netloc

    def ping(self) -> None:
        self._ask("GET", "/_ping", timeout_s=10)

    def info(self) -> EngineInfo:
        kind = dict[str, Any]
        found, version = self._json("GET", "/info", into=kind), self._json("GET", "/version", into=kind)
        parts = [str(part) for part in version.get("Components") or []]
        rootless = found.get("Rootless") or "name=rootless" in (found.get("SecurityOptions") or [])
        name = "Podman" if any("Podman" in part for part in parts) else "Docker"
        return EngineInfo(name=name, version=str(version.get("Version", "")), rootless=bool(rootless))

    # --- containers ---

    def create(self, spec: ContainerSpec, name: str) -> str:
        return self._json("POST", "/containers/create", {"name": name}, spec.request(name), into=_Made).id

    def start(self, container: str) -> None:
        self._ask("POST", f"/containers/{container}/start")

    def wait(self, container: str) -> ContainerState | None:
        """Wait until the container has ended, also while the engine is away; None when it has been removed."""
        while True:
            try:
                self._quietly("POST", f"/containers/{container}/wait", timeout_s=None)
                state = self.state(container)
            except EngineAway:
                time.sleep(AWAY_S)
                continue
            if state is None or not state.running:
                return state

    def state(self, container: str) -> ContainerState | None:
        """Return the container's state; None when there is none."""
        try:
            return self._json("GET", f"/containers/{container}/json", into=_Inspected).state
        except EngineRefused as error:
            if error.status in _GONE:
                return None
            raise

    def logs(self, container: str, *, lines: int) -> bytes:
        """Return the last lines of both streams."""
        query = {"stdout": "1", "stderr": "1", "tail": str(lines)}
        return _frames(self._ask("GET", f"/containers/{container}/logs", query, whole=False))

    def stop(self, container: str, *, grace_s: float) -> None:
        """Send SIGTERM, and SIGKILL after the grace period. Success if it has ended."""
        self._quietly("POST", f"/containers/{container}/stop", {"t": str(int(grace_s))}, timeout_s=grace_s + TIMEOUT_S)

    def kill(self, container: str) -> None:
        self._quietly("POST", f"/containers/{container}/kill", {"signal": "KILL"})

    def remove(self, container: str) -> None:
        """Remove a container, running or not, with its volumes. Success if there is none."""
        self._quietly("DELETE", f"/containers/{container}", {"force": "1", "v": "1"})

    def containers(self, label: str) -> list[ContainerRow]:
        """Return all containers with a label, also those that have ended."""
        query = {"all": "1", "filters": msgspec.json.encode({"label": [label]}).decode()}
        rows = self._json("GET", "/containers/json", query, into=list[ContainerRow | None])
        return [row for row in rows if row]

    # --- commands in a running container ---

    def prepare_exec(self, container: str, argv: Sequence[str], *, user: str, folder: str = "/") -> str:
        wanted = {"Cmd": list(argv), "User": user, "WorkingDir": folder, "AttachStdout": True, "AttachStderr": True}
        return self._json("POST", f"/containers/{container}/exec", None, wanted, into=_Made).id

    def run_exec(self, prepared: str, seen: Callable[[bytes], object], *, timeout_s: float | None = None) -> None:
        """Start a prepared command and pass on what it prints, until the engine says that there is no more."""
        with self._answered("POST", f"/exec/{prepared}/start", body=b'{"Detach":false}', timeout_s=timeout_s) as answer:
            while header := answer.read(8):
                left = int.from_bytes(header[4:])
                while left and (content := answer.read(min(left, _CHUNK))):
                    left -= len(content)
                    seen(content)

    def exec_state(self, prepared: str) -> ExecState:
        return self._json("GET", f"/exec/{prepared}/json", into=ExecState)

    def output_of(self, container: str, argv: Sequence[str], *, user: str, timeout_s: float) -> bytes:
        """Run a command in a running container; returns the beginning of what it prints."""
        parts: list[bytes] = []
        prepared = self.prepare_exec(container, argv, user=user)
        self.run_exec(prepared, lambda part: parts.append(part) if len(parts) < 100 else None, timeout_s=timeout_s)
        return b"".join(parts)

    # --- images ---

    def has_image(self, name: str) -> bool:
        try:
            self._ask("GET", f"/images/{quote(name, safe='/:@')}/json")
        except EngineRefused as error:
            if error.status == 404:
                return False
            raise
        return True

    def image_path(self, name: str) -> str:
        """Return the PATH that programs of the image are found by."""
        found = self._json("GET", f"/images/{quote(name, safe='/:@')}/json", into=_InspectedImage).config
        given = [row[5:] for row in (found and found.env) or [] if row.startswith("PATH=")]
        return given[0] if given else "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

    def import_image(self, archive: Path, name: str) -> None:
        """Make an image of a root file system in a tar archive."""
        repository, _, tag = name.partition(":")
        with archive.open("rb") as content:
            made = self._ask(
                "POST", "/images/create", {"fromSrc": "-", "repo": repository, "tag": tag or "latest"}, raw=content
            )
        identity = self._decode(made.splitlines()[-1], "/images/create", _Progress).status
        self._ask("POST", f"/images/{quote(identity)}/tag", {"repo": repository, "tag": tag or "latest"})

    def build(self, context: bytes, name: str, *, network: str = "") -> Iterator[str]:
        """Build an image from a tar archive with a Containerfile; yields the lines that the engine prints."""
        query = {"t": name, "dockerfile": "Containerfile"} | ({"networkmode": network} if network else {})
        answer = self._ask("POST", "/build", query, raw=context, kind="application/x-tar", timeout_s=BUILD_S)
        for line in answer.splitlines():
            message = self._decode(line, "/build", _Progress)
            if message.error:
                raise EnvironmentCannot(f"the image was not built: {message.error}", hint="see the lines above")
            if text := message.stream.rstrip():
                yield text

    # --- requests ---

    def _json(
        self, method: str, path: str, query: Mapping[str, str] | None = None, body: object = None, *, into: type[T]
    ) -> T:
        return self._decode(self._ask(method, path, query, body), path, into)

    def _decode(self, answer: bytes, path: str, into: type[T]) -> T:
        try:
            return msgspec.json.decode(answer, type=into)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise EnvironmentCannot(
                f"the container engine at {self.address} answered {path} with what is no answer of Docker or Podman: "
                f"{error}",
                hint="see whether it works, or name another: containers.engine",
            ) from error

    def _quietly(
        self, method: str, path: str, query: Mapping[str, str] | None = None, *, timeout_s: float | None = TIMEOUT_S
    ) -> None:
        try:
            self._ask(method, path, query, timeout_s=timeout_s)
        except EngineRefused as error:
            if error.status not in _GONE:
                raise

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: object = None,
        *,
        raw: Any = None,
        kind: str = "application/json",
        timeout_s: float | None = TIMEOUT_S,
        whole: bool = True,
    ) -> bytes:
        """Make one request on a connection of its own. Without `whole`, only the beginning of the answer is read."""
        content = raw if raw is not None else msgspec.json.encode(body) if body is not None else None
        kind = "application/x-tar" if raw is not None else kind
        with self._answered(method, path, query, content, kind=kind, timeout_s=timeout_s) as answer:
            found = bytes(answer.read(ANSWER_MAX_BYTES))
            if whole and len(found) == ANSWER_MAX_BYTES:
                raise http.client.HTTPException(f"more than {ANSWER_MAX_BYTES >> 20} MiB as an answer")
            return found

    @contextmanager
    def _answered(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        *,
        kind: str = "application/json",
        timeout_s: float | None = TIMEOUT_S,
    ) -> Iterator[http.client.HTTPResponse]:
        """Yield the answer to a request. All must be read within the timeout. Raises EngineAway, EngineRefused."""
        link = _Connection(self._place, self.socket, timeout_s)
        # The timeout of a socket is for each read: an engine that sends a byte a second would never reach it.
        timer = threading.Timer(timeout_s or 0, link.cut)
        timer.daemon = True
        try:
            if timeout_s is not None:
                timer.start()
            address = f"/{VERSION}{path}{f'?{urlencode(query)}' if query else ''}"
            link.request(method, address, body=body, headers={"Content-Type": kind})
            answer = link.getresponse()
            if answer.status >= 400:
                raise EngineRefused(
                    f"the container engine refused {method} {path}: {_message(answer.read(_CHUNK))}",
                    hint="see containers.* in `ratchet config show`",
                    status=answer.status,
                )
            yield answer
            if link.was_cut:
                raise TimeoutError(f"no whole answer within {timeout_s:.0f} s")
        except (OSError, http.client.HTTPException) as error:
            why = f"no whole answer within {timeout_s:.0f} s" if link.was_cut else str(error) or type(error).__name__
            raise EngineAway(
                f"the container engine at {self.address} does not answer: {why}",
                hint="start it, or name its address: containers.engine",
            ) from error
        finally:
            timer.cancel()
            link.close()


def _message(answer: bytes) -> str:
    try:
        return str(msgspec.json.decode(answer)["message"])
    except (msgspec.MsgspecError, RecursionError, KeyError, TypeError):
        return answer[:500].decode(errors="replace")


def _frames(content: bytes) -> bytes:
    """Return a log without the frames' headers: stream, three zeros, length."""
    parts, at = [], 0
    while at + 8 <= len(content) and content[at] in (0, 1, 2) and content[at + 1 : at + 4] == b"\0\0\0":
        end = at + 8 + int.from_bytes(content[at + 4 : at + 8])
        parts.append(content[at + 8 : end])
        at = end
    return b"".join(parts) + content[at:]


# --- how a container ended --------------------------------------------------------------------------------------------

# The first process of a container. It reads the control group's own counters after its child has ended: engines report
# `OOMKilled` of the first process only, and some never. The kernel kills the largest process, which this is not.
INIT = r"""
"$@" & child=$!
trap 'kill -TERM $child' TERM INT
while :; do wait $child; code=$?; kill -0 $child 2>/dev/null || break; done
group=/sys/fs/cgroup
kills=$(cat $group/memory.events $group/memory/memory.oom_control 2>/dev/null | sed -n 's/^oom_kill //p')
echo "ratchet-container: code=$code oom_kill=$kills"
exit $code
"""
# Not at the start of a line: engines mix up line feeds of the two streams.
_LAST_LINE = re.compile(rb".*ratchet-container: code=\d{1,3} oom_kill=(\d{0,9})\s", re.DOTALL)


def with_init(command: Sequence[str]) -> list[str]:
    """Return the command under a first process that passes signals on and reports how it ended."""
    return ["sh", "-c", INIT, "sh", *command]


class ContainerEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a container under `with_init` ended: its exit code, and how many of its processes the kernel killed because
    the memory limit was reached. `reported` is false when its first process was killed."""

    code: int
    memory_kills: int = 0
    reported: bool = True
    removed: bool = False

    @property
    def succeeded(self) -> bool:
        return self.code == 0 and not self.removed

    def reason(self, memory_mb: int) -> str:
        """Return the reason in words; empty after success."""
        limit = f" (its limit is {memory_mb} MB)" if memory_mb else ""
        if self.removed:
            return "the container was removed"
        if self.memory_kills and self.code:
            return f"out of memory{limit}"
        if self.code == 137 and not self.reported:
            return "the container was killed"
        if self.code > 128:
            return f"the worker was killed by signal {self.code - 128}"
        return f"the worker exited with code {self.code}" if self.code else ""


def how_it_ended(state: ContainerState | None, log: bytes) -> ContainerEnd:
    """Read the end from the counters that the first process printed last, else from what the engine knows."""
    if state is None:
        return ContainerEnd(code=137, removed=True, reported=False)
    last = _LAST_LINE.match(log)
    kills = int(last[1] or 0) if last else 0
    return ContainerEnd(
        code=state.exit_code, memory_kills=max(kills, int(state.out_of_memory)), reported=last is not None
    )
