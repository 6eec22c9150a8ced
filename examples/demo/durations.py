"""Read durations as people write them."""


def parse(text: str) -> int:
    """Seconds in a duration such as `45s`."""
    return int(text.removesuffix("s"))
