"""`ratchet learn`: what earlier work taught, and whether it helps."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click
import msgspec

from ratchet.core import api
from ratchet.core.learning import CONTENT_MAX_CHARS, Learning, LearningKind, TrialArm, content_error
from ratchet.core.learning_lift import Effect, Judged, LiftReport
from ratchet.core.lines import split_lines
from ratchet.errors import UsageError
from ratchet.interfaces.cli.backend import (
    current_user,
    is_remote,
    open_local_queue,
    open_queue,
    server_options,
)
from ratchet.interfaces.cli.common import (
    PATH,
    Arguments,
    CliCommand,
    NumberBetween,
    argument,
    flag,
    option,
    print_data,
    print_json,
    print_note,
    repository_root,
)
from ratchet.interfaces.terminal.layout import hanging

if TYPE_CHECKING:
    from ratchet.app.queue import StoreQueueService

T = TypeVar("T", bound=api.Request)
_SHOWN_CHARS = 160


def add(arguments: Arguments) -> int:
    content = sys.stdin.read(CONTENT_MAX_CHARS + 1) if arguments.content == "-" else arguments.content
    if wrong := content_error(content):
        raise UsageError(f"this is not a learning: {wrong}", hint="write one fact in plain text")
    request = _request(
        api.LearningRequest,
        repo="" if arguments.everywhere else _repo(arguments),
        content=content,
        spec=arguments.spec,
        tags=arguments.tag,
        kind=str(LearningKind.DEAD_END if arguments.dead_end else LearningKind.LESSON),
    )
    with open_queue(arguments) as queue_service:
        kept = queue_service.learn(request)
    _print_one(kept, arguments)
    return 0


def search(arguments: Arguments) -> int:
    if not " ".join(arguments.query).strip():
        raise UsageError("the search is empty", hint="give words or an error message; `ratchet learn list` lists all")
    request = _request(
        api.LearningsQuery,
        repo="" if arguments.all else _repo(arguments),
        query=" ".join(arguments.query),
        spec=arguments.spec,
        tag=arguments.tag,
        limit=arguments.limit,
    )
    with open_queue(arguments) as queue_service:
        found = queue_service.learnings(request)
    _print_list(found, arguments)
    return 0 if found.learnings else 1


def list_all(arguments: Arguments) -> int:
    request = _request(
        api.LearningsQuery,
        repo="" if arguments.all else _repo(arguments),
        spec=arguments.spec,
        tag=arguments.tag,
        retired=arguments.retired,
        limit=arguments.limit,
    )
    with open_queue(arguments) as queue_service:
        _print_list(queue_service.learnings(request), arguments)
    return 0


def show(arguments: Arguments) -> int:
    with open_queue(arguments) as queue_service:
        found = queue_service.learning(arguments.learning)
    if arguments.json:
        print_json(found)
        return 0
    print_data(found.content.rstrip())
    rows = {
        "id": found.id,
        "kind": f"{found.kind}, from {found.source}, seen {found.seen} times",
        "repository": found.repo or "everywhere",
        "spec": found.spec,
        "tags": ", ".join(found.tags),
        "from": f"{found.run}, ledger entry {found.seq}" if found.run else "",
        "commit": found.commit,
        "failures": ", ".join(found.fingerprints),
        "effect": f"saves {found.lift:.0%} of the attempts" if found.lift is not None else "",
        "merged": f"into {found.merged_into}" if found.merged_into else "",
        "retired": f"{found.retired_at} by {found.retired_by or 'somebody'}: {found.retired_why or 'no reason given'}"
        if found.retired_at
        else "",
    }
    print_data("\n" + "\n".join(f"{name + ':':<12}{value}" for name, value in rows.items() if value))
    return 0


def retire(arguments: Arguments) -> int:
    request = _request(api.RetireRequest, why=arguments.why, by=current_user().by)
    with open_queue(arguments) as queue_service:
        gone = queue_service.retire_learning(arguments.learning, request)
    print_json(gone) if arguments.json else print_data(f"{gone.id}  retired {gone.retired_at}")
    return 0


def report(arguments: Arguments) -> int:
    request = _request(api.LiftQuery, repo="" if arguments.all else _repo(arguments))
    with open_queue(arguments) as queue_service:
        found = queue_service.learning_lift(request)
    if arguments.json:
        print_json(found)
    elif not found.learnings:
        print_note("no learning was delivered yet; `ratchet learn list` shows what is known")
    else:
        print_data(_lift_text(found))
    return 0


def _lift_text(found: LiftReport) -> str:
    lines = ["Compared with failures for which the same learning was held out (95 % intervals):"]
    for total in found.totals:
        lines.append(f"\n{_ARMS[total.arm]}: {total.delivered} deliveries, {total.held_out} held out")
        effects = [(label, getattr(total, name)) for name, label in _MEASURES.items()]
        lines += [f"  {label:<18}{_effect(effect)}" for label, effect in effects if effect]
    lines.append("\nBy source, attempts to green:")
    lines += [f"  {one.name:<18}{_effect(one.attempts)}" for one in found.sources]
    proven = sum(one.proven for one in found.learnings)
    lines.append(
        f"\n{proven} proven at a false discovery rate of {found.false_discovery_rate:.0%}"
        f" (about {found.false_discoveries:.1f} of them by chance):"
    )
    lines += [_judged(one) for one in found.learnings]
    return "\n".join(lines)


_MEASURES = {
    "attempts": "attempts to green",
    "repeats": "repeated failures",
    "reverts": "reverts",
    "cost_usd": "cost (USD)",
    "green": "turned green",
}
_ARMS = {
    TrialArm.PACKET: "Beside the failure",
    TrialArm.PROMPT: "In the role's prompt",
    TrialArm.PLACEBO: "Replaced by a placebo",
}


def _effect(effect: Effect | None) -> str:
    if effect is None:
        return "not enough trials"
    change = f"{effect.difference:+.2f} ({effect.low:+.2f} to {effect.high:+.2f})"
    return f"{effect.delivered:.2f} instead of {effect.held_out:.2f}: {change}"


def _judged(one: Judged) -> str:
    lift = one.lift
    saved = f", saves {lift.saved:.0%}" if lift.saved is not None else ""
    head = " ".join(one.content.split())[:_SHOWN_CHARS]
    return f"  {lift.name}  {one.verdict}, {lift.delivered} delivered, {lift.held_out} held out{saved}: {head}"


def export(arguments: Arguments) -> int:
    with _local(arguments, "export") as queue_service:
        for line in queue_service.lessons.dump("" if arguments.all else _repo(arguments)):
            print_data(line)
    return 0


def _lines(path: Path) -> list[str]:
    with path.open("rb") as file:
        content = file.read(_IMPORT_MAX_BYTES + 1)
    if len(content) > _IMPORT_MAX_BYTES:
        most = f"{_IMPORT_MAX_BYTES >> 20} MiB"
        raise UsageError(f"{path} has more than {most}", hint="split it into several files, by lines")
    return split_lines(content.decode("utf-8"))


_IMPORT_MAX_BYTES = 256 << 20


def load(arguments: Arguments) -> int:
    try:
        lines = sys.stdin if str(arguments.file) == "-" else _lines(arguments.file)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {arguments.file}: {error}", hint="give a file of JSON lines") from error
    with _local(arguments, "import") as queue_service:
        kept = queue_service.lessons.load(lines, _repo(arguments))
    if arguments.json:
        print_json({"learnings": [one.id for one in kept]})
    else:
        print_data(f"imported {len(kept)} lines as {len({one.id for one in kept})} learnings")
    return 0


def off(arguments: Arguments) -> int:
    return _switch(arguments, on=False)


def on(arguments: Arguments) -> int:
    return _switch(arguments, on=True)


def _switch(arguments: Arguments, *, on: bool) -> int:
    """Write `learnings.on` into ratchet.toml, so that every worker of this repository sees it."""
    from ratchet import config  # noqa: PLC0415 — slow to import

    folder = repository_root(arguments.repo)
    file = folder / config.FILE
    before = file.read_text("utf-8") if file.exists() else ""
    config.load(folder)  # a file that is wrong is reported, not changed
    after = _with_switch(before, on=on)
    if after != before:
        file.write_text(after, "utf-8")
    state = "delivered again" if on else "no longer delivered; they are still recorded, and found by `learn search`"
    print_json({"on": on}) if arguments.json else print_data(f"learnings are {state} ({file.name}: learnings.on)")
    return 0


def _with_switch(text: str, *, on: bool) -> str:
    line = f"on = {'true' if on else 'false'}"
    section = re.search(r"(?m)^\[learnings\][^\n]*\n((?:(?!\[).*\n?)*)", text)
    if section is None:
        return f"{text.rstrip()}\n\n[learnings]\n{line}\n".lstrip()
    body = re.sub(r"(?m)^on\s*=.*$", line, section[1], count=1)
    body = body if re.search(r"(?m)^on\s*=", section[1]) else f"{line}\n{body}"
    return text[: section.start(1)] + body + text[section.end(1) :]


# --- helpers ----------------------------------------------------------------------------------------------------


def _request(kind: type[T], /, **given: object) -> T:
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"cannot take this: {error}", hint="shorten the text, and leave out NUL characters") from error


def _repo(arguments: Arguments) -> str:
    return str(repository_root(arguments.repo))


@contextmanager
def _local(arguments: Arguments, verb: str) -> Iterator[StoreQueueService]:
    if is_remote(arguments):
        raise UsageError(f"`learn {verb}` works on a store, not on a server", hint="run it where the store is")
    queue_service = open_local_queue(arguments)
    try:
        yield queue_service
    finally:
        queue_service.close()


def _print_list(found: api.LearningList, arguments: Arguments) -> None:
    if arguments.json:
        print_json(found)
    elif not found.learnings:
        print_note("no learnings found")
    else:
        for one in found.learnings:
            _print_one(one, arguments)
    if found.lexical_only:
        print_note(f"note: only words were searched: {found.lexical_only}")


def _print_one(one: Learning, arguments: Arguments) -> None:
    if arguments.json:
        print_json(one)
        return
    first = " ".join(one.content.split())
    text = first if len(first) <= _SHOWN_CHARS else f"{first[:_SHOWN_CHARS]}…"
    effect = f", saves {one.lift:.0%}" if one.lift is not None else ""
    print_data(hanging(f"{one.id}  {one.kind}, seen {one.seen}{effect}: {text}", sys.stdout, indent=4))


def _filters(*, limit: int) -> list[click.Parameter]:
    return [
        flag("--all", help="of all repositories"),
        option("--spec", default="", metavar="PART", help="whose spec has this part in its name"),
        option("--tag", default="", help="with this tag"),
        option("--limit", type=NumberBetween(1, 500), default=limit, metavar="N", help=f"at most N (default: {limit})"),
        *server_options(),
    ]


_ID = ("learning", "id of the learning, as `learn list` prints it")
VERBS = (
    CliCommand(
        "add",
        "store a lesson for this repository",
        add,
        argument("content", metavar="TEXT", help="one fact; - reads it from stdin"),
        option("--tag", multiple=True, metavar="TAG", help="a word to find it by (repeatable)"),
        option("--spec", default="", metavar="NAME", help="the spec it belongs to"),
        flag("--dead-end", help="the lesson names something that does not work"),
        flag("--everywhere", help="it applies to all repositories"),
        *server_options(),
    ),
    CliCommand(
        "search",
        "find learnings by words and meaning",
        search,
        argument("query", nargs=-1, required=True, metavar="TEXT...", help="words, or an error message"),
        *_filters(limit=10),
    ),
    CliCommand(
        "list",
        "list learnings, newest first",
        list_all,
        flag("--retired", help="only retired ones"),
        *_filters(limit=50),
    ),
    CliCommand(
        "show",
        "show a learning and where it comes from",
        show,
        argument(_ID[0], metavar="ID", help=_ID[1]),
        *server_options(),
    ),
    CliCommand(
        "retire",
        "stop delivering a learning; it is kept with the reason",
        retire,
        argument(_ID[0], metavar="ID", help=_ID[1]),
        option("--why", default="", metavar="TEXT", help="the reason"),
        *server_options(),
    ),
    CliCommand(
        "report",
        "show what learnings save, compared with being held out",
        report,
        flag("--all", help="of all repositories"),
        *server_options(),
    ),
    CliCommand(
        "export",
        "print the learnings of this repository as JSON lines",
        export,
        flag("--all", help="of all repositories"),
        *server_options(),
    ),
    CliCommand(
        "import",
        "store learnings from JSON lines",
        load,
        argument("file", type=PATH, metavar="FILE", help="the file; - reads stdin"),
        *server_options(),
    ),
    CliCommand("off", "deliver no learnings to agents in this repository", off),
    CliCommand("on", "deliver learnings to agents in this repository again", on),
)
_HELP = "store, find and retire what earlier work taught"
COMMANDS = (
    click.Group(
        "learn",
        commands=VERBS,
        short_help=_HELP,
        help=f"{_HELP.capitalize()}.",
        subcommand_metavar="COMMAND [ARGS]...",
    ),
)
