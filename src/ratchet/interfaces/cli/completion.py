"""The command `completion`: prints the script that completes commands, options and choices in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from ratchet.interfaces.cli.common import COMPLETE, Arguments, CliCommand, argument, print_data, print_json

SHELLS = ("bash", "zsh", "fish")
_MORE = """Install:
  bash   ratchet completion bash > ~/.ratchet.bash     (source it in ~/.bashrc)
  zsh    ratchet completion zsh > ~/.zfunc/_ratchet     (with ~/.zfunc in fpath)
  fish   ratchet completion fish > ~/.config/fish/completions/ratchet.fish"""


def completion(arguments: Arguments) -> int:
    found = get_completion_class(arguments.shell)
    assert found
    script = found(click.Command("ratchet"), {}, "ratchet", COMPLETE).source().rstrip()
    print_json({"shell": arguments.shell, "script": script}) if arguments.json else print_data(script)
    return 0


COMMANDS = (
    CliCommand(
        "completion",
        "print the completion script of a shell",
        completion,
        argument("shell", type=click.Choice(SHELLS)),
        more=_MORE,
    ),
)
