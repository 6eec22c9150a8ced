"""The file system that a sandbox shows: the system's programs read-only, and of the user's files only what is lent.

Homes, temporary folders and folders at the top that belong to no system (`/srv`, `/data`, …) are empty. What a step
needs of them is mounted again by name: its workspace, the repository's objects, interpreters, tools on the PATH and
what package managers have fetched.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from ratchet import paths
from ratchet.core.lines import split_lines
from ratchet.core.snapshot import SUBMODULE
from ratchet.errors import RatchetError
from ratchet.files import make_private_dir, state_dir, write_whole
from ratchet.tree_files import read_anywhere
from ratchet.workspace.git.command import git_read_only
from ratchet.workspace.git.trees import EXCLUDED

HOME = "/tmp/home"  # noqa: S108 — inside the sandbox, where /tmp is its own
# Folders at the top that hold the system itself. All others are hidden.
_SYSTEM = frozenset((
    "bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec", "usr", "etc", "opt", "var", "sys", "proc", "dev",
    "nix", "gnu", "snap", "System", "Library",
))  # fmt: skip
_EMPTY = ("/tmp", "/var/tmp", "/run")  # noqa: S108 — covered by empty folders that can be written
# Secrets of the system, which root could read.
_SYSTEM_SECRETS = (
    "/etc/gshadow", "/etc/gshadow-", "/etc/shadow-", "/etc/sudoers", "/etc/sudoers.d", "/etc/ssl/private",
    "/etc/krb5.keytab", "/etc/docker", "/etc/kubernetes", "/etc/rancher", "/etc/wireguard", "/etc/ppp",
    "/etc/NetworkManager/system-connections", "/etc/cron.d", "/etc/rclone", "/etc/letsencrypt", "/var/backups",
    "/var/spool", "/var/log", "/var/mail", "/var/www", "/var/lib/docker", "/var/lib/containers", "/var/lib/kubelet",
    "/var/lib/sss", "/var/lib/postgresql", "/var/lib/mysql", "/var/lib/private", "/var/lib/systemd",
)  # fmt: skip
_SHADOW = "/etc/shadow"
# As container engines do: parts of /proc that change or show the machine rather than the sandbox's processes.
_PROC_READ_ONLY = ("sys", "sysrq-trigger", "irq", "bus", "fs", "driver", "mtrr", "tty")
_PROC_HIDDEN = ("kcore", "keys", "key-users", "kmsg", "kallsyms", "timer_list", "sched_debug", "acpi", "scsi", "asound")
_SYS_HIDDEN = ("/sys/firmware", "/sys/kernel/debug", "/sys/kernel/tracing", "/sys/kernel/security", "/sys/fs/bpf")
# Variables for tools that are installed in the real home, because HOME is replaced.
TOOL_VARIABLES = {"PYTHONUSERBASE": ".local", "RUSTUP_HOME": ".rustup", "CARGO_HOME": ".cargo", "PYENV_ROOT": ".pyenv"}
# Tools and their installations in the real home, lent at the same path.
_TOOLS = (
    ".local/bin", ".local/lib", ".local/share/uv", ".local/share/mise", ".local/share/fnm", ".local/share/virtualenvs",
    ".local/share/hatch/env", ".local/share/pipx", ".local/share/swiftly", ".cache/pypoetry/virtualenvs", ".rustup",
    ".cargo/bin", ".cargo/registry", ".cargo/git", ".cargo/config.toml", ".pyenv", ".nvm", ".volta", ".bun", ".deno",
    ".asdf", ".sdkman", ".rbenv", ".rvm", ".nodenv", ".goenv", ".jenv", ".ghcup", ".opam", ".juliaup", ".julia",
    ".dotnet", ".pub-cache", ".fvm", ".elan", ".npm-global", ".nix-profile", "go/bin", "go/pkg", "n", "miniconda3",
    "anaconda3", "miniforge3", ".stack/programs", ".stack/snapshots",
)  # fmt: skip
# Package caches in the real home, mounted into the private home for builds without network.
_FETCHED = (
    ".m2/repository", "go/pkg/mod", ".gem/ruby", ".local/share/gem", ".mix", ".hex/packages", ".nuget/packages",
    ".cache/deno", ".cache/coursier", ".cabal/packages", ".cabal/store",
)  # fmt: skip
_NEVER_LENT = frozenset(("/", "/home", "/root", "/tmp", "/var/tmp", "/run", "/dev/shm"))  # noqa: S108


def bind(how: str, places: Iterable[str]) -> list[str]:
    """Return the options that show paths where they are. With `--ro-bind-try` those we may not read are left out."""
    shown = [path for path in places if how != "--ro-bind-try" or os.access(path, os.R_OK)]
    return [word for path in shown for word in (how, path, path)]


def hidden(names: Iterable[str]) -> list[str]:
    """Cover folders by empty ones and files by nothing; what does not exist needs no cover."""
    words: list[str] = []
    for name in names:
        path = str(Path(name).expanduser())
        if os.path.isdir(path):
            words += ["--tmpfs", path, "--remount-ro", path]
        elif os.path.exists(path):
            words += ["--ro-bind", "/dev/null", path]
    return words


def hidden_among(names: Iterable[str], shown: Sequence[str]) -> list[str]:
    """Cover what is visible as part of the system or of a shown folder; what is shown inside a cover stays."""
    lengths = {"--ro-bind": 3, "--ro-bind-try": 3, "--tmpfs": 2}
    mounts = [tuple(shown[at : at + lengths[word]]) for at, word in enumerate(shown) if word in lengths]
    words: list[str] = []
    for name in expanded(names):
        among = [
            at + name.removeprefix(source)
            for _, source, at in (mount for mount in mounts if len(mount) > 2)
            if name != source and is_below(name, [source])
        ]
        for place in dict.fromkeys([*among, *([] if is_below(name, masks()) else [name])]):
            inside = [word for mount in mounts if is_below(mount[-1], [place]) for word in mount]
            if os.path.isdir(name):
                words += ["--tmpfs", place, *inside, "--remount-ro", place]
            elif os.path.exists(name):
                words += ["--ro-bind", "/dev/null", place]
    return words


def sealed(words: list[str]) -> tuple[list[str], list[str]]:
    """Split options of `hidden` into covers and what makes these read-only: that comes after what is shown inside."""
    at = [index for index, word in enumerate(words) if word == "--remount-ro"]
    late = {index + offset for index in at for offset in (0, 1)}
    covers = [word for index, word in enumerate(words) if index not in late]
    return covers, [word for index, word in enumerate(words) if index in late]


def masks() -> tuple[str, ...]:
    """Return the folders of which a sandbox shows only what is lent."""
    return _masks(str(_real_home()))


@lru_cache(maxsize=8)
def _masks(home: str) -> tuple[str, ...]:
    top = [f"/{name}" for name in sorted(os.listdir("/")) if name not in _SYSTEM]
    own = [path for path in (*top, home) if os.path.isdir(path) and not os.path.islink(path) and path not in _EMPTY]
    outer = [path for path in dict.fromkeys(own) if path != "/" and not is_below(path, [o for o in own if o != path])]
    return (*_EMPTY, "/dev/shm", *outer)  # noqa: S108 — a new one, by --dev


def _real_home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")


def is_below(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def system(tmp_bytes: int) -> list[str]:
    """Return the options for the root, /proc, /dev, /sys and the empty folders."""
    size = ["--size", str(tmp_bytes)] if tmp_bytes else []
    writable = [word for path in _EMPTY for word in (*size, "--tmpfs", path)]
    return [
        *("--ro-bind", "/", "/", "--dev", "/dev", *size, "--tmpfs", "/dev/shm", "--proc", "/proc"),  # noqa: S108
        *bind("--ro-bind", [f"/proc/{name}" for name in _PROC_READ_ONLY if os.path.exists(f"/proc/{name}")]),
        *hidden(f"/proc/{name}" for name in _PROC_HIDDEN),
        *hidden(_SYS_HIDDEN),
        *hidden(_SYSTEM_SECRETS),
        *hidden(_host_keys()),
        *_shadow(),
        *sealed(hidden(_of_root_alone()))[0],
        *writable,
        *[word for path in _closed_masks() for word in ("--tmpfs", path)],
        *("--ro-bind-try", "/run/systemd/resolve", "/run/systemd/resolve"),
    ]


def closed() -> list[str]:
    """Return the last options: nothing can be written into the hidden folders once all is mounted there."""
    masked = [word for path in _closed_masks() for word in ("--remount-ro", path)]
    return [*sealed(hidden(_of_root_alone()))[1], *masked]


def _closed_masks() -> list[str]:
    return [path for path in masks() if path not in (*_EMPTY, "/dev/shm")]  # noqa: S108


def _host_keys() -> list[str]:
    try:
        return [f"/etc/ssh/{name}" for name in os.listdir("/etc/ssh") if name.endswith("_key")]
    except OSError:
        return []


def _of_root_alone() -> tuple[str, ...]:
    """Return what of the system's settings and data other users may not read, if this is root, whom nothing stops."""
    return _closed_to_others(int(time.monotonic() / _CLOSED_KNOWN_S)) if os.geteuid() == 0 else ()


_CLOSED_KNOWN_S = 60.0
_CLOSED_DEPTHS = {"/etc": 6, "/var/lib": 0, "/var/cache": 0}


@lru_cache(maxsize=1)
def _closed_to_others(_period: int) -> tuple[str, ...]:
    found = [path for top, depth in _CLOSED_DEPTHS.items() for path in _closed_below(top, depth)]
    known = {*_SYSTEM_SECRETS, *_host_keys(), _SHADOW}
    return tuple(path for path in found if path not in known)[:_HIDDEN_MAX]


def _closed_below(top: str, depth: int) -> Iterator[str]:
    try:
        entries = sorted(os.scandir(top), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        try:
            is_folder, found = entry.is_dir(follow_symlinks=False), entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if is_folder and found.st_mode & 0o005 != 0o005:
            yield entry.path
        elif is_folder and depth:
            yield from _closed_below(entry.path, depth - 1)
        elif entry.is_file(follow_symlinks=False) and found.st_size and not found.st_mode & 0o004:
            yield entry.path


def _shadow() -> list[str]:
    """Show the accounts without their password hashes: PAM refuses to change users without the file."""
    return ["--ro-bind", str(_accounts()), _SHADOW] if os.path.exists(_SHADOW) else []


@lru_cache(maxsize=1)
def _accounts() -> Path:
    rows = split_lines(Path("/etc/passwd").read_text(errors="replace"))
    shown = "".join(f"{row.partition(':')[0]}:*:19000:0:99999:7:::\n" for row in rows if ":" in row).encode()
    file = make_private_dir(paths.cache_or_state() / "sandbox") / "shadow"
    if not file.is_file() or file.read_bytes() != shown:
        write_whole(file, shown)
    return file


# --- what is lent ----------------------------------------------------------------------------------------------------


def lent_tools(kept_away: Sequence[str], path: str, own: Sequence[str] = ()) -> list[str]:
    """Return the options that show tools of the real home and on the PATH, and package caches in the private one.

    `own` are names of the workspace: a link there, which an agent may have made, shows an interpreter at most.
    """
    real, away = _real_home(), expanded(kept_away)
    tools = [str(real / name) for name in _TOOLS]
    fetched = [name for name in _FETCHED if not is_below(str(real / name), away)]
    shown = [path for path in [*tools, *_on_path(path, own)] if not is_below(path, away)]
    shown += [str(real / name) for name in fetched]  # for the JVM: its home is what /etc/passwd says
    there = [name for name in fetched if os.access(real / name, os.R_OK)]
    private = [word for name in there for word in ("--ro-bind", str(real / name), f"{HOME}/{name}")]
    return [*bind("--ro-bind-try", dict.fromkeys(shown)), *private]


def _on_path(path: str, own: Sequence[str]) -> list[str]:
    """Return the folders of the PATH that are hidden otherwise; of an installation all of it.

    The interpreter of a virtual environment is a link to another installation.
    """
    places = [os.path.normpath(place) for place in path.split(":") if place.startswith("/")]
    linked = [target for place in places if (target := _target(f"{place}/python3", own))]
    places = [place for place in places if not is_below(place, own)]
    places += [os.path.dirname(program) for program in linked if os.path.isfile(program)]
    folders = [place for place in dict.fromkeys(places) if is_below(place, masks()) and place not in _NEVER_LENT]
    return [_installation(place) or place for place in folders]


def _installation(folder: str) -> str:
    """Return what a folder of programs is part of, such as a virtual environment or a version of node; or nothing."""
    up, name = os.path.split(folder)
    shared = {*_NEVER_LENT, str(_real_home()), str(_real_home() / ".local"), *masks()}
    marks = ("pyvenv.cfg", "lib", "libexec", "versions")
    is_one = name in ("bin", "sbin", "shims") and up not in shared
    return up if is_one and any(os.path.exists(f"{up}/{mark}") for mark in marks) else ""


_PYTHON = re.compile(r"python[\d.]*")


def _target(file: str, own: Sequence[str]) -> str:
    """Return where a link leads that may be shown; from the workspace only one to its own files or an interpreter."""
    real = os.path.realpath(file)
    if not is_below(os.path.normpath(file), own) or is_below(real, own):
        return real
    is_program = _PYTHON.fullmatch(os.path.basename(real)) and os.access(real, os.X_OK)
    return real if is_program and _installation(os.path.dirname(real)) else ""


def interpreter() -> list[str]:
    """Return where Ratchet itself and its interpreter are: agents and reporters of ours run in the sandbox."""
    return list(dict.fromkeys((sys.prefix, sys.base_prefix, str(Path(__file__).parents[2]))))


def installed(argv: Sequence[str], own: Sequence[str] = ()) -> list[str]:
    """Return the installed programs that a command names by path, and where links to them lead.

    Its words may come from an agent, from code under test or from a repository of others: they show no other files.
    """
    # Without `..`: a folder of another name would uncover what is covered in it.
    words = [os.path.normpath(word) for word in argv if word.startswith("/")]
    places, below = _program_folders(), (*own, *_tool_environments())
    found = [word for word in words if os.path.dirname(word) in places or is_below(word, below)]
    programs = [word for word in found if os.path.isfile(word) and os.access(word, os.X_OK)]
    return [place for word in programs for place in (word, _target(word, own)) if place]


def _program_folders() -> list[str]:
    """Return where the user's own environment has programs: folders of its PATH and active virtual environments."""
    active = [f"{os.environ[name]}/bin" for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if os.environ.get(name)]
    places = [*os.environ.get("PATH", "").split(":"), *active]
    return [os.path.normpath(place) for place in places if place.startswith("/") and place not in _NEVER_LENT]


def _tool_environments() -> list[str]:
    """Return where poetry, hatch and pipenv keep the virtual environments of projects."""
    real = str(_real_home())
    cache = os.environ.get("XDG_CACHE_HOME") or f"{real}/.cache"
    shared = os.environ.get("XDG_DATA_HOME") or f"{real}/.local/share"
    pipenv = os.environ.get("WORKON_HOME") or f"{shared}/virtualenvs"
    return [f"{cache}/pypoetry/virtualenvs", f"{shared}/hatch/env/virtual", pipenv]


def lent_folders(files: Iterable[str], away: Sequence[str] = ()) -> list[str]:
    """Return what to show of files and folders that programs and the user's own settings name.

    Nothing that is hidden or whose name tells of secrets, and nothing where Ratchet keeps its state.
    """
    kept = [*away, *_own_state()]
    plain = [os.path.normpath(Path(file).expanduser()) for file in files]
    named = [place for file in plain for place in (file, os.path.realpath(file)) if os.path.exists(place)]
    shown = [place for place in dict.fromkeys(named) if is_below(place, masks()) and not _is_secret(place)]
    folders = [str(_program_folder(Path(place))) if os.path.isfile(place) else place for place in shown]
    return [folder for folder in dict.fromkeys(folders) if not is_below(os.path.realpath(folder), kept)]


def expanded(names: Iterable[str]) -> tuple[str, ...]:
    """Return the absolute paths of what is hidden, and where links lead."""
    plain = [os.path.normpath(Path(name).expanduser()) for name in names]
    return tuple(dict.fromkeys(place for path in plain for place in (path, os.path.realpath(path))))


def own_state() -> list[str]:
    """Return where Ratchet keeps its state, as far as it is in a hidden folder."""
    return [path for path in _own_state() if is_below(path, masks())]


def _own_state() -> tuple[str, ...]:
    return expanded(map(str, (paths.user_state(), paths.cache_or_state(), paths.clones(), paths.bases())))


def _program_folder(file: Path) -> Path:
    """Return a program's folder, or the whole virtual environment or node_modules that it is part of.

    Of a folder that holds more than programs, such as a home, only the file.
    """
    if "node_modules" in file.parts:
        folder = Path(*file.parts[: file.parts.index("node_modules") + 1])
    elif (file.parent.parent / "pyvenv.cfg").is_file():
        folder = file.parent.parent
    else:
        folder = Path(_installation(str(file.parent)) or file.parent)
    return file if _is_shared(str(folder)) else folder


def _is_shared(folder: str) -> bool:
    """Whether a folder holds homes or state, or is in another user's home."""
    kept = [*masks(), *_NEVER_LENT, *expanded([str(_real_home())]), *_own_state()]
    return any(is_below(place, [folder]) for place in kept) or is_below(folder, _homes_of_others())


@lru_cache(maxsize=1)
def _homes_of_others() -> tuple[str, ...]:
    """Return the homes of other users, as far as they are in a hidden folder."""
    homes = {entry.pw_dir for entry in pwd.getpwall() if entry.pw_uid != os.geteuid()}
    return tuple(home for home in homes if is_below(home, masks()) and home not in (*masks(), "/"))


def secrets_beside(folders: Iterable[str]) -> list[str]:
    """Return the files and folders with secrets in the folders of programs that settings name."""
    period = int(time.monotonic() / _KNOWN_S)
    return [name for folder in folders if os.path.isdir(folder) for name in _secrets_in(folder, period)]


@lru_cache(maxsize=32)
def _secrets_in(folder: str, _period: int) -> list[str]:
    found = [os.path.normpath(f"{folder}/{name}") for name in _secrets_below(folder, ".")]
    return [name for name in found if not _is_program(name)][:_HIDDEN_MAX]


def _is_program(path: str) -> bool:
    """Whether a file or folder with such a name, say `tokens.py`, is part of a program."""
    plain = not os.path.basename(path).startswith(".")
    return plain and (bool(_CODE.search(path)) or os.access(path, os.X_OK))


# Names of files and folders with secrets, of those in a checkout that are not in a commit.
_SECRET_NAME = re.compile(
    r"\.env.*|.*\.(?:env|pem|key|p12|pfx|jks|keystore|kdbx|tfstate|tfvars|ovpn)|id_(?:rsa|dsa|ecdsa|ed25519)"
    r"|\.?(?:npmrc|pypirc|netrc|pgpass|git-credentials|htpasswd|dockercfg|vault-token|boto|s3cfg)"
    r"|\.(?:aws|ssh|gnupg|kube|docker|azure)|.*(?:secret|credential|password|passwd|token).*",
    re.IGNORECASE,
)
_CODE = re.compile(r"\.(?:py[cio]?|so|[cm]?[jt]sx?|sh|rb|pl|lua|php|go|rs|java|class|jar)$")
_FILLED_BY_TOOLS = frozenset(EXCLUDED) | {"vendor", "build", "dist", ".git"}
_HIDDEN_MAX = 1_000


def private_files(repo: str) -> list[str]:
    """Return what is never shown of the developer's checkout: the store and logs of runs, and files with secrets."""
    try:
        names = os.listdir(repo)
    except OSError:
        return []
    top = [f"{repo}/{name}" for name in names if name == ".ratchet" or name.startswith(".env")]
    if os.path.exists(state := str(state_dir(Path(repo)))):
        top.append(state)
    below = _uncommitted_secrets(repo, int(time.monotonic() / _KNOWN_S))
    return list(dict.fromkeys([*top, *(f"{repo}/{name}" for name in below)]))


_KNOWN_S = 10.0


@lru_cache(maxsize=8)
def _uncommitted_secrets(repo: str, _period: int) -> list[str]:
    """Return files and folders of a checkout that git does not track and whose names tell of secrets.

    Asked once in a period: a step would start later by a process of git, in a large checkout by more.
    """
    asked = ("ls-files", "-z", "--others", "--directory", "--no-empty-directory")
    try:
        listed = git_read_only(*asked, cwd=Path(repo)).decode(errors="surrogateescape").split("\0")
    except RatchetError:
        return []
    files = [name for name in listed if name and not name.endswith("/")]
    folders = [name.rstrip("/") for name in listed if name.endswith("/")]
    found = [name for name in (*files, *folders) if _is_secret(name)]
    for folder in folders:
        found += _secrets_below(repo, folder)
    return found[:_HIDDEN_MAX]


def _is_secret(path: str) -> bool:
    return bool(_SECRET_NAME.fullmatch(os.path.basename(path)))


def _secrets_below(repo: str, folder: str) -> list[str]:
    """Return the same of a folder in which nothing is tracked, unless tools fill it."""
    found, count = list[str](), 0
    for top, folders, names in os.walk(f"{repo}/{folder}"):
        if os.path.basename(top) in _FILLED_BY_TOOLS or "pyvenv.cfg" in names or count > _HIDDEN_MAX:
            folders.clear()
            continue
        inside, count = os.path.relpath(top, repo), count + len(names) + len(folders)
        found += [f"{inside}/{name}" for name in (*names, *folders) if _is_secret(name)]
    return found


# --- git's settings --------------------------------------------------------------------------------------------------

_LOGIN = re.compile(r"(?<=://)[^/@\s\"]+@")
_SECRET_SETTING = re.compile(
    r"^([ \t]*(?:\[[^\]\n]*\][ \t]*)?)(?:extraheader|cookiefile|[\w-]*(?:pass|passwd|password|token|secret))[ \t]*="
    r"(?:.*\\\n)*.*",  # a backslash at its end continues a line
    re.IGNORECASE | re.MULTILINE,
)
_SETTINGS = ("config", "config.worktree")
# In a git directory these hold no settings; elsewhere they may be parts of a submodule's name.
_NO_SETTINGS = frozenset(("objects", "refs", "logs", "hooks", "info", "lfs", "rr-cache", "branches"))


def git_settings(*git_dirs: str) -> list[str]:
    """Return pairs: the files with git's settings that hold logins, and copies of them without."""
    files = [file for git_dir in dict.fromkeys(git_dirs) for file in _settings_files(git_dir)]
    return [word for file in files if (copy := _without_logins(file)) for word in (copy, file)]


def _settings_files(git_dir: str) -> list[str]:
    """Return the settings of a repository, its worktrees, and submodules, whose names may have any number of parts."""
    found = []
    for top, folders, names in os.walk(git_dir):
        found += [f"{top}/{name}" for name in _SETTINGS if name in names]
        if "HEAD" in names:
            folders[:] = [name for name in folders if name not in _NO_SETTINGS]
    return found


def nested_git_dirs(repo: str) -> list[str]:
    """Return the git directories inside a checkout: of other repositories, and of submodules that have their own."""
    return _nested_git_dirs(repo, int(time.monotonic() / _KNOWN_S))


@lru_cache(maxsize=8)
def _nested_git_dirs(repo: str, _period: int) -> list[str]:
    try:
        listed = git_read_only("ls-files", "-z", "--stage", cwd=Path(repo)).split(b"\0")
        others = git_read_only("ls-files", "-z", "--others", "--directory", cwd=Path(repo)).split(b"\0")
    except RatchetError:
        return []
    folders = [row.partition(b"\t")[2] for row in listed if row.startswith(SUBMODULE.encode())]
    folders += [name.rstrip(b"/") for name in others if name.endswith(b"/")]
    found = [git_dir for name in folders for git_dir in _git_dirs_below(f"{repo}/{os.fsdecode(name)}")]
    return found[:_HIDDEN_MAX]


def _git_dirs_below(folder: str) -> Iterator[str]:
    count = 0
    for top, folders, names in os.walk(folder):
        if ".git" in folders:
            yield f"{top}/.git"
        count += len(names) + len(folders)
        skipped = (*_FILLED_BY_TOOLS, ".git") if count <= _HIDDEN_MAX else folders
        folders[:] = [name for name in folders if name not in skipped]


def _without_logins(file: str) -> str:
    """Return a copy of the settings without logins; empty if there are none in it."""
    try:
        text = read_anywhere(Path(file)).decode(errors="surrogateescape")
    except OSError:
        return ""
    clean = _SECRET_SETTING.sub(r"\1", _LOGIN.sub("", text))
    if clean == text:
        return ""
    content = clean.encode(errors="surrogateescape")
    folder = make_private_dir(paths.cache_or_state() / "sandbox")
    copy = folder / f"git-{hashlib.sha256(content).hexdigest()[:24]}"
    if not copy.is_file() or copy.read_bytes() != content:
        write_whole(copy, content)
    copy.chmod(0o644)  # the user of a container is another
    return str(copy)


def covered_settings(*git_dirs: str) -> list[str]:
    """Return the options that put the copies in the place of the files."""
    words = git_settings(*git_dirs)
    return [word for copy, file in zip(words[0::2], words[1::2], strict=True) for word in ("--ro-bind", copy, file)]
