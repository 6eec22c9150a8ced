"""The real programs, where `scripts/agents` put them, pointed at the scripted model; and a tiny item for them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.model_server import Turn
from tests.support import APPROVED, RATCHET, RED_TEST, RIGHT, SMALL, quick_environment

HERE = Path(__file__).parents[2]
BIN = Path(os.environ.get("RATCHET_TEST_CACHE", HERE / ".ratchet-test-cache")) / "agents" / "bin"

KEY = "key-of-nobody"  # no word of any name here: it is redacted wherever it occurs

_WRITE_TEST = f"cat > tests/test_sub.py <<'END'\n{RED_TEST}END"
_WRITE_SUB = f"cat >> calc.py <<'END'\n{RIGHT}END"
_SAY_TEST = f"One test.\n\ntests/test_sub.py\n```\n{RED_TEST}```\n"
_SAY_SUB = f"Subtract\n\ncalc.py\n```\n{SMALL['calc.py']}{RIGHT}```\n"

ITEM = {
    "auditor": [Turn(run=[_WRITE_TEST], say="sub subtracts"), Turn(say="REQUIREMENTS_COMPLETE")],
    "implementer": [Turn(run=["cat calc.py", _WRITE_SUB], say="Subtract")],
    "reviewer": [Turn(say=APPROVED)],
}
# For who edits by what the model says, having given it no tools.
SPOKEN_ITEM = {
    "auditor": [Turn(text=_SAY_TEST), Turn(text="REQUIREMENTS_COMPLETE")],
    "implementer": [Turn(text=_SAY_SUB)],
    "reviewer": [Turn(text=APPROVED)],
}
FILES = SMALL


# Each program as it is named to `--agent`; first those we read the stream of, then those we converse with.
NATIVE = {
    "goose": "goose",
    "claude": "claude:claude-sonnet-4-5",
    "codex": "codex",
    "gemini": "gemini:gemini-2.5-pro",
    "opencode": "opencode:scripted/scripted-model",
    "mini": "mini:openai/scripted-model",
    "aider": "aider:openai/scripted-model",
}
ACP = {
    "goose acp": "acp:goose acp --with-builtin developer",
    "opencode acp": "acp:opencode acp",
    "gemini acp": "acp:gemini --acp --model gemini-2.5-pro",
    "claude-agent-acp": "acp:claude-agent-acp",
    "codex-acp": "acp:codex-acp",
}
AGENTS = NATIVE | ACP


def needed_by(name: str) -> str:
    return name.removesuffix(" acp")


def needs(name: str) -> str:
    """The program's path, or a skip that says how to get it."""
    path = BIN / name
    if not path.exists():
        pytest.skip(f"{name} is not installed: scripts/agents {name}")
    return str(path)


def ratchet(*args: str, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """As the other tests call it, with the patience that a program of half a gigabyte on a busy machine needs."""
    return subprocess.run(
        [*RATCHET, *args],
        cwd=cwd,
        env=quick_environment() | env,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )


def pointed_at(address: str, home: Path) -> dict[str, str]:
    """An environment in which every agent takes the scripted server for its provider; its home is prepared."""
    home.mkdir(parents=True, exist_ok=True)
    _write(home / ".codex/config.toml", _CODEX.format(address=address))
    _write(home / ".gemini/settings.json", msgspec.json.encode(_GEMINI).decode())
    return {
        "PATH": f"{BIN}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "ANTHROPIC_BASE_URL": address,
        "ANTHROPIC_API_KEY": KEY,
        "OPENAI_API_KEY": KEY,
        "OPENAI_BASE_URL": f"{address}/v1",
        "OPENAI_API_BASE": f"{address}/v1",
        "OPENAI_HOST": address,
        "OPENAI_BASE_PATH": "v1/chat/completions",
        "GOOSE_PROVIDER": "openai",
        "GOOSE_MODEL": "scripted-model",
        "GEMINI_API_KEY": KEY,
        "GOOGLE_GEMINI_BASE_URL": address,
        "OPENCODE_CONFIG_CONTENT": msgspec.json.encode(_opencode(address)).decode(),
    }


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


_CODEX = """model = "gpt-5.5"
model_provider = "scripted"
[model_providers.scripted]
name = "scripted"
base_url = "{address}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
request_max_retries = 2
stream_max_retries = 2
"""
_GEMINI: dict[str, Any] = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
    "general": {"disableAutoUpdate": True, "disableUpdateNag": True},
}


def _opencode(address: str) -> dict[str, Any]:
    model = {"name": "scripted", "limit": {"context": 200_000, "output": 8_000}, "cost": {"input": 1, "output": 2}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{address}/v1", "apiKey": KEY},
        "models": {"scripted-model": model},
    }
    return {
        "model": "scripted/scripted-model",
        "small_model": "scripted/scripted-model",
        "provider": {"scripted": provider},
    }
