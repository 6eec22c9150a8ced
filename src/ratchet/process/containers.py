"""A client of container engines that speak Docker's HTTP API: Docker and Podman, on a Unix socket or over TCP.

Synchronous: callers use a thread for each container they wait for. A container outlives a restart of its engine, so
`wait` asks again until the engine answers.
"""

from __future__ import annotations

import http.client
import os
import re
import secrets
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from ratchet.core.lease import Holder
from ratchet.errors import EnvironmentCannot, UsageError
from ratchet.process.former_owner import ended_with_its_boot
from ratchet.process.spawn import is_gone

VERSION = "v1.40"
TIMEOUT_S = 60.0
AWAY_S = 0.2  # between two questions whether the engine is back
_GONE = (404, 409)  # no such container; it is being removed, or has stopped already


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
    """Return the user of containers: this process's, or an ordinary one for root."""
    return f"{os.getuid()}:{os.getgid()}" if os.getuid() else "1000:1000"


def new_name(what: str = "") -> str:
    return f"ratchet-{what}{'-' if what else ''}{secrets.token_hex(5)}"


class ContainerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A container in the engine's list."""

    id: str = msgspec.field(name="Id")
    names: list[str] = msgspec.field(name="Names", default_factory=list)
    state: str = msgspec.field(name="State", default="")
    labels: dict[str, str] = msgspec.field(name="Labels", default_factory=dict)

    @property
    def name(self) -> str:
        return self.names[0].lstrip("/") if self.names else self.id[:12]


class ContainerState(msgspec.Struct, frozen=True, kw_only=True):
    """How a container is, or how it ended."""

    running: bool = msgspec.field(name="Running", default=False)
    exit_code: int = msgspec.field(name="ExitCode", default=0)
    out_of_memory: bool = msgspec.field(name="OOMKilled", default=False)
    error: str = msgspec.field(name="Error", default="")


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    version: str
    rootless: bool


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float | None) -> None:
        super().__init__("engine", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


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


def abandoned(engine: ContainerEngine, label: str) -> Iterator[ContainerRow]:
    """Yield the containers whose label names a process of this machine that has ended."""
    for row in engine.containers(label):
        owner = msgspec.json.decode(row.labels[label], type=Holder)
        if is_gone(owner) or ended_with_its_boot(owner):
            yield row


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
        found, version = self._json("GET", "/info"), self._json("GET", "/version")
        parts = [part.get("Name", "") for part in version.get("Components") or []]
        rootless = found.get("Rootless") or "name=rootless" in (found.get("SecurityOptions") or [])
        name = "Podman" if any("Podman" in part for part in parts) else "Docker"
        return EngineInfo(name=name, version=str(version.get("Version", "")), rootless=bool(rootless))

    # --- containers ---

    def create(self, spec: ContainerSpec, name: str) -> str:
        return str(self._json("POST", "/containers/create", {"name": name}, spec.request(name))["Id"])

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
            found = self._json("GET", f"/containers/{container}/json")
        except EngineRefused as error:
            if error.status in _GONE:
                return None
            raise
        return msgspec.convert(found["State"], ContainerState)

    def logs(self, container: str, *, lines: int) -> bytes:
        """Return the last lines of both streams."""
        query = {"stdout": "1", "stderr": "1", "tail": str(lines)}
        return _frames(self._ask("GET", f"/containers/{container}/logs", query))

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
        return msgspec.json.decode(self._ask("GET", "/containers/json", query), type=list[ContainerRow])

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
        found = self._json("GET", f"/images/{quote(name, safe='/:@')}/json")["Config"] or {}
        given = [row[5:] for row in found.get("Env") or [] if row.startswith("PATH=")]
        return given[0] if given else "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

    def import_image(self, archive: Path, name: str) -> None:
        """Make an image of a root file system in a tar archive."""
        repository, _, tag = name.partition(":")
        with archive.open("rb") as content:
            made = self._ask(
                "POST", "/images/create", {"fromSrc": "-", "repo": repository, "tag": tag or "latest"}, raw=content
            )
        identity = msgspec.json.decode(made.splitlines()[-1]).get("status", "")
        self._ask("POST", f"/images/{quote(identity)}/tag", {"repo": repository, "tag": tag or "latest"})

    def build(self, context: bytes, name: str, *, network: str = "") -> Iterator[str]:
        """Build an image from a tar archive with a Containerfile; yields the lines that the engine prints."""
        query = {"t": name, "dockerfile": "Containerfile"} | ({"networkmode": network} if network else {})
        answer = self._ask("POST", "/build", query, raw=context, kind="application/x-tar", timeout_s=None)
        for line in answer.splitlines():
            message = msgspec.json.decode(line)
            if message.get("error"):
                raise EnvironmentCannot(f"the image was not built: {message['error']}", hint="see the lines above")
            if text := str(message.get("stream", "")).rstrip():
                yield text

    # --- requests ---

    def _json(self, method: str, path: str, query: Mapping[str, str] | None = None, body: object = None) -> Any:
        return msgspec.json.decode(self._ask(method, path, query, body))

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
    ) -> bytes:
        """Make one request on a connection of its own. Raises EngineAway, EngineRefused."""
        content = raw if raw is not None else msgspec.json.encode(body) if body is not None else None
        link = self._connection(timeout_s)
        try:
            link.request(
                method,
                f"/{VERSION}{path}{f'?{urlencode(query)}' if query else ''}",
                body=content,
                headers={"Content-Type": "application/x-tar" if raw is not None else kind},
            )
            response = link.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise EngineAway(
                f"the container engine at {self.address} does not answer: {error or type(error).__name__}",
                hint="start it, or name its address: containers.engine",
            ) from error
        finally:
            link.close()
        if response.status >= 400:
            raise EngineRefused(
                f"the container engine refused {method} {path}: {_message(answer)}",
                hint="see containers.* in `ratchet config show`",
                status=response.status,
            )
        return answer

    def _connection(self, timeout_s: float | None) -> http.client.HTTPConnection:
        if self.socket:
            return _UnixConnection(self.socket, timeout_s)
        return http.client.HTTPConnection(self._place, timeout=timeout_s)


def _message(answer: bytes) -> str:
    try:
        return str(msgspec.json.decode(answer)["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
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
_LAST_LINE = re.compile(rb".*ratchet-container: code=(\d+) oom_kill=(\d*)", re.DOTALL)


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
    kills = int(last[2] or 0) if last else 0
    return ContainerEnd(
        code=state.exit_code, memory_kills=max(kills, int(state.out_of_memory)), reported=last is not None
    )
