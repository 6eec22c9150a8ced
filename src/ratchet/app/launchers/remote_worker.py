"""How a worker outside of this process is started: its options, and the variables by which it finds items."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from ratchet.app.workers import WorkerSettings
from ratchet.config import environment_name
from ratchet.engine.sealed_vault import KEY_VARIABLE, key_for_other_hosts
from ratchet.store.remote.local_users import VARIABLE as SERVER_USER

# What a worker takes from its pool's configuration. All else comes from the item and its repository.
_PASSED_ON = ("lease_s", "worker.retry_s", "worker.stop_s", "worker.stall_s", "limits.workers", "limits.per_repo",
              "limits.awaiting_review", "limits.cooldown_s", "limits.daily_iterations")  # fmt: skip


def worker_options(post: WorkerSettings, labels: Sequence[str]) -> list[str]:
    settings = [word for setting in post.settings for word in ("--set", setting)]
    return ["--launcher", "process", *[word for label in labels for word in ("--label", label)], *settings]


def worker_environment(post: WorkerSettings, names: Sequence[str]) -> dict[str, str]:
    """Return the settings of the pool, its sealing key, and those variables of this process that `names` lists."""
    passed = {name: os.environ[name] for name in names if name in os.environ}
    settings = {environment_name(key): setting(post, key) for key in _PASSED_ON}
    return settings | passed | {KEY_VARIABLE: key_for_other_hosts()}


def store_variables(address: str, token: str) -> dict[str, str]:
    if address.startswith(("http://", "https://")):
        user = os.environ.get(SERVER_USER, str(os.geteuid()))  # a worker may run as another user, such as root
        return {"RATCHET_SERVER": address, "RATCHET_TOKEN": token, SERVER_USER: user}
    return {"RATCHET_STORE": address}


def setting(post: WorkerSettings, key: str) -> str:
    value: object = post.config
    for name in key.split("."):
        value = getattr(value, name)
    return msgspec.json.encode(value).decode()
