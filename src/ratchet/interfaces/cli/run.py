"""Commands that start or stop a run: run, resume, abort, demo."""

from __future__ import annotations

import asyncio
import getpass
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from ratchet import config
from ratchet.agents.protocol import absolute_spec
from ratchet.app.runs import RunService, sealed_settings
from ratchet.core.item import ParkReason, spec_title
from ratchet.core.lease import Lease
from ratchet.core.state import RunState, RunStatus
from ratchet.engine.run_setup import unpriced_agents
from ratchet.engine.workflow_registry import open_workflow
from ratchet.errors import RatchetError, UsageError
from ratchet.interfaces.cli import demo
from ratchet.interfaces.cli.common import (
    PATH,
    Arguments,
    CliCommand,
    NumberBetween,
    flag,
    open_runs,
    open_runs_of,
    option,
    print_data,
    print_json,
    print_note,
    run_argument,
    run_async,
    spec_file,
    spec_params,
    spec_text,
    verbosity,
)
from ratchet.interfaces.cli.dry_run import plan_run, show_plan
from ratchet.interfaces.terminal.colour import painter
from ratchet.interfaces.terminal.live_view import LiveView, stderr_or_stdout
from ratchet.interfaces.terminal.narrative import how_to_go_on
from ratchet.workspace.git import repository
from ratchet.workspace.git.command import git

EX_TEMPFAIL = 75


def run(arguments: Arguments) -> int:
    root = repository.find_repository(arguments.repo.absolute()).root
    sealed = sealed_settings(spec_file(arguments.spec), arguments.sealed, root)
    given = [*agent_setting(arguments.agent), *cost_settings(arguments.max_cost), *sealed]
    settings = [*arguments.set, *given]
    with open_runs(arguments, given) as service:
        repo, text = service.repo, spec_text(arguments.spec, arguments.description)
        if arguments.dry_run:
            return show_plan(plan_run(service, spec_title(text), arguments.workflow), arguments)
        if unknown := unpriced_agents(open_workflow(arguments.workflow), service.config):
            print_note(f"note: the cost of {', '.join(unknown)} is not known, so budgets count its tokens; "
                       'with a price for its model they count money: `ratchet config explain prices`')  # fmt: skip
        file = arguments.spec if arguments.spec and str(arguments.spec) != "-" else None
        item = service.new_item(
            text, name=file.name if file else "description", workflow=arguments.workflow, settings=settings,
            metadata=service.spec_metadata(file) if file else {},
        )  # fmt: skip
        lease = service.start(item)  # of the item that is open already if it has the same spec
        if repo.dirty and service.store.item(lease.item).base_commit == repo.head:
            print_note(f"note: uncommitted changes are not included; the run starts from commit {repo.head[:10]}")
        return drive_new_run(service, lease, arguments)


def resume(arguments: Arguments) -> int:
    """Continue a run with its original settings; flags given now override them."""
    opened, run = open_runs_of(arguments, arguments.run)
    with opened as service:
        row = service.find_run(run)
        if row.status is not RunStatus.RUNNING:
            service.remove_finished_workspaces()
            print_note(f"{row.run} is already {row.status}: nothing to do")
            if arguments.json:
                print_json(_result(service.history(row.run).state))
            return 0
        item = service.store.item(row.item)
        if arguments.answer:
            service.store.answer(row.item, arguments.answer, by=getpass.getuser())
    arguments.repo = service.repo.root
    with open_runs(arguments, [*item.settings, f"store={service.store_address}"]) as service:
        return drive_run(service, service.claim(row.item), arguments)


def agent_setting(agent: str | None) -> list[str]:
    return [f"agent={absolute_spec(agent)}"] if agent else []


def cost_settings(max_cost: float | None) -> list[str]:
    """Return the settings of --max-cost: the budget of the item, and no more than that for one call."""
    return (
        [] if max_cost is None else [f"budget.item.cost_usd={max_cost}", f"budget.step.cost_usd={min(5.0, max_cost)}"]
    )


def drive_new_run(service: RunService, lease: Lease, arguments: Arguments) -> int:
    """Drive the run of an item that this command added; a run that is refused before its first step is withdrawn."""
    try:
        return drive_run(service, lease, arguments)
    except RatchetError:
        service.withdraw(lease.item)
        raise


def drive_run(service: RunService, lease: Lease, arguments: Arguments) -> int:
    live = LiveView(stderr_or_stdout(as_json=arguments.json), quiet=verbosity.quiet)
    try:
        state = run_async(_drive_with_retries(service, lease, live, again=arguments.retry))
    except (KeyboardInterrupt, asyncio.CancelledError):
        live.close()
        print_note(f"interrupted; continue with: ratchet resume {lease.run}")
        return 130
    finally:
        live.close()
    if arguments.json:
        print_json(_result(state))
    elif state.parked or not verbosity.quiet:
        _print_next(state)
    return _exit_code(state)


async def _drive_with_retries(service: RunService, lease: Lease, live: LiveView, *, again: bool) -> RunState:
    """Work until the run ends, or with `again` also through every retry after its delay."""
    if not again:
        return await service.work(lease, watch=live, on_agent_event=live.on_agent_event)
    while True:
        state = await service.work(
            lease, watch=live, on_agent_event=live.on_agent_event, retry_s=service.config.worker.retry_s
        )
        if state.final or state.parked:
            return state
        due = service.store.item_row(lease.item).not_before
        wait_s = (datetime.fromisoformat(due) - datetime.now(UTC)).total_seconds() if due else 0.0
        await asyncio.sleep(max(0.0, wait_s))
        lease = service.claim(lease.item)


def _exit_code(state: RunState) -> int:
    if state.parked:
        return EX_TEMPFAIL if state.parked.reason is ParkReason.QUOTA else 1
    return 0 if state.status is RunStatus.COMPLETED else 1


def _print_next(state: RunState) -> None:
    if state.parked:
        print_data(f"\n{how_to_go_on(state)}")
    elif state.started:
        print_data(f"\nTimeline: ratchet show {state.run}")
        if state.commits:
            print_data(f"Verify:   ratchet verify {state.run}")
            print_data(f"Diff:     git diff {state.started.base_commit[:10]}..{state.started.branch}")


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
    opened, run = open_runs_of(arguments, arguments.run)
    with opened as service:
        row = service.find_run(run)
        over = service.abort(row.run, by=getpass.getuser())
    if arguments.json:
        print_json({"run": row.run, "aborted": over})
    else:
        print_data(f"{row.run} aborted" if over else f"{row.run}: its worker stops within seconds")
    return 0


def run_demo(arguments: Arguments) -> int:
    """Run the demo: a real project, real git, real tests; only the agent is scripted."""
    folder: Path | None = arguments.into
    if folder and folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty", hint="give a folder that does not exist yet")
    # Installed pytest plugins are not needed and slow the demo down.
    os.environ.setdefault("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    place = demo.create_project(folder)
    repo = repository.find_repository(place)
    loaded = config.load(repo.root, flags=[*demo.settings(place), *arguments.set])
    if arguments.web:
        return _demo_on_the_web(arguments, place)
    with RunService(repo, loaded.config) as service:
        if not arguments.json:
            print_data(f"Created a small project in {place}. Its spec:\n")
            print_data("\n".join(f"  {line}" for line in (place / demo.SPEC).read_text().splitlines()) + "\n")
        item = service.add(place / demo.SPEC)
        lease = service.claim(item.id)
        live = LiveView(stderr_or_stdout(as_json=arguments.json), quiet=verbosity.quiet)
        state = run_async(service.work(lease, watch=live, on_agent_event=live.on_agent_event))
        live.close()
        if arguments.json:
            print_json(_result(state))
        else:
            print_data(
                "\n" + demo.render_demo_summary(service.history(lease.run), place, painter(colour=sys.stdout.isatty()))
            )
    return _exit_code(state)


def _demo_on_the_web(arguments: Arguments, place: Path) -> int:
    """Serve the pages of a factory that works on the demo, slowly enough to watch, until interrupted."""
    from ratchet.interfaces.cli.serve import serve  # noqa: PLC0415 — the server's libraries are optional

    demo.slow_down(place)
    git("commit", "--quiet", "-am", "Take time", cwd=place)
    arguments.set = [*demo.settings(place), f"store={place.parent / 'ratchet.db'}", *arguments.set]
    arguments.repo, arguments.host, arguments.port = place, "127.0.0.1", 0
    arguments.workers, arguments.token_file = 1, None
    arguments.launcher = arguments.engine = arguments.image = arguments.ray_address = None
    repo = repository.find_repository(place)
    with RunService(repo, config.load(repo.root, flags=arguments.set).config) as service:
        service.add(place / demo.SPEC)
    print_note("ratchet: open the link below and watch the board; Ctrl-C ends the demo")
    return serve(arguments)


def agent_option(help: str = "agent to use (default: `agent` in ratchet.toml)") -> click.Option:
    return option("--agent", metavar="KIND:…", help=help)


def sealed_option() -> click.Option:
    return option(
        "--sealed", type=PATH, metavar="DIR", help="folder of tests outside the repository that no agent may see"
    )


def retry_option() -> click.Option:
    return flag("--retry", help="after a failure, wait and retry (delays: worker.retry_s)")


COMMANDS = (
    CliCommand(
        "demo",
        "watch a scripted agent implement a small spec, test by test",
        run_demo,
        option("--into", type=PATH, metavar="DIR", help="folder for the project (default: a new temporary folder)"),
        flag("--web", help="serve the web pages and run the demo slowly enough to watch there"),
    ),
    CliCommand(
        "run",
        "implement a spec, or continue its interrupted run",
        run,
        *spec_params(),
        agent_option("agent to use: claude, codex:MODEL, command:PROGRAM ARGS, scripted:FILE, …"),
        option(
            "--workflow", default="tdd", metavar="NAME", help="tdd (default), build, loop, or a workflow from a plugin"
        ),
        option("--max-cost", type=NumberBetween(0.01, 1e6, float), metavar="USD", help="stop when this much is spent"),
        flag("--dry-run", help="print what would happen and what it may cost, and start nothing"),
        sealed_option(),
        retry_option(),
    ),
    CliCommand(
        "resume",
        "continue an interrupted or parked run",
        resume,
        run_argument(),
        retry_option(),
        option("--answer", metavar="TEXT", default="", help="answer the question that the run is parked for"),
    ),
    CliCommand("abort", "stop a run permanently; its commits stay on the branch", abort, run_argument()),
)
