"""The command `ratchet`, and `python -m ratchet`."""

import sys


def main() -> None:
    from ratchet.surfaces.cli import main as cli  # noqa: PLC0415 — importing ratchet must stay cheap

    sys.exit(cli(sys.argv[1:]))


if __name__ == "__main__":
    main()
