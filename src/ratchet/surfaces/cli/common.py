"""What the commands share: how one is declared, how the factory is opened, how data is printed."""

from __future__ import annotations

import argparse
import math
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ratchet import config

if TYPE_CHECKING:
    from ratchet.factory import Factory

EXIT_CODES = """exit codes:
  0 yes   1 the answer is no (tests failed, run failed)   2 usage or configuration
  3 the environment cannot   75 parked by quota   130 interrupted"""

WORKERS_MAX = 512  # as `worker.count` has it

T = TypeVar("T")
Arguments = argparse.Namespace
Handle = Callable[[Arguments], int]
Declare = Callable[[argparse.ArgumentParser], None]


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One command: its name, what it is for, its arguments, and what it does."""

    name: str
    help: str
    handle: Handle
    declare: Declare = lambda _parser: None
    more: str = ""

    def add_to(self, commands: Any, common: argparse.ArgumentParser) -> None:
        made: argparse.ArgumentParser = commands.add_parser(
            self.name,
            help=self.help,
            description=f"{self.help[0].upper()}{self.help[1:]}.",
            epilog=self.more,
            parents=[common],
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.declare(made)
        made.set_defaults(handle=self.handle)


def number(least: float, most: float, kind: type[int] | type[float] = int) -> Callable[[str], float]:
    """A number on the command line that may be only so small and so large."""

    def read(text: str) -> float:
        try:
            given = kind(text)
        except ValueError:
            given = math.nan
        if not least <= given <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is no number from {least:g} to {most:g}")
        return given

    return read


def wait_for(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end; SIGTERM stops it as tidily as Ctrl-C does."""
    import asyncio  # noqa: PLC0415 — long to load, and `test` goes without

    async def interruptible() -> T:
        task = asyncio.current_task()
        assert task
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    return asyncio.run(interruptible())


def say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201 — this is where talk goes


def show(text: str) -> None:
    print(text)  # noqa: T201 — this is where data goes


def show_json(value: object) -> None:
    show(msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode())


def open_factory(arguments: Arguments, settings: Sequence[str] = ()) -> Factory:
    # Most of Ratchet hangs on the factory: a command that needs none of it starts without it.
    from ratchet import repository  # noqa: PLC0415
    from ratchet.factory import Factory  # noqa: PLC0415

    repo = repository.find(arguments.repo.absolute())
    return Factory(repo, config.load(repo.root, flags=[*settings, *arguments.set]).config)


def run_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run's id, an unambiguous part of it, or `last`")
