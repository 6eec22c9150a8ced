"""Helpers shared by all commands: declaration, opening the run service, printing.

Imports little: every command starts with this module.
"""

from __future__ import annotations

import gc
import math
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ratchet.errors import NotFound, UsageError
from ratchet.interfaces.terminal.printable import printable

if TYPE_CHECKING:
    from ratchet.app.runs import RunService

EXIT_CODES = """Exit codes:
  0 success   1 tests, a run or a check failed   2 usage or configuration error
  3 a required tool or permission is missing
  75 parked until a provider quota resets   130 interrupted"""

COMPLETE = "_RATCHET_COMPLETE"  # the variable by which a completion script asks
WORKERS_MAX = 512  # the limit of `worker.count`
PATH = click.Path(path_type=Path)

T = TypeVar("T")
Arguments = SimpleNamespace
Handle = Callable[[Arguments], int]
verbosity = SimpleNamespace(quiet=False, verbose=False)


class CliCommand(click.Command):
    """A command whose handler takes all its parameters as one `Arguments` object and returns the exit code."""

    def __init__(
        self, name: str, help: str, handle: Handle, *params: click.Parameter, more: str = "", **settings: Any
    ) -> None:
        def callback(**given: Any) -> int:
            gc.enable()  # switched off for the imports by `ratchet.__main__`
            if not given["repo"].is_dir():
                raise UsageError(f"no such folder: {given['repo']}", hint="check the path")
            return handle(Arguments(**{key: list(v) if isinstance(v, tuple) else v for key, v in given.items()}))

        super().__init__(
            name,
            callback=callback,
            params=[*params, *_common()],
            short_help=help,
            help=f"{help[0].upper()}{help[1:]}.",
            epilog=more,
            **settings,
        )

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        return plain_help_option(super().get_help_option(ctx))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of the command, then the options that all commands have."""
        shared = {param.name for param in _common()} | {"help"}
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        for title, common in (("Options", False), ("Common options", True)):
            rows = [param.get_help_record(ctx) for param in options if (param.name in shared) is common]
            if rows:
                with formatter.section(title):
                    formatter.write_dl([row for row in rows if row])

    def format_epilog(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_as_is(formatter, self.epilog or "")


class RestCommand(CliCommand):
    """A command whose first argument is followed by options and `--`, or directly by another program's command line."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.allow_interspersed_args = self._has_own_options_only(ctx, args)
        return super().parse_args(ctx, args)

    def _has_own_options_only(self, ctx: click.Context, args: list[str]) -> bool:
        """Return whether only the first argument and our own options come before a `--`."""
        if "--" not in args:
            return False
        ctx.allow_interspersed_args = True
        try:
            values, _, _ = self.make_parser(ctx).parse_args(args[: args.index("--")])
        except click.UsageError:
            return False
        rest = values.get(self.params[1].name or "")
        return not (isinstance(rest, tuple | list) and rest)  # click has a value of its own for "not given"


class PassthroughCommand(CliCommand):
    """A command that passes everything after `--` on, as `args`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        rest = super().parse_args(ctx, args[:at])
        ctx.params["args"] = args[at + 1 :]
        return rest


def plain_help_option(found: click.Option | None) -> click.Option | None:
    """Describe `--help` in the style of the other options."""
    if found:
        found.help = "print this help and exit"
    return found


def write_as_is(formatter: click.HelpFormatter, text: str) -> None:
    """Write text without reflowing its lines."""
    if text:
        formatter.write_paragraph()
        formatter.write(f"{text.rstrip()}\n")


def _common() -> list[click.Parameter]:
    return [
        flag("--json", help="print the result as JSON"),
        option(
            "-C",
            "--repo",
            type=PATH,
            default=Path(),
            metavar="DIR",
            help="repository to work on (default: current directory)",
        ),
        option("--set", multiple=True, metavar="KEY=VALUE", help="override a configuration key (repeatable)"),
        *verbosity_options(),
    ]


def verbosity_options() -> list[click.Parameter]:
    return [
        flag("-q", "--quiet", help="print only results and errors", callback=_set_verbosity),
        flag("-v", "--verbose", help="print more detail", callback=_set_verbosity),
    ]


def _set_verbosity(_ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    if value:
        setattr(verbosity, str(param.name), True)
    return value


def option(*names: str, **settings: Any) -> click.Option:
    return click.Option(names, **settings)


def flag(*names: str, **settings: Any) -> click.Option:
    return click.Option(names, is_flag=True, default=False, **settings)


def argument(name: str, **settings: Any) -> click.Argument:
    return click.Argument([name], **settings)


class NumberBetween(click.ParamType[float]):
    """A number between `least` and `most`."""

    name = "number"

    def __init__(self, least: float, most: float, kind: type[int] | type[float] = int) -> None:
        self.least, self.most, self.kind = least, most, kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            given = self.kind(value)
        except ValueError:
            given = math.nan
        if not self.least <= given <= self.most:
            self.fail(f"{value!r} is not a number from {self.least:g} to {self.most:g}", param, ctx)
        return given


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to completion; SIGTERM cancels it as Ctrl-C does."""
    import asyncio  # noqa: PLC0415 — slow to import, and `test` does not need it

    async def interruptible() -> T:
        task = asyncio.current_task()
        assert task
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    return asyncio.run(interruptible())


def logs_json() -> bool:
    """Whether messages are JSON, one object a line."""
    return os.environ.get("RATCHET_LOG", "").lower() == "json"


def print_error(text: str, *, level: str = "error") -> None:
    if logs_json():
        from ratchet.interfaces.cli.json_log import json_line  # noqa: PLC0415 — `--help` does not need it

        text = json_line(text.strip(), level=level)
    print(printable(text, sys.stderr), file=sys.stderr)  # noqa: T201 — the one place that prints errors


def print_note(text: str) -> None:
    """Print a message that is not part of the result; --quiet omits it."""
    if not verbosity.quiet:
        print_error(text, level="info")


def print_data(text: str) -> None:
    print(printable(text, sys.stdout))  # noqa: T201 — the one place that prints results


def print_json(value: object) -> None:
    import msgspec  # noqa: PLC0415 — `--help` does not need it

    print_data(msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode())


def open_runs(arguments: Arguments, settings: Sequence[str] = ()) -> RunService:
    # Imported here: the run service imports most of Ratchet, and quick commands start without it.
    from ratchet import config  # noqa: PLC0415
    from ratchet.app.runs import RunService  # noqa: PLC0415
    from ratchet.workspace.git import repository  # noqa: PLC0415

    repo = repository.find_repository(arguments.repo.absolute())
    server, token = _server(arguments)
    flags = [*settings, *arguments.set, *([f"store={server}"] if server else [])]
    return RunService(repo, config.load(repo.root, flags=flags).config, token=token)


def open_runs_of(arguments: Arguments, name: str) -> tuple[RunService, str]:
    """Open the run service of the repository that a run belongs to, from any folder; returns the run's id too.

    `last` is the last run of this repository or of its origin, or of all outside of one."""
    from ratchet.app.runs import repository_of_run  # noqa: PLC0415 — as in `open_runs`
    from ratchet.store.protocols import open_store  # noqa: PLC0415

    folder = repository_root(arguments.repo)
    inside = folder if (folder / ".git").exists() else None
    address, token = run_store(arguments, folder)
    with closing(open_store(address, token=token)) as store:
        found = repository_of_run(store, name, inside=inside)
    if found is None:
        if inside:
            return open_runs(arguments), name
        what = "no runs yet" if name == "last" else f"no such run: {name!r}"
        raise NotFound(what, hint="`ratchet runs --all` lists all runs")
    here = Arguments(**vars(arguments) | {"repo": found[0], "set": [*arguments.set, f"store={address}"]})
    return open_runs(here), found[1]


def run_store(arguments: Arguments, folder: Path) -> tuple[str | Path, str]:
    """Return the store whose runs a command reads: a server, with its token, if one is given, else the configured."""
    from ratchet import config, paths  # noqa: PLC0415 — as in `open_runs`

    server, token = _server(arguments)
    return server or paths.store_address(config.load(folder, flags=arguments.set).config, folder), token


def _server(arguments: Arguments) -> tuple[str, str]:
    """Return the server to read runs from, and its token; empty if none is given or the command takes none."""
    from ratchet.interfaces.cli.backend import server_address, server_token  # noqa: PLC0415 — it imports this module

    server = server_address(arguments) if hasattr(arguments, "server") else ""
    return server, server_token(arguments.token_file) if server else ""


def repository_root(folder: Path) -> Path:
    """Return the root of the repository that contains a folder, or the folder itself."""
    from ratchet.workspace.git import project_root  # noqa: PLC0415 — as in `open_runs`

    return project_root.repository_root(folder)


def launcher_options() -> list[click.Parameter]:
    return [
        option(
            "--launcher", metavar="NAME", help="where workers run: process, docker or ray (default: worker.launcher)"
        ),
        option("--engine", metavar="URL", help="container engine, as unix:///path (default: containers.engine)"),
        option("--image", metavar="NAME", help="image of the workers' containers (default: containers.image)"),
        option("--ray-address", metavar="HOST:PORT", help="Ray cluster (default: ray.address)"),
    ]


def launcher_settings(arguments: Arguments) -> list[str]:
    """Return the launcher's options as `key=value` overrides of the configuration."""
    keys = {"launcher": "worker.launcher", "engine": "containers.engine", "image": "containers.image",
            "ray_address": "ray.address"}  # fmt: skip
    return [f"{key}={value}" for name, key in keys.items() if (value := getattr(arguments, name))]


def spec_params() -> list[click.Parameter]:
    return [
        argument(
            "spec",
            required=False,
            type=PATH,
            metavar="[SPEC.md|-]",
            help="file that describes the work, or - for stdin",
        ),
        option("-d", "--description", default="", metavar="TEXT", help="describe the work here instead of in a file"),
    ]


def spec_file(spec: Path | None) -> Path | None:
    """Return the file of the spec, unless it comes from stdin or the command line."""
    return None if spec is None or str(spec) == "-" else spec


def spec_text(spec: Path | None, description: str) -> str:
    """Return the text of the spec: from a file, from stdin, or as given."""
    from ratchet.app.runs import check_spec, read_spec  # noqa: PLC0415 — slow to import

    if bool(spec) == bool(description):
        raise UsageError("give a spec: a file, - for stdin, or -d TEXT", hint='for example -d "add a --version flag"')
    if not spec:
        return check_spec(description, "the description")
    return check_spec(sys.stdin.read(), "stdin") if str(spec) == "-" else read_spec(spec)


class LabelType(click.ParamType[str]):
    """A label of workers and items."""

    name = "label"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        import msgspec  # noqa: PLC0415 — few commands need it

        from ratchet.core.item import Label  # noqa: PLC0415

        try:
            return msgspec.convert(value, Label)
        except msgspec.ValidationError:
            self.fail(f"{value!r} is no label: letters, digits and - . _ / : = between them", param, ctx)


LABEL = LabelType()


def run_argument() -> click.Argument:
    return argument(
        "run", required=False, default="last", metavar="[RUN]", help="run id or a part of it (default: the last run)"
    )
