"""Commands that fix failing tests or work through a checklist: fix, swarm, loop."""

from __future__ import annotations

from pathlib import Path

import click

from ratchet.agents.protocol import absolute_spec
from ratchet.app.runs import RunService
from ratchet.checks.run.ci_log import PLAIN_LOG, parse_ci_log, read_log_tail
from ratchet.core.compare import failing
from ratchet.core.packet import packet
from ratchet.core.report import Report, ReportStatus
from ratchet.errors import UsageError
from ratchet.interfaces.cli.common import PATH, Arguments, CliCommand, argument, open_runs, option, print_note
from ratchet.interfaces.cli.run import agent_option, drive_new_run, retry_option
from ratchet.interfaces.cli.run import run as run_spec
from ratchet.workspace.git.uncommitted import commit_uncommitted


def fix(arguments: Arguments) -> int:
    return _repair(arguments, "fix", [])


def swarm(arguments: Arguments) -> int:
    agents = [absolute_spec(agent) for agent in arguments.agent]
    size = [f"swarm.parallel={arguments.n}"] if arguments.n else []
    mix = [f"swarm.agents={' '.join(map(_quoted, agents))}"] if len(agents) > 1 else []
    arguments.agent = agents[0] if agents else None
    return _repair(arguments, "swarm", [*size, *mix])


def loop(arguments: Arguments) -> int:
    arguments.workflow, arguments.description = "loop", ""
    arguments.max_cost, arguments.dry_run, arguments.sealed = None, False, None
    return run_spec(arguments)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _repair(arguments: Arguments, workflow: str, more: list[str]) -> int:
    if arguments.path:
        if not arguments.path.is_dir():
            raise UsageError(f"{arguments.path} is not a folder", hint="give the repository or a folder inside it")
        arguments.repo = arguments.path
    report = _read_failures(arguments.log) if arguments.log else None
    agent = [f"agent={absolute_spec(arguments.agent)}"] if arguments.agent else []
    with open_runs(arguments, [*agent, *more]) as service:
        head, base = service.repo.head, ""
        if service.repo.dirty and (base := commit_uncommitted(service.repo.root, head)) != head:
            print_note(
                f"note: your uncommitted changes are included, as commit {base[:10]}; your files are not touched"
            )
        item = service.new_item(
            _spec(base or head, report),
            name=workflow,
            workflow=workflow,
            settings=[*arguments.set, *agent, *more],
            metadata=_metadata(service, arguments, report) | ({"snapshot_of": head} if base not in ("", head) else {}),
            base=base,
        )
        return drive_new_run(service, service.start(item), arguments)


def _read_failures(path: Path) -> Report:
    try:
        report = parse_ci_log(_content(path))
    except OSError as error:
        raise UsageError(f"cannot read the log {path}: {error.strerror}", hint="check the path") from error
    if report.status is ReportStatus.PASSED:
        raise UsageError(f"the log {path} contains no failures", hint="omit --log to fix the tests that fail here")
    return report


def _content(path: Path) -> bytes:
    """Read the file, or all Allure results in a folder."""
    files = sorted(path.glob("*-result.json")) if path.is_dir() else []
    return b"\n".join(file.read_bytes() for file in files) if files else read_log_tail(path)


def _spec(base: str, report: Report | None) -> str:
    text = f"# Fix the failing tests\n\nMake the tests of commit {base[:12]} pass, and break none.\n"
    if report is None:
        return text
    failures = packet(report) if failing(report) else ""
    if report.runner == PLAIN_LOG:  # only test names were recognised: quote the end of the log too
        failures += f"\n\n```\n{report.output[-4_000:].strip()}\n```"
    return f"{text}\n## What the log of the failed run says\n\n{failures.strip()}\n"


def _metadata(service: RunService, arguments: Arguments, report: Report | None) -> dict[str, str]:
    inside = arguments.repo.resolve().relative_to(service.repo.root.resolve()).as_posix()
    found = {"part": "" if inside == "." else inside}
    if report:
        found["log_failures"] = ", ".join(failing(report)[:5]) or "unknown"
    return found


def _repair_params() -> list[click.Parameter]:
    return [
        argument(
            "path",
            required=False,
            type=PATH,
            metavar="[PATH]",
            help="repository, or a folder with tests (default: current directory)",
        ),
        option(
            "--log",
            type=PATH,
            metavar="CI.log",
            help="log of a failed CI run in any format, or a folder with Allure results",
        ),
        retry_option(),
    ]


COMMANDS = (
    CliCommand("fix", "fix failing tests, found here or in a CI log", fix, *_repair_params(), agent_option()),
    CliCommand(
        "swarm",
        "race several attempts at fixing failing tests",
        swarm,
        *_repair_params(),
        option("-n", type=int, metavar="N", help="number of parallel attempts (default: 4)"),
        option("--agent", multiple=True, metavar="KIND:…", help="agent to use; repeat to alternate between several"),
    ),
    CliCommand(
        "loop",
        "work through a checklist, one task per fresh agent session",
        loop,
        argument("spec", type=PATH, metavar="SPEC.md", help="checklist with `- [ ]` items or `### T001:` blocks"),
        agent_option(),
        retry_option(),
    ),
)
