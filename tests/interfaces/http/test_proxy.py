"""The server behind nginx, with the lines of docs/kubernetes.md."""

from __future__ import annotations

import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from http.client import HTTPSConnection
from pathlib import Path

import pytest

from ratchet.config import Config, ServerConfig
from ratchet.core.signal import Topic
from ratchet.interfaces.http.client import HttpClient
from ratchet.interfaces.http.event_stream import START
from ratchet.store.protocols import ARTIFACT_MAX_BYTES, open_store
from ratchet.store.remote.store import open_remote_store
from tests.contract.test_remote_workers import NOTE, claim
from tests.interfaces.http.serving import TOKEN, Served, add, serving

pytestmark = [
    pytest.mark.engines,
    pytest.mark.skipif(not (shutil.which("nginx") and shutil.which("openssl")), reason="no nginx: scripts/engines"),
]
DOCS = Path(__file__).parents[3] / "docs" / "kubernetes.md"
NAME = "ratchet.example.com"


class Proxy:
    def __init__(self, served: Served, port: int, certificate: Path) -> None:
        self.served, self.port, self.certificate = served, port, certificate
        self.url = f"https://localhost:{port}"

    def ask(self, host: str, **headers: str) -> int:
        link = HTTPSConnection("localhost", self.port, context=ssl.create_default_context(cafile=str(self.certificate)))
        try:
            link.request("GET", "/api/status", headers={"host": host, "authorization": f"Bearer {TOKEN}", **headers})
            return link.getresponse().status
        finally:
            link.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def nginx_lines(port: int, upstream: int, folder: Path) -> str:
    """The documented block, with another port, certificate and server."""
    (block,) = re.findall(r"^    server \{\n.*?^    \}\n", DOCS.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    for old, new in {
        "listen 443": f"listen 127.0.0.1:{port}", "127.0.0.1:8484": f"127.0.0.1:{upstream}",
        "/etc/ssl/ratchet.pem": f"{folder}/ratchet.pem", "/etc/ssl/ratchet.key": f"{folder}/ratchet.key",
    }.items():  # fmt: skip
        assert old in block
        block = block.replace(old, new)
    scratch = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;" if os.geteuid() == 0 else ""
    return f"{user} pid {folder}/pid; error_log stderr; events {{}} http {{ access_log off; {scratch}\n{block} }}"


@pytest.fixture
def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    subprocess.run(
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost "
        "-keyout ratchet.key -out ratchet.pem", shell=True, cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ratchet.pem"))
    store = open_store(tmp_path / "server.db")
    with serving(store, settings=Config(server=ServerConfig(hosts=[NAME]))) as served:
        port = free_port()
        (tmp_path / "nginx.conf").write_text(nginx_lines(port, served.port, tmp_path))
        argv = ["nginx", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf"), "-g", "daemon off;"]
        with subprocess.Popen(argv) as running:
            while True:
                assert running.poll() is None, "nginx did not start"
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except ConnectionRefusedError:
                    time.sleep(0.02)
            yield Proxy(served, port, tmp_path / "ratchet.pem")
            running.terminate()
    store.close()


def test_events_pass_as_they_happen(proxy: Proxy) -> None:
    """Each is received before the next one is written, so none waits in a buffer."""
    (lease,) = claim(proxy.served.store, 1)
    received: list[int] = []
    arrived = threading.Semaphore(0)

    def listen() -> None:
        with HttpClient(proxy.url, token=TOKEN) as client:
            for one in client.events(START):
                received.append(one.entry.seq)
                arrived.release()
                if len(received) == 20:
                    return

    listening = threading.Thread(target=listen)
    listening.start()
    for _ in range(20):
        proxy.served.store.append(lease, [NOTE])
        assert arrived.acquire(timeout=10)
    listening.join(10)
    assert received == list(range(1, 21))


def test_a_worker_behind_the_proxy_sends_the_largest_artifact_and_is_signalled(proxy: Proxy) -> None:
    (lease,) = claim(proxy.served.store, 1)
    store = open_remote_store(proxy.url, token=TOKEN)
    content = bytes(range(256)) * (ARTIFACT_MAX_BYTES // 256)
    digest = store.put_artifact(lease.run, content)
    assert proxy.served.store.artifact(lease.run, digest) == content
    with store.listen(Topic.WORK) as work:
        for number in range(5):
            add(proxy.served, spec=f"# Do {number}")
            assert work.wait(10)
    store.close()


def test_the_name_that_the_browser_used_decides(proxy: Proxy) -> None:
    assert proxy.ask(NAME) == 200
    assert proxy.ask("other.example.com") == 421
    assert proxy.ask(NAME, origin=f"https://{NAME}") == 200
    assert proxy.ask(NAME, origin="https://other.example.com") == 403


def test_the_cookie_of_a_person_who_signs_in_is_for_tls_only(proxy: Proxy) -> None:
    link = HTTPSConnection("localhost", proxy.port, context=ssl.create_default_context(cafile=str(proxy.certificate)))
    form = {"content-type": "application/x-www-form-urlencoded"}
    link.request("POST", "/sign-in", body=f"token={TOKEN}", headers={"host": NAME, **form})
    answer = link.getresponse()
    link.close()
    assert answer.status == 303 and "; secure" in str(answer.headers["set-cookie"]).lower()
