"""The command `ratchet`, and `python -m ratchet`."""

import gc
import sys


def main() -> None:
    gc.disable()  # the objects of an import are kept: collecting them costs a tenth of the start-up time
    from ratchet.interfaces.cli import main as cli  # noqa: PLC0415 — importing ratchet must stay cheap
    from ratchet.process.reaper import keep_inherited_descriptors  # noqa: PLC0415

    keep_inherited_descriptors()

    sys.exit(cli(sys.argv[1:]))


if __name__ == "__main__":
    main()
