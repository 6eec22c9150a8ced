"""One frozen Config, parsed once: defaults, `ratchet.toml`, `RATCHET_*`, flags, in rising order."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_origin, get_type_hints

import msgspec

from ratchet.core.gates import Gate
from ratchet.core.policy import Count, Policy
from ratchet.core.queue import AGING_S, Limits
from ratchet.core.receipt import Price
from ratchet.errors import ConfigError

FILE = "ratchet.toml"
Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Tests(_Section, frozen=True, kw_only=True):
    """`command` runs all tests (detected when empty), read as `runner` (told from the command when empty), or by the
    `report` it leaves: a path or glob of files in JUnit, TRX, TAP, CTRF or any other format that is known;
    `paths` are the globs only the auditor may write; `env` names variables that the tests of runs and of test
    workspaces may see besides the usual ones; `timeout_s` is how long a run may take, `silence_s` how long it may
    say nothing."""

    command: str = ""
    runner: str = ""
    report: str = ""
    paths: list[str] = []
    env: list[str] = []
    timeout_s: Seconds = 600.0
    silence_s: Seconds = 600.0


class WorkspaceConfig(_Section, frozen=True, kw_only=True):
    """`kind` and `on` force how and where (`ratchet doctor` lists the kinds); `root` is where workspaces live and
    `bases` where prepared checkouts do, the user's state and cache folders when empty. `setup` are commands run once
    for each change of lock files and manifests; `carry` are ignored folders and files taken along from the developer's
    tree, and from each part of it that has a manifest. A failed run's workspace stays for `keep_s`."""

    kind: str = "auto"
    on: Literal["auto", "ram", "disk"] = "auto"
    root: str = ""
    bases: str = ""
    setup: list[str] = []
    # Not .venv: its programs and editable installs name the developer's folder, and would test the wrong code.
    carry: list[str] = msgspec.field(default_factory=lambda: ["node_modules", "vendor", "deps"])
    keep_s: Annotated[float, msgspec.Meta(ge=0)] = 86_400.0
    max_count: Annotated[int, msgspec.Meta(ge=1)] = 64
    min_free_ram_mb: Annotated[int, msgspec.Meta(ge=0)] = 512
    min_free_disk_mb: Annotated[int, msgspec.Meta(ge=0)] = 1024
    max_bases_mb: Annotated[int, msgspec.Meta(ge=0)] = 20_480


class WatchConfig(_Section, frozen=True, kw_only=True):
    """`on` is what starts a run; `notify` is a command for when the colour changes, `desktop` a notification on the
    screen; `warm` keeps an interpreter prepared, where the runner is pytest."""

    on: Literal["save", "stage", "commit", "manual"] = "save"
    notify: str = ""
    desktop: bool = False
    warm: bool = True


_SECRETS = ["~/.ssh", "~/.gnupg", "~/.aws", "~/.azure", "~/.kube", "~/.docker", "~/.config/gh", "~/.config/gcloud",
            "~/.netrc", "~/.git-credentials", "~/.npmrc", "~/.pypirc", "~/.password-store"]  # fmt: skip
_AGENTS = ["~/.claude", "~/.claude.json", "~/.codex", "~/.gemini", "~/.config/goose", "~/.local/share/goose",
           "~/.local/state/goose", "~/.config/opencode", "~/.local/share/opencode", "~/.local/state/opencode",
           "~/.config/mini-swe-agent", "~/.openhands", "~/.aider"]  # fmt: skip


class SandboxConfig(_Section, frozen=True, kw_only=True):
    """`mode` auto uses bubblewrap where it works, on insists, off goes without. Network by kind of step. `share` are
    paths agents may write besides the workspace (their own state), `hide` are covered for every step. Limits of 0 are
    no limits."""

    mode: Literal["auto", "on", "off"] = "auto"
    agent_network: bool = True
    test_network: bool = False
    gate_network: bool = False
    memory_mb: Annotated[int, msgspec.Meta(ge=0)] = 0
    cpus: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    max_processes: Annotated[int, msgspec.Meta(ge=0)] = 4096
    share: list[str] = msgspec.field(default_factory=lambda: list(_AGENTS))
    hide: list[str] = msgspec.field(default_factory=lambda: list(_SECRETS))


class RoleConfig(_Section, frozen=True, kw_only=True):
    """`agent` overrides the general one for this role, and `model` the agent's own; `fallback` are asked in turn when
    it is overloaded; `escalate` is who is asked instead after `escalate_after` tries in vain. `network` is that of the
    sandbox when nothing is said; `env` names variables that only this role may see; a prompt has at most
    `prompt_tokens`, which is for what the model can take in.

    An agent that says nothing for `idle_s`, with no call of its own under way, or makes the same call with the same
    result `repeats` times, is stuck: it is stopped and asked again with a message, the second time it has failed.
    `answer` is what its questions are answered with; without one the item is parked."""

    agent: str = ""
    model: str = ""
    fallback: list[str] = msgspec.field(default_factory=list)
    escalate: str = ""
    escalate_after: Count = 2
    timeout_s: Seconds = 600.0
    idle_s: Seconds = 300.0
    prompt_tokens: Annotated[int, msgspec.Meta(ge=1_000)] = 100_000
    repeats: Annotated[int, msgspec.Meta(ge=2)] = 5
    network: Literal["", "on", "off"] = ""
    env: list[str] = msgspec.field(default_factory=list)
    answer: str = ""


class BriefRoleConfig(RoleConfig, frozen=True, kw_only=True):
    """Of a role that reads more than it writes. A class, so that setting another key leaves the default as it is."""

    timeout_s: Seconds = 300.0


class Roles(_Section, frozen=True, kw_only=True):
    auditor: RoleConfig = RoleConfig()
    implementer: RoleConfig = RoleConfig()
    architect: RoleConfig = RoleConfig()
    reviewer: BriefRoleConfig = BriefRoleConfig()
    scribe: BriefRoleConfig = BriefRoleConfig()
    fixer: RoleConfig = RoleConfig()


class LoopPolicy(Policy, frozen=True, kw_only=True):
    iterations: Count = 100


class SwarmConfig(Policy, frozen=True, kw_only=True):
    """The bounds of a swarm; its attempts take `agents` and `hints` (a line in the prompt) in turn."""

    attempts: Count = 2
    agents: list[str] = msgspec.field(default_factory=list)
    hints: list[str] = msgspec.field(default_factory=list)


NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Number = Annotated[int, msgspec.Meta(ge=0)]


class BudgetCap(_Section, frozen=True, kw_only=True):
    """Most that may be spent: money, tokens, seconds of agents at work, iterations. 0 is no cap."""

    cost_usd: NotNegative = 0.0
    tokens: Number = 0
    seconds: NotNegative = 0.0
    iterations: Number = 0


class Budget(_Section, frozen=True, kw_only=True):
    """`step` is set aside before an agent is asked once, and stops it; `item` holds for an item's whole life, `repo`
    for one repository in a day, `day` for everything in a day (of local time)."""

    step: BudgetCap = BudgetCap(cost_usd=5.0, tokens=20_000_000)
    item: BudgetCap = BudgetCap(cost_usd=20.0, tokens=100_000_000, seconds=28_800.0, iterations=200)
    repo: BudgetCap = BudgetCap(cost_usd=100.0)
    day: BudgetCap = BudgetCap(cost_usd=200.0, iterations=2_000)


class LimitsConfig(_Section, frozen=True, kw_only=True):
    """How much goes on at once, counted over all machines: runs in total, for one repository, waiting for review;
    `cooldown_s` between two claims; `daily_iterations` until local midnight. 0 is no limit."""

    workers: Number = 0
    per_repo: Number = 0
    awaiting_review: Number = 0
    cooldown_s: NotNegative = 0.0
    daily_iterations: Number = 0

    @property
    def counted(self) -> Limits:
        return Limits(
            workers=self.workers or None,
            per_repo=self.per_repo or None,
            awaiting_review=self.awaiting_review or None,
            daily_iterations=self.daily_iterations or None,
            cooldown_s=self.cooldown_s,
        )


class WorkerConfig(_Section, frozen=True, kw_only=True):
    """`count` runs are worked on at once here. `retry_s` are the waits before a failed item is tried again, from its
    last green commit; after the last it has failed. Asked to stop, a worker has `stop_s` to finish its step."""

    count: Annotated[int, msgspec.Meta(ge=1, le=512)] = 2
    retry_s: list[NotNegative] = msgspec.field(default_factory=lambda: [60.0, 300.0, 1800.0])
    stop_s: NotNegative = 30.0


class QuotaConfig(_Section, frozen=True, kw_only=True):
    """When a provider's limit is reached: `resume` auto comes back when it says, ask puts that to a person, never
    leaves it parked until somebody takes it up. So many agents of one provider are asked at once on this machine:
    half as many after a refusal, one more after each `quiet_s` without. 0 is no limit."""

    resume: Literal["auto", "ask", "never"] = "auto"
    concurrency: Number = 16
    quiet_s: Seconds = 60.0


class Config(_Section, frozen=True, kw_only=True):
    """`store` is a database path or a `postgresql://` address, `.ratchet/ratchet.db` here when empty;
    `env` names variables that agents may see besides the usual ones; `prices` says what a model's tokens cost, by
    the model's name, for agents that do not say it themselves: `[prices."MODEL"] in_usd = …, out_usd = …` a million;
    `prompts` is the folder of the project's own prompt templates; `history_tokens` is how much of what earlier roles
    said goes into a prompt; `aging_s` is how much longer an item must have waited to go before one of the next higher
    priority, 0 never does."""

    agent: str = ""
    store: str = ""
    env: list[str] = []
    prices: dict[str, Price] = {}
    prompts: str = ".ratchet/prompts"
    history_tokens: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 2_000
    lease_s: Seconds = 60.0
    aging_s: NotNegative = AGING_S
    test: Tests = Tests()
    workspace: WorkspaceConfig = WorkspaceConfig()
    sandbox: SandboxConfig = SandboxConfig()
    watch: WatchConfig = WatchConfig()
    roles: Roles = Roles()
    tdd: Policy = Policy()
    build: Policy = Policy()
    fix: Policy = Policy()
    loop: LoopPolicy = LoopPolicy()
    swarm: SwarmConfig = SwarmConfig()
    budget: Budget = Budget()
    limits: LimitsConfig = LimitsConfig()
    worker: WorkerConfig = WorkerConfig()
    quota: QuotaConfig = QuotaConfig()
    gates: list[Gate] = []

    def agent_for(self, role: str, *, stronger: bool = False) -> str:
        configured = self.role(role)
        own = configured.agent or (self._other_eyes() if role == "reviewer" else "") or self.agent
        return (configured.escalate if stronger else "") or own

    def _other_eyes(self) -> str:
        """Where two agents are configured, who wrote it does not review it."""
        writer = self.agent_for("implementer")
        known = [self.agent, *(getattr(self.roles, name).agent for name in Roles.__struct_fields__)]
        return next((agent for agent in known if agent and agent != writer), "")

    def role(self, role: str) -> RoleConfig:
        """A role of somebody's own workflow is configured like the implementer."""
        found: RoleConfig = getattr(self.roles, role, self.roles.implementer)
        return found

    def bounds(self, workflow: str) -> Policy:
        """Those of the workflow; one that is somebody's own has those of `tdd`."""
        found = getattr(self, workflow, self.tdd)
        return found if isinstance(found, Policy) else self.tdd


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One value and where it came from."""

    key: str
    value: Any
    source: str


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    config: Config
    settings: list[Setting]


def load(folder: Path, *, environ: Mapping[str, str] | None = None, flags: Sequence[str] = ()) -> Loaded:
    """`flags` are `key=value` texts. Unknown keys anywhere are errors that name the nearest known one."""
    environ = os.environ if environ is None else environ
    table, sources = _file(folder / FILE)
    for name, value in sorted(environ.items()):
        if name.startswith("RATCHET_") and name not in _NOT_SETTINGS:
            _set(table, _key_of_variable(name), value, sources, name)
    for flag in flags:
        key, equals, value = flag.partition("=")
        if not equals:
            raise ConfigError(f"--set {flag} has no value", hint="write --set KEY=VALUE")
        _set(table, _known(key, "--set"), value, sources, f"--set {key}")
    config = _convert(table, sources)
    settings = [
        Setting(key=key, value=_get(config, key), source=sources.get(key, "default")) for key in sorted(_LEAVES)
    ]
    return Loaded(config=config, settings=settings)


# Set by us for children, or read elsewhere: not keys of the configuration.
_NOT_SETTINGS = frozenset({"RATCHET_ROLE", "RATCHET_ACTION", "RATCHET_TOKEN", "RATCHET_SERVER", "RATCHET_TEST_CACHE"})


def _file(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}, {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path.name} cannot be read: {error}", hint="correct the line it names") from error
    sources: dict[str, str] = {}
    _check_keys(table, "", sources)
    return table, sources


def _check_keys(table: dict[str, Any], above: str, sources: dict[str, str]) -> None:
    for name, value in table.items():
        key = f"{above}{name}"
        if key in _LEAVES:
            sources[key] = FILE
        elif isinstance(value, dict) and any(leaf.startswith(f"{key}.") for leaf in _LEAVES):
            _check_keys(value, f"{key}.", sources)
        else:
            _known(key, FILE)


def _known(key: str, source: str) -> str:
    if key in _LEAVES:
        return key
    near = difflib.get_close_matches(key, [*_LEAVES, *{leaf.rsplit(".", 1)[0] for leaf in _LEAVES}], n=1)
    raise ConfigError(
        f"unknown key {key!r} in {source}",
        hint=f"did you mean {near[0]!r}?" if near else "`ratchet config show` lists all keys",
        key=key,
    )


def _key_of_variable(name: str) -> str:
    by_variable = {variable_of(leaf): leaf for leaf in _LEAVES}
    if name in by_variable:
        return by_variable[name]
    near = difflib.get_close_matches(name, by_variable, n=1)
    raise ConfigError(
        f"unknown variable {name} in the environment",
        hint=f"did you mean {near[0]}?" if near else "`ratchet config show` lists all keys",
        key=name,
    )


def variable_of(key: str) -> str:
    return "RATCHET_" + re.sub(r"\W", "_", key).upper()


def _set(table: dict[str, Any], key: str, value: str, sources: dict[str, str], source: str) -> None:
    *above, last = key.split(".")
    for name in above:
        table = table.setdefault(name, {})
    if get_origin(_LEAVES[key]) is list:
        try:
            table[last] = msgspec.json.decode(value) if value.startswith("[") else shlex.split(value)
        except (msgspec.DecodeError, ValueError) as error:
            raise ConfigError(f"{source} is not a list: {error}", hint="write words, or a JSON list") from error
    else:  # quoted as in the file it is the same
        table[last] = value[1:-1] if re.fullmatch(r"\"[^\"]*\"|'[^']*'", value) else value
    sources[key] = source


def _convert(table: dict[str, Any], sources: dict[str, str]) -> Config:
    try:
        return msgspec.convert(table, Config, strict=not any(source != FILE for source in sources.values()))
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        key = where.rstrip("`")
        source = sources.get(key, FILE)
        raise ConfigError(f"{key} in {source} is wrong: {what}", hint="`ratchet config show` lists all keys") from error


def _get(config: Config, key: str) -> Any:
    value: Any = config
    for name in key.split("."):
        value = getattr(value, name)
    return msgspec.to_builtins(value)


def _leaves(section: type[msgspec.Struct], above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, hint in get_type_hints(section, include_extras=True).items():
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            found |= _leaves(hint, f"{above}{name}.")
        else:
            found[f"{above}{name}"] = hint
    return found


_LEAVES = _leaves(Config)
