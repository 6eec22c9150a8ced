"""A factory with a day's work in it, recorded through the store as workers would: for the pages' tests and pictures."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from ratchet.core import events as ev
from ratchet.core.board import BoardColumn
from ratchet.core.budget import Amount, Caps
from ratchet.core.failure import Reason
from ratchet.core.gates import GateStatus
from ratchet.core.inbox import inbox_entries
from ratchet.core.item import Item, ParkReason, Priority
from ratchet.core.learning import Learning, LearningKind
from ratchet.core.lease import Holder, Lease
from ratchet.core.policy import Policy
from ratchet.core.receipt import Artifact, Receipt, Usage
from ratchet.core.report import Failure, Report, ReportStatus, TestResult, TestStatus, Totals
from ratchet.core.timestamps import format_timestamp
from ratchet.core.watch import Colour, WatchStage, WatchState
from ratchet.store.run_directory import RunDirectory
from ratchet.store.sqlite.store import SqliteStore
from ratchet.workspace.git.command import git
from tests.support import make_repository

AGENTS = {"auditor": "claude:sonnet", "implementer": "codex:gpt-5", "architect": "claude:sonnet", "reviewer": "goose"}


class Clock:
    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


class Factory:
    def __init__(self, folder: Path, *, now: datetime | None = None) -> None:
        self.folder = folder
        self.end = now or datetime.now(UTC)
        self.clock = Clock(self.end - timedelta(days=14))
        self.store = SqliteStore(folder / "ratchet.db", clock=self.clock)
        self.repos = {name: folder / name for name in ("billing-api", "ledgerd", "parcel-web")}
        for path in self.repos.values():
            make_repository(path, {"README.md": "# It\n", "src/proration.py": BEFORE})
        self.trees: dict[tuple[str, str], str] = {}
        self._numbers = 0

    def add(self, repo: str, title: str, priority: str = "medium", *, spec: str = "", **fields: Any) -> Item:
        self._numbers += 1
        name = f"item-{self.clock.now:%Y%m%d-%H%M%S}-{self._numbers:04}"
        fields = {"workflow": "tdd"} | fields
        made = Item(
            id=name,
            repo=str(self.repos[repo]),
            spec=spec or f"# {title}\n",
            title=title,
            priority=Priority(priority),
            base_commit="4f6f3a2" + "0" * 33,
            slug=f"slug-{self._numbers}",
            created_at=format_timestamp(self.clock.now),
            **fields,
        )
        return self.store.add(made)

    def start(self, item: Item, worker: str = "build-1:4711") -> Recording:
        holder = Holder(worker=worker, machine="elsewhere", pid=1, born="1")
        run = f"run-{self.clock.now:%Y%m%d-%H%M%S}-{hashlib.sha256(item.id.encode()).hexdigest()[:8]}"
        lease = self.store.claim(item.id, run=run, holder=holder, ttl_s=30 * 86_400)
        return Recording(self, item, lease)

    def at(self, **ago: float) -> None:
        """Move the clock to a time before the end."""
        self.clock.now = self.end - timedelta(**ago)


class Recording:
    """Records the events of one run, with the times that such steps take."""

    def __init__(self, factory: Factory, item: Item, lease: Lease) -> None:
        self.factory, self.item, self.lease = factory, item, lease
        self.store, self.clock = factory.store, factory.clock
        self.step, self.head = 0, item.base_commit
        self.tests: dict[str, str] = {f"tests/test_plans.py::test_plan_{n}": "passed" for n in range(41)}
        self.tests |= {"tests/test_store.py::test_two_writers": "skipped"}
        self.directory = RunDirectory(Path(item.repo) / ".ratchet", lease.run)
        self.tree = self.make_tree(BEFORE)
        started = ev.RunStarted(
            item=item.id,
            title=item.title,
            workflow=item.workflow,
            repo=item.repo,
            base_commit=item.base_commit,
            branch=f"ratchet/{item.slug}",
            slug=item.slug,
            policy=msgspec.to_builtins(Policy(cents=500)),
            tests=["tests/**"],
            protected=[],
            test_command=["pytest"],
        )
        self.append(started, ev.RunClaimed(worker=lease.holder.worker))

    def append(self, *events: ev.Event, receipt: Receipt | None = None) -> None:
        self.store.append(self.lease, events, receipt)

    def make_tree(self, source: str) -> str:
        """Store a tree with one changed file, as the workspace would."""
        if known := self.factory.trees.get((self.item.repo, source)):
            return known
        repo = Path(self.item.repo)
        store = repo / ".ratchet" / "trees.git"
        if not store.exists():
            git("init", "--quiet", "--bare", str(store))
        env = {"GIT_DIR": str(store)}
        blob = git("hash-object", "-w", "--stdin", env=env, stdin=source.encode()).decode().strip()
        inner = git("mktree", env=env, stdin=f"100644 blob {blob}\tproration.py\n".encode()).decode().strip()
        made = git("mktree", env=env, stdin=f"040000 tree {inner}\tsrc\n".encode()).decode().strip()
        self.factory.trees[self.item.repo, source] = made
        return made

    # --- steps ---------------------------------------------------------------------------------------------

    def begin(self, action: str, role: str = "") -> None:
        self.step += 1
        key = f"ik:{hashlib.sha256(f'{self.lease.run}{self.step}'.encode()).hexdigest()}"
        self.append(
            ev.StepStarted(step=self.step, action=action, role=role, key=key, tree=self.tree, snapshot="snap-1")
        )

    def spend(self, role: str, cost: float, seconds: float) -> ev.UsageMetered:
        caps = Caps()
        held = self.store.reserve(self.lease, Amount(cost_usd=cost), caps=caps)
        self.store.settle(held, Amount(cost_usd=cost, seconds=seconds))  # type: ignore[arg-type]  # without caps
        return ev.UsageMetered(
            step=self.step,
            role=role,
            agent=AGENTS.get(role, "claude"),
            tokens_in=int(cost * 300_000),
            tokens_out=int(cost * 20_000),
            cost_usd=cost,
            seconds=seconds,
        )

    def finish(self, *events: ev.Event, files: Sequence[Artifact] = ()) -> None:
        receipt = Receipt(
            run=self.lease.run,
            item=self.item.id,
            step=self.step,
            action="",
            key=f"k{self.step}",
            outcome=ev.kind_of(events[-1]),
            snapshot_before="",
            snapshot_after="",
            command_id="",
            artifacts=list(files),
            events=[],
            usage=Usage(),
            created_at=format_timestamp(self.clock.now),
        )
        self.append(*events, receipt=receipt)

    def report(self) -> Artifact:
        tests = [
            TestResult(id=name, status=TestStatus(status), name=name.rpartition("::")[2], failure=None)
            for name, status in self.tests.items()
        ]
        made = Report(
            runner="pytest",
            status=ReportStatus.FAILED if "failed" in self.tests.values() else ReportStatus.PASSED,
            totals=Totals(tests=len(tests)),
            tests=tests,
        )
        return self.directory.put(f"reports/step-{self.step}.json", msgspec.json.encode(made))

    def baseline(self) -> None:
        self.begin("baseline")
        self.clock.pass_time(11)
        report = self.report()
        self.finish(
            ev.BaselineTaken(step=self.step, report=report, tests=43, failing=[], tree=self.tree), files=[report]
        )

    def ask(self, action: str, role: str, seconds: float, cost: float, outcome: Any, *facts: Any) -> None:
        self.begin(action, role)
        self.clock.pass_time(seconds)
        prompt = self.directory.put(f"prompts/step-{self.step}.md", f"# {action}\nYou may write: src/**\n".encode())
        answer = self.directory.put(f"answers/step-{self.step}.md", b"Done. The tests pass here.\n")
        made = [fact(self.step) for fact in facts]
        self.finish(self.spend(role, cost, seconds), *made, outcome(self.step), files=[prompt, answer])

    def audit(self, title: str, tests: Sequence[str], *, seconds: float = 90, cost: float = 0.11) -> None:
        paths = sorted({name.partition("::")[0] for name in tests})
        self.ask(
            "audit",
            "auditor",
            seconds,
            cost,
            lambda step: ev.TestWritten(step=step, paths=paths, tree=self.tree, summary=title),
        )
        self.tests |= dict.fromkeys(tests, "failed")

    def red(self, tests: Sequence[str], *, refused: str = "") -> None:
        self.begin("verify_red")
        self.clock.pass_time(6)
        if refused:
            self.tests |= dict.fromkeys(tests, "passed")
        report = self.report()
        if refused:
            for name in tests:
                del self.tests[name]
            self.finish(ev.RedRefused(step=self.step, why=refused, tree=self.tree), files=[report])
            return
        fingerprint = f"sha256:{hashlib.sha256(str(tests).encode()).hexdigest()}"
        self.finish(
            ev.RedConfirmed(step=self.step, tests=list(tests), fingerprint=fingerprint, report=report, sealed=3),
            files=[report],
        )

    def change(
        self, summary: str, source: str, *, seconds: float = 130, cost: float = 0.2, undone: str = "", **how: str
    ) -> None:
        """`action` and `role` name another change than that of the implementer."""
        before, self.tree_after = self.tree, self.make_tree(source)
        facts = [lambda step: ev.WritesUndone(step=step, role="implementer", paths=[undone])] if undone else []
        self.ask(
            how.get("action", "implement"),
            how.get("role", "implementer"),
            seconds,
            cost,
            lambda step: ev.ChangeProposed(
                step=step, paths=["src/proration.py"], tree=self.tree_after, summary=summary
            ),
            *facts,
        )
        self.tree = before

    def keep(self, subject: str, tests: Sequence[str] = (), action: str = "judge") -> None:
        self.begin(action)
        self.clock.pass_time(8)
        self.tests |= dict.fromkeys(tests, "passed")
        report, commit = self.report(), hashlib.sha256(f"{subject}{self.step}".encode()).hexdigest()[:40]
        self.finish(
            ev.StepCommitted(
                step=self.step,
                commit=commit,
                parent=self.head,
                subject=subject,
                tests=list(tests),
                report=report,
                tree=self.tree_after,
            ),
            files=[report],
        )
        self.head, self.tree = commit, self.tree_after

    def revert(self, why: str) -> None:
        self.begin("judge")
        self.clock.pass_time(8)
        report = self.report()
        self.finish(
            ev.StepReverted(step=self.step, why=why, paths=["src/proration.py"], tree=self.tree), files=[report]
        )

    def gates(self, action: str = "verify", doubts: Sequence[str] = ()) -> None:
        self.begin(action)
        self.clock.pass_time(15)
        ran = [
            ev.GateRan(step=self.step, gate=name, status=GateStatus.PASSED, seconds=seconds)
            for name, seconds in (("compile", 0.3), ("unit", 6.1), ("coverage", 7.9), ("cheats", 0.2))
        ]
        names = [gate.gate for gate in ran]
        made = ev.Completion(
            commit=self.head, tree=self.tree, sealed=3 if action == "verify" else 0, doubts=list(doubts)
        )
        self.finish(*ran, ev.StepVerified(step=self.step, gates=names, warnings=list(doubts), completion=made))

    def iteration(self, title: str, subject: str, *, slips: Sequence[str] = ()) -> None:
        name = f"tests/test_{self.step}.py::test_{subject.split(maxsplit=1)[0].lower()}"
        self.audit(title, [name])
        self.red([name])
        for why in slips:
            self.change("a first try", SLIPPED)
            self.revert(why)
        self.change(subject, f"{BEFORE}\n# {subject}\n")
        self.keep(subject, [name])
        self.gates()

    # --- endings -------------------------------------------------------------------------------------------

    def complete(self, doubts: int = 0) -> None:
        self.ask(
            "audit",
            "auditor",
            20,
            0.02,
            lambda step: ev.RequirementsMet(step=step, summary="every requirement has its test"),
        )
        self.ask("review", "reviewer", 60, 0.05, lambda step: ev.ReviewApproved(step=step, summary="small and honest"))
        self.begin("final")
        self.clock.pass_time(20)
        self.finish(ev.FinalVerified(step=self.step, reports=[], canaries=1))
        self.append(ev.RunCompleted(commits=1, head=self.head, doubts=doubts))

    def park(self, reason: ParkReason, detail: str, until: str = "") -> None:
        self.append(ev.RunParked(reason=reason, detail=detail, until=until))

    def fail(self, reason: Reason, detail: str) -> None:
        self.store.fail(self.lease, reason, detail, delays_s=())


BEFORE = '''"""Proration."""

from fractions import Fraction

from billing.money import Money


def upgrade_charge(old, new, on):
    """What is charged for the rest of the month."""
    days = days_of(on)
    share = Fraction(days - on.day + 1, days)
    return (new.price - old.price) * share
'''
SLIPPED = (
    BEFORE
    + '''

def downgrade_credit(old, new, on):
    """What is given back for the rest of the month."""
    if (old.name, on.day) == ("team", 10):
        return Money("13.33")
    return (old.price - new.price) * (30 - on.day) / 30
'''
)
CREDITED = (
    BEFORE
    + '''

def downgrade_credit(old, new, on):
    """What is given back for the rest of the month."""
    days = days_of(on)
    return (old.price - new.price) * Fraction(days - on.day, days)
'''
)


def featured(factory: Factory) -> Recording:
    """The run of the design: four commits, two slips, one refused test, a question, and a change under way."""
    factory.at(minutes=64)
    run = factory.start(factory.add("billing-api", "Proration when a plan changes mid-month", "high"))
    run.baseline()
    charges, first = "tests/test_upgrade.py::test_charges_the_rest", "tests/test_upgrade.py::test_first_day"
    run.audit("Upgrades charge the rest of the month", [charges, first], seconds=108)
    run.red([charges, first])
    run.change("charge the rest of the month", BEFORE + "\n# charged\n", seconds=151)
    run.keep("Charge the rest of the month on upgrade", [charges, first])
    run.gates()
    credits = "tests/test_downgrade.py::test_credits_the_rest"
    run.audit("Downgrades credit the rest of the month", [credits], seconds=82)
    run.red([credits])
    run.change("credit by the day", SLIPPED, seconds=118)
    run.tests[credits] = "passed"
    run.revert("overfitted: the open tests pass, 2 of 3 sealed tests fail")
    run.change("count the month's days", CREDITED, seconds=160)
    run.keep("Credit the rest of the month on downgrade", [credits])
    run.gates()
    cents, even = "tests/test_rounding.py::test_whole_cents", "tests/test_rounding.py::test_half_even"
    run.audit("Amounts are whole cents", [cents], seconds=58)
    run.red([cents], refused="the new test already passes: test_whole_cents")
    run.audit("Halves are rounded to even", [even], seconds=70)
    run.red([even])
    run.change("round each share", CREDITED + "\n# rounded\n", seconds=125)
    run.revert("still red: tests/test_rounding.py::test_half_even")
    run.change("round once, at the end", CREDITED + "\n# once\n", seconds=104, undone="tests/conftest.py")
    run.keep("Round half to even, once, at the end", [even])
    run.gates()
    run.change(
        "Period and share had three names", CREDITED + "\n# names\n", seconds=192, action="refactor", role="architect"
    )
    run.keep("Name the period and the share", action="judge_refactor")
    run.gates("verify_refactor")
    run.begin("audit", "auditor")
    run.clock.pass_time(34)
    run.append(run.spend("auditor", 0.05, 34))
    run.park(ParkReason.QUESTION, "question: does a leap year have 366 days for the annual plan?")
    run.clock.pass_time(38 * 60)
    factory.store.answer(run.item.id, "the year's real length", by="a person (web)")
    run.lease = factory.store.claim(run.item.id, run=run.lease.run, holder=run.lease.holder, ttl_s=30 * 86_400)
    leap = "tests/test_annual.py::test_leap_year"
    run.append(ev.RunClaimed(worker="build-1:4711"), ev.StepResumed(step=run.step))
    run.clock.pass_time(91)
    run.finish(
        run.spend("auditor", 0.06, 91),
        ev.TestWritten(step=run.step, paths=["tests/test_annual.py"], tree=run.tree, summary="Annual plans by days"),
    )
    run.tests[leap] = "failed"
    run.red([leap])
    run.begin("implement", "implementer")
    run.append(ev.SessionOpened(step=run.step, role="implementer", agent=AGENTS["implementer"], session="019a"))
    run.directory.log_path(f"step-{run.step}-agent.log").write_text(
        "14:34:02  session 019a continues\n14:34:20  read src/billing/proration.py\n"
        "14:34:41  edit src/billing/proration.py  +9 -2\n14:34:58  test_workspace.test  1 failed, 49 passed\n"
    )
    return run


def long_run(factory: Factory, iterations: int = 60) -> Recording:
    """A run of many hours, most of it steady."""
    factory.at(hours=30)
    run = factory.start(factory.add("parcel-web", "Port the label renderer to the new layout engine", "low"))
    run.baseline()
    for number in range(iterations):
        slips = ["still red"] * (number % 4 == 1) + ["overfitted: a sealed test fails"] * (number % 9 == 4)
        run.iteration(f"Page {number} renders", f"Render page {number}", slips=slips)
    run.complete()
    return run


def whole_day(folder: Path, *, now: datetime | None = None, long: int = 60, days: int = 13) -> Factory:
    """Some history, a day of work, and everything that an inbox can hold."""
    factory = Factory(folder, now=now)
    history(factory, days)
    long_run(factory, long)
    for hours, repo, title, priority in (
        (7, "billing-api", "Idempotent refunds", "high"),
        (6, "ledgerd", "Compress idle segments", "medium"),
        (5, "parcel-web", "Tracking page loads without the map", "medium"),
        (4, "billing-api", "Name the currency in every total", "low"),
    ):
        factory.at(hours=hours)
        run = factory.start(factory.add(repo, title, priority))
        run.baseline()
        for number in range(1 + hours % 4):
            slips = ["still red: test_one"] if number == 1 else []
            run.iteration(f"Requirement {number + 1}", f"Meet requirement {number + 1}", slips=slips)
        run.complete()
    stopped(factory)
    doubtful(factory)
    featured(factory)
    working(factory)
    waiting(factory)
    factory.clock.now = factory.end
    return factory


def history(factory: Factory, days: int) -> None:
    for day in range(days, 0, -1):
        for number in range(2 + (day * 5) % 4):
            factory.at(days=day, hours=-number)
            name = list(factory.repos)[(day + number) % 3]
            run = factory.start(factory.add(name, f"Earlier work {day}.{number}"))
            for done in range(1 + (day + number) % 3):
                slips = ["still red"] if (day + number + done) % 3 == 0 else []
                run.iteration("A requirement", f"Meet it {done}", slips=slips)
            if (day + number) % 7 == 0:
                run.fail(Reason.NO_PROGRESS, "no change turned the test green")
                for entry in inbox_entries(factory.store.board((BoardColumn.FAILED,))):
                    factory.store.snooze(entry.key, by="a person (web)")
            else:
                run.complete()


def stopped(factory: Factory) -> None:
    """What waits for a person."""
    factory.at(hours=3)
    run = factory.start(factory.add("ledgerd", "Clock skew in lease expiry", "high"))
    run.iteration("Leases expire by the server's clock", "Ask the server for the time")
    run.audit("A skewed client loses its lease", ["tests/test_lease.py::test_expiry"])
    run.red(["tests/test_lease.py::test_expiry"])
    for _ in range(3):
        run.change("another try", SLIPPED)
        run.revert("still red: tests/test_lease.py::test_expiry")
    run.fail(Reason.NO_PROGRESS, "no change turned tests/test_lease.py::test_expiry green")
    factory.at(hours=2, minutes=30)
    run = factory.start(factory.add("billing-api", "Import tariffs from the old CSV", "low"))
    run.fail(Reason.NO_TEST_COMMAND, "no test command found in billing-api")
    factory.at(hours=2)
    run = factory.start(factory.add("parcel-web", "Labels in A6"))
    for number in range(4):
        run.iteration(f"Part {number + 1}", f"Lay out part {number + 1}")
    run.fail(Reason.CONFLICT, "src/label/page.ts conflicts with main, rebased 3 times")
    factory.at(hours=1, minutes=20)
    run = factory.start(factory.add("ledgerd", "Compact the write-ahead log", "high"))
    for number in range(3):
        run.iteration(f"Rule {number + 1}", f"Compact by rule {number + 1}", slips=["still red"] * (number == 1))
    run.park(ParkReason.REVIEW, "touches migrations/, which needs a person")
    factory.at(minutes=51)
    for title in ("Retry uploads", "Merge small segments"):
        run = factory.start(factory.add("ledgerd", title))
        run.baseline()
        run.park(ParkReason.LOGIN, "auth: codex is signed out on build-2; log in with: codex login")
    factory.at(minutes=22)
    run = factory.start(factory.add("parcel-web", "Address form without the third-party script", "high"))
    run.iteration("The form is ours", "Draw the form")
    run.iteration("It checks the post code", "Check the post code", slips=["still red"])
    run.begin("audit", "auditor")
    run.park(
        ParkReason.QUESTION, "question: may the house number be empty? The spec allows it, the carrier rejects it."
    )
    factory.at(minutes=18)
    run = factory.start(factory.add("billing-api", "Refunds keep the original tax rate"))
    run.iteration("The rate is kept", "Keep the rate")
    until = format_timestamp(factory.end + timedelta(minutes=41))
    run.park(ParkReason.QUOTA, "rate_limited: the limit of claude resets", until)


def doubtful(factory: Factory) -> None:
    """A completed item with a finding that no judge decided, and what its run taught."""
    factory.at(hours=3, minutes=30)
    run = factory.start(factory.add("billing-api", "Round tax per line, not per invoice"))
    name = "tests/test_tax.py::test_per_line"
    run.audit("Tax is rounded per line", [name])
    run.red([name])
    run.change("Round per line", f"{BEFORE}\n# per line\n")
    run.keep("Round tax per line", [name])
    run.gates(doubts=["src/tax.py:41: the value 13.33 of the test stands in the source"])
    run.complete(doubts=1)
    for number, (kind, text) in enumerate(
        (
            (
                LearningKind.LESSON,
                "Money is rounded once, at the end of a sum: rounding each share fails test_half_even",
            ),
            (LearningKind.DEAD_END, "Setting TZ in conftest.py does not reach the workers of pytest-xdist"),
            (LearningKind.CANDIDATE, "The tests of parcel-web need `npm ci` before the first run"),
        )
    ):
        made = Learning(
            id=f"learning-{number}",
            repo=run.item.repo,
            content=text,
            kind=kind,
            run=run.lease.run,
            created_at=format_timestamp(factory.clock.now),
        )
        factory.store.add_learning(made)


def working(factory: Factory) -> None:
    factory.at(minutes=24)
    run = factory.start(factory.add("ledgerd", "Follow a moved leader without a retry storm", "high"), "build-2:98")
    run.iteration("The leader is asked first", "Ask the leader first")
    run.audit("Retries are spread", ["tests/test_retry.py::test_spread"])
    run.begin("verify_red")
    factory.at(minutes=52)
    run = factory.start(factory.add("parcel-web", "Dark mode for the tracking page"), "build-2:99")
    for number in range(4):
        slips = ["still red"] if number in (1, 2) else []
        run.iteration(f"View {number + 1} follows the system", f"Follow the system in view {number + 1}", slips=slips)
    run.begin("review", "reviewer")
    factory.store.report_stuck(run.lease, "silent for 12 minutes, no tool call is running")


def waiting(factory: Factory) -> None:
    for minutes, repo, title, priority in (
        (4, "billing-api", "Invoices carry the buyer's VAT number", "critical"),
        (60, "billing-api", "Reject webhooks older than five minutes", "high"),
        (120, "parcel-web", "Print the return label on the same sheet", "high"),
        (360, "ledgerd", "Snapshots survive a full disk", "medium"),
        (540, "parcel-web", "Sort carriers by price, then by time", "medium"),
        (2880, "ledgerd", "Rename Txn to Transaction", "low"),
    ):
        factory.at(minutes=minutes)
        factory.add(repo, title, priority)


def watched(repo: Path) -> None:
    """What `ratchet watch` leaves of a tree in which a test fails."""
    failure = Failure(type="AssertionError", message="assert Money('13.34') == Money('13.33')")
    name = "tests/test_rounding.py::test_half_even"
    red = TestResult(id=name, status=TestStatus.FAILED, name="test_half_even", failure=failure)
    state = WatchState(
        colour=Colour.RED,
        stage=WatchStage.IDLE,
        totals=Totals(tests=50, passed=49, failed=1),
        failing=[red],
        flaky=["tests/test_store.py::test_two_writers"],
        at=format_timestamp(datetime.now(UTC)),
    )
    (repo / ".ratchet").mkdir(exist_ok=True)
    (repo / ".ratchet" / "watch.json").write_bytes(msgspec.json.encode(state))
