"""A flood of one character, as code under test can print it, keeps no parser busy for longer than its size explains."""

from __future__ import annotations

import inspect
import pkgutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from io import BytesIO
from typing import Any

import pytest

import ratchet.checks.formats as formats

LENGTH, CPU_S = 50_000, 2.0  # quadratic patterns take 5 s and more
FLOODS = [*"\n \t#([{'\"=-a1", "a ", "\n ", "a.", "a/"]
# Beginnings of rows that a pattern looks for everywhere in a row: each is followed to the row's end.
ROWS = [
    "* test a",
    "Error: unhandled exception: a.nim(1, 1)  [a",
    "Unhandled exception:  [a",
    "thread 'a' panicked at a ",
]
SHAPES = ["{}", "{}:\n", "ok 1 {}\nnot ok 2 - {}\n"]


def parsers() -> Iterator[Any]:
    for module in pkgutil.walk_packages(formats.__path__, f"{formats.__name__}."):
        for name, made in vars(import_module(module.name)).items():
            if name.startswith("parse") and inspect.isfunction(made) and made.__module__ == module.name:
                first = next(iter(inspect.signature(made).parameters.values()), None)
                if first and "BinaryIO" in str(first.annotation):
                    yield pytest.param(made, id=f"{module.name.removeprefix(f'{formats.__name__}.')}.{name}")


@pytest.mark.parametrize("parse", [*parsers()])
def test_a_flood_is_parsed_in_a_time_that_grows_with_its_length(parse: Callable[[BytesIO], object]) -> None:
    for flood in FLOODS:
        for shape in SHAPES:
            text = shape.replace("{}", flood * (LENGTH // len(flood)))
            began = time.process_time()
            with suppress(Exception):  # other tests check the results
                parse(BytesIO(text.encode()))
            assert time.process_time() - began < CPU_S, (flood, shape)


@pytest.mark.parametrize("parse", [*parsers()])
def test_a_long_row_is_parsed_in_a_time_that_grows_with_its_length(parse: Callable[[BytesIO], object]) -> None:
    for row in ROWS:
        text = row * (4 * LENGTH // len(row))
        began = time.process_time()
        with suppress(Exception):  # other tests check the results
            parse(BytesIO(text.encode()))
        assert time.process_time() - began < CPU_S, row
