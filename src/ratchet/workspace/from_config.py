"""Build the workspace registry, base recipes and sandbox settings from the configuration."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from ratchet import paths
from ratchet.config import Config, is_fetched
from ratchet.core.timestamps import format_timestamp
from ratchet.process.cgroups import ResourceLimits, memory_bytes
from ratchet.workspace.base_cache import Recipe, paths_to_carry
from ratchet.workspace.capacity import CapacityLimits
from ratchet.workspace.protocol import CONTAINER
from ratchet.workspace.registry import Workspaces
from ratchet.workspace.sandbox import ContainerSettings, SandboxSettings


def open_workspaces(config: Config) -> Workspaces:
    wanted = config.workspace
    return Workspaces(
        Path(wanted.root).absolute() if wanted.root else paths.cache_or_state() / "workspaces",
        bases=Path(wanted.bases).absolute() if wanted.bases else paths.bases(),
        limits=CapacityLimits(
            max_count=wanted.max_count,
            min_free_ram_bytes=wanted.min_free_ram_mb << 20,
            min_free_disk_bytes=wanted.min_free_disk_mb << 20,
            max_bases_bytes=wanted.max_bases_mb << 20,
        ),
    )


def recipe_of(config: Config, root: Path) -> Recipe:
    """Return how bases of the repository are prepared, with the dependency folders of its packages."""
    wanted = config.workspace
    return Recipe(
        setup=tuple(wanted.setup),
        # A clone of Ratchet's has nothing that is not committed.
        carry=() if is_fetched(root) else tuple(paths_to_carry(root, wanted.carry)),
        sandbox=config.sandbox.mode != "off",
        container=container_settings(config) if wanted.kind == CONTAINER else None,
        bounds=step_bounds(config),
        logins=wanted.logins == "on" or (wanted.logins == "auto" and not is_fetched(root)),
    )


def sandbox_settings(config: Config) -> SandboxSettings:
    wanted = config.sandbox
    return SandboxSettings(
        mode=wanted.mode,
        agent_network=wanted.agent_network,
        test_network=wanted.test_network,
        gate_network=wanted.gate_network,
        bounds=step_bounds(config),
        tmp_bytes=_or_share(wanted.tmp_mb, 8) << 20,
        share=tuple(wanted.share),
        hide=tuple(wanted.hide),
        show=tuple(wanted.show),
        secret=(
            str(paths.token_file()),
            str(paths.sealing_key_file()),
            *([config.sealed.dir] if config.sealed.dir else []),
        ),
        container=container_settings(config),
    )


def container_settings(config: Config) -> ContainerSettings:
    wanted = config.containers
    return ContainerSettings(
        engine=wanted.engine,
        image=wanted.image,
        memory_mb=wanted.memory_mb,
        cpus=wanted.cpus,
        processes=wanted.max_processes,
        tmp_mb=wanted.tmp_mb,
        user=wanted.user,
        network=wanted.network,
        mounts=tuple(wanted.mounts),
    )


def step_bounds(config: Config) -> ResourceLimits:
    wanted = config.sandbox
    return ResourceLimits(
        memory_mb=_or_share(wanted.memory_mb, 2),
        cpus=wanted.cpus,
        processes=wanted.max_processes,
        strict=wanted.memory_mb > 0,
    )


def _or_share(wanted_mb: int, parts: int) -> int:
    """Return the bound that is configured, or a share of the machine's memory: never less than half a GiB."""
    return wanted_mb if wanted_mb >= 0 else max(512, (memory_bytes() // parts) >> 20)


def kept_until(config: Config) -> str:
    return format_timestamp(datetime.now(UTC) + timedelta(seconds=config.workspace.keep_s))
