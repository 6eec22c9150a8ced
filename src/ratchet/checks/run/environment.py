"""The environment of tests: everything in a person's own runs, an allow list in runs of the factory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

# Variables of the factory that a test process gets. Secrets of the factory and of agents are not on the list.
ALLOWED = (
    "CI", "PATH", "HOME", "USER", "LANG", "LC_ALL", "TERM", "TMPDIR", "TZ", "VIRTUAL_ENV", "PYTEST_ADDOPTS",
    "PYTHONPATH", "PYTEST_DISABLE_PLUGIN_AUTOLOAD", "DJANGO_SETTINGS_MODULE",
    "NODE_PATH", "NODE_OPTIONS", "JAVA_HOME", "GOPATH", "GOROOT", "GOFLAGS", "GOPROXY", "GOCACHE", "GOMODCACHE",
    "CARGO_HOME", "RUSTUP_HOME", "CARGO_TARGET_DIR", "RUSTFLAGS", "GEM_HOME", "GEM_PATH", "RUBYLIB", "MIX_HOME",
    "HEX_HOME", "BUNDLE_GEMFILE", "BUNDLE_PATH", "PERL5LIB", "ERL_LIBS", "CABAL_DIR", "R_LIBS", "R_LIBS_USER",
    "MAVEN_OPTS", "GRADLE_USER_HOME", "DOTNET_ROOT", "LD_LIBRARY_PATH", "XDG_CACHE_HOME",
    "GOTOOLCHAIN", "GOWORK", "GOEXPERIMENT", "GOPRIVATE", "GONOSUMDB", "GOSUMDB", "CGO_ENABLED", "RUSTUP_TOOLCHAIN",
    "RUSTC_WRAPPER", "RUSTDOCFLAGS", "CARGO_NET_OFFLINE", "RUBYOPT", "BUNDLE_WITHOUT", "BUNDLE_APP_CONFIG",
    "RBENV_VERSION", "RBENV_ROOT", "PERL_LOCAL_LIB_ROOT", "MIX_ARCHIVES", "MIX_DEPS_PATH", "COMPOSER_HOME",
    "PHPRC", "PHP_INI_SCAN_DIR", "LUA_PATH", "LUA_CPATH", "BATS_LIB_PATH", "NIMBLE_DIR", "ZIG_GLOBAL_CACHE_DIR",
)  # fmt: skip
_ALLOWED_TOO = re.compile(r"CARGO_BUILD_TARGET|CARGO_TARGET_\w+_(?:RUNNER|LINKER|RUSTFLAGS)")
# Keep this minimal: all of it reaches the code under test. Tests about colours fail under NO_COLOR and on a dumb
# terminal, and pytest changes its messages under CI, which is therefore set only for runners that would otherwise watch
# or write snapshots.
FIXED = {
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "1",
    "RUST_BACKTRACE": "1",
    # Python compares byte code by mtime in seconds and size: a file restored within a second would run as the old one.
    "PYTHONDONTWRITEBYTECODE": "1",
}
# Variables that our caller set for itself: the repository of a git hook, the current test of another runner.
_OF_CALLERS = re.compile(
    "GIT_(?:ALTERNATE_OBJECT_DIRECTORIES|COMMON_DIR|CONFIG|CONFIG_COUNT|CONFIG_PARAMETERS|DIR|GRAFT_FILE|IMPLICIT_WORK_TREE"
    "|INDEX_FILE|NO_REPLACE_OBJECTS|OBJECT_DIRECTORY|PREFIX|REPLACE_REF_BASE|SHALLOW_FILE|WORK_TREE)"
    r"|PYTEST_(?:CURRENT_TEST|XDIST_\w+|VERSION)|NODE_TEST_CONTEXT"
)


def full_environment() -> dict[str, str]:
    """Return the environment of a person's own tests, as if the runner were called by hand."""
    return {name: value for name, value in os.environ.items() if not _OF_CALLERS.fullmatch(name)}


def allowed_environment(more: Iterable[str] = ()) -> dict[str, str]:
    """Return the environment of tests that an agent may have written; `more` lists variables that the configuration
    allows."""
    names = {*ALLOWED, *more}
    return {name: value for name, value in os.environ.items() if name in names or _ALLOWED_TOO.fullmatch(name)}
