"""Commands that make a run go: run, resume, abort, demo."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ratchet import config, repository
from ratchet.agents import settled
from ratchet.core.item import ParkReason
from ratchet.core.lease import Lease
from ratchet.core.state import RunState, RunStatus
from ratchet.errors import UsageError
from ratchet.factory import Factory
from ratchet.surfaces import demo
from ratchet.surfaces.cli.common import Arguments, Command, open_factory, run_argument, say, show, show_json, wait_for
from ratchet.surfaces.live import Live, stderr_or_stdout
from ratchet.surfaces.paint import painter

EX_TEMPFAIL = 75


def run(arguments: Arguments) -> int:
    agent = [f"agent={settled(arguments.agent)}"] if arguments.agent else []
    settings = [*arguments.set, *agent]
    with open_factory(arguments, agent) as factory:
        repo = factory.repo
        item = factory.add(arguments.spec, workflow=arguments.workflow, settings=settings)
        if repo.dirty and item.base_commit == repo.head:
            say(f"note: uncommitted changes are left out; the run starts from commit {repo.head[:10]}")
        return carry(factory, factory.claim(item.id), arguments)


def resume(arguments: Arguments) -> int:
    """Under the settings the run was asked with; flags given now win."""
    with open_factory(arguments) as factory:
        row = factory.find_run(arguments.run)
        if row.status is not RunStatus.RUNNING:
            factory.tidy()
            say(f"{row.run} is {row.status} already: nothing is left to do")
            if arguments.json:
                show_json(_result(factory.story(row.run).state))
            return 0
        item = factory.store.item(row.item)
    with open_factory(arguments, item.settings) as factory:
        return carry(factory, factory.claim(row.item), arguments)


def carry(factory: Factory, lease: Lease, arguments: Arguments) -> int:
    live = Live(stderr_or_stdout(as_json=arguments.json))
    try:
        state = wait_for(_work(factory, lease, live, again=arguments.retry))
    except (KeyboardInterrupt, asyncio.CancelledError):
        live.close()
        say(f"interrupted; nothing is lost: ratchet resume {lease.run}")
        return 130
    finally:
        live.close()
    if arguments.json:
        show_json(_result(state))
    else:
        _say_next(state)
    return _exit_code(state)


async def _work(factory: Factory, lease: Lease, live: Live, *, again: bool) -> RunState:
    """To the first verdict; `again`, through every retry, each after its wait."""
    if not again:
        return await factory.work(lease, watch=live, tell=live.tell)
    while True:
        state = await factory.work(lease, watch=live, tell=live.tell, retry_s=factory.config.worker.retry_s)
        if state.final or state.parked:
            return state
        due = factory.store.get(lease.item).not_before
        wait_s = (datetime.fromisoformat(due) - datetime.now(UTC)).total_seconds() if due else 0.0
        await asyncio.sleep(max(0.0, wait_s))
        lease = factory.claim(lease.item)


def _exit_code(state: RunState) -> int:
    if state.parked:
        return EX_TEMPFAIL if state.parked.reason is ParkReason.QUOTA else 1
    return 0 if state.status is RunStatus.COMPLETED else 1


def _say_next(state: RunState) -> None:
    if state.parked:
        show(f"\nContinue with: ratchet resume {state.run}")
    elif state.started:
        show(f"\nThe story: ratchet show {state.run}")
        if state.commits:
            show(f"The proof: ratchet verify {state.run}")
            show(f"The change: git diff {state.started.base_commit[:10]}..{state.started.branch}")


def _result(state: RunState) -> dict[str, object]:
    return {
        "run": state.run,
        "status": state.status,
        "phase": state.phase,
        "branch": state.started.branch if state.started else "",
        "base_commit": state.started.base_commit if state.started else "",
        "head": state.head,
        "commits": [{"commit": k.commit, "subject": k.subject, "tests": k.tests} for k in state.commits],
        "iterations": state.iteration - 1,
        "reverts": state.reverts,
        "refusals": state.refusals,
        "usage": msgspec.to_builtins(state.usage),
        "parked": msgspec.to_builtins(state.parked) if state.parked else None,
        "failure": state.failure,
        "detail": state.detail,
    }


def abort(arguments: Arguments) -> int:
    with open_factory(arguments) as factory:
        row = factory.find_run(arguments.run)
        over = factory.abort(row.run, by=getpass.getuser())
    if arguments.json:
        show_json({"run": row.run, "aborted": over})
    else:
        show(f"{row.run} is aborted" if over else f"{row.run}: its worker was told to stop and will within seconds")
    return 0


def run_demo(arguments: Arguments) -> int:
    """The whole of it: a real project, real git, real tests; only the model is scripted."""
    folder: Path | None = arguments.into
    if folder and folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty", hint="name a folder that does not exist yet")
    # The demo's project needs none of the plugins that happen to be installed here, and starts faster without.
    os.environ.setdefault("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    place = demo.lay_out(folder)
    repo = repository.find(place)
    loaded = config.load(repo.root, flags=[*demo.settings(place), *arguments.set])
    with Factory(repo, loaded.config) as factory:
        if not arguments.json:
            show(f"A small real project is in {place}. Its spec:\n")
            show("\n".join(f"  {line}" for line in (place / demo.SPEC).read_text().splitlines()) + "\n")
        item = factory.add(place / demo.SPEC)
        lease = factory.claim(item.id)
        live = Live(stderr_or_stdout(as_json=arguments.json))
        state = wait_for(factory.work(lease, watch=live, tell=live.tell))
        live.close()
        if arguments.json:
            show_json(_result(state))
        else:
            show("\n" + demo.told(factory.story(lease.run), place, painter(colour=sys.stdout.isatty())))
    return _exit_code(state)


def _declare_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spec", type=Path, metavar="SPEC.md", help="what is wanted, in Markdown")
    parser.add_argument("--agent", metavar="KIND:…", help="scripted:FILE or command:PROGRAM ARGS")
    parser.add_argument("--workflow", default="tdd", metavar="NAME", help="tdd (default), build, loop or your own")
    retry_argument(parser)


def _declare_resume(parser: argparse.ArgumentParser) -> None:
    run_argument(parser)
    retry_argument(parser)


def retry_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--retry", action="store_true", help="after a failure, wait and try again (worker.retry_s)")


def _declare_demo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--into", type=Path, metavar="DIR", help="where to put the project (default: a new folder)")


COMMANDS = (
    Command(
        name="demo", help="watch one item go through the red-green ratchet", handle=run_demo, declare=_declare_demo
    ),
    Command(
        name="run",
        help="carry one spec through the workflow; the same command again continues it",
        handle=run,
        declare=_declare_run,
    ),
    Command(name="resume", help="continue a run that was cut off or parked", handle=resume, declare=_declare_resume),
    Command(
        name="abort", help="stop a run for good; what it kept stays on its branch", handle=abort, declare=run_argument
    ),
)
