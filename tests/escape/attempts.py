"""The attempts, by name: a shell script each, which prints ESCAPED where it has reached what it should not.

`$OUTSIDE` is a folder of somebody else, `$PROJECT` the developer's checkout, `$TOP` what holds both and a home.
"""

from __future__ import annotations

from tests.escape.conftest import SECRETS

_KERNEL_FILES = {
    "the pattern of core dumps": "/proc/sys/kernel/core_pattern",
    "the program that loads modules": "/proc/sys/kernel/modprobe",
    "the host's name by sysctl": "/proc/sys/kernel/domainname",
    "address randomisation": "/proc/sys/kernel/randomize_va_space",
    "the limit of processes": "/proc/sys/kernel/pid_max",
    "who may trace": "/proc/sys/kernel/yama/ptrace_scope",
    "memory overcommit": "/proc/sys/vm/overcommit_memory",
    "page caches": "/proc/sys/vm/drop_caches",
    "protected links": "/proc/sys/fs/protected_symlinks",
    "the limit of open files": "/proc/sys/fs/file-max",
    "a binary format": "/proc/sys/fs/binfmt_misc/register",
    "packet forwarding": "/proc/sys/net/ipv4/ip_forward",
    "the magic key": "/proc/sysrq-trigger",
    "interrupts": "/proc/irq/default_smp_affinity",
    "the helper of devices": "/sys/kernel/uevent_helper",
    "the sleep state": "/sys/power/state",
    "kernel profiling": "/sys/kernel/profiling",
    "memory of the kernel": "/dev/mem",
    "the kernel's log": "/dev/kmsg",
    "a loop device": "/dev/loop-control",
    "the file system in user space": "/dev/fuse",
    "a disk": "/dev/vda",
}
_HIDDEN_FILES = {
    "the kernel's memory": "/proc/kcore",
    "the keyring of the user": "/proc/keys",
    "password hashes of groups": "/etc/gshadow",
    "a backup of the password hashes": "/etc/shadow-",
    "who may become root": "/etc/sudoers",
    "the log of the machine": "/var/log/dpkg.log",
}
_CALL = "import ctypes,sys; libc=ctypes.CDLL(None,use_errno=True)"


def _writes(path: str) -> str:
    if path.startswith("/dev/"):  # a plain file can be made there: the folder is the sandbox's own
        return f"[ -c {path} ] || [ -b {path} ] && (: >> {path}) 2>/dev/null && echo ESCAPED; true"
    return f"if (: >> {path}) 2>/dev/null; then [ -s /dev/null ] || echo ESCAPED: {path} can be written; fi"


def _reads(path: str) -> str:
    return f'[ -n "$(head -c 64 {path} 2>/dev/null | tr -d "\\0")" ] && echo "ESCAPED: {path}" ; true'


def _python(code: str) -> str:
    return f"python3 - <<'END'\n{_CALL}\n{code}\nEND"


_SECRET_READS = {f"reads {name}": f'grep -a secret-of-somebody "$TOP/{name}" && echo ESCAPED' for name in SECRETS}
_MACHINE = {
    **{f"writes {what}": _writes(path) for what, path in _KERNEL_FILES.items()},
    **{f"reads {what}": _reads(path) for what, path in _HIDDEN_FILES.items()},
    "reads password hashes": "grep -E '^[^:]+:[$!][^:]*' /etc/shadow && echo ESCAPED",
    "finds a secret by search": 'grep -ra secret-of-somebody-else "$TOP" /home /root 2>/dev/null && echo ESCAPED',
    "reads the environment of other processes": "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep PYTEST_CURRENT_TEST && echo ESCAPED",
    "sees processes of the machine": "[ $(ls -d /proc/[0-9]* | wc -l) -lt 12 ] || echo ESCAPED",
    "signals processes of the machine": "python3 -c 'import os; os.kill(-1, 0)' 2>/dev/null; kill -0 2 2>/dev/null; [ $(ls -d /proc/[0-9]* | wc -l) -lt 12 ] || echo ESCAPED",
    "takes a lease on a file that is lent to it": _python(
        "import fcntl, os\nfor name in ('/bin/true', 'app.py'):\n    try:\n"
        "        fcntl.fcntl(os.open(name, os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_WRLCK)\n"
        "        print('ESCAPED')\n    except OSError:\n        pass"
    ),
    "reads the root of the first process": 'ls "/proc/1/root$OUTSIDE/data.txt" 2>/dev/null && echo ESCAPED',
    "mounts a file system": "mount -t tmpfs none /mnt 2>/dev/null && echo ESCAPED",
    "mounts the root again, writable": "mount -o remount,rw / 2>/dev/null && touch /etc/escaped 2>/dev/null && echo ESCAPED",
    "removes a mount": "umount -l /proc/sys 2>/dev/null && (: >> /proc/sys/kernel/core_pattern) 2>/dev/null && echo ESCAPED",
    "removes the cover of a home": 'umount -l "$TOP" 2>/dev/null; umount -l /tmp 2>/dev/null; ls "$OUTSIDE/data.txt" 2>/dev/null && echo ESCAPED',
    "removes covers in a user namespace": "unshare -Urm sh -c 'umount -l /tmp; umount -l /proc/sys; cat \"'\"$OUTSIDE\"'/data.txt\"' 2>/dev/null && echo ESCAPED",
    "mounts /proc anew in a user namespace": "unshare -Urmpf --mount-proc sh -c '(: >> /proc/sys/kernel/core_pattern) 2>/dev/null && echo ESCAPED'; true",
    "remounts /proc/sys writable in a user namespace": "unshare -Urm sh -c 'mount -o remount,rw,bind /proc/sys && (: >> /proc/sys/kernel/core_pattern) && echo ESCAPED' 2>/dev/null; true",
    "makes a device": "mknod disk b 254 0 2>/dev/null && head -c 1 disk 2>/dev/null && echo ESCAPED",
    "changes its root": "chroot /proc/1/root ls /etc/hostname 2>/dev/null && [ -e /proc/1/root/old_root_marker ] && echo ESCAPED",
    "enters another namespace": 'nsenter -t 1 -m true 2>/dev/null && [ -e "$OUTSIDE/data.txt" ] && echo ESCAPED',
    "reads the user's keyring": _python("print('ESCAPED' if libc.syscall(250, 0, -4, 0) >= 0 else '')"),
    "adds a key": _python("print('ESCAPED' if libc.syscall(248, b'user', b'k', b'v', 1, -4) >= 0 else '')"),
    "loads a BPF program": _python(
        "print('ESCAPED' if libc.syscall(321, 0, 0, 0) >= 0 or ctypes.get_errno() != 1 else '')"
    ),
    "watches the kernel": _python(
        "print('ESCAPED' if libc.syscall(298, 0, 0, -1, -1, 0) >= 0 or ctypes.get_errno() != 1 else '')"
    ),
    "loads a module": _python("print('ESCAPED' if libc.syscall(175, 0, 0, 0) >= 0 or ctypes.get_errno() != 1 else '')"),
    "opens a file by its handle": _python(
        "print('ESCAPED' if libc.syscall(304, 0, 0, 0) >= 0 or ctypes.get_errno() != 1 else '')"
    ),
    "handles page faults of others": _python("print('ESCAPED' if libc.syscall(323, 0) >= 0 else '')"),
    "types into a terminal": _python(
        "import fcntl, os, pty\nends = os.openpty()\ntry:\n    fcntl.ioctl(ends[1], 0x5412, b'x')\n    print('ESCAPED')\nexcept OSError as e:\n    assert e.errno == 1, e"
    ),
    "has capabilities": _python(
        "caps = next(int(l.split()[1], 16) for l in open('/proc/self/status') if l.startswith('CapEff'))\n"
        "allowed = sum(1 << n for n in (0, 1, 3, 4, 5, 6, 7))\nprint('ESCAPED' if caps & ~allowed else '')"
    ),
    "is root in the host's control groups": "for f in /sys/fs/cgroup/*/release_agent /sys/fs/cgroup/*/cgroup.procs /sys/fs/cgroup/cgroup.procs; do [ -e $f ] && (echo 0 >> $f) 2>/dev/null && echo ESCAPED; done; true",
    "lifts its memory limit": "for f in $(find /sys/fs/cgroup -name memory.limit_in_bytes -o -name memory.max 2>/dev/null | head -50); do (echo 99999999999 > $f) 2>/dev/null && echo ESCAPED; done; true",
    "makes a control group": "mkdir /sys/fs/cgroup/escaped /sys/fs/cgroup/memory/escaped 2>/dev/null && echo ESCAPED; true",
}
_WRITES = {
    "writes a system file": "touch /etc/escaped /usr/bin/escaped /usr/local/bin/escaped 2>/dev/null && echo ESCAPED; true",
    "writes beside the workspace": 'for d in "$OUTSIDE" "$PROJECT" "$TOP"; do touch "$d/escaped" 2>/dev/null && [ "$d" != /tmp ] && echo tried; done; true',
    "installs a hook": 'printf "#!/bin/sh\\necho x > $OUTSIDE/hooked" > "$PROJECT/.git/hooks/post-commit" 2>/dev/null && echo ESCAPED; true',
    "changes the repository's settings": 'git --git-dir="$PROJECT/.git" config core.pager evil 2>/dev/null && echo ESCAPED; true',
    "moves a branch of the repository": 'git --git-dir="$PROJECT/.git" update-ref refs/heads/main HEAD~9 2>/dev/null; git --git-dir="$PROJECT/.git" branch escaped 2>/dev/null && echo ESCAPED; true',
    "writes a start-up file of the user": 'echo evil >> "$TOP/home/.bashrc" 2>/dev/null; echo evil >> "$TOP/home/.profile" 2>/dev/null; true',
    "writes settings of another agent": 'mkdir -p "$TOP/home/.claude" 2>/dev/null; echo "{}" > "$TOP/home/.claude/settings.json" 2>/dev/null; true',
    "links a file of somebody else into the workspace": 'ln "$OUTSIDE/data.txt" stolen 2>/dev/null && echo ESCAPED; true',
    "reaches the user's bus": "ls /run/user/*/bus /run/dbus/system_bus_socket /run/docker.sock /var/run/docker.sock 2>/dev/null && echo ESCAPED; true",
    "leaves a file in the shared memory": "echo x > /dev/shm/ratchet-escaped; true",
    "leaves a file in a temporary folder": "echo x > /tmp/ratchet-escaped; echo x > /var/tmp/ratchet-escaped; true",
}
_LINKS = {
    "links .git to a folder with locks": 'rm -rf .git; ln -s "$OUTSIDE" .git',
    "links .git to the repository's own": 'rm -rf .git; ln -s "$PROJECT/.git" .git',
    "links the index to a file that is not there": 'rm -f .git/index; ln -s "$OUTSIDE/made-by-git" .git/index',
    "links the new index to a file": 'ln -sf "$OUTSIDE/data.txt" .git/index.ratchet 2>/dev/null; ln -sf "$OUTSIDE/data.txt" .git/index.lock 2>/dev/null; true',
    "links HEAD to a file": 'rm -f .git/HEAD; ln -s "$OUTSIDE/data.txt" .git/HEAD',
    "links commondir to a file": 'rm -f .git/commondir; ln -s "$OUTSIDE/data.txt" .git/commondir',
    "links a test to a file": 'ln -sf "$OUTSIDE/data.txt" tests/test_app.py',
    "links a source to a file": 'ln -sf "$OUTSIDE/data.txt" lib/app.py',
    "links a folder of tests elsewhere": 'rm -rf tests; ln -s "$OUTSIDE/folder" tests',
    "links a folder of sources elsewhere": 'rm -rf lib; ln -s "$OUTSIDE/folder" lib',
    "links to itself": "ln -s loop loop; mkdir -p a; ln -s ../a a/b",
    "links .gitignore elsewhere": 'ln -sf "$OUTSIDE/data.txt" .gitignore',
    "links .gitattributes elsewhere": 'ln -sf "$OUTSIDE/data.txt" .gitattributes',
    "links dependencies elsewhere": 'ln -s "$OUTSIDE/folder" node_modules; ln -s "$OUTSIDE/folder" .venv',
    "links the whole root": "ln -s / everything",
}
_SPECIAL = {
    "puts a pipe in place of a test": "rm tests/test_app.py; mkfifo tests/test_app.py",
    "puts a pipe in place of a source": "rm lib/app.py; mkfifo lib/app.py",
    "puts a pipe in place of .gitignore": "rm -f .gitignore; mkfifo .gitignore lib/.gitignore",
    "puts a pipe in place of .gitattributes": "rm -f .gitattributes; mkfifo .gitattributes lib/.gitattributes",
    "puts a pipe in place of commondir": "rm -rf .git; mkdir .git; mkfifo .git/commondir .git/HEAD .git/index",
    "puts a pipe in place of .git": "rm -rf .git; mkfifo .git",
    "puts a pipe in place of a manifest": "mkfifo package.json pyproject.toml Cargo.toml go.mod conftest.py pytest.ini",
    "puts a pipe among dependencies": "mkdir -p node_modules/x .venv; mkfifo node_modules/x/package.json .venv/pyvenv.cfg",
    "puts a socket in place of a file": "rm lib/app.py; python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('lib/app.py')\"",
    "locks folders": "mkdir -p locked/in; touch locked/in/x; chmod 000 locked/in locked lib",
    "puts a folder in place of a file": "rm tests/test_app.py; mkdir -p tests/test_app.py/in",
    "puts a file in place of a folder": "rm -rf tests; echo x > tests",
    "nests folders deeply": "python3 -c \"import os\nfor _ in range(150): os.mkdir('d'); os.chdir('d')\nopen('end','w')\"",
    "makes a file with a hole of a terabyte in an ignored folder": "mkdir -p node_modules; truncate -s 1T node_modules/huge 2>/dev/null; true",
    "uses names that are no text": "python3 -c \"open(b'a\\\\xff\\\\n b','w'); open(b'-rf','w'); open(b':(top)x','w')\"",
    "nests a repository": "mkdir inner && cd inner && git init -q . && git config core.fsmonitor 'touch /tmp/x' && echo x > y",
}
_EVIL = 'echo run by $(id -u) > "$OUTSIDE/run-by-git"'
_PROGRAM = f"sh -c '{_EVIL}; cat'"
_GIT = {
    "edits the script of a filter": 'printf \'import os,sys\\nopen("%s/run-by-git","w")\\nsys.stdout.write(sys.stdin.read())\\n\' "$OUTSIDE" > tools/strip.py; echo changed > data.strip',
    "adds a filter to its own .git": "[ -d .git ] && git config --file .git/config.worktree filter.evil.clean \"touch $OUTSIDE/run-by-git\"; echo '* filter=evil' > .gitattributes; echo 2 > lib/app.py",
    "puts settings beside commondir": '[ -d .git ] && git config --file .git/config filter.strip.clean "touch $OUTSIDE/run-by-git"; echo 2 > data.strip',
    "names a common folder of its own": 'rm -rf .git; mkdir -p .git fake && git init -q --bare fake && git config --file fake/config filter.strip.clean "touch $OUTSIDE/run-by-git" && git config --file fake/config core.fsmonitor "touch $OUTSIDE/run-by-git" && echo "$PWD/fake" > .git/commondir; echo \'ref: refs/heads/x\' > .git/HEAD; echo 2 > data.strip',
    "puts a file with a folder in place of .git": 'rm -rf .git; git init -q --bare fake; git config --file fake/config core.bare false; git config --file fake/config filter.strip.clean "touch $OUTSIDE/run-by-git"; echo "gitdir: $PWD/fake" > .git; echo 2 > data.strip',
    "installs hooks in its own .git": "mkdir -p .git/hooks 2>/dev/null; for h in post-commit post-checkout reference-transaction post-index-change pre-commit; do printf '#!/bin/sh\\ntouch %s/run-by-git\\n' \"$OUTSIDE\" > .git/hooks/$h 2>/dev/null; chmod +x .git/hooks/$h 2>/dev/null; done; echo 2 > lib/app.py",
    "watches files with a program": 'git config core.fsmonitor "touch $OUTSIDE/run-by-git" 2>/dev/null; [ -d .git ] && git config --file .git/config.worktree core.fsmonitor "touch $OUTSIDE/run-by-git"; echo 2 > lib/app.py',
    "hides a repository with a filter in the tree": "mkdir inner; cd inner; git init -q .; echo '* filter=x' > .gitattributes; git config filter.x.clean \"touch $OUTSIDE/run-by-git\"; echo x > y; git -c filter.x.clean=cat add -A; git -c user.name=a -c user.email=a@b commit -qm x; echo z > y",
    "shows differences with a program": "echo '* diff=evil' >> .gitattributes; git config diff.evil.textconv \"touch $OUTSIDE/run-by-git\" 2>/dev/null; echo 2 > lib/app.py",
    "names a submodule with a command": 'printf \'[submodule "x"]\\n path = x\\n url = ./y\\n update = !touch %s/run-by-git\\n\' "$OUTSIDE" > .gitmodules; mkdir x',
    "puts a bare repository in the tree": 'git init -q --bare .bare; git config --file .bare/config core.fsmonitor "touch $OUTSIDE/run-by-git"; cp -r .bare/. lib/',
    "puts a git on the path": "mkdir -p bin; printf '#!/bin/sh\\ntouch %s/run-by-git\\n' \"$OUTSIDE\" > bin/git; chmod +x bin/git; cp bin/git git",
    "puts modules beside the factory's": "for m in ratchet msgspec json os sitecustomize usercustomize; do echo \"open('$OUTSIDE/run-by-git','w')\" > $m.py; done; echo \"import os; open('$OUTSIDE/run-by-git','w')\" > evil.pth",
}
_BOUNDS = {
    "forks without end": "python3 - <<'END'\nimport os, time\nn = 0\ntry:\n    while n < 5000:\n        if os.fork() == 0:\n            time.sleep(60)\n            os._exit(0)\n        n += 1\nexcept OSError:\n    pass\nprint('ESCAPED' if n > 300 else 'held')\nEND",
    "takes all memory": "python3 -c \"x = bytearray(3 << 30); print('ESCAPED')\" 2>&1 | grep -v Error; true",
    "fills the temporary folder": "head -c 300m /dev/zero > /tmp/big 2>/dev/null && echo ESCAPED; true",
    "fills the shared memory": "head -c 300m /dev/zero > /dev/shm/big 2>/dev/null && echo ESCAPED; true",
    "leaves a daemon": "setsid sh -c 'while :; do sleep 1; done' </dev/null >/dev/null 2>&1 & sleep 0.1",
    "ignores signals to end": "trap '' TERM INT HUP; (trap '' TERM; sleep 100 </dev/null >/dev/null 2>&1) & true",
}
_NESTS = "python3 -c \"import os\nfor _ in range({depth}): os.mkdir('{name}'); os.chdir('{name}')\n{then}\""
_DEEP = {
    "puts a pipe in place of .gitignore very deep": _NESTS.format(
        depth=300, name="d", then="os.mkfifo('.gitignore'); open('f','w')"
    ),
    "nests folders deeper than a path can say": _NESTS.format(depth=1500, name="ddd", then="open('f','w')"),
    "nests folders with long names": _NESTS.format(depth=40, name="d" * 250, then="os.mkfifo('.gitignore')"),
    "makes sparse files of terabytes": "truncate -s 1T huge; for n in $(seq 300); do truncate -s 100G lib/huge$n; done",
    "nests folders deeply among dependencies": "mkdir node_modules; cd node_modules; "
    + _NESTS.format(depth=1500, name="d", then="os.mkfifo('package.json')"),
}
ATTEMPTS: dict[str, str] = {
    **_MACHINE, **_SECRET_READS, **_WRITES, **_LINKS, **_SPECIAL, **_GIT, **_BOUNDS, **_DEEP,
}  # fmt: skip
GIT_ATTEMPTS = frozenset(_GIT) | frozenset(_LINKS) | frozenset(_SPECIAL) | frozenset(_DEEP)
