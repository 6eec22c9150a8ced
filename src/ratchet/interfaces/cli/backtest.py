"""The command backtest: which agent, model and workflow does best on this repository's own history."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from itertools import product

from ratchet.app.backtest.bench import Bench
from ratchet.app.backtest.export import export_tasks
from ratchet.app.backtest.mine import mine, read_issues
from ratchet.app.backtest.trials import BacktestRun, run_trials
from ratchet.core.backtest.ranking import Arm, ArmResult, Pair, Trial, TrialOutcome, compare_pairs, rank
from ratchet.core.backtest.task import LeftOut, Mined, MinedTask
from ratchet.core.receipt import format_cost
from ratchet.errors import UsageError
from ratchet.interfaces.cli.common import (
    PATH,
    Arguments,
    CliCommand,
    NumberBetween,
    flag,
    option,
    print_data,
    print_json,
    print_note,
    run_async,
)
from ratchet.interfaces.terminal.colour import Paint, Tone, painter
from ratchet.interfaces.terminal.layout import Cell, table, terminal_width
from ratchet.workspace.git import repository

_MORE = """Each --agent is tried with each --workflow and each --variant, on each task:
  ratchet backtest --mine                                  list the tasks
  ratchet backtest --agent claude --agent codex --network --budget 20
  ratchet backtest --agent codex --variant small:roles.implementer.model=o4-mini
      --variant large:roles.implementer.model=o3 --network --budget 20

An interrupted backtest continues where it was. docs/backtest.md says how to
read the table, and what keeps agents from finding the answers."""


def backtest(arguments: Arguments) -> int:
    arms = _arms(arguments)
    bench = Bench(repository.find_repository(arguments.repo.absolute()), arguments.set, network=arguments.network)
    issues = read_issues(arguments.issues) if arguments.issues else []
    mined = run_async(mine(bench, last=int(arguments.last), issues=issues, on_mined=_note_mined))
    tasks = [found for found in reversed(mined) if isinstance(found, MinedTask)]
    if arguments.export:
        export_tasks(bench, tasks, arguments.export)
        print_note(f"wrote {len(tasks)} tasks to {arguments.export}")
    if not arms:
        _show_mined(mined, as_json=arguments.json)
        return 0
    chosen = tasks[-int(arguments.tasks) :] if arguments.tasks else tasks
    with bench.alone():
        done = run_async(run_trials(bench, chosen, arms, budget_usd=arguments.budget, on_trial=_note_trial))
    _show_results(arms, done, as_json=arguments.json)
    return 1 if done.open else 0


def _arms(arguments: Arguments) -> list[Arm]:
    if not arguments.agent:
        if not (arguments.mine or arguments.export):
            raise UsageError("no agent to try", hint="give --agent claude, or list the tasks with --mine")
        return []
    if arguments.mine:
        raise UsageError("--mine lists the tasks and tries no agent", hint="leave out --mine or --agent")
    dear = [agent for agent in arguments.agent if not agent.startswith("scripted:")]
    if dear and arguments.budget is None:
        raise UsageError(f"{', '.join(dear)} may cost money", hint="give a limit in US dollars: --budget 20")
    variants = [_variant(text) for text in arguments.variant] or [("", [])]
    made = product(arguments.agent, arguments.workflow or ["tdd"], variants)
    return [
        Arm(agent=agent, workflow=workflow, variant=name, settings=settings)
        for agent, workflow, (name, settings) in made
    ]


def _variant(text: str) -> tuple[str, list[str]]:
    name, _, settings = text.partition(":")
    if not name.strip() or "=" in name:
        raise UsageError(f"--variant {text} has no name", hint="write --variant NAME:KEY=VALUE,KEY=VALUE")
    return name.strip(), [setting.strip() for setting in settings.split(",") if setting.strip()]


# --- what is printed --------------------------------------------------------------------------------------------------


def _note_mined(found: Mined) -> None:
    what = "task" if isinstance(found, MinedTask) else found.reason
    print_note(f"{found.commit[:10]}  {what}: {found.title[:60]}")


def _note_trial(task: MinedTask, arm: Arm, done: Trial | str) -> None:
    what = f"not finished: {done}" if isinstance(done, str) else f"{done.outcome} in {done.seconds:.0f} s"
    print_note(f"{task.commit[:10]}  {arm.label}: {what}")


def _show_mined(mined: Sequence[Mined], *, as_json: bool) -> None:
    if as_json:
        print_json(mined)
        return
    paint = painter(colour=sys.stdout.isatty())
    tasks = [found for found in mined if isinstance(found, MinedTask)]
    left_out = Counter(found.reason for found in mined if isinstance(found, LeftOut))
    rows = [
        [
            (Tone.PLAIN, task.commit[:10]),
            (Tone.PLAIN, str(len(task.fail_to_pass))),
            (Tone.PLAIN, str(len(task.pass_to_pass))),
            (Tone.PLAIN, task.title[:80]),
        ]
        for task in tasks
    ]
    print_data(table(("COMMIT", ">RED", ">GREEN", "TITLE"), rows, paint, width=terminal_width(sys.stdout)))
    reasons = "".join(f"\n  {count:4} {reason}" for reason, count in left_out.most_common())
    print_data(f"\n{len(tasks)} tasks in {len(mined)} commits; left out:{reasons or ' none'}")


def _show_results(arms: Sequence[Arm], done: BacktestRun, *, as_json: bool) -> None:
    results = rank(arms, done.trials)
    pairs = compare_pairs(results, done.trials)
    if as_json:
        print_json({"arms": results, "pairs": pairs, "trials": done.trials, "open": done.open})
        return
    paint = painter(colour=sys.stdout.isatty())
    print_data(_result_table(results, paint))
    if pairs:
        print_data(f"\n{_pair_table(pairs, paint)}")
    if done.open:
        whys = "".join(f"\n  {count:4} {why}" for why, count in Counter(done.open.values()).most_common())
        print_data(f"\n{len(done.open)} trials are not done; the same command continues:{whys}")


_SHOWN = (
    TrialOutcome.SOLVED,
    TrialOutcome.PARTLY,
    TrialOutcome.BROKE_OTHERS,
    TrialOutcome.CHEATED,
    TrialOutcome.FAILED,
)


def _result_table(results: Sequence[ArmResult], paint: Paint) -> str:
    heads = (
        "AGENT", "MODEL", "WORKFLOW", "VARIANT", ">TASKS", ">SOLVED", "95 % INTERVAL", ">PARTLY", ">BROKE", ">CHEATED",
        ">FAILED", ">ATTEMPTS", ">TIME", ">TOKENS", "COST",
    )  # fmt: skip
    return table(heads, [_result_row(found) for found in results], paint, width=terminal_width(sys.stdout))


def _result_row(found: ArmResult) -> list[Cell]:
    solved, *others = [str(found.outcomes[outcome]) for outcome in _SHOWN]
    texts = [
        found.arm.agent.partition(":")[0] if found.arm.model else found.arm.agent,
        found.arm.model.rpartition("/")[2] or "default",
        found.arm.workflow,
        found.arm.variant or "-",
        str(found.trials),
        f"{solved} ({found.rate:.0%})",
        f"{found.low:.0%} to {found.high:.0%}",
        *others,
        f"{found.attempts / found.trials:.1f}" if found.trials else "-",
        f"{found.seconds / found.trials:.0f} s" if found.trials else "-",
        f"{found.usage.tokens_in + found.usage.tokens_out:,}",
        format_cost(found.usage, priced=found.priced),
    ]
    return [(Tone.PLAIN, text) for text in texts]


def _pair_table(pairs: Sequence[Pair], paint: Paint) -> str:
    heads = ("PAIR", ">TASKS", ">ONLY FIRST", ">ONLY SECOND", ">DIFFERENCE", "95 % INTERVAL", "P")
    rows = []
    for pair in pairs:
        texts = [
            f"{pair.first} / {pair.second}",
            str(pair.tasks),
            str(pair.only_first),
            str(pair.only_second),
            f"{pair.difference:+.0%}",
            f"{pair.low:+.0%} to {pair.high:+.0%}",
            f"{pair.p:.3f}",
        ]
        rows.append([(Tone.PLAIN, text) for text in texts])
    return table(heads, rows, paint, width=terminal_width(sys.stdout))


COMMANDS = (
    CliCommand(
        "backtest",
        "compare agents on tasks from this repository's own history",
        backtest,
        option("--agent", multiple=True, metavar="KIND:…", help="agent to try (repeatable)"),
        option("--workflow", multiple=True, metavar="NAME", help="workflow to try (repeatable; default: tdd)"),
        option(
            "--variant",
            multiple=True,
            metavar="NAME:KEY=VALUE,…",
            help="settings to try (repeatable), such as a model or learnings",
        ),
        option(
            "--last",
            type=NumberBetween(1, 100_000),
            default=50,
            metavar="N",
            help="how many commits to mine (default: 50)",
        ),
        option("--tasks", type=NumberBetween(1, 100_000), metavar="N", help="try the newest N tasks only"),
        option(
            "--issues", type=PATH, metavar="FILE", help="JSON list of issues (number, title, body) that commits name"
        ),
        option(
            "--budget",
            type=NumberBetween(0.01, 1e6, float),
            metavar="USD",
            help="stop when all trials together cost this much; required for agents that cost money",
        ),
        flag("--network", help="let agents reach the network, which a model elsewhere needs"),
        flag("--mine", help="list the tasks, and why other commits are none; try no agent"),
        option("--export", type=PATH, metavar="FILE", help="write the tasks in the form of SWE-bench, one a line"),
        more=_MORE,
    ),
)
