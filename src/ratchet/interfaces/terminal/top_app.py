"""`ratchet top` on a terminal: inbox, board and runs, with keys to stop, cancel, requeue and nudge, and to read a diff
or a log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, TypeVar

import msgspec
from rich.markup import escape
from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import DataTable, Footer, Input, Static, TabbedContent, TabPane

from ratchet.core import api
from ratchet.core import events as ev
from ratchet.core.card import RunCard, advance
from ratchet.core.inbox import InboxEntry
from ratchet.core.item import ItemStatus
from ratchet.core.queue import ItemRow
from ratchet.errors import RatchetError
from ratchet.interfaces.terminal.colour import Tone
from ratchet.interfaces.terminal.live_view import small_picture
from ratchet.interfaces.terminal.narrative import event_line

T = TypeVar("T")
PERSON = "a person (top)"
PAGE = 200
TAIL, LINES_MAX = 400, 5_000
_STATUSES = (ItemStatus.IN_PROGRESS, ItemStatus.ASSIGNED, ItemStatus.QUEUED, ItemStatus.PARKED, ItemStatus.FAILED)
_STYLES = {Tone.GOOD: "green", Tone.BAD: "red", Tone.WARN: "yellow", Tone.DIM: "dim", Tone.PLAIN: ""}


class TopState(msgspec.Struct, frozen=True, kw_only=True):
    status: api.Status
    metrics: api.Metrics
    rows: list[ItemRow]
    entries: list[InboxEntry]


class RunLines(msgspec.Struct, frozen=True, kw_only=True):
    picture: str
    lines: list[tuple[str, str]]
    length: int


def read_state(service: api.QueueService) -> TopState:
    rows = [row for status in _STATUSES for row in service.queue(api.QueueQuery(status=status, limit=PAGE)).rows]
    return TopState(status=service.status(), metrics=service.metrics(), rows=rows, entries=service.inbox().entries)


def read_log(service: api.QueueService, run: str) -> str:
    """Return the ends of the logs of the last worker of a run, the newest last."""
    workers = service.workers(api.WorkersQuery(limit=PAGE)).workers
    worker = next((one.id for one in workers if one.run == run), "")
    files = service.logs(worker).files if worker else []
    return "\n".join(f"--- {file.name}\n{file.tail}" for file in files) or "no log of this run is on this machine"


def read_run(service: api.QueueService, run: str) -> RunLines:
    """Return the timeline of a run, newest part of it, with its small picture."""
    card, lines, after = RunCard(), [], 0
    while page := service.ledger(run, api.LedgerQuery(after=after, limit=500)).entries:
        for entry in page:
            event = ev.decode(entry.kind, msgspec.json.encode(entry.data))
            card = advance(card, entry.at, event)
            if line := event_line(event):
                lines.append((f"{entry.at[11:19]}  {line.actor:<11} {line.text}", _STYLES[line.tone]))
        after = page[-1].seq
    return RunLines(
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
    Screen { overflow: hidden; }
    TabbedContent { height: 1fr; }
    TabPane { padding: 0; }
    DataTable { height: 1fr; }
    RunScreen Static { padding: 0 1; }
    NudgeScreen { align: center middle; }
    #nudge { width: 76; max-width: 100%; height: auto; padding: 1 2; border: round $primary; background: $panel; }
    """
    TITLE = "ratchet"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("1", "show('inbox')", "inbox"),
        Binding("2", "show('board')", "board"),
        Binding("c", "cancel_item", "cancel"),
        Binding("r", "requeue_item", "requeue"),
        Binding("n", "nudge_item", "nudge"),
        Binding("enter", "open_run", "open", show=False),
    ]

    def notify(self, message: str, *, markup: bool = False, **how: Any) -> None:
        """Show a message as it is: an error may quote an agent, and markup that is malformed would end the screen."""
        super().notify(plain(message), markup=markup, **how)

    def __init__(self, service: api.QueueService, *, every_s: float = 1.0) -> None:
        super().__init__()
        self.service, self.every_s = service, every_s
        self._calls = threading.Lock()
        self._runs: dict[str, tuple[str, str]] = {}  # run and title by item

    def compose(self) -> ComposeResult:
        yield Static("", id="head")
        with TabbedContent(initial="inbox"):
            with TabPane("Inbox", id="inbox"):
                yield DataTable(id="inbox-rows", cursor_type="row")
            with TabPane("Board", id="board"):
                yield DataTable(id="board-rows", cursor_type="row")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#inbox-rows", DataTable).add_columns("kind", "since", "what")
        self.query_one("#board-rows", DataTable).add_columns("status", "priority", "repository", "title")
        self.query_one("#inbox-rows", DataTable).focus()
        self.refresh_rows()
        self.set_interval(self.every_s, self.refresh_rows)

    def call_service(self, verb: Callable[..., T], *args: object) -> T:
        with self._calls:
            try:
                return verb(*args)
            except RatchetError:
                raise
            except Exception as error:  # one ledger that cannot be read must not end the screen
                raise RatchetError(f"{type(error).__name__}: {error}") from error

    @work(thread=True, exclusive=True, group="rows")
    def refresh_rows(self) -> None:
        try:
            state = self.call_service(read_state, self.service)
        except RatchetError as error:
            self.call_from_thread(self.notify, error.message, severity="error")
            return
        self.call_from_thread(self.show_state, state)

    def show_state(self, state: TopState) -> None:
        metrics, working = state.metrics, state.status.workers
        head = (
            f"{working} worker{'s' * (working != 1)} · {metrics.completed_today} completed, "
            f"{metrics.failed_today} failed today · {metrics.commits_today} kept, {metrics.reverts_today} reverted"
            f" · ${metrics.spent_today.cost_usd:.2f}"
        )
        self.query_one("#head", Static).update(escape(head))
        now = datetime.now(UTC)
        self._runs = {one.item: (one.run, one.title) for one in state.entries}
        self._runs |= {row.item.id: (row.run, row.item.title or row.item.id) for row in state.rows}
        inbox = [
            (one.item or one.key, (str(one.kind), _ago(one.since, now), plain(one.title))) for one in state.entries
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
        item = self.selected()
        run, title = self._runs.get(item, ("", ""))
        if run:
            self.push_screen(RunScreen(run, item, title))
        else:
            self.notify("no run yet")

    def action_cancel_item(self) -> None:
        self.act(lambda item: self.service.cancel(item, api.Requester(by=PERSON)).cancelled)

    def action_requeue_item(self) -> None:
        self.act(lambda item: str(self.service.requeue(item).status))

    def action_nudge_item(self) -> None:
        if item := self.selected():
            self.ask_nudge(item)

    def ask_nudge(self, item: str) -> None:
        """Ask for a message, and send it to the agents of the item's run."""

        def send(message: str | None) -> None:
            if message:
                request = api.Nudge(by=PERSON, message=message)
                self.act_on(item, lambda one: "sent" if self.service.nudge(one, request) else "")

        self.push_screen(NudgeScreen(), send)

    def act(self, verb: Callable[[str], str]) -> None:
        self.act_on(self.selected(), verb)

    @work(thread=True)
    def act_on(self, item: str, verb: Callable[[str], str]) -> None:
        try:
            done = self.call_service(verb, item) if item else "nothing is selected"
        except RatchetError as error:
            done = error.message
        self.call_from_thread(self.notify, str(done))
        self.call_from_thread(self.refresh_rows)


class RunScreen(Screen[None]):
    """One run: its small picture and its timeline, followed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.pop_screen", "back"),
        Binding("s", "stop", "stop"),
        Binding("n", "nudge", "nudge"),
        Binding("t", "timeline", "timeline"),
        Binding("d", "diff", "diff"),
        Binding("l", "log", "log"),
    ]

    def __init__(self, run: str, item: str, title: str) -> None:
        super().__init__()
        self.run_id, self.item, self.run_title = run, item, title
        self.length, self.shows = -1, "timeline"

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
        self.query_one("#run-head", Static).update(f"{found.picture}  {plain(self.run_title, 120)}")
        if self.shows != "timeline" or found.length == self.length:
            return
        self.length = found.length
        text = Text()
        for line, style in found.lines:
            text.append(f"{plain(line)}\n", style)
        self.query_one("#run-body", Static).update(text)
        self.query_one(VerticalScroll).scroll_end(animate=False)

    def action_timeline(self) -> None:
        self.shows, self.length = "timeline", -1
        self.load()

    def action_nudge(self) -> None:
        self.top.ask_nudge(self.item)

    def action_diff(self) -> None:
        self.open("diff", lambda service, run: service.diff(run).diff or "nothing is kept yet")

    def action_log(self) -> None:
        self.open("log", read_log)

    @work(thread=True)
    def open(self, name: str, read: Callable[[api.QueueService, str], str]) -> None:
        try:
            text = self.top.call_service(read, self.top.service, self.run_id)
        except RatchetError as error:
            text = error.message
        self.top.call_from_thread(self.show_text, name, text)

    def show_text(self, name: str, text: str) -> None:
        self.shows, shown = name, Text()
        styles = {"+": "green", "-": "red", "@": "dim"} if name == "diff" else {}
        for line in text.splitlines()[-LINES_MAX:]:
            shown.append(f"{plain(line)}\n", styles.get(line[:1], ""))
        self.query_one("#run-body", Static).update(shown)
        place = self.query_one(VerticalScroll)
        place.scroll_home(animate=False) if name == "diff" else place.scroll_end(animate=False)

    @work(thread=True)
    def action_stop(self) -> None:
        requester = api.Requester(by=PERSON)
        try:
            done: str = self.top.call_service(self.top.service.cancel, self.item, requester).cancelled
        except RatchetError as error:
            done = error.message
        self.top.call_from_thread(self.notify, str(done))


class NudgeScreen(ModalScreen[str]):
    """One line for a message; Enter sends it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "back")]

    def compose(self) -> ComposeResult:
        with Vertical(id="nudge"):
            yield Static("Message to the agents of this run: in every prompt until the next commit")
            yield Input(max_length=api.NUDGE_MAX_CHARS, placeholder="Enter sends, Escape goes back")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())


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
