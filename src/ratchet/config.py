"""The configuration: defaults, `ratchet.toml`, `RATCHET_*` variables and flags, in rising precedence."""

import errno
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_origin, get_type_hints

import msgspec

from ratchet.core.budget import Cap
from ratchet.core.gates import Gate
from ratchet.core.item import LABELS_MAX, Label
from ratchet.core.policy import Count, Policy
from ratchet.core.queue import AGING_S, ClaimLimits
from ratchet.core.receipt import Price
from ratchet.errors import ConfigError
from ratchet.files import FETCHED
from ratchet.tree_files import NotRegularFile, read_anywhere, read_inside

FILE = "ratchet.toml"
Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Tests(_Section, frozen=True, kw_only=True):
    """`command` runs all tests; if empty it is detected. Its results are read as those of `runner` (derived from the
    command if empty), or from `report`: a path or glob of files in the project, in JUnit, TRX, TAP, CTRF or
    another known format.
    `paths` are the globs that only the auditor may write. `env` names variables that tests of runs and of test
    workspaces may see besides the usual ones. `timeout_s` limits a run, `silence_s` the time without output."""

    command: str = ""
    runner: str = ""
    report: str = ""
    paths: list[str] = []
    env: list[str] = []
    timeout_s: Seconds = 600.0
    silence_s: Seconds = 600.0


class WorkspaceConfig(_Section, frozen=True, kw_only=True):
    """`kind` and `on` force a kind and a place (`ratchet doctor` lists the kinds); `container` runs every step in a
    container of `containers.image`. `root` is the folder of workspaces,
    `bases` that of prepared checkouts; if empty, the user's state and cache folders. `setup` lists commands that run
    once for each change of lock files and manifests. `carry` lists ignored folders and files that are copied from the
    developer's tree, and from each part of it that has a manifest. `logins`: whether `setup` gets the logins of package
    registries and this machine's variables; auto is in people's checkouts, not in repositories that Ratchet fetched. A
    failed run's workspace is kept for `keep_s`."""

    kind: str = "auto"
    on: Literal["auto", "ram", "disk"] = "auto"
    root: str = ""
    bases: str = ""
    setup: list[str] = []
    # Not .venv: its programs and editable installs point to the developer's folder, and would test the wrong code.
    carry: list[str] = msgspec.field(default_factory=lambda: ["node_modules", "vendor", "deps"])
    logins: Literal["auto", "on", "off"] = "auto"
    keep_s: Annotated[float, msgspec.Meta(ge=0)] = 86_400.0
    max_count: Annotated[int, msgspec.Meta(ge=1)] = 64
    min_free_ram_mb: Annotated[int, msgspec.Meta(ge=0)] = 512
    min_free_disk_mb: Annotated[int, msgspec.Meta(ge=0)] = 1024
    max_bases_mb: Annotated[int, msgspec.Meta(ge=0)] = 20_480


class SealedConfig(_Section, frozen=True, kw_only=True):
    """`dir` is a folder outside the repository with tests that no agent sees: they are laid over the tree at every
    judgement and at the end, at the same paths. `land` adds them to the result."""

    dir: str = ""
    land: bool = False


class WatchConfig(_Section, frozen=True, kw_only=True):
    """`on` is what starts a run. `notify` is a command that runs when the result changes; `desktop` shows a
    notification then. `warm` keeps a prepared interpreter if the runner is pytest."""

    on: Literal["save", "stage", "commit", "manual"] = "save"
    notify: str = ""
    desktop: bool = False
    warm: bool = True


class NotifyConfig(_Section, frozen=True, kw_only=True):
    """How `ratchet serve` notifies of new inbox entries. `command` runs with a JSON message on its standard input and
    its text in RATCHET_TEXT; `webhook` is the address of a chat system, or of a program, that takes the same message.
    If it is empty, the variable RATCHET_WEBHOOK may hold it."""

    command: str = ""
    webhook: str = ""


_SECRETS = ["~/.ssh", "~/.gnupg", "~/.aws", "~/.azure", "~/.kube", "~/.docker", "~/.config/gh", "~/.config/gcloud",
            "~/.netrc", "~/.git-credentials", "~/.npmrc", "~/.pypirc", "~/.password-store"]  # fmt: skip


class SandboxConfig(_Section, frozen=True, kw_only=True):
    """`mode` auto uses bubblewrap where it works, on insists, off goes without. Network by kind of step. `share` are
    paths agents may write besides the workspace and a home of their own; what they write there is not contained.
    `hide` are covered for every step. `show` can be read by every step unless they are hidden, files with their folder;
    files that your own settings name in commands of agents, tests and gates need no entry. -1 takes a bound from the
    machine's size: half of its memory, an eighth of it for each temporary folder; 0 is no limit."""

    mode: Literal["auto", "on", "off"] = "auto"
    agent_network: bool = True
    test_network: bool = False
    gate_network: bool = False
    memory_mb: Annotated[int, msgspec.Meta(ge=-1)] = -1
    tmp_mb: Annotated[int, msgspec.Meta(ge=-1)] = -1
    cpus: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    max_processes: Annotated[int, msgspec.Meta(ge=0)] = 4096
    share: list[str] = msgspec.field(default_factory=list)
    hide: list[str] = msgspec.field(default_factory=lambda: list(_SECRETS))
    show: list[str] = msgspec.field(default_factory=list)


class RoleConfig(_Section, frozen=True, kw_only=True):
    """`agent` overrides the general agent for this role, `model` the agent's default model. `fallback` lists agents to
    use while it is overloaded; `escalate` is the agent to use after `escalate_after` failed attempts. `network`
    overrides the sandbox's setting. `env` names variables that only this role may see. `prompt_tokens` limits a prompt
    to what the model can take in.

    An agent is stuck if it is silent for `idle_s` without a running tool call, or makes the same call with the same
    result `repeats` times: it is stopped and asked again with a message; the second time it fails. `answer` is the
    answer to its questions; without one the item is parked.
    """

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
    """The defaults of roles that read more than they write."""

    timeout_s: Seconds = 300.0


class Roles(_Section, frozen=True, kw_only=True):
    auditor: RoleConfig = RoleConfig()
    implementer: RoleConfig = RoleConfig()
    architect: RoleConfig = RoleConfig()
    reviewer: BriefRoleConfig = BriefRoleConfig()
    scribe: BriefRoleConfig = BriefRoleConfig()
    fixer: RoleConfig = RoleConfig()


class TddPolicy(Policy, frozen=True, kw_only=True):
    """`sealed` has the auditor write a second test file for each requirement, which no implementing role sees."""

    sealed: bool = True


class LoopPolicy(Policy, frozen=True, kw_only=True):
    iterations: Count = 100


class SwarmConfig(Policy, frozen=True, kw_only=True):
    """The bounds of a swarm. Its attempts use `agents` and `hints` (a line in the prompt) in rotation."""

    attempts: Count = 2
    agents: list[str] = msgspec.field(default_factory=list)
    hints: list[str] = msgspec.field(default_factory=list)


NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Number = Annotated[int, msgspec.Meta(ge=0)]


class BudgetCap(_Section, frozen=True, kw_only=True):
    """Maximum spending: money, tokens, seconds of agent time, iterations. 0 is no cap."""

    cost_usd: NotNegative = 0.0
    tokens: Number = 0
    seconds: NotNegative = 0.0
    iterations: Number = 0

    @property
    def counted(self) -> Cap:
        given = {name: getattr(self, name) or None for name in self.__struct_fields__}
        return Cap(**given)


class Budget(_Section, frozen=True, kw_only=True):
    """`step` is reserved before an agent is called, and stops it. `item` is the cap for an item's whole life, `repo`
    for one repository in a day, `day` for everything in a day (local time)."""

    step: BudgetCap = BudgetCap(cost_usd=5.0, tokens=20_000_000)
    item: BudgetCap = BudgetCap(cost_usd=20.0, tokens=100_000_000, seconds=28_800.0, iterations=200)
    repo: BudgetCap = BudgetCap(cost_usd=100.0)
    day: BudgetCap = BudgetCap(cost_usd=200.0, iterations=2_000)


class LimitsConfig(_Section, frozen=True, kw_only=True):
    """Concurrency limits, counted over all machines: runs in total, runs for one repository, items waiting for review.
    `cooldown_s` is the time between two claims, `daily_iterations` the limit until local midnight. 0 is no limit."""

    workers: Number = 0
    per_repo: Number = 0
    awaiting_review: Number = 0
    cooldown_s: NotNegative = 0.0
    daily_iterations: Number = 0

    @property
    def counted(self) -> ClaimLimits:
        return ClaimLimits(
            workers=self.workers or None,
            per_repo=self.per_repo or None,
            awaiting_review=self.awaiting_review or None,
            daily_iterations=self.daily_iterations or None,
            cooldown_s=self.cooldown_s,
        )


class WorkerConfig(_Section, frozen=True, kw_only=True):
    """`count` is the number of runs in progress at once on this machine. `retry_s` lists the delays before a failed
    item is tried again from its last green commit; after the last one it has failed. A worker that is asked to stop has
    `stop_s` to finish its step. A worker that makes no progress for `stall_s`, not even by waiting, is killed and
    replaced. `launcher` is where workers run: `process` is this machine, `docker` containers (see `containers`), `ray`
    a Ray cluster (see `ray`). `labels` are those of the worker: it takes no item that requires others."""

    launcher: str = "process"
    count: Annotated[int, msgspec.Meta(ge=1, le=512)] = 2
    retry_s: list[NotNegative] = msgspec.field(default_factory=lambda: [60.0, 300.0, 1800.0])
    stop_s: NotNegative = 30.0
    stall_s: Annotated[float, msgspec.Meta(ge=5)] = 120.0
    labels: Annotated[list[Label], msgspec.Meta(max_length=LABELS_MAX)] = msgspec.field(default_factory=list)


class ServerConfig(_Section, frozen=True, kw_only=True):
    """Which requests `ratchet serve` answers. `hosts` are further names of the server, besides localhost, this
    machine's name and all addresses; `origins` are other web sites whose pages may call it. `connections_per_address`
    limits the open connections of one address (on this machine: of one user) that have not sent a valid token; answers
    to wrong tokens are delayed, longer each time, up to `failed_token_delay_s`."""

    hosts: list[str] = msgspec.field(default_factory=list)
    origins: list[str] = msgspec.field(default_factory=list)
    connections_per_address: Annotated[int, msgspec.Meta(ge=1)] = 512
    failed_token_delay_s: NotNegative = 2.0


class ContainersConfig(_Section, frozen=True, kw_only=True):
    """Workers in containers (`worker.launcher = "docker"`) and steps in containers (`workspace.kind = "container"`).
    `engine` is the engine's address, as `unix:///path`; if empty, `DOCKER_HOST` or the usual sockets of Docker and
    Podman. `image` has `ratchet`, git, the agents and what tests need; `ratchet image --build` makes one. Each
    container has at most `memory_mb` (with its `/tmp` of `tmp_mb`), `cpus` and `max_processes`; 0 is no limit. It runs
    as `user`; if empty, as you, or as no account if you are root. `network` is the engine's default if empty. `mounts`
    are `SOURCE:TARGET[:ro]`; `env` names variables that workers get from here, such as keys of agents."""

    engine: str = ""
    image: str = "localhost/ratchet-worker:latest"
    memory_mb: Number = 4096
    cpus: NotNegative = 2.0
    max_processes: Number = 2048
    tmp_mb: Number = 2048
    user: str = ""
    network: str = ""
    mounts: list[str] = msgspec.field(default_factory=list)
    env: list[str] = msgspec.field(default_factory=list)


class RayConfig(_Section, frozen=True, kw_only=True):
    """Runs as tasks of a Ray cluster (`worker.launcher = "ray"`). `address` is the cluster's, as `HOST:6379`; if empty,
    that of the cluster to which this machine belongs. A run needs `cpus`, `memory_mb` and `resources` (`NAME=AMOUNT`,
    also `GPU=1`) of a node, which an item's own settings override. `env` names variables that workers get from
    here, such as keys of agents."""

    address: str = ""
    cpus: NotNegative = 1.0
    memory_mb: Number = 1024
    resources: list[Annotated[str, msgspec.Meta(pattern=r"^[^=]+=[0-9]+(\.[0-9]+)?\Z")]] = msgspec.field(
        default_factory=list
    )
    env: list[str] = msgspec.field(default_factory=list)


class QuotaConfig(_Section, frozen=True, kw_only=True):
    """When a provider's limit is reached: `resume = "auto"` continues at the time that the provider names, `ask` asks a
    person, `never` leaves the item parked. `concurrency` requests per provider and key run at the
    same time, over all hosts of the store: half as many after a refusal, one more after each `quiet_s` without one.
    0 is no limit."""

    resume: Literal["auto", "ask", "never"] = "auto"
    concurrency: Number = 16
    quiet_s: Seconds = 60.0


class RetentionConfig(_Section, frozen=True, kw_only=True):
    """What `ratchet gc` removes of runs that have finished: logs and prompts after `logs_days`, and after
    `archive_days` the whole run, which is written to one file in `.ratchet/archive`. 0 keeps it for ever."""

    logs_days: Number = 30
    archive_days: Number = 0


Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class LearningsConfig(_Section, frozen=True, kw_only=True):
    """`on` delivers learnings, at most `most` of them, beside the failure they match. So that their effect is known, a
    share of them is `held_out`, a share is replaced by a `placebo`, and a share goes into the role's `prompt` instead;
    which one is decided by run and learning. One without effect after `trials` deliveries retires.

    `embedder` is `auto` (the local model, if it is installed), `off`, or the address of an endpoint that speaks
    OpenAI's protocol, with its `model` and the variable `key_env` that has its key."""

    on: bool = True
    most: Annotated[int, msgspec.Meta(ge=1, le=20)] = 3
    held_out: Share = 0.2
    placebo: Share = 0.1
    prompt: Share = 0.1
    trials: Annotated[int, msgspec.Meta(ge=10)] = 100
    embedder: Annotated[str, msgspec.Meta(pattern=r"^(auto|off|https?://\S+)$")] = "auto"
    model: str = ""
    key_env: str = ""
    timeout_s: Seconds = 10.0


class TelemetryConfig(_Section, frozen=True, kw_only=True):
    """Where traces and metrics of runs are sent by OTLP over HTTP, as `http://collector:4318`. If empty, where the
    standard variable `OTEL_EXPORTER_OTLP_ENDPOINT` says; without either they are off. Needs the extra `otel`."""

    endpoint: Annotated[str, msgspec.Meta(pattern=r"^(https?://\S+)?$")] = ""


class Config(_Section, frozen=True, kw_only=True):
    """`store` is a database path or a `postgresql://` address; when empty, one store of the user for all repositories.
    `.ratchet/ratchet.db` keeps everything in the repository; `redis` is the address of a Redis beside a PostgreSQL
    store, which keeps waiting workers from asking the database: it decides nothing, so it may fail or be emptied; `env`
    names variables that agents may see besides the usual ones; `example_keys` are globs of files whose keys are made up
    (a commit with a key or token in another file is refused); `prices` are the prices of tokens by the model's name,
    for agents that report no cost: `[prices."MODEL"] in_usd = …, out_usd = …` for a million; `prompts` is the folder of
    the project's own prompt templates, in the repository (links out of it are refused) or elsewhere; `history_tokens`
    limits the earlier roles' answers in a prompt; `aging_s` is how much longer an item must have waited to go before
    one of the next higher priority, 0 never does."""

    agent: str = ""
    store: str = ""
    redis: str = ""
    env: list[str] = []
    example_keys: list[str] = []
    prices: dict[str, Price] = {}
    prompts: str = ".ratchet/prompts"
    history_tokens: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 2_000
    lease_s: Seconds = 60.0
    aging_s: NotNegative = AGING_S
    test: Tests = Tests()
    workspace: WorkspaceConfig = WorkspaceConfig()
    sandbox: SandboxConfig = SandboxConfig()
    watch: WatchConfig = WatchConfig()
    notify: NotifyConfig = NotifyConfig()
    sealed: SealedConfig = SealedConfig()
    roles: Roles = Roles()
    tdd: TddPolicy = TddPolicy()
    build: Policy = Policy()
    fix: Policy = Policy()
    loop: LoopPolicy = LoopPolicy()
    swarm: SwarmConfig = SwarmConfig()
    budget: Budget = Budget()
    limits: LimitsConfig = LimitsConfig()
    worker: WorkerConfig = WorkerConfig()
    containers: ContainersConfig = ContainersConfig()
    ray: RayConfig = RayConfig()
    server: ServerConfig = ServerConfig()
    quota: QuotaConfig = QuotaConfig()
    retention: RetentionConfig = RetentionConfig()
    learnings: LearningsConfig = LearningsConfig()
    telemetry: TelemetryConfig = TelemetryConfig()
    gates: list[Gate] = []

    def agent_for(self, role: str, *, stronger: bool = False) -> str:
        configured = self.role(role)
        own = configured.agent or (self._other_agent() if role == "reviewer" else "") or self.agent
        return (configured.escalate if stronger else "") or own

    def agent_beside(self, author: str) -> str:
        """Return an agent other than the author's, if one is configured, else the author's."""
        writer = self.agent_for(author)
        return next((agent for agent in self._known_agents() if agent and agent != writer), writer)

    def _other_agent(self) -> str:
        """Return an agent other than the implementer's, if one is configured: no agent reviews its own code."""
        writer = self.agent_for("implementer")
        return next((agent for agent in self._known_agents() if agent and agent != writer), "")

    def _known_agents(self) -> list[str]:
        return [self.agent, *(getattr(self.roles, name).agent for name in Roles.__struct_fields__)]

    def role(self, role: str) -> RoleConfig:
        """Return the configuration of a role; roles of custom workflows use the implementer's."""
        found: RoleConfig = getattr(self.roles, role, self.roles.implementer)
        return found

    def bounds(self, workflow: str) -> Policy:
        """Return the bounds of a workflow; custom workflows use those of `tdd`."""
        found = getattr(self, workflow, self.tdd)
        return found if isinstance(found, Policy) else self.tdd


class ConfigValue(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration value and its source."""

    key: str
    value: Any
    source: str


class LoadedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`ignored` are keys in the file of a fetched repository that only this machine decides."""

    config: Config
    settings: list[ConfigValue]
    ignored: list[str] = []


# What a repository that Ratchet fetched may not decide: its author may be anybody.
_OF_THIS_MACHINE = re.compile(
    r"(?:sandbox|containers|ray|watch|notify|sealed|server|telemetry|worker|limits|budget|quota|prices|retention)(?:\..+)?"
    r"|env|store|redis|lease_s|aging_s|test\.env|roles\.\w+\.(?:env|network)"
    r"|workspace\.(?:kind|root|bases|logins|keep_s|max_\w+|min_\w+)"
    r"|learnings\.(?:embedder|model|key_env)"
)


def load(folder: Path, *, environ: Mapping[str, str] | None = None, flags: Sequence[str] = ()) -> LoadedConfig:
    """Load the configuration for a folder. `flags` are `key=value` strings. Raises ConfigError for unknown keys.

    The file of a fetched repository decides nothing about this machine.
    """
    environ = os.environ if environ is None else environ
    table, sources = _read_file(folder / FILE)
    fetched = is_fetched(folder)
    ignored = _leave_to_this_machine(table, sources) if fetched else []
    for name, value in sorted(environ.items()):
        if name.startswith("RATCHET_") and name not in _NOT_SETTINGS:
            _set_key(table, _key_of_variable(name), value, sources, name)
    for flag in flags:
        key, equals, value = flag.partition("=")
        if not equals:
            raise ConfigError(f"--set {flag} has no value", hint="write --set KEY=VALUE")
        _set_key(table, _check_known(key, "--set"), value, sources, f"--set {key}")
    config = _convert(table, sources)
    _check_report(config.test.report, sources.get("test.report", FILE))
    settings = [
        ConfigValue(key=key, value=_get(config, key), source=sources.get(key, "default")) for key in sorted(_LEAVES)
    ]
    trusted = [key for key, source in sources.items() if not (fetched and source == FILE)]
    return LoadedConfig(config=_showing_commands(config, trusted), settings=settings, ignored=ignored)


_AGENTS = re.compile(r"agent|gates|swarm\.agents|roles\.\w+\.(?:agent|fallback|escalate)")
_COMMANDS = re.compile(rf"{_AGENTS.pattern}|test\.command")


def _showing_commands(config: Config, trusted: Iterable[str]) -> Config:
    """Let sandboxes show the files that these settings name in commands.

    Decided here, where it is known who wrote a setting: what starts a command cannot tell who chose its words.
    """
    named = [_get(config, key) for key in trusted if _COMMANDS.fullmatch(key)]
    files = named_files(word for value in named for text in _texts(value) for word in _words(text))
    sandbox = msgspec.structs.replace(config.sandbox, show=list(dict.fromkeys([*config.sandbox.show, *files])))
    return msgspec.structs.replace(config, sandbox=sandbox)


def _texts(value: Any) -> list[str]:
    """Return the commands in a setting: one, a list of them, or gates."""
    if isinstance(value, list):
        return [text for one in value for text in _texts(one)]
    return [value["command"], value["agent"]] if isinstance(value, dict) else [value]


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError:  # reported by what starts it
        return []
    return [*(word.partition(":")[2] for word in words[:1]), *words]  # an agent's kind is before the colon


def named_files(words: Iterable[str]) -> list[str]:
    """Return the files among the words of a command as absolute paths; a bare name is looked up by what starts it."""
    paths = [word for word in words if "/" in word and os.path.isfile(word)]  # noqa: PTH113 — Path's raises
    return [str(Path(word).absolute()) for word in paths]


def is_fetched(folder: Path) -> bool:
    """Whether the folder is in a clone that Ratchet made of a repository elsewhere, and not in a person's checkout."""
    return _fetched_top(folder) is not None


def _fetched_top(folder: Path) -> Path | None:
    folder = folder.absolute()
    root = next((place for place in (folder, *folder.parents) if (place / ".git").exists()), folder)
    return root if (root / ".git" / FETCHED).exists() else None


def _leave_to_this_machine(table: dict[str, Any], sources: dict[str, str]) -> list[str]:
    ignored = [key for key in sources if _OF_THIS_MACHINE.fullmatch(key) or _names_program(key, table)]
    if not _is_inside(table.get("prompts", "")):
        ignored.append("prompts")
    for key in ignored:
        *above, last = key.split(".")
        section = table
        for name in above:
            section = section.get(name, {})
        section.pop(last, None)
        del sources[key]
    return sorted(ignored)


def _names_program(key: str, table: Any) -> bool:
    """Whether a setting names an agent that is a file or command, and not one that is installed by its name."""
    if not _AGENTS.fullmatch(key):
        return False
    for name in key.split("."):
        table = table.get(name, "") if isinstance(table, dict) else ""
    if key == "gates":
        table = [gate.get("agent", "") for gate in table if isinstance(gate, dict)] if isinstance(table, list) else []
    names = table if isinstance(table, list) else [table]
    return any(isinstance(name, str) and re.search(r"[:/\s]", name) for name in names)


def _is_inside(folder: object) -> bool:
    """Whether a path cannot lead out of a repository but by links."""
    return not isinstance(folder, str) or (not folder.startswith("/") and ".." not in folder.split("/"))


# Variables that Ratchet sets for child processes or reads elsewhere: not configuration keys.
_NOT_SETTINGS = frozenset(
    {
        "RATCHET_ROLE",
        "RATCHET_ACTION",
        "RATCHET_TOKEN",
        "RATCHET_SERVER",
        "RATCHET_SERVER_USER",
        "RATCHET_SEALING_KEY",
        "RATCHET_TEST_CACHE",
        "RATCHET_LOG",
    }
)


def read_project_file(path: Path) -> str:
    """Return the text of a file that a project decides its own runs with.

    A person may keep such a file elsewhere and link to it; a link in a fetched repository stays in it. Raises OSError
    for what is no regular file, and ValueError for what is too large or not UTF-8.
    """
    top = _fetched_top(path.parent)
    if top is None:
        content = read_anywhere(path, max_bytes=_FILE_MAX_BYTES + 1)
    elif (inside := read_inside(top, str(path.absolute().relative_to(top)), max_bytes=_FILE_MAX_BYTES + 1)) is None:
        raise NotRegularFile(errno.EINVAL, "not a regular file of the repository", path.name)
    else:
        content = inside
    if len(content) > _FILE_MAX_BYTES:
        raise ValueError(f"larger than {_FILE_MAX_BYTES >> 20} MiB")
    return content.decode()


_FILE_MAX_BYTES = 1 << 20


def _read_file(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    if not path.exists():
        return {}, {}
    import tomllib  # noqa: PLC0415 — slow to import, and many projects have no file

    try:
        table = tomllib.loads(read_project_file(path).replace("\r\n", "\n"))
    except (OSError, ValueError, RecursionError) as error:  # a number of 5,000 digits is a ValueError too
        raise ConfigError(f"cannot read {path.name}: {error}", hint="correct the named line") from error
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
            _check_known(key, FILE)


def check_known(key: str) -> str:
    """Return the key. Raises ConfigError, with the nearest name, if there is no such key."""
    return _check_known(key, "`config explain`")


def key_types() -> dict[str, Any]:
    """Return the type of every key."""
    return _LEAVES


def default_of(key: str) -> Any:
    return _get(Config(), key)


def _check_known(key: str, source: str) -> str:
    if key in _LEAVES:
        return key
    if below := [leaf for leaf in _LEAVES if leaf.startswith(f"{key}.")]:
        raise ConfigError(
            f"{key!r} in {source} is a section", hint=f"name one of its keys: {', '.join(below)}", key=key
        )
    near = _nearest(key, [*_LEAVES, *{leaf.rsplit(".", 1)[0] for leaf in _LEAVES}])
    raise ConfigError(
        f"unknown key {key!r} in {source}",
        hint=f"did you mean {near[0]!r}?" if near else "`ratchet config show` lists all keys",
        key=key,
    )


def _nearest(name: str, known: Iterable[str]) -> list[str]:
    import difflib  # noqa: PLC0415 — only for an error

    return difflib.get_close_matches(name, list(known), n=1)


def _key_of_variable(name: str) -> str:
    by_variable = {environment_name(leaf): leaf for leaf in _LEAVES}
    if name in by_variable:
        return by_variable[name]
    near = _nearest(name, by_variable)
    raise ConfigError(
        f"unknown variable {name} in the environment",
        hint=f"did you mean {near[0]}?" if near else "`ratchet config show` lists all keys",
        key=name,
    )


def environment_name(key: str) -> str:
    return "RATCHET_" + re.sub(r"\W", "_", key).upper()


def _set_key(table: dict[str, Any], key: str, value: str, sources: dict[str, str], source: str) -> None:
    *above, last = key.split(".")
    for name in above:
        table = table.setdefault(name, {})
    if get_origin(_LEAVES[key]) is list:
        try:
            table[last] = msgspec.json.decode(value) if value.startswith("[") else shlex.split(value)
        except (msgspec.DecodeError, ValueError) as error:
            raise ConfigError(f"{source} is not a list: {error}", hint="write words, or a JSON list") from error
    else:  # quotes as in the file are accepted
        table[last] = value[1:-1] if re.fullmatch(r"\"[^\"]*\"|'[^']*'", value) else value
    sources[key] = source


def _convert(table: dict[str, Any], sources: dict[str, str]) -> Config:
    try:
        # Sections have defaults of their own: to set one key of `budget.item` leaves its other limits as they are.
        return msgspec.convert(
            _merge(msgspec.to_builtins(Config()), table),
            Config,
            strict=not any(source != FILE for source in sources.values()),
        )
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        key = where.rstrip("`")
        source = sources.get(key, FILE)
        raise ConfigError(f"invalid {key} in {source}: {what}", hint="`ratchet config show` lists all keys") from error


def _check_report(pattern: str, source: str) -> None:
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise ConfigError(
            f"invalid test.report in {source}: {pattern!r} leads out of the project",
            hint="let the tests write their report into the project's folder, and name it relative to that",
        )


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    both = {
        name: _merge(below[name], above[name])
        for name in below.keys() & above.keys()
        if _are_sections(below, above, name)
    }
    return below | above | both


def _are_sections(below: dict[str, Any], above: dict[str, Any], name: str) -> bool:
    return isinstance(below[name], dict) and isinstance(above[name], dict)


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
