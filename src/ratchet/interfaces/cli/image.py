"""The command `image`: prints or builds an image for workers or steps in containers."""

from __future__ import annotations

from pathlib import Path

from ratchet import config
from ratchet.app.image import BASE, build_image, containerfile
from ratchet.checks.detect.targets import detect
from ratchet.errors import UsageError
from ratchet.interfaces.cli.common import (
    PATH,
    Arguments,
    CliCommand,
    flag,
    option,
    print_data,
    print_json,
    print_note,
    repository_root,
)
from ratchet.process.containers import find_engine


def image(arguments: Arguments) -> int:
    folder = repository_root(arguments.repo)
    settings = [f"containers.engine={arguments.engine}"] if arguments.engine else []
    loaded = config.load(folder, flags=[*arguments.set, *settings]).config
    text = _text(arguments, loaded, folder)
    if not arguments.build:
        print_json({"containerfile": text}) if arguments.json else print_data(text.rstrip())
        return 0
    name = arguments.tag or loaded.containers.image
    engine, network = find_engine(loaded.containers.engine), loaded.containers.network
    for line in build_image(engine, text, name, files=_files(arguments), network=network):
        print_note(line)
    if arguments.json:
        print_json({"image": name, "containerfile": text})
    else:
        print_data(f"built {name}")
    return 0


def _text(arguments: Arguments, loaded: config.Config, folder: Path) -> str:
    if arguments.file:
        try:
            return str(arguments.file.read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read {arguments.file}: {error}", hint="name a Containerfile") from error
    test = loaded.test
    targets = detect(folder, command=test.command, runner_name=test.runner, report=test.report)
    wheel = arguments.wheel.name if arguments.wheel else ""
    return containerfile(targets, folder, base=arguments.base or BASE, wheel=wheel, steps=arguments.steps)


def _files(arguments: Arguments) -> list[Path]:
    wheel = arguments.wheel
    if wheel and not wheel.is_file():
        raise UsageError(f"no such file: {wheel}", hint="`make dist` of a checkout of Ratchet makes dist/*.whl")
    return [wheel] if wheel else []


COMMANDS = (
    CliCommand(
        "image",
        "print or build an image for workers or steps in containers",
        image,
        flag("--build", help="build it with the container engine"),
        flag("--steps", help="for steps only (workspace.kind = container): without Ratchet"),
        option("--base", metavar="IMAGE", help=f"image to start from (default: {BASE})"),
        option("--wheel", type=PATH, metavar="FILE", help="install Ratchet from this wheel"),
        option("--file", type=PATH, metavar="FILE", help="take this Containerfile instead of a generated one"),
        option("--tag", metavar="NAME", help="name of the image (default: containers.image)"),
        option("--engine", metavar="URL", help="container engine, as unix:///path (default: containers.engine)"),
        more="Write it, edit it, build it:\n"
        "  ratchet image > Containerfile\n"
        "  ratchet image --file Containerfile --build\n"
        "  ratchet serve --launcher docker",
    ),
)
