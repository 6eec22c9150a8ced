"""MCP resources: runs, ledgers, test workspaces with their last report and packet, artifacts.

Does not import the MCP library.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from ratchet.core import api
from ratchet.core.api import test_workspaces as wb
from ratchet.errors import NotFound
from ratchet.interfaces.mcp.tools import McpServices

JSON, MARKDOWN, TEXT = "application/json", "text/markdown", "text/plain"
_SHOWN = 50


class ResourceContent(msgspec.Struct, frozen=True, kw_only=True):
    media: str
    text: str


class ResourceKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of resource; `{name}` in `address` is a parameter."""

    address: str
    name: str
    description: str
    media: str
    read: Callable[..., str]

    @property
    def is_one(self) -> bool:
        return "{" not in self.address

    def match(self, address: str) -> dict[str, str] | None:
        pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[A-Za-z0-9._-]{1,128})", re.escape(self.address))
        found = re.fullmatch(pattern, address)
        return found.groupdict() if found else None


def read(services: McpServices, address: str) -> ResourceContent:
    """Read a resource by its address. Raises NotFound."""
    for kind in KINDS:
        if (parts := kind.match(address)) is not None:
            return ResourceContent(media=kind.media, text=kind.read(services, **parts))
    raise NotFound(f"no such resource: {address[:200]}", hint="see resources/list and resources/templates/list")


def _runs(services: McpServices) -> str:
    return _json(services.queue_service.runs(api.RunsQuery(limit=_SHOWN)))


def _run(services: McpServices, run: str) -> str:
    return _json(services.queue_service.run(run))


def _ledger(services: McpServices, run: str) -> str:
    return _json(services.queue_service.ledger(run, api.LedgerQuery(limit=api.PAGE_MAX)))


def _workspaces(services: McpServices) -> str:
    return _json(services.workspaces.all())


def _workspace(services: McpServices, workspace: str) -> str:
    return _json(services.workspaces.get(workspace))


def _report(services: McpServices, workspace: str) -> str:
    return _newest(services, workspace, ".json")


def _packet(services: McpServices, workspace: str) -> str:
    return _newest(services, workspace, ".md")


def _newest(services: McpServices, workspace: str, ending: str) -> str:
    names = [name for name in services.workspaces.get(workspace).artifacts if name.startswith("test-")]
    of_kind = [name for name in names if name.endswith(ending)]
    if not of_kind:
        raise NotFound(f"no tests have been run in {workspace}", hint="call run_tests first", workspace=workspace)
    return _artifact(services, workspace, of_kind[-1])


def _artifact(services: McpServices, workspace: str, name: str) -> str:
    text, offset = "", 0
    while True:
        request = msgspec.convert({"name": name, "offset": offset}, wb.ArtifactQuery)
        piece = services.workspaces.artifact(workspace, request)
        text, offset = text + piece.text, piece.next_offset
        if not offset or len(text) > _TEXT_MAX:
            return text


_TEXT_MAX = 2_000_000


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


KINDS = (
    ResourceKind(address="ratchet://runs", name="runs", description="The newest runs.", media=JSON, read=_runs),
    ResourceKind(address="ratchet://workspaces", name="workspaces", description="All test workspaces.", media=JSON,
         read=_workspaces),
    ResourceKind(address="ratchet://runs/{run}", name="run", description="A run and its state.",
         media=JSON, read=_run),
    ResourceKind(address="ratchet://runs/{run}/ledger", name="ledger",
                 description="The first 500 entries of a run's ledger.",
         media=JSON, read=_ledger),
    ResourceKind(address="ratchet://workspaces/{workspace}", name="workspace", description="A test workspace.",
                 media=JSON,
         read=_workspace),
    ResourceKind(address="ratchet://workspaces/{workspace}/report", name="report", media=JSON, read=_report,
         description="Its last test run: every test with status, duration and failure."),
    ResourceKind(address="ratchet://workspaces/{workspace}/packet", name="packet", media=MARKDOWN, read=_packet,
         description="Its last test run in short: failures grouped by cause, expected and actual values, suspects."),
    ResourceKind(address="ratchet://workspaces/{workspace}/artifacts/{name}", name="artifact", media=TEXT,
                 read=_artifact,
         description="A full output or report, by the name given in a tool result."),
)  # fmt: skip
