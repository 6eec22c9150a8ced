"""Describes every configuration key: a sentence, the type, the default and an example."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

from ratchet import config

_BOUNDS = {
    "iterations": "Tests, tasks or rounds that a run may go through.",
    "attempts": "Attempt limit for one test, task or failure.",
    "audit_tries": "Attempts at writing a test that fails for the right reason.",
    "refactor_interval": "Kept steps between two refactorings; 0 never refactors.",
    "review_rounds": "Rounds of review and changes.",
    "review_tries": "Attempts at getting a readable review.",
    "spec_tries": "Attempts at updating the spec.",
    "idle": "Iterations without a finished task after which a loop is stuck.",
    "parallel": "Attempts of a swarm that run at the same time.",
    "resumes": "Times an interrupted run may be continued.",
    "steps": "Steps of any kind.",
    "cents": "What all agents of the run may cost together, in US cents.",
    "agent_s": "Seconds that all agents of the run may take together.",
    "disclosures": "Times that agents may be told a verdict of people's sealed tests.",
    "sealed": "Whether the auditor writes a sealed test beside each open one, which no implementing agent sees.",
    "agents": "Agents that the attempts use in turn; empty: the fixer's.",
    "hints": "Lines that the prompts of the attempts get in turn.",
}
_ROLE = {
    "agent": "Agent of this role; empty: the general `agent`.",
    "answer": "What the role's questions are answered with; empty: a question parks the item.",
    "env": "Environment variables that only this role may see.",
    "escalate": "Stronger agent that is asked after `escalate_after` failed attempts.",
    "escalate_after": "Failed attempts before the stronger agent is asked.",
    "fallback": "Agents to ask in turn while the role's own is overloaded.",
    "idle_s": "Seconds of silence with no tool call running after which the agent is nudged, then stopped.",
    "model": "Model of this role; empty: the agent's own default.",
    "network": "Network of this role in the sandbox; empty: `sandbox.agent_network`.",
    "prompt_tokens": "Size limit of a prompt, in tokens.",
    "repeats": "Identical calls with identical results after which the agent is interrupted.",
    "timeout_s": "Seconds for one turn.",
}
_BUDGET = {
    "cost_usd": "US dollars; 0 is no limit.",
    "tokens": "Tokens, in and out; 0 is no limit.",
    "seconds": "Seconds of agent time; 0 is no limit.",
    "iterations": "Iterations; 0 is no limit.",
}
_SCOPES = {
    "step": "One agent call",
    "item": "An item in total",
    "repo": "One repository in a day",
    "day": "Everything in a day",
}
_KEYS = {
    "agent": "Agent for every role: `claude`, `codex:MODEL`, `command:PROGRAM ARGS`, … (`ratchet agents` lists them).",
    "aging_s": "Seconds of waiting that are worth one level of priority; 0 switches aging off.",
    "env": "Environment variables that agents may see besides the usual ones.",
    "gates": "Gates to add or change, each a table with a `name` (see below).",
    "history_tokens": "How much of what earlier roles answered goes into a prompt, in tokens.",
    "lease_s": "Seconds after which a worker that does not report has lost its run.",
    "limits.awaiting_review": "Items that may wait for review before no more are claimed; 0 is no limit.",
    "limits.cooldown_s": "Seconds between two claims.",
    "limits.daily_iterations": "Iterations until local midnight; 0 is no limit.",
    "limits.per_repo": "Runs of one repository at the same time; 0 is no limit.",
    "limits.workers": "Runs at the same time on all machines; 0 is no limit.",
    "notify.command": "Command that `ratchet serve` runs for new inbox entries, given as JSON on its standard input.",
    "notify.webhook": "Address that `ratchet serve` posts new inbox entries to; empty: the variable RATCHET_WEBHOOK.",
    "prices": "Price of a million tokens by model, for agents that report no cost; overrides the built-in table.",
    "prompts": "Folder of the project's own prompt templates.",
    "quota.concurrency": "Calls of one provider at the same time on this machine; 0 is no limit.",
    "quota.quiet_s": "Seconds without a refusal before one more concurrent call is allowed.",
    "quota.resume": "What happens when a provider's limit is reached: resume by itself, ask a person, or never.",
    "retention.archive_days": "Days after which a finished run is archived into one file; 0 never archives.",
    "retention.logs_days": "Days after which logs and prompts of finished runs are removed; 0 keeps them.",
    "sandbox.agent_network": "Whether agents have network.",
    "sandbox.cpus": "CPUs for one step; 0 is no limit.",
    "sandbox.gate_network": "Whether gates have network.",
    "sandbox.hide": "Paths that are hidden from every step.",
    "sandbox.max_processes": "Processes of one step; 0 is no limit.",
    "sandbox.memory_mb": "Memory of one step in megabytes; 0 is no limit.",
    "sandbox.mode": "`auto` uses bubblewrap where it works, `on` requires it, `off` goes without.",
    "sandbox.share": "Paths that agents may write besides the workspace: their own state.",
    "sandbox.show": "Files, with their folders, and folders that every step may read unless they are hidden.",
    "sandbox.test_network": "Whether tests have network.",
    "store": "Database path or `postgresql://` address; empty: one store of the user for all repositories.",
    "test.command": "Command that runs all tests; empty: detected.",
    "test.env": "Variables that tests of runs and of test workspaces may see besides the usual ones.",
    "test.paths": "Globs of test files, which only the auditor may write; empty: the runner's usual ones.",
    "test.report": "File or glob of the report that `test.command` writes.",
    "test.runner": "Runner whose output `test.command` prints; empty: recognised from the command.",
    "test.silence_s": "Seconds without output after which the tests are stopped.",
    "test.timeout_s": "Seconds that all tests may take.",
    "watch.desktop": "Whether `ratchet watch` shows a desktop notification when the result changes.",
    "watch.notify": "Command that `ratchet watch` runs when the result changes.",
    "watch.on": "What starts a run of `ratchet watch`.",
    "watch.warm": "Whether an interpreter is kept prepared for pytest.",
    "worker.count": "Items that one worker process works on in parallel.",
    "worker.retry_s": "Seconds before each retry of a failed item; after the last one it has failed.",
    "worker.stop_s": "Seconds that a worker has to finish its step when it is asked to stop.",
    "workspace.bases": "Folder of prepared checkouts; empty: the user's cache.",
    "workspace.logins": "Whether set-up commands get logins of package registries; auto: in people's checkouts only.",
    "workspace.carry": "Ignored folders and files that workspaces get from the developer's tree.",
    "containers.cpus": "Processors that a container may use; 0 is no limit.",
    "containers.engine":
    "Address of the container engine, as `unix:///path`; empty: `DOCKER_HOST` or the usual sockets.",
    "containers.env": "Variables that workers in containers get from here, such as keys of agents.",
    "containers.image":
    "Image with `ratchet`, git, the agents and what tests need; `ratchet image --build` makes one.",
    "containers.max_processes": "Processes that a container may have; 0 is no limit.",
    "containers.memory_mb": "Memory of a container in megabytes, with its `/tmp`; 0 is no limit.",
    "containers.mounts": "Folders that a container sees, as `SOURCE:TARGET[:ro]`.",
    "containers.network": "Network of the containers; empty: the engine's default.",
    "containers.tmp_mb": "Size of a container's `/tmp` in megabytes; 0 is no limit.",
    "containers.user": "User in the container; empty: you, or no account if you are root.",
    "example_keys": "Files whose keys and tokens are made up; a commit with one in another file is refused.",
    "learnings.embedder":
    "How learnings are found by meaning: the local model if installed, off, or the address of an endpoint.",
    "learnings.held_out": "Share of learnings that is not delivered, so that the effect of the others is known.",
    "learnings.key_env": "Variable that has the key of the embedder's endpoint.",
    "learnings.model": "Model of the embedder's endpoint.",
    "learnings.most": "Learnings that are delivered with one failure.",
    "learnings.on": "Whether agents get learnings.",
    "learnings.placebo": "Share of learnings that is replaced by an unrelated one, so that their effect is known.",
    "learnings.prompt": "Share of learnings that goes into the role's prompt instead.",
    "learnings.timeout_s": "Seconds that the embedder's endpoint may take.",
    "learnings.trials": "Deliveries after which a learning without effect retires.",
    "ray.address": "Address of the Ray cluster, as `HOST:6379`; empty: the cluster to which this machine belongs.",
    "ray.cpus": "Processors that a run needs of a node.",
    "ray.env": "Variables that workers on the cluster get from here, such as keys of agents.",
    "ray.memory_mb": "Memory that a run needs of a node, in megabytes.",
    "ray.resources": "Other resources that a run needs of a node, as `NAME=AMOUNT`.",
    "redis": "Address of a Redis beside a PostgreSQL store; it keeps waiting workers from asking the database.",
    "sandbox.tmp_mb":
    "Size of each temporary folder in megabytes; -1: an eighth of the machine's memory, 0: no limit.",
    "sealed.dir":
    "Folder outside the repository with tests that no agent sees, laid over the tree at every judgement.",
    "sealed.land": "Whether the tests of `sealed.dir` are added to the result.",
    "server.connections_per_address": "Open connections without a token that one address may have.",
    "server.failed_token_delay_s": "Longest delay in seconds of answers to wrong tokens.",
    "server.hosts": "Names that the server is known by, besides localhost, this machine's name and all addresses.",
    "server.origins": "Web pages of other sites that may call the server.",
    "telemetry.endpoint":
    "Where traces and metrics are sent by OTLP; empty: `OTEL_EXPORTER_OTLP_ENDPOINT`, else nowhere.",
    "worker.labels": "What this worker offers; items that require other labels are left to other workers.",
    "worker.launcher": "Where workers run: `process` is this machine, `docker` containers, `ray` a Ray cluster.",
    "worker.stall_s": "Seconds without progress after which a worker is killed and replaced.",
    "workspace.keep_s": "Seconds that the workspace of a failed run is kept.",
    "workspace.kind": "Kind of workspace; `ratchet doctor` lists those that work here. `container` runs steps in "
    "`containers.image`.",
    "workspace.max_bases_mb": "Size limit of the prepared checkouts in megabytes.",
    "workspace.max_count": "Workspaces at the same time.",
    "workspace.min_free_disk_mb": "Free disk space that must remain, in megabytes.",
    "workspace.min_free_ram_mb": "Free memory that must remain, in megabytes.",
    "workspace.on": "Where the writable layer lives: RAM disk, disk, or whichever has room.",
    "workspace.root": "Folder of workspaces; empty: the user's state folder.",
    "workspace.setup": "Commands that install dependencies, run once for each change of lock files and manifests.",
}  # fmt: skip
# Where the type alone would give an example that means nothing.
_EXAMPLES = {
    "agent": "claude", "store": "postgresql://db/ratchet", "prompts": ".ratchet/prompts", "model": "gpt-5-codex",
    "escalate": "claude:claude-opus-4-5", "answer": "decide yourself and go on", "command": "npm test",
    "notify.command": "notify-send ratchet \"$RATCHET_TEXT\"", "notify.webhook": "https://chat.example.org/hooks/…",
    "report": "build/**/*.xml", "runner": "pytest", "notify": "notify-send ratchet", "kind": "overlay",
    "root": "/srv/ratchet", "bases": "/var/cache/ratchet", "paths": ["tests/**"], "setup": ["npm ci"],
    "carry": ["node_modules"], "env": ["MY_VARIABLE"], "fallback": ["codex"], "agents": ["claude", "codex"],
    "hints": ["change as little as possible"], "share": ["~/.claude"], "hide": ["~/.ssh"], "retry_s": [60, 600],
}  # fmt: skip


class KeyHelp(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    text: str
    type: str
    default: str
    example: str


def explain(key: str) -> KeyHelp:
    """Describe a key. Raises ConfigError for an unknown one, with the nearest name."""
    config.check_known(key)
    text = _sentence(key)
    hint, default = config.key_types()[key], config.default_of(key)
    return KeyHelp(key=key, text=text, type=_type(hint), default=_toml(default), example=_example(key, hint, default))


def explain_all() -> list[KeyHelp]:
    return [explain(key) for key in sorted(config.key_types())]


def _sentence(key: str) -> str:
    above, _, name = key.rpartition(".")
    if above.startswith("roles."):
        return _ROLE.get(name, "")
    if above.startswith("budget."):
        return f"{_SCOPES[above.partition('.')[2]]}: {_BUDGET[name]}"
    return _KEYS.get(key) or (_BOUNDS.get(name, "") if above in ("tdd", "build", "fix", "loop", "swarm") else "")


def _type(hint: Any) -> str:
    if get_origin(hint) is Annotated:
        inner, *limits = get_args(hint)
        meta = next((limit for limit in limits if isinstance(limit, msgspec.Meta)), msgspec.Meta())
        least = f"over {meta.gt:g}" if meta.gt is not None else f"from {meta.ge:g}" if meta.ge is not None else ""
        most = f"to {meta.le:g}" if meta.le is not None else ""
        return " ".join(word for word in (_type(inner), least, most) if word)
    if get_origin(hint) is Literal:
        return " or ".join(json.dumps(choice) for choice in get_args(hint))
    if get_origin(hint) is list:
        return f"list of {_type(get_args(hint)[0])}"
    if get_origin(hint) is dict:
        return "table"
    names = {str: "text", int: "whole number", float: "number", bool: "true or false"}
    return names.get(hint, "table")


def _toml(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _example(key: str, hint: Any, default: Any) -> str:
    name = key.rpartition(".")[2]
    if key == "gates":
        return '[[gates]] name = "lint", command = "npm run lint"'
    if key == "prices":
        return '[prices."MODEL"] in_usd = 1.25, out_usd = 10.0'
    if found := _EXAMPLES.get(key) or _EXAMPLES.get(name):
        return f"{key} = {_toml(found)}"
    if get_origin(hint) is Literal:
        return f"{key} = {_toml(next(choice for choice in get_args(hint) if choice not in ('', default)))}"
    if isinstance(default, bool):
        return f"{key} = {_toml(not default)}"
    return f"{key} = {_toml(default * 2 or 10)}" if isinstance(default, int | float) else f"{key} = {_toml(default)}"
