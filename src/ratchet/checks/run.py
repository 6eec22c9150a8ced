"""Run a target's tests in a folder and read the result from a channel the project's code does not own."""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path

import msgspec

from ratchet.checks import Target
from ratchet.checks import pytest as pytest_channel
from ratchet.core.report import Report, ReportStatus
from ratchet.process import supervise

_TAIL_BYTES = 8_000
# What a test process gets from our environment. Secrets of the factory and of agents are not on the list.
ALLOWED = (
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "TZ",
    "VIRTUAL_ENV",
    "PYTEST_ADDOPTS",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD",
    "PYTHONPATH",
)
FIXED = {
    "CI": "1",
    "NO_COLOR": "1",
    "TERM": "dumb",
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "1",
    # Python takes byte code for current by the second and the size: a file put back that fast would run as the old one.
    "PYTHONDONTWRITEBYTECODE": "1",
}


class TestRun(msgspec.Struct, frozen=True, kw_only=True):
    """Satisfies `Checks`."""

    target: Target
    timeout_s: float
    env: dict[str, str]

    async def run(self, folder: Path, *, log: Path) -> Report:
        with tempfile.TemporaryDirectory(prefix="ratchet-report-") as private:
            channel, nonce = Path(private) / "report.ndjson", secrets.token_hex(16)
            finished = await supervise(
                self.target.command,
                cwd=folder / self.target.root,
                env=pytest_channel.environment(self.env | FIXED, report=channel, nonce=nonce),
                output=log,
                timeout_s=self.timeout_s,
                writable=[Path(private)],
            )
            records = channel.read_bytes() if channel.exists() else b""
        report = pytest_channel.parse(
            records,
            nonce=nonce,
            command=self.target.command,
            exit_code=finished.exit_code,
            timed_out=finished.timed_out,
            duration_s=finished.duration_s,
        )
        return _explain(report, log) if report.status is not ReportStatus.PASSED else report


def _explain(report: Report, log: Path) -> Report:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        return msgspec.structs.replace(report, output=file.read().decode(errors="replace"))


def allowed_environment() -> dict[str, str]:
    return {name: os.environ[name] for name in ALLOWED if name in os.environ}
