"""What can go wrong that a caller can do something about. Each message ends in a hint: what to type next."""

from __future__ import annotations


class RatchetError(Exception):
    """Something stopped us that is not a defect of ours. `exit_code` is what the command line returns for it."""

    exit_code = 3

    def __init__(self, message: str, *, hint: str = "", **ids: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.ids = ids


class UsageError(RatchetError):
    """The call or a file the caller gave is wrong: correct it and call again."""

    exit_code = 2


class ConfigError(UsageError):
    """`ratchet.toml`, a `RATCHET_*` variable or a flag is wrong: correct the named key."""


class NotFound(UsageError):
    """No such run, item or commit: list what there is."""


class NoTests(UsageError):
    """Nothing in the folder looks like tests: say how they are run."""


class Conflict(UsageError):
    """What is there does not allow it, now: look at it (`ids` name it), then ask for something else."""


class EnvironmentCannot(RatchetError):
    """This machine lacks something the work needs: `ratchet doctor` says what."""


class DiskFull(EnvironmentCannot):
    """A write did not fit. Nothing announced was lost: make room, then resume."""


class StoreNewer(EnvironmentCannot):
    """The database was written by a newer Ratchet: upgrade this one."""


class LeaseHeld(RatchetError):
    """Another worker holds the run: wait for it, or stop it. `ids["holder"]` names it."""

    exit_code = 1


class LeaseLost(RatchetError):
    """This worker's lease went to another: stop at once, write nothing."""


class LedgerBroken(RatchetError):
    """A row of the ledger is torn, edited or missing: `ids` name the run and the row. Nothing may be built on it."""

    exit_code = 1


class ArtifactBroken(RatchetError):
    """An artifact is missing or is not what its receipt says: `ids["path"]` names it."""

    exit_code = 1


class GitFailed(EnvironmentCannot):
    """A git command failed; the message holds what it printed."""
