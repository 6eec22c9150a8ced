"""Runner for .NET: `dotnet test`, read from its TRX files."""

from __future__ import annotations

from ratchet.checks.formats import Parsed
from ratchet.checks.protocol import LaunchStep, RunOutput, Session, Target
from ratchet.checks.runners import (
    merge_parsed,
    parse_file,
    parser,
)
from ratchet.checks.runners.manifest import ManifestRunner
from ratchet.core.report import TestResult

_trx = parser("trx")


class DotNet(ManifestRunner):
    name = family = "dotnet"
    language = "c#"
    manifests = ("*Test*.csproj", "*test*.csproj", "*Test*.fsproj")
    marker = "Microsoft.NET.Test.Sdk"
    command = ("dotnet", "test")
    tests = ("**/*Test*.cs", "**/*Tests/**")
    sources = ("**/*.cs", "**/*.fs")
    setup = ("dotnet restore",)

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        names = "|".join(f"FullyQualifiedName={test.id}" for test in session.only)
        chosen = ["--filter", names] if names else []
        return [
            LaunchStep(argv=[*target.command, "--logger", "trx", "--results-directory", str(session.private), *chosen])
        ]

    def parse(self, results: RunOutput) -> Parsed:
        files = sorted(results.private.rglob("*.trx"))
        parsed = merge_parsed(parse_file(path, _trx) for path in files) if files else Parsed(ended=False)
        return self.with_compile_errors(parsed, results)

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        return [*target.command, "--filter", f"FullyQualifiedName={test.id}"]
