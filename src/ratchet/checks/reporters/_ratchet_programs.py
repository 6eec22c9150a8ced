"""Starts ctest or meson so that test programs with a known library write the results of their single tests to files.

`_ratchet_programs.py PRIVATE ctest|meson COMMAND...`: the library is detected in the program itself, so other programs
see nothing of this. The file is named through the build system's own setting for the environment of one test. Without
such programs the command is started unchanged. PRIVATE/asked.json has the ids to run; PRIVATE/inside.json is written
for the reader of the results. Runs under any Python, so it uses only the standard library.
"""

import json
import mmap
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

# A variable that the library reads, or the name of its shared library.
MARKS = {
    "boost": (b"BOOST_TEST_LOGGER", b"libboost_unit_test_framework"),
    "catch2": (b"BAZEL_TEST\0", b"libCatch2.so", b"libCatch2d.so"),
    "check": (b"CK_XML_LOG_FILE_NAME", b"libcheck.so"),
    "gtest": (b"gtest_output", b"libgtest.so"),
}
CARRIERS = ("cmake", "env", "valgrind")  # programs that only start the program named after them
LOGS = re.compile(
    r"--?(?:logger|log_format|log_sink|output_format|list_\w+|[fko])(?:=|$)|BOOST_TEST_(?:LOGGER|LOG_FORMAT|LOG_SINK|OUTPUT_FORMAT)="
)
LEVEL = re.compile(r"(?:--log_level=|-l=?|BOOST_TEST_LOG_LEVEL=)(\w+)$")


def main(private, how, *command):
    path = Path(private, "asked.json")
    asked = json.loads(path.read_text()) if path.exists() else []
    try:
        words = {"ctest": ctest, "meson": meson}[how](Path(private), list(command), asked)
    except (OSError, ValueError, KeyError, TypeError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"ratchet: programs are one test each: {error}\n")
        words = [*command, *(plainly(how, asked) if asked else [])]
    os.execvp(words[0], words)  # noqa: S606 — in our place, with our number


def plainly(how, names):
    return ["-R", one_of(names)] if how == "ctest" else list(names)


def one_of(names):
    return "^(" + "|".join(re.sub(r"([][\\^$.|?*+(){}])", r"\\\1", name) for name in names) + ")$"


def tests_of(words):
    """Return what a command of the build system prints about its tests. Output of the project's own files comes before
    it."""
    text = subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout.decode(errors="replace")
    return json.loads(re.sub(r"\A.*?^(?=[{\[]\s*$)", "", text, count=1, flags=re.M | re.S))


def ctest(private, command, asked):
    tests = []
    # With this option it would leave a result file without results.
    at = command.index("--output-junit") if "--output-junit" in command else len(command)
    for test in tests_of([*command[:at], *command[at + 2 :], "--show-only=json-v1"])["tests"]:
        properties = {each["name"]: each["value"] for each in test.get("properties", [])}
        env = properties.get("ENVIRONMENT", [])
        judged = any(name in properties for name in ("PASS_REGULAR_EXPRESSION", "FAIL_REGULAR_EXPRESSION", "WILL_FAIL"))
        tests.append((test["name"], test.get("command", []), [env] if isinstance(env, str) else env, judged))
    plan, wanted = planned(private, tests, asked)
    chosen = ["-R", one_of(wanted)] if asked else []
    return [*(shadowed(private, command, tests, plan) if plan else command), *chosen]


def shadowed(private, command, tests, plan):
    """Include the build's test file in one of ours, which adds to the environment of some of its tests."""
    at = command.index("--test-dir") + 1
    build, shadow = Path(command[at]), private / "ctest"
    shadow.mkdir()
    for name in ("CTestCustom.cmake", "CTestCustom.ctest"):
        if (build / name).is_file():
            shutil.copy(build / name, shadow / name)
    if (build / "DartConfiguration.tcl").is_file():
        # It names the build folder once more, and ctest would go there.
        text = (build / "DartConfiguration.tcl").read_text(errors="surrogateescape")
        moved = re.sub(r"(?m)^BuildDirectory:.*$", lambda _: f"BuildDirectory: {shadow}", text)
        (shadow / "DartConfiguration.tcl").write_text(moved, errors="surrogateescape")
    rows = [f"subdirs({bracket(str(build))})"]
    for name, _, env, _ in tests:
        if name in plan:
            # With the existing value: versions differ in whether this one is appended.
            every = [*env, *(f"{key}={value}" for key, value in plan[name]["env"].items())]
            value = ";".join(each.replace(";", "\\;") for each in every)
            rows.append(f"set_tests_properties({bracket(name)} PROPERTIES ENVIRONMENT {bracket(value)})")
    (shadow / "CTestTestfile.cmake").write_text("\n".join(rows) + "\n")
    return [*command[:at], str(shadow), *command[at + 1 :]]


def bracket(text):
    return f"[==[{text}]==]"


def meson(private, command, asked):
    build = command[command.index("-C") + 1]
    tests = [
        (test["name"], test["cmd"], [f"{key}={value}" for key, value in test["env"].items()], False)
        for test in tests_of([command[0], "introspect", "--tests", build])
        if test.get("protocol", "exitcode") == "exitcode" or asked
    ]
    plan, wanted = planned(private, tests, asked)
    if not plan or any(word.startswith("--wrap") for word in command):
        return [*command, *wanted]
    return [*command, "--wrapper", wrapper(private, tests, plan), *wanted]


def wrapper(private, tests, plan):
    """Return a script that recognises a test by its command."""
    commands = [" ".join(words) for _, words, _, _ in tests]
    rows = ["#!/bin/sh", 'case "$*" in']
    for name, words, _, _ in tests:
        if name in plan and commands.count(" ".join(words)) == 1:
            sets = " ".join(f"{key}={shlex.quote(value)}" for key, value in plan[name]["env"].items())
            rows.append(f"{shlex.quote(' '.join(words))}) export {sets} ;;")
    script = private / "wrapper"
    script.write_text("\n".join([*rows, "esac", 'exec "$@"', ""]))
    script.chmod(0o700)
    return str(script)


def planned(private, tests, asked):
    """For each test program of a known library, return the library, the result file and the variables; and the names of
    the tests that contain the requested ones."""
    files = private / "inside"
    files.mkdir(exist_ok=True)
    names = [name for name, _, _, _ in tests]
    inner = parted(asked, names)
    plan, known = {}, {}
    for number, (name, words, env, judged) in enumerate(tests):
        library = library_of(words, known)
        if not library or judged or names.count(name) > 1:
            continue
        file = str(files / f"{number}.{'json' if library == 'gtest' else 'xml'}")
        given = variables(library, file, [*words, *env])
        if given and not any(each.partition("=")[0] in given for each in env):
            given.update(filters(library, inner.get(name, [])))
            plan[name] = {"library": library, "file": file, "env": given, "part": is_part(library, [*words[1:], *env])}
    (private / "inside.json").write_text(json.dumps(plan))
    return plan, list(inner)


def parted(asked, names):
    """Group the requested ids by test; an empty group is the whole test."""
    inner = {}
    for each in asked:
        above = [name for name in names if each == name or each.startswith(f"{name}::")]
        name = max(above, key=len, default=each)
        inner.setdefault(name, []).append(each[len(name) + 2 :])
    return {name: parts if all(parts) else [] for name, parts in inner.items()}


def library_of(words, known):
    if not words:
        return ""
    programs = words if Path(words[0]).name in CARRIERS else words[:1]
    for program in programs:
        if program not in known:
            known[program] = marked(program)
        if known[program]:
            return known[program]
    return ""


def marked(program):
    """Return the library that a program was built with, or ""."""
    try:
        with open(program, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            if text[:2] == b"#!":
                return ""
            return next((name for name, marks in MARKS.items() if any(text.find(mark) >= 0 for mark in marks)), "")
    except (OSError, ValueError):
        return ""


def is_part(library, words):
    """Return whether the program is started for some of its tests only."""
    if library == "catch2":
        return any(not word.startswith("-") for word in words)
    return any(
        re.match(r"--run_test|-t(?:=|$)|(?:BOOST_TEST_RUN_FILTERS|CK_RUN_\w+)=|--gtest_filter", word) for word in words
    )


def variables(library, file, words):
    """Return the variables that make the program write its results, besides what it prints."""
    if library == "boost":
        levels = [found.group(1) for word in words if (found := LEVEL.match(word))]
        if any(LOGS.match(word) for word in words) or re.search("[:,]", file):
            return {}
        return {"BOOST_TEST_LOGGER": f"HRF,{levels[0] if levels else 'error'},stdout:XML,test_suite,{file}"}
    if library == "catch2":
        # Without a shard it prints a warning.
        shard = {"TEST_SHARD_INDEX": "0", "TEST_TOTAL_SHARDS": "1", "TEST_SHARD_STATUS_FILE": f"{file}.shard"}
        return {"BAZEL_TEST": "1", "XML_OUTPUT_FILE": file, **shard}
    return {"CK_XML_LOG_FILE_NAME": file} if library == "check" else {"GTEST_OUTPUT": f"json:{file}"}


def filters(library, tests):
    """Return the variables that select these tests, as far as the library can."""
    if not tests:
        return {}
    if library == "boost":
        return {"BOOST_TEST_RUN_FILTERS": ":".join(tests)}
    if library == "catch2":
        return {
            "BAZEL_TEST": "1",
            "TESTBRIDGE_TEST_ONLY": ",".join(re.sub(r'([\\,\["])', r"\\\1", test) for test in tests),
        }
    if library == "gtest":
        return {"GTEST_FILTER": ":".join(tests)}
    suites = {test.split("::")[0] for test in tests}
    cases = {test.split("::")[1] for test in tests if "::" in test}
    one = {"CK_RUN_SUITE": suites, "CK_RUN_CASE": cases}
    return {name: values.pop() for name, values in one.items() if len(values) == 1}


if __name__ == "__main__":
    main(*sys.argv[1:])
