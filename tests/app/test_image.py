"""The image of workers: generated from what the tests need, built by a real engine; and this repository's own files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from ratchet import config
from ratchet.app.image import containerfile
from ratchet.checks.detect.targets import detect
from ratchet.interfaces.cli import serve, worker
from ratchet.process.containers import ContainerSpec
from tests import podman as engines
from tests.podman import IMAGE, Podman
from tests.support import SMALL, make_repository, ratchet

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    with engines.podman() as started:
        yield started


def test_a_containerfile_has_what_the_tests_of_each_language_need(tmp_path: Path) -> None:
    script = '{"scripts": {"test": "node --test"}}'
    place = make_repository(tmp_path / "p", SMALL | {"package.json": script, "a.test.js": "require('node:test')\n"})
    text = containerfile(detect(place), place)
    lines = [line.strip(" \\") for line in text.splitlines()]
    assert {"git", "bubblewrap", "nodejs", "npm", "build-essential"} <= set(lines)
    assert "golang-go" not in lines and "USER 1000:1000" in lines
    assert "pytest (python)" in lines[0] and "node (javascript)" in lines[0]


def test_languages_without_packages_are_named_for_the_reader(tmp_path: Path) -> None:
    place = make_repository(tmp_path / "p", {"gleam.toml": 'name = "p"\n', "test/p_test.gleam": "import gleeunit\n"})
    assert "# To add: the tools of gleam, which Debian has no package of." in containerfile(detect(place), place)


def test_an_image_has_the_packages_that_the_manifests_name(tmp_path: Path) -> None:
    manifest = (
        '[project]\nname = "p"\nversion = "1"\ndependencies = ["attrs>=23"]\n'
        '[project.optional-dependencies]\ntest = ["hypothesis"]\ndocs = ["sphinx"]\n'
        '[tool.pytest.ini_options]\naddopts = "--cov=p"\n'
    )
    files = {"pyproject.toml": manifest, "requirements.txt": "# ours\nidna==3.7 \\\n  --hash=sha256:1\n-e .\n"}
    place = make_repository(tmp_path / "p", files | {"test_p.py": "def test_p():\n    pass\n"})
    text = containerfile(detect(place), place, steps=True)
    assert "RUN python3 -m pip install --no-cache-dir pytest pytest-cov 'attrs>=23' idna==3.7 hypothesis\n" in text
    assert "ratchet-factory" not in text and "bubblewrap" not in text and "CMD" not in text


def test_a_repository_writes_no_instruction_and_no_option_of_pip(tmp_path: Path) -> None:
    hostile = [
        "--index-url=https://evil.example", "-e .", "a @ https://evil.example/a.whl", "b\nENV LD_PRELOAD=/x", "../c",
        "d; os_name\\\nRUN evil", "$(evil)",
    ]  # fmt: skip
    rows = ", ".join(f'"{row}"'.replace("\\", "\\\\").replace("\n", "\\n") for row in [*hostile, "attrs>=23, <26"])
    manifest = f'[project]\nname = "p"\nversion = "1"\ndependencies = [1, {rows}, "x[y]; python_version > \'3\'"]\n'
    files = {"pyproject.toml": manifest, "a\nRUN evil/pyproject.toml": manifest}
    files |= {"test_p.py": "def test_p():\n    pass\n", "a\nRUN evil/test_q.py": "def test_q():\n    pass\n"}
    place = make_repository(tmp_path / "p", files)
    text = containerfile(detect(place), place, steps=True)
    assert "evil" not in "".join(line for line in text.splitlines() if not line.startswith("#"))
    assert "LD_PRELOAD" not in text and "'attrs>=23, <26'" in text and "x[y]; python_version >" in text


@pytest.mark.parametrize("manifest", ["project = 3\n", '[project]\ndependencies = "x"\noptional-dependencies = [1]\n'])
def test_a_manifest_of_another_shape_names_nothing(tmp_path: Path, manifest: str) -> None:
    place = make_repository(tmp_path / "p", {"pyproject.toml": manifest, "test_p.py": "def test_p():\n    pass\n"})
    assert "pip install" in containerfile(detect(place), place, steps=True)


def test_an_image_is_built_from_a_containerfile_of_the_users(podman: Podman, tmp_path: Path) -> None:
    (tmp_path / "ratchet-0.whl").write_text("a wheel\n")
    (tmp_path / "Containerfile").write_text(f"FROM {IMAGE}\nCOPY ratchet-0.whl /wheels/\nENV MADE=here\n")
    words = ["image", "--build", "--file", "Containerfile", "--wheel", "ratchet-0.whl", "--tag", "localhost/made:1"]
    built = ratchet(*words, "--engine", podman.address, cwd=tmp_path)
    assert (built.returncode, built.stdout) == (0, "built localhost/made:1\n"), built.stderr
    spec = ContainerSpec(
        image="localhost/made:1", command=["sh", "-c", "cat /wheels/*; echo $MADE"], user="1000:1000",
        mounts=["/usr:/usr:ro"],
    )  # fmt: skip
    podman.engine.create(spec, "made")
    podman.engine.start("made")
    podman.engine.wait("made")
    assert podman.engine.logs("made", lines=9) == b"a wheel\nhere\n"
    podman.engine.remove("made")


def test_a_build_that_fails_says_why(podman: Podman, tmp_path: Path) -> None:
    (tmp_path / "Containerfile").write_text(f"FROM {IMAGE}\nCOPY nothing /\n")
    built = ratchet("image", "--build", "--file", "Containerfile", "--engine", podman.address, cwd=tmp_path)
    assert built.returncode == 3 and "the image was not built: " in built.stderr and "nothing" in built.stderr


# --- Containerfile and compose.yaml of this repository ---


def compose() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml", reason="needs PyYAML, which schemathesis brings")
    found: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
    return found


def test_the_services_run_commands_that_exist_with_variables_that_ratchet_reads(tmp_path: Path) -> None:
    services = compose()["services"]
    for name, module in (("server", serve), ("worker", worker)):
        _, subcommand, *words = services[name]["command"]
        command = next(each for each in module.COMMANDS if each.name == subcommand)
        given = command.make_context(subcommand, words).params
        environment = {key: re.sub(r"\$\{[^}]*\}", "x", value) for key, value in services[name]["environment"].items()}
        config.load(tmp_path, environ=environment, flags=given["set"])  # raises for unknown keys
    assert isinstance(command, click.Command)


def test_workers_of_the_composition_are_confined_and_the_database_is_not_reachable_from_outside() -> None:
    services, networks = compose()["services"], compose()["networks"]
    for name in ("server", "worker"):
        assert services[name]["read_only"] and services[name]["cap_drop"] == ["ALL"]
    assert {"mem_limit", "cpus", "pids_limit"} <= set(services["worker"])
    assert services["database"]["networks"] == ["inside"] and networks["inside"]["internal"]
    assert all(port.startswith("127.0.0.1:") for port in services["server"]["ports"])
    mounted = [volume for service in services.values() for volume in service.get("volumes", [])]
    assert not any("sock" in volume for volume in mounted)


def test_the_containerfile_copies_only_what_the_wheel_is_made_of() -> None:
    text, ignored = (ROOT / "Containerfile").read_text(), (ROOT / ".containerignore").read_text()
    kept = {line.removeprefix("!") for line in ignored.splitlines() if line.startswith("!")}
    assert ignored.startswith("*\n") and all((ROOT / name).exists() for name in kept)
    assert ignored == (ROOT / ".dockerignore").read_text()
    extras = re.findall(r"\[([a-z,]+)\]'", text)
    known = (ROOT / "pyproject.toml").read_text()
    assert len(set(extras)) == 1 and all(f"\n{extra} = [" in known for extra in extras[0].split(","))
    assert re.search(r"^USER 1000:1000$", text, re.MULTILINE)
