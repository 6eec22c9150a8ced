"""Long tests run only by name, with `make certify-factory`; their figures are printed at the end."""

from __future__ import annotations

import msgspec
import pytest

from tests.app.flood import Seen

SEEN: list[Seen] = []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "certify" in (config.option.markexpr or ""):
        return
    long = [item for item in items if item.get_closest_marker("certify")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not SEEN or "certify" not in (config.option.markexpr or ""):
        return
    terminalreporter.section("what the floods came to")
    for row in [Seen.__struct_fields__, *map(msgspec.structs.astuple, SEEN)]:
        cells = [value if isinstance(value, str) else f"{value:.6g}" for value in row]
        terminalreporter.write_line("".join(f"{cell:>11}" for cell in cells))
