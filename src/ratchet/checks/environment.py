"""What of our environment the tests see: all of it in people's own runs, what is named in those of a factory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

# What a test process gets of a factory's environment. Secrets of the factory and of agents are not on the list.
ALLOWED = (
    "CI", "PATH", "HOME", "USER", "LANG", "LC_ALL", "TERM", "TMPDIR", "TZ", "VIRTUAL_ENV", "PYTEST_ADDOPTS",
    "PYTHONPATH", "PYTEST_DISABLE_PLUGIN_AUTOLOAD", "DJANGO_SETTINGS_MODULE",
    "NODE_PATH", "NODE_OPTIONS", "JAVA_HOME", "GOPATH", "GOROOT", "GOFLAGS", "GOPROXY", "GOCACHE", "GOMODCACHE",
    "CARGO_HOME", "RUSTUP_HOME", "CARGO_TARGET_DIR", "RUSTFLAGS", "GEM_HOME", "GEM_PATH", "RUBYLIB", "MIX_HOME",
    "HEX_HOME", "BUNDLE_GEMFILE", "BUNDLE_PATH", "PERL5LIB", "ERL_LIBS", "CABAL_DIR", "R_LIBS", "R_LIBS_USER",
    "MAVEN_OPTS", "GRADLE_USER_HOME", "DOTNET_ROOT", "LD_LIBRARY_PATH", "XDG_CACHE_HOME",
)  # fmt: skip
_ALLOWED_TOO = re.compile(r"CARGO_BUILD_TARGET|CARGO_TARGET_\w+_(?:RUNNER|LINKER|RUSTFLAGS)")
# As little as can be: all of it reaches the code under test. Tests about colours fail under NO_COLOR and on a dumb
# terminal, and pytest's own messages are others under CI, which therefore is set only for runners that would else
# watch or write snapshots.
FIXED = {
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "1",
    "RUST_BACKTRACE": "1",
    # Python takes byte code for current by the second and the size: a file put back that fast would run as the old one.
    "PYTHONDONTWRITEBYTECODE": "1",
}
# Words of whoever called us about itself: the repository of a hook of git's, the test of another runner's.
_OF_CALLERS = re.compile(
    "GIT_(?:ALTERNATE_OBJECT_DIRECTORIES|COMMON_DIR|CONFIG|CONFIG_COUNT|CONFIG_PARAMETERS|DIR|GRAFT_FILE|IMPLICIT_WORK_TREE"
    "|INDEX_FILE|NO_REPLACE_OBJECTS|OBJECT_DIRECTORY|PREFIX|REPLACE_REF_BASE|SHALLOW_FILE|WORK_TREE)"
    r"|PYTEST_(?:CURRENT_TEST|XDIST_\w+|VERSION)|NODE_TEST_CONTEXT"
)


def whole_environment() -> dict[str, str]:
    """For people's own tests, which see what they would if the runner were called by hand."""
    return {name: value for name, value in os.environ.items() if not _OF_CALLERS.fullmatch(name)}


def allowed_environment(more: Iterable[str] = ()) -> dict[str, str]:
    """For tests that an agent may have written; `more` names what the project's configuration lets them see."""
    names = {*ALLOWED, *more}
    return {name: value for name, value in os.environ.items() if name in names or _ALLOWED_TOO.fullmatch(name)}
