"""What can be read: runs and their ledgers, test workspaces with their last report and packet, artifacts.

Nothing here needs the protocol's library.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from ratchet.core import api
from ratchet.core import workbench as wb
from ratchet.errors import NotFound
from ratchet.surfaces.mcp.tools import Shop

JSON, MARKDOWN, TEXT = "application/json", "text/markdown", "text/plain"
_SHOWN = 50


class Document(msgspec.Struct, frozen=True, kw_only=True):
    media: str
    text: str


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """`address` has a `{name}` for each part that says which."""

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


def read(shop: Shop, address: str) -> Document:
    """Raises NotFound."""
    for kind in KINDS:
        if (parts := kind.match(address)) is not None:
            return Document(media=kind.media, text=kind.read(shop, **parts))
    raise NotFound(
        f"there is no resource {address[:200]}", hint="resources/list and resources/templates/list name them"
    )


def _runs(shop: Shop) -> str:
    return _json(shop.desk.runs(api.RunsAsk(limit=_SHOWN)))


def _run(shop: Shop, run: str) -> str:
    return _json(shop.desk.run(run))


def _ledger(shop: Shop, run: str) -> str:
    return _json(shop.desk.ledger(run, api.LedgerAsk(limit=api.PAGE_MAX)))


def _workspaces(shop: Shop) -> str:
    return _json(shop.workbench.all())


def _workspace(shop: Shop, workspace: str) -> str:
    return _json(shop.workbench.get(workspace))


def _report(shop: Shop, workspace: str) -> str:
    return _newest(shop, workspace, ".json")


def _packet(shop: Shop, workspace: str) -> str:
    return _newest(shop, workspace, ".md")


def _newest(shop: Shop, workspace: str, ending: str) -> str:
    names = [name for name in shop.workbench.get(workspace).artifacts if name.startswith("test-")]
    of_kind = [name for name in names if name.endswith(ending)]
    if not of_kind:
        raise NotFound(f"no tests were run in {workspace} yet", hint="run_tests", workspace=workspace)
    return _artifact(shop, workspace, of_kind[-1])


def _artifact(shop: Shop, workspace: str, name: str) -> str:
    text, offset = "", 0
    while True:
        ask = msgspec.convert({"name": name, "offset": offset}, wb.ArtifactAsk)
        piece = shop.workbench.artifact(workspace, ask)
        text, offset = text + piece.text, piece.next_offset
        if not offset or len(text) > _TEXT_MAX:
            return text


_TEXT_MAX = 2_000_000


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


KINDS = (
    Kind(address="ratchet://runs", name="runs", description="The newest runs.", media=JSON, read=_runs),
    Kind(address="ratchet://workspaces", name="workspaces", description="The test workspaces there are.", media=JSON,
         read=_workspaces),
    Kind(address="ratchet://runs/{run}", name="run", description="A run: its row, and what its ledger folds to.",
         media=JSON, read=_run),
    Kind(address="ratchet://runs/{run}/ledger", name="ledger", description="A run's ledger, its first 500 rows.",
         media=JSON, read=_ledger),
    Kind(address="ratchet://workspaces/{workspace}", name="workspace", description="A test workspace.", media=JSON,
         read=_workspace),
    Kind(address="ratchet://workspaces/{workspace}/report", name="report", media=JSON, read=_report,
         description="Its last test run: every test with status, duration and failure."),
    Kind(address="ratchet://workspaces/{workspace}/packet", name="packet", media=MARKDOWN, read=_packet,
         description="Its last test run in a page: failures in clusters, expected and actual, suspects."),
    Kind(address="ratchet://workspaces/{workspace}/artifacts/{name}", name="artifact", media=TEXT, read=_artifact,
         description="A whole output or report, by the name an answer gave it."),
)  # fmt: skip
