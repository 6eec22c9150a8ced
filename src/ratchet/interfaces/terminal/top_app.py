"""`ratchet top` on a terminal: inbox, board and runs, with keys to stop, cancel and requeue, and to read a diff."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import ClassVar, TypeVar

import msgspec
from rich.markup import escape
from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Static, TabbedContent, TabPane

from ratchet.core import api
from ratchet.core import events as ev
from ratchet.core.board import BoardColumn, BoardRow
from ratchet.core.card import RunCard, advance
from ratchet.core.inbox import InboxEntry, inbox_entries
from ratchet.core.item import ItemStatus
from ratchet.core.queue import ItemRow
from ratchet.errors import RatchetError
from ratchet.interfaces.terminal.colour import Tone
from ratchet.interfaces.terminal.live_view import small_picture
from ratchet.interfaces.terminal.narrative import event_line

T = TypeVar("T")
PAGE = 200
TAIL = 400
_STATUSES = (ItemStatus.IN_PROGRESS, ItemStatus.ASSIGNED, ItemStatus.QUEUED, ItemStatus.PARKED, ItemStatus.FAILED)
_STYLES = {Tone.GOOD: "green", Tone.BAD: "red", Tone.WARN: "yellow", Tone.DIM: "dim", Tone.PLAIN: ""}


class TopState(msgspec.Struct, frozen=True, kw_only=True):
    status: api.Status
    metrics: api.Metrics
    rows: list[ItemRow]
    entries: list[InboxEntry]


class RunLines(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    item: str
    picture: str
    lines: list[tuple[str, str]]
    length: int


def read_state(service: api.QueueService) -> TopState:
    rows = [row for status in _STATUSES for row in service.queue(api.QueueQuery(status=status, limit=PAGE)).rows]
    workers = service.workers(api.WorkersQuery(live=True)).workers
    found = [made for row in rows if (made := _as_board_row(row))]
    return TopState(
        status=service.status(), metrics=service.metrics(), rows=rows, entries=inbox_entries(found, workers=workers)
    )


def _as_board_row(row: ItemRow) -> BoardRow | None:
    column = {ItemStatus.PARKED: BoardColumn.PARKED, ItemStatus.FAILED: BoardColumn.FAILED}.get(row.status)
    if column is None:
        return None
    item = row.item
    return BoardRow(
        column=column,
        id=item.id,
        title=item.title,
        repo=item.repo,
        workflow=item.workflow,
        status=row.status,
        priority=item.priority,
        run=row.run,
        created_at=item.created_at,
        attempts=row.attempts,
        not_before=row.not_before,
        park_reason=row.park_reason,
        detail=row.detail,
        card=RunCard(),
    )


def read_run(service: api.QueueService, run: str) -> RunLines:
    """Return the timeline of a run, newest part of it, with its small picture."""
    answer = service.run(run)
    card, lines, after = RunCard(), [], 0
    while page := service.ledger(run, api.LedgerQuery(after=after, limit=500)).entries:
        for entry in page:
            event = ev.decode(entry.kind, msgspec.json.encode(entry.data))
            card = advance(card, entry.at, event)
            if line := event_line(event):
                lines.append((f"{entry.at[11:19]}  {line.actor:<11} {line.text}", _STYLES[line.tone]))
        after = page[-1].seq
    return RunLines(
        title=answer.row.title,
        item=answer.row.item,
        picture=small_picture(card.shape, 60),
        lines=lines[-TAIL:],
        length=after,
    )


def plain(text: str, chars: int = 200) -> str:
    """Return one printable line: titles and details come from agents."""
    return "".join(char if char.isprintable() else " " for char in text)[:chars]


class TopApp(App[None]):
    """Reads the queue again every few seconds; all calls are made by one thread at a time."""

    CSS = """
    #head { height: 1; padding: 0 1; background: $panel; }
    DataTable { height: 1fr; }
    RunScreen Static { padding: 0 1; }
    """
    TITLE = "ratchet"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("1", "show('inbox')", "inbox"),
        Binding("2", "show('board')", "board"),
        Binding("c", "cancel_item", "cancel"),
        Binding("r", "requeue_item", "requeue"),
        Binding("enter", "open_run", "open", show=False),
    ]

    def __init__(self, service: api.QueueService, *, every_s: float = 1.0) -> None:
        super().__init__()
        self.service, self.every_s = service, every_s
        self._calls = threading.Lock()
        self._runs: dict[str, str] = {}

    def compose(self) -> ComposeResult:
        yield Static("", id="head")
        with TabbedContent(initial="inbox"):
            with TabPane("Inbox", id="inbox"):
                yield DataTable(id="inbox-rows", cursor_type="row")
            with TabPane("Board", id="board"):
                yield DataTable(id="board-rows", cursor_type="row")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#inbox-rows", DataTable).add_columns("kind", "what", "since")
        self.query_one("#board-rows", DataTable).add_columns("status", "priority", "repository", "title")
        self.query_one("#inbox-rows", DataTable).focus()
        self.refresh_rows()
        self.set_interval(self.every_s, self.refresh_rows)

    def call_service(self, verb: Callable[..., T], *args: object) -> T:
        with self._calls:
            return verb(*args)

    @work(thread=True, exclusive=True, group="rows")
    def refresh_rows(self) -> None:
        try:
            state = self.call_service(read_state, self.service)
        except RatchetError as error:
            self.call_from_thread(self.notify, error.message, severity="error")
            return
        self.call_from_thread(self.show_state, state)

    def show_state(self, state: TopState) -> None:
        metrics = state.metrics
        head = (
            f"{state.status.workers} workers · {metrics.completed_today} completed, {metrics.failed_today} failed today"
            f" · {metrics.commits_today} kept, {metrics.reverts_today} reverted · ${metrics.spent_today.cost_usd:.2f}"
        )
        self.query_one("#head", Static).update(escape(head))
        now = datetime.now(UTC)
        self._runs = {row.item.id: row.run for row in state.rows}
        inbox = [
            (one.item or one.key, (str(one.kind), plain(one.title), _ago(one.since, now))) for one in state.entries
        ]
        board = [
            (
                row.item.id,
                (
                    str(row.park_reason or row.status).replace("_", " "),
                    str(row.item.priority),
                    plain(row.item.repo.rpartition("/")[2], 20),
                    plain(row.item.title or row.item.id),
                ),
            )
            for row in state.rows
        ]
        _fill(self.query_one("#inbox-rows", DataTable), inbox)
        _fill(self.query_one("#board-rows", DataTable), board)

    # --- keys ------------------------------------------------------------------------------------------------

    def action_show(self, tab: str) -> None:
        self.query_one(TabbedContent).active = tab
        self.query_one(f"#{tab}-rows", DataTable).focus()

    def selected(self) -> str:
        table = self.query_one(f"#{self.query_one(TabbedContent).active}-rows", DataTable)
        if not table.row_count:
            return ""
        return table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value or ""

    def on_data_table_row_selected(self) -> None:
        if run := self._runs.get(self.selected(), ""):
            self.push_screen(RunScreen(run))
        else:
            self.notify("no run yet")

    def action_cancel_item(self) -> None:
        self.act(lambda item: self.service.cancel(item, api.Requester(by="a person (top)")).cancelled)

    def action_requeue_item(self) -> None:
        self.act(lambda item: str(self.service.requeue(item).status))

    @work(thread=True)
    def act(self, verb: Callable[[str], str]) -> None:
        item = self.selected()
        try:
            done = self.call_service(verb, item) if item else "nothing is selected"
        except RatchetError as error:
            done = error.message
        self.call_from_thread(self.notify, plain(str(done)))
        self.call_from_thread(self.refresh_rows)


class RunScreen(Screen[None]):
    """One run: its small picture and its timeline, followed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.pop_screen", "back"),
        Binding("s", "stop", "stop"),
        Binding("d", "diff", "diff"),
        Binding("l", "timeline", "timeline"),
    ]

    def __init__(self, run: str) -> None:
        super().__init__()
        self.run_id, self.item, self.length, self.shows_diff = run, "", -1, False

    def compose(self) -> ComposeResult:
        yield Static("", id="run-head", markup=False)
        with VerticalScroll():
            yield Static("", id="run-body")
        yield Footer()

    @property
    def top(self) -> TopApp:
        assert isinstance(self.app, TopApp)
        return self.app

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()
        self.load()
        self.set_interval(self.top.every_s, self.load)

    @work(thread=True, exclusive=True, group="run")
    def load(self) -> None:
        try:
            found = self.top.call_service(read_run, self.top.service, self.run_id)
        except RatchetError as error:
            self.top.call_from_thread(self.notify, error.message, severity="error")
            return
        self.top.call_from_thread(self.show_run, found)

    def show_run(self, found: RunLines) -> None:
        self.item = found.item
        self.query_one("#run-head", Static).update(f"{found.picture}  {plain(found.title, 120)}")
        if self.shows_diff or found.length == self.length:
            return
        self.length = found.length
        text = Text()
        for line, style in found.lines:
            text.append(f"{plain(line)}\n", style)
        self.query_one("#run-body", Static).update(text)
        self.query_one(VerticalScroll).scroll_end(animate=False)

    def action_timeline(self) -> None:
        self.shows_diff, self.length = False, -1
        self.load()

    @work(thread=True)
    def action_diff(self) -> None:
        try:
            diff = self.top.call_service(self.top.service.diff, self.run_id).diff or "nothing is kept yet"
        except RatchetError as error:
            diff = error.message
        self.top.call_from_thread(self.show_diff, diff)

    def show_diff(self, diff: str) -> None:
        self.shows_diff, text = True, Text()
        for line in diff.splitlines()[:5_000]:
            style = {"+": "green", "-": "red", "@": "dim"}.get(line[:1], "")
            text.append(f"{plain(line)}\n", style)
        self.query_one("#run-body", Static).update(text)
        self.query_one(VerticalScroll).scroll_home(animate=False)

    @work(thread=True)
    def action_stop(self) -> None:
        requester = api.Requester(by="a person (top)")
        try:
            done: str = self.top.call_service(self.top.service.cancel, self.item, requester).cancelled
        except RatchetError as error:
            done = error.message
        self.top.call_from_thread(self.notify, plain(str(done)))


def _fill(table: DataTable[str], rows: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Replace the rows; the cursor stays on its item."""
    at = table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value if table.row_count else None
    names = {name: place for place, (name, _) in enumerate(rows)}
    table.clear()
    for name, place in names.items():
        table.add_row(*(Text(cell) for cell in rows[place][1]), key=name)  # type: ignore[arg-type]  # texts are cells
    if at in names:
        table.move_cursor(row=[*names].index(at))


def _ago(since: str, now: datetime) -> str:
    try:
        seconds = (now - datetime.fromisoformat(since)).total_seconds()
    except (ValueError, TypeError):
        return ""
    return f"{int(seconds // 60)} min" if seconds < 7_200 else f"{int(seconds // 3_600)} h"
