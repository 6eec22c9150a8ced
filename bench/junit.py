"""JUnit: 50 MB of XML into results against expat reading the same bytes, in turns, by the least processor time."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from typing import NamedTuple
from xml.parsers import expat

from bench import Goal, Row
from ratchet.checks.formats import Parsed, junit

SIZE = 50 << 20
OWN = "\tat com.acme.shop.orders.OrderService{0}.call(OrderService{0}.java:{1})\n"
FRAMEWORK = "".join(
    f"\tat {call}\n"
    for call in [
        "org.junit.jupiter.engine.descriptor.MethodTestDescriptor.lambda$invoke$0(MethodTestDescriptor.java:151)",
        "org.junit.jupiter.engine.execution.MethodInvocation.proceed(MethodInvocation.java:60)",
        "org.junit.jupiter.engine.extension.TimeoutExtension.intercept(TimeoutExtension.java:156)",
        "org.junit.platform.engine.support.hierarchical.ThrowableCollector.execute(ThrowableCollector.java:73)",
        "org.junit.platform.engine.support.hierarchical.NodeTestTask.lambda$recursively$8(NodeTestTask.java:141)",
        "java.base/java.util.ArrayList.forEach(ArrayList.java:1511)",
        "java.base/jdk.internal.reflect.DirectMethodHandleAccessor.invoke(DirectMethodHandleAccessor.java:103)",
        "java.base/java.lang.reflect.Method.invoke(Method.java:580)",
        "org.gradle.api.internal.tasks.testing.SuiteTestClassProcessor.processTestClass(SuiteTestClassProcessor.java:53)",
        "java.base/java.lang.Thread.run(Thread.java:1583)",
    ]
    * 2
)
FAILURE = (
    '<failure message="expected: &lt;{0}&gt; but was: &lt;5&gt;" '
    'type="org.opentest4j.AssertionFailedError">{1}</failure>'
)
TALK = "2026-11-16 01:02:03 INFO OrderService - handled the order number 12345 in 3 ms\n"


class Dialect(NamedTuple):
    """How a writer spells a document, suites and cases. `{group}` is a suite's name, `{case}` a case's number."""

    root: str = "<testsuites>"
    suite: str = '<testsuite name="{group}" tests="50" failures="0" errors="0" skipped="0" time="1.2">\n'
    case: str = '<testcase name="does_what_test_{case}_says" classname="{group}" time="0.{millis:03}"'
    close: str = "/>\n"
    closing: str = "</testcase>\n"
    end: str = "</testsuite>\n"
    root_end: str = "</testsuites>"


GTEST = Dialect(
    case='<testcase name="Does{case}" file="/home/me/shop/orders_test.cc" line="{case}" status="run" '
    'result="completed" time="0.{millis:03}" timestamp="2026-11-16T01:02:03.004" classname="{group}"'
)
PYTEST = Dialect(  # one suite, whose counts are right, and nothing between the cases
    root='<?xml version="1.0" encoding="utf-8"?><testsuites name="pytest tests"><testsuite name="pytest" errors="0" '
    'failures="0" skipped="0" time="1.2" timestamp="2026-11-16T01:02:03.004+00:00" hostname="here">',
    suite="",
    case='<testcase classname="tests.test_orders{module}" name="test_total_{case}" time="0.{millis:03}"',
    close=" />",
    closing="</testcase>",
    end="",
    root_end="</testsuite></testsuites>",
)
NESTED = Dialect(
    suite='  <testsuite name="orders">\n    <testsuite name="{group}" tests="50">\n      <properties>\n'
    '        <property name="java.version" value="21"/>\n      </properties>\n',
    case='      <testcase name="does_what_test_{case}_says" classname="{group}" time="0.{millis:03}"',
    end="    </testsuite>\n  </testsuite>\n",
)


def document(content: Callable[[int], str], dialect: Dialect = Dialect()) -> bytes:  # noqa: B008
    """Suites of fifty cases until the size is reached; `content` says what stands in each case."""
    pieces, size, number = [dialect.root], 0, 0
    while size < SIZE:
        group = f"com.acme.shop.orders.OrderService{number}Test"
        pieces.append(dialect.suite.format(group=group))
        for case in range(number, number + 50):
            head = dialect.case.format(case=case, group=group, module=number // 50, millis=case % 1000)
            body = content(case)
            pieces.append(f"{head}>{body}{dialect.closing}" if body else f"{head}{dialect.close}")
            size += len(pieces[-1])
        number += 50
        pieces.append(dialect.end)
    return "".join([*pieces, dialect.root_end]).encode()


def passing(_: int) -> str:
    return ""


def every(nth: int, fails: Callable[[int], str]) -> Callable[[int], str]:
    return lambda case: fails(case) if case % nth == 0 else ""


def mixed(case: int) -> str:
    """One in twenty fails with a stack, one in three prints ten lines."""
    if case % 20 == 0:
        return failing(case)
    return f"<system-out><![CDATA[{TALK * 10}]]></system-out>" if case % 3 == 0 else ""


def failing(case: int) -> str:
    """A message and a line of its own, frames that its class has, and then what every stack has."""
    own = "".join(OWN.format(case // 50, line) for line in (case, 42, 63))
    return FAILURE.format(case, own + FRAMEWORK)


def unlike(case: int) -> str:
    """No frame is ever seen again, so that nothing remembered helps."""
    return FAILURE.format(case, "".join(OWN.format(case, line) for line in range(25)))


def asserting(case: int) -> str:
    """What pytest prints: no stack, but a text that many rules may be about."""
    return (
        f'<failure message="assert 5 == {case}&#10; +  where 5 = total()">def test_total_{case}():\n'
        f"&gt;       assert total() == {case}\nE       assert 5 == {case}\nE        +  where 5 = total()\n\n"
        f"tests/test_orders.py:{case}: AssertionError</failure>"
    )


def asserting_at_length(case: int) -> str:
    """The same with the source of the test, what objects look like, and what was printed."""
    where = f"where 5 = total(Order(id={case}, lines=[1, 2]))"
    return (
        f'<failure message="AssertionError: assert 5 == {case}&#10; +  {where}">'
        f"self = &lt;tests.test_orders.TestOrders object at 0x7f2b1c0d{case:04x}&gt;, order = Order(id={case})\n\n"
        f'    def test_total_{case}(self, order):\n        """The total of an order is what its lines cost."""\n'
        '        shop = Shop("name", rates={"de": 19, "fr": 20})\n        shop.add(order)\n'
        f"&gt;       assert shop.total(order) == {case}\n"
        f"E       AssertionError: assert 5 == {case}\nE        +  {where}\n\n"
        f"tests/test_orders.py:{case}: AssertionError\n"
        f"----------------------------- Captured stdout call -----------------------------\nadded {case}\n</failure>"
    )


def expecting(case: int) -> str:
    """What jest prints: no message, and a stack that is the framework's but for one row."""
    modules = "/home/me/shop/node_modules/jest-circus/build"
    return (
        "<failure>Error: expect(received).toBe(expected) // Object.is equality\n\n"
        f"Expected: {case}\nReceived: 5\n"
        f"    at Object.&lt;anonymous&gt; (/home/me/shop/src/orders{case // 50}.test.ts:{case}:17)\n"
        f"    at Promise.then.completed ({modules}/utils.js:298:28)\n    at new Promise (&lt;anonymous&gt;)\n"
        f"    at callAsyncCircusFn ({modules}/utils.js:231:10)\n    at _callCircusTest ({modules}/run.js:316:40)\n"
        "    at processTicksAndRejections (node:internal/process/task_queues:95:5)</failure>"
    )


def of_few_causes(fails: Callable[[int], str]) -> Callable[[int], str]:
    return lambda case: fails(case % 7)


def in_section(fails: Callable[[int], str]) -> Callable[[int], str]:
    """As Maven writes it."""
    return lambda case: fails(case).replace(">\tat", "><![CDATA[\tat").replace("</failure>", "]]></failure>")


def skipping(_: int) -> str:
    return '<skipped message="not on this machine"/>'


def talkative(_: int) -> str:
    return f"<system-out><![CDATA[{TALK * 60}]]></system-out>"


def escaping(_: int) -> str:
    return f"<system-out>{TALK * 60}</system-out>".replace("INFO", "&lt;INFO&gt;")


def bare(data: bytes) -> None:
    expat.ParserCreate().Parse(data, True)


def nothing(*_: object) -> None:
    pass


def received(data: bytes) -> None:
    """What expat needs when Python hears every event and does nothing."""
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = nothing
    parser.EndElementHandler = nothing
    parser.CharacterDataHandler = nothing
    parser.Parse(data, True)


KINDS: dict[str, tuple[Callable[[int], str], Dialect]] = {
    "passing": (passing, Dialect()),
    "passing, pytest's": (passing, PYTEST),
    "passing, GoogleTest's": (passing, GTEST),
    "passing, nested and indented": (passing, NESTED),
    "5 % skipped": (every(20, skipping), Dialect()),
    "1 % failing": (every(100, failing), Dialect()),
    "10 % failing": (every(10, failing), Dialect()),
    "10 % failing, few causes": (every(10, of_few_causes(failing)), Dialect()),
    "10 % failing, in sections": (every(10, in_section(failing)), Dialect()),
    "a third failing": (every(3, failing), Dialect()),
    "1 % failing, Python": (every(100, asserting), PYTEST),
    "10 % failing, Python": (every(10, asserting), PYTEST),
    "10 % failing, Python at length": (every(10, asserting_at_length), PYTEST),
    "10 % failing, Python, few causes": (every(10, of_few_causes(asserting_at_length)), PYTEST),
    "10 % failing, jest": (every(10, expecting), Dialect()),
    "mixed": (mixed, Dialect()),
    "talkative": (talkative, Dialect()),
    "talkative, escaped": (escaping, Dialect()),
    "failing": (failing, Dialect()),
    "failing, no frame twice": (unlike, Dialect()),
}


def main() -> list[Row | Goal]:
    return [row for name, kind in KINDS.items() for row in _measured(name, document(*kind))]


def _measured(name: str, data: bytes) -> list[Row | Goal]:
    kept: list[Parsed] = []
    took = _least(
        3,
        ours=lambda: kept.append(junit.parse(io.BytesIO(data))),
        # Giving the results back is not reading them.
        freed=kept.clear,
        bare=lambda: bare(data),
        received=lambda: received(data),
    )
    return [
        (f"{name}: parse 50 MB", "s", took["ours"]),
        (f"{name}: times an expat that nobody listens to", "x", took["ours"] / took["bare"]),
        _goal(f"{name}: times expat with handlers that do nothing", took["ours"] / took["heard"]),
    ]


def _least(rounds: int, **subjects: Callable[[], object]) -> dict[str, float]:
    """Seconds of processor time: what others do on the machine is not ours to measure."""
    least = dict.fromkeys(subjects, float("inf"))
    for _ in range(rounds):
        for name, subject in subjects.items():
            began = time.process_time()
            subject()
            least[name] = min(least[name], time.process_time() - began)
    return least


def _goal(measure: str, value: float) -> Goal:
    return Goal(measure=measure, value=value, unit="x", wanted="at most 2", ok=value <= 2)
