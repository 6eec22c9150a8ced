"""Errors that a caller can act on. Each has a hint: what to type next."""

from __future__ import annotations


class RatchetError(Exception):
    """Base of all expected errors. `exit_code` is the exit code of the command line."""

    exit_code = 3

    def __init__(self, message: str, *, hint: str = "", **ids: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.ids = ids


class UsageError(RatchetError):
    """An invalid call or input file: correct it and repeat."""

    exit_code = 2


class ConfigError(UsageError):
    """An invalid key in `ratchet.toml`, a `RATCHET_*` variable or a flag."""


class NotFound(UsageError):
    """No such run, item or commit."""


class NoTests(UsageError):
    """No tests were detected: configure how they are run."""


class Conflict(UsageError):
    """The current state does not allow the request; `ids` name the conflicting objects."""


class EnvironmentCannot(RatchetError):
    """A required tool or permission is missing: see `ratchet doctor`."""


class DiskFull(EnvironmentCannot):
    """No space left for a write. No recorded event is lost: free space, then resume."""


class StoreNewer(EnvironmentCannot):
    """The database was written by a newer Ratchet: upgrade."""


class LeaseHeld(RatchetError):
    """Another worker holds the run (`ids["holder"]`): wait, or stop it."""

    exit_code = 1


class LeaseLost(RatchetError):
    """The worker lost its lease: stop at once, write nothing."""


class LedgerBroken(RatchetError):
    """A row of the ledger is torn, edited or missing; `ids` name the run and the row. The run must not continue."""

    exit_code = 1


class ArtifactBroken(RatchetError):
    """An artifact is missing or differs from its receipt; `ids["path"]` names it."""

    exit_code = 1


class GitFailed(EnvironmentCannot):
    """A git command failed; the message contains its output."""


class GitStalled(GitFailed):
    """Git did not end in time: patterns of an ignore or attributes file can keep it busy for ever."""


class CommitDiffers(EnvironmentCannot):
    """A commit would not hold what was tested: git's attributes or names would change or drop it. `ids["paths"]`
    name the differences."""


class CommandTimedOut(EnvironmentCannot):
    """A helper program did not end in time and was killed."""


class TreeBroken(RatchetError):
    """Content of a recorded tree is lost or damaged, as after a disk fault: check the disk, start the item again."""


class WorkspaceChanged(EnvironmentCannot):
    """The workspace no longer holds the tree that was judged, so nothing was committed. `ids["paths"]` name the
    differences."""


class BranchMoved(EnvironmentCannot):
    """Somebody else has committed on the run's branch: keep that commit elsewhere, then resume the run."""


class UntrustedRepository(GitFailed):
    """Git refuses a repository that belongs to another user: add it to `safe.directory`. `ids["root"]` names it."""
