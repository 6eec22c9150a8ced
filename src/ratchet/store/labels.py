"""Labels in SQL: an item's and a worker's are one text, in which each label stands between two newlines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def labels_text(labels: Iterable[str]) -> str:
    return "".join(f"\n{label}\n" for label in sorted(set(labels)))


def labels_of(text: str) -> list[str]:
    return text.split()


def suits(labels: Sequence[str]) -> str:
    """Return the condition that a worker with these labels may claim the item; its values are `suits_values`.

    Taking the worker's labels out of the item's must leave nothing.
    """
    left = "items.labels"
    for _ in labels:
        left = f"replace({left}, ?, '')"
    return f" AND {left} = ''"


def suits_values(labels: Sequence[str]) -> list[object]:
    return [labels_text([label]) for label in labels]
