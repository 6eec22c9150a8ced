"""The long ones are run when they are asked for by name: `make certify-factory`."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "certify" in (config.option.markexpr or ""):
        return
    long = [item for item in items if item.get_closest_marker("certify")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
