"""Metrics in the Prometheus text format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ratchet.core.api import Metrics
from ratchet.core.metrics import TallyGroup

Answered = Mapping[tuple[str, str, int], int]

_GAUGES = {
    "completed_today": ("ratchet_runs_completed_today", "Runs completed since midnight."),
    "failed_today": ("ratchet_runs_failed_today", "Runs failed since midnight."),
    "iterations_today": ("ratchet_iterations_today", "Failing tests accepted since midnight."),
    "commits_today": ("ratchet_commits_today", "Steps kept since midnight."),
    "reverts_today": ("ratchet_reverts_today", "Steps reverted since midnight."),
    "recoveries_today": ("ratchet_recoveries_today", "Runs and steps recovered after an interruption since midnight."),
    "average_completion_s": (
        "ratchet_run_seconds_average",
        "Mean seconds from a run's start to its completion, today.",
    ),
    "success_rate": ("ratchet_run_success_ratio", "Share of completed runs among completed and failed runs, today."),
    "reverts_per_commit": ("ratchet_reverts_per_commit", "Reverted steps per kept step, today."),
    "cost_per_commit_usd": ("ratchet_cost_per_commit_usd", "Cost per kept step in US dollars, today."),
}
# Counters by repository, workflow, agent and model: name, help, and the measures with their labels and units.
_COUNTERS: tuple[tuple[str, str, tuple[tuple[str, str, float], ...]], ...] = (
    (
        "ratchet_runs_total",
        "Runs that ended, by status.",
        (("completed", 'status="completed"', 1), ("failed", 'status="failed"', 1), ("aborted", 'status="aborted"', 1)),
    ),
    ("ratchet_iterations_total", "Failing tests accepted.", (("iterations", "", 1),)),
    ("ratchet_commits_total", "Changes committed.", (("commits", "", 1),)),
    ("ratchet_commits_undone_total", "Commits that a gate took back.", (("undone", "", 1),)),
    ("ratchet_reverts_total", "Changes reverted.", (("reverts", "", 1),)),
    ("ratchet_overfitted_changes_total", "Changes that only sealed tests caught.", (("overfitted", "", 1),)),
    ("ratchet_false_done_total", "Reports of completed work that was not.", (("false_done", "", 1),)),
    ("ratchet_refused_tests_total", "Tests of agents that were refused.", (("refused_tests", "", 1),)),
    ("ratchet_greens_total", "Goals turned green.", (("greens", "", 1),)),
    ("ratchet_green_attempts_total", "Attempts that the greens took.", (("green_attempts", "", 1),)),
    ("ratchet_recoveries_total", "Runs and steps recovered after an interruption.", (("recoveries", "", 1),)),
    ("ratchet_agent_calls_total", "Calls of agents.", (("calls", "", 1),)),
    ("ratchet_agent_calls_unpriced_total", "Calls of agents whose cost is unknown.", (("unpriced_calls", "", 1),)),
    (
        "ratchet_tokens_total",
        "Tokens of agents; cached ones are part of those taken in.",
        (("tokens_in", 'kind="in"', 1), ("tokens_out", 'kind="out"', 1), ("tokens_cached", 'kind="cached"', 1)),
    ),
    ("ratchet_cost_usd_total", "Known cost in US dollars.", (("cost_microusd", "", 1e6),)),
    ("ratchet_agent_seconds_total", "Time that agents worked.", (("agent_ms", "", 1e3),)),
    ("ratchet_step_seconds_total", "Time that steps took.", (("step_ms", "", 1e3),)),
    ("ratchet_workspaces_total", "Workspaces created for runs.", (("workspaces", "", 1),)),
    ("ratchet_workspace_seconds_total", "Time it took to create them.", (("workspace_ms", "", 1e3),)),
    ("ratchet_quota_seconds_total", "Time that runs waited for quota.", (("quota_ms", "", 1e3),)),
)
TOTALS_BY = ["repo", "workflow", "agent", "model"]


def text(metrics: Metrics, totals: Sequence[TallyGroup], answered: Answered) -> bytes:
    return "".join(f"{line}\n" for line in [*_lines(metrics, answered), *_counters(totals)]).encode()


def _counters(totals: Sequence[TallyGroup]) -> Iterator[str]:
    for name, help_, parts in _COUNTERS:
        yield from _head(name, "counter", help_)
        for one in totals:
            labels = ",".join(f'{label}="{_escape(value)}"' for label, value in one.group.items())
            for measure, extra, unit in parts:
                if value := getattr(one.tally, measure):
                    yield f"{name}{{{labels}{extra and ','}{extra}}} {value / unit if unit != 1 else value}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _lines(metrics: Metrics, answered: Answered) -> Iterator[str]:
    yield from _head("ratchet_items", "gauge", "Items by status and priority.")
    for count in metrics.queue:
        yield f'ratchet_items{{status="{count.status}",priority="{count.priority}"}} {count.items}'
    yield from _head("ratchet_workers", "gauge", "Workers that hold a lease, by status.")
    yield from (f'ratchet_workers{{status="{status}"}} {n}' for status, n in sorted(metrics.workers.items()))
    yield from _head("ratchet_claimable_items", "gauge", "Items that workers could start now, by required labels.")
    for labels, n in {"": metrics.claimable, **metrics.claimable_by_labels}.items():
        yield f'ratchet_claimable_items{{labels="{labels}"}} {n}'
    for field, (name, help_) in _GAUGES.items():
        if (value := getattr(metrics, field)) is not None:
            yield from _head(name, "gauge", help_)
            yield f"{name} {value}"
    yield from _head("ratchet_spent_today", "gauge", "Spent since midnight, by kind.")
    for kind in metrics.spent_today.__struct_fields__:
        yield f'ratchet_spent_today{{kind="{kind}"}} {getattr(metrics.spent_today, kind)}'
    yield from _head("ratchet_http_requests_total", "counter", "Requests since the server started.")
    for (method, path, status), n in sorted(answered.items()):
        yield f'ratchet_http_requests_total{{method="{method}",path="{path}",status="{status}"}} {n}'


def _head(name: str, kind: str, help_: str) -> Iterator[str]:
    yield f"# HELP {name} {help_}"
    yield f"# TYPE {name} {kind}"
