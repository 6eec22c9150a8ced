"""Plays the program's side of a recorded ACP conversation: `acp_replay.py FILE [dies]`.

An answer waits for its question, and after a question of its own it waits for the answer. At the end it stays, as
programs do, or dies.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.agents.support import PLACE


class Listener:
    def __init__(self) -> None:
        self.received: set[tuple[str, Any]] = set()

    def wait_for(self, kind: str, number: Any) -> None:
        while (kind, number) not in self.received:
            line = sys.stdin.readline()
            if not line:
                sys.exit(0)
            message = json.loads(line)
            self.received.add(("question" if "method" in message else "answer", message.get("id")))


def main(path: str, *dies: str) -> None:
    listener = Listener()
    for line in Path(path).read_text().splitlines():
        message = json.loads(line)
        if "method" not in message:
            listener.wait_for("question", message["id"])
        print(line.replace(PLACE, str(Path.cwd())), flush=True)
        if "method" in message and "id" in message:
            listener.wait_for("answer", message["id"])
    if not dies:
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
