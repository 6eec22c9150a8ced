"""What `ratchet run --dry-run` prints: what would happen, by which agents, within which bounds, at what cost."""

from __future__ import annotations

import msgspec

from ratchet.app.runs import RunService
from ratchet.config import BudgetCap
from ratchet.engine.run_setup import unpriced_agents
from ratchet.engine.workflow_registry import open_workflow
from ratchet.interfaces.cli.common import Arguments, print_data, print_json


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of a run that is not started."""

    title: str
    repo: str
    base_commit: str
    workflow: str
    agents: dict[str, str]
    tests: list[str]
    gates: list[str]
    bounds: dict[str, int]
    budget: BudgetCap
    unpriced: list[str]


def plan_run(service: RunService, title: str, workflow: str) -> RunPlan:
    service.check(workflow)
    config, found, targets = service.config, open_workflow(workflow), service.targets()
    bounds = msgspec.to_builtins(config.bounds(workflow))
    return RunPlan(
        title=title,
        repo=str(service.repo.root),
        base_commit=service.repo.head,
        workflow=workflow,
        agents={role: config.agent_for(role) for role in found.roles},
        tests=[f"{target.name}: {' '.join(target.command)}" for target in targets],
        gates=[f"{gate.name} ({gate.on_fail})" for gate in service.gates(targets)],
        bounds={name: value for name, value in bounds.items() if type(value) is int},
        budget=config.budget.item,
        unpriced=unpriced_agents(found, config),
    )


def show_plan(plan: RunPlan, arguments: Arguments) -> int:
    if arguments.json:
        print_json(plan)
        return 0
    agents = ", ".join(f"{role}: {agent}" for role, agent in plan.agents.items())
    counted = {name: value for name, value in plan.bounds.items() if name not in ("cents", "agent_s")}  # see _cost
    bounds = ", ".join(f"{value} {name.replace('_', ' ')}" for name, value in counted.items())
    rows = {
        "run": f"{plan.title} ({plan.workflow})",
        "from": f"{plan.repo} at {plan.base_commit[:10]}",
        "agents": agents,
        "tests": "; ".join(plan.tests),
        "gates": ", ".join(plan.gates) or "none",
        "bounds": bounds,
        "may cost": _cost(plan),
    }
    for name, text in rows.items():
        print_data(f"{name:<9} {text}")
    print_data("\nNothing was started. The same command without --dry-run starts it.")
    return 0


def _cost(plan: RunPlan) -> str:
    cap, own_usd = plan.budget, plan.bounds.get("cents", 0) / 100
    limits = [limit for limit in (cap.cost_usd, own_usd) if limit]
    most = f"at most ${min(limits):g}" if limits else "no money limit"
    tokens = f", {cap.tokens:,} tokens" if cap.tokens else ""
    hours = f", {cap.seconds / 3600:g} h of agent time" if cap.seconds else ""
    unknown = f"; the cost of {', '.join(plan.unpriced)} is not known: tokens count" if plan.unpriced else ""
    return f"{most}{tokens}{hours} (budget.item){unknown}"
