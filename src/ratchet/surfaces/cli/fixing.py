"""Commands that repair and that work through lists: fix, swarm, loop."""

from __future__ import annotations

import argparse
from pathlib import Path

from ratchet.agents import settled
from ratchet.checks.log import PLAIN_LOG, read_end, read_log
from ratchet.core.compare import failing
from ratchet.core.packet import packet
from ratchet.core.report import Report, ReportStatus
from ratchet.errors import UsageError
from ratchet.factory import Factory
from ratchet.surfaces.cli.common import Arguments, Command, open_factory, say
from ratchet.surfaces.cli.running import carry, retry_argument
from ratchet.surfaces.cli.running import run as run_spec


def fix(arguments: Arguments) -> int:
    return _repair(arguments, "fix", [])


def swarm(arguments: Arguments) -> int:
    agents = [settled(agent) for agent in arguments.agent]
    size = [f"swarm.parallel={arguments.n}"] if arguments.n else []
    mix = [f"swarm.agents={' '.join(map(_quoted, agents))}"] if len(agents) > 1 else []
    arguments.agent = agents[0] if agents else None
    return _repair(arguments, "swarm", [*size, *mix])


def loop(arguments: Arguments) -> int:
    arguments.workflow = "loop"
    return run_spec(arguments)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _repair(arguments: Arguments, workflow: str, more: list[str]) -> int:
    if arguments.path:
        if not arguments.path.is_dir():
            raise UsageError(f"{arguments.path} is not a folder", hint="name the repository, or a folder of it")
        arguments.repo = arguments.path
    report = _read(arguments.log) if arguments.log else None
    agent = [f"agent={settled(arguments.agent)}"] if arguments.agent else []
    with open_factory(arguments, [*agent, *more]) as factory:
        if factory.repo.dirty:
            say(f"note: uncommitted changes are left out; it starts from commit {factory.repo.head[:10]}")
        item = factory.ask_for(
            _spec(factory, report),
            name=workflow,
            workflow=workflow,
            settings=[*arguments.set, *agent, *more],
            metadata=_metadata(factory, arguments, report),
        )
        return carry(factory, factory.claim(item.id), arguments)


def _read(path: Path) -> Report:
    try:
        report = read_log(_content(path))
    except OSError as error:
        raise UsageError(f"the log {path} cannot be read: {error.strerror}", hint="check the path") from error
    if report.status is ReportStatus.PASSED:
        raise UsageError(f"the log {path} tells of no failure", hint="leave --log out to fix what is red here")
    return report


def _content(path: Path) -> bytes:
    """The file, or all of Allure's results in a folder."""
    files = sorted(path.glob("*-result.json")) if path.is_dir() else []
    return b"\n".join(file.read_bytes() for file in files) if files else read_end(path)


def _spec(factory: Factory, report: Report | None) -> str:
    text = f"# Fix the failing tests\n\nMake the tests of commit {factory.repo.head[:12]} pass, and break none.\n"
    if report is None:
        return text
    told = packet(report) if failing(report) else ""
    if report.runner == PLAIN_LOG:  # it was read for names alone; the rest is in its own words
        told += f"\n\n```\n{report.output[-4_000:].strip()}\n```"
    return f"{text}\n## What the log of the failed run says\n\n{told.strip()}\n"


def _metadata(factory: Factory, arguments: Arguments, report: Report | None) -> dict[str, str]:
    inside = arguments.repo.resolve().relative_to(factory.repo.root.resolve()).as_posix()
    found = {"part": "" if inside == "." else inside}
    if report:
        found["log_failures"] = ", ".join(failing(report)[:5]) or "unknown"
    return found


def _declare_repair(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path", nargs="?", type=Path, metavar="PATH", help="the repository, or a folder with tests in it"
    )
    parser.add_argument(
        "--log", type=Path, metavar="CI.log", help="the log of a failed run, in whatever format; or Allure's folder"
    )
    retry_argument(parser)


def _declare_fix(parser: argparse.ArgumentParser) -> None:
    _declare_repair(parser)
    parser.add_argument("--agent", metavar="KIND:…", help="who fixes it")


def _declare_swarm(parser: argparse.ArgumentParser) -> None:
    _declare_repair(parser)
    parser.add_argument("-n", type=int, metavar="N", help="how many attempts at once (default: 4)")
    parser.add_argument("--agent", action="append", default=[], metavar="KIND:…", help="given again: they take turns")


def _declare_loop(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spec", type=Path, metavar="SPEC.md", help="a checklist: `- [ ]` items or `### T001:` blocks")
    parser.add_argument("--agent", metavar="KIND:…", help="who does the tasks")
    retry_argument(parser)


COMMANDS = (
    Command(
        name="fix",
        help="make red tests green, here or from a log, or say what was tried",
        handle=fix,
        declare=_declare_fix,
    ),
    Command(
        name="swarm",
        help="let many attempts at red tests race; the first that is fully verified is kept",
        handle=swarm,
        declare=_declare_swarm,
    ),
    Command(
        name="loop",
        help="work through a checklist, one task at a time, each time afresh",
        handle=loop,
        declare=_declare_loop,
    ),
)
