"""The numbers in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ratchet.core.api import Metrics

Answered = Mapping[tuple[str, str, int], int]

_GAUGES = {
    "completed_today": ("ratchet_runs_completed_today", "Runs completed since midnight."),
    "failed_today": ("ratchet_runs_failed_today", "Runs failed since midnight."),
    "iterations_today": ("ratchet_iterations_today", "Red tests accepted since midnight."),
    "commits_today": ("ratchet_commits_today", "Steps kept since midnight."),
    "reverts_today": ("ratchet_reverts_today", "Steps undone since midnight."),
    "recoveries_today": ("ratchet_recoveries_today", "Runs and steps taken up again after a loss since midnight."),
    "average_completion_s": (
        "ratchet_run_seconds_average",
        "Mean seconds from a run's start to its completion, today.",
    ),
    "success_rate": ("ratchet_run_success_ratio", "Completed of completed and failed, today."),
    "reverts_per_commit": ("ratchet_reverts_per_commit", "Steps undone for each kept one, today."),
    "cost_per_commit_usd": ("ratchet_cost_per_commit_usd", "Dollars for each kept step, today."),
}


def text(metrics: Metrics, answered: Answered) -> bytes:
    return "".join(f"{line}\n" for line in _lines(metrics, answered)).encode()


def _lines(metrics: Metrics, answered: Answered) -> Iterator[str]:
    yield from _head("ratchet_items", "gauge", "Items by status and priority.")
    for count in metrics.queue:
        yield f'ratchet_items{{status="{count.status}",priority="{count.priority}"}} {count.items}'
    yield from _head("ratchet_workers", "gauge", "Workers that hold a lease, by status.")
    yield from (f'ratchet_workers{{status="{status}"}} {n}' for status, n in sorted(metrics.workers.items()))
    for field, (name, help_) in _GAUGES.items():
        if (value := getattr(metrics, field)) is not None:
            yield from _head(name, "gauge", help_)
            yield f"{name} {value}"
    yield from _head("ratchet_spent_today", "gauge", "Spent since midnight, by kind.")
    for kind in metrics.spent_today.__struct_fields__:
        yield f'ratchet_spent_today{{kind="{kind}"}} {getattr(metrics.spent_today, kind)}'
    yield from _head("ratchet_http_requests_total", "counter", "Requests answered since the server started.")
    for (method, path, status), n in sorted(answered.items()):
        yield f'ratchet_http_requests_total{{method="{method}",path="{path}",status="{status}"}} {n}'


def _head(name: str, kind: str, help_: str) -> Iterator[str]:
    yield f"# HELP {name} {help_}"
    yield f"# TYPE {name} {kind}"
