"""aider: `aider --message-file`. It always exits with 0; the result is read from its analytics log and chat history."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ratchet.agents.drivers.cli_stream import CliAgent, CliProgram, Launch, LaunchSettings, decode_output
from ratchet.agents.protocol import AgentRequest, FileChange, Notice, Text, TurnFailed, TurnFinished
from ratchet.agents.provider_errors import classify_error
from ratchet.agents.turn_result import StreamEvent, UsageSample
from ratchet.agents.versions import VersionRange
from ratchet.tree_files import make_folder_inside, read_inside

_PROMPT, _LOG, _CHAT = "prompt.md", "analytics.jsonl", "chat.md"
_PATH_MAX_BYTES = 4096
_TOO_MUCH = " has hit a token limit!"
# Without a name aider would write one into the repository's git config, which is read-only; ~/.gitconfig is hidden.
_NAMED = {"user.name": "aider", "user.email": "aider@localhost"}
_PLAIN = ("--yes-always", "--no-stream", "--no-pretty", "--no-fancy-input", "--no-check-update",
          "--no-show-model-warnings", "--no-show-release-notes", "--analytics-disable", "--no-detect-urls",
          "--no-auto-commits", "--no-dirty-commits", "--no-gitignore", "--no-auto-lint")  # fmt: skip


def launch(request: AgentRequest, settings: LaunchSettings) -> Launch:
    scratch_dir = settings.scratch_dir
    argv = [*_PLAIN, "--message-file", str(scratch_dir / _PROMPT), "--analytics-log", str(scratch_dir / _LOG)]
    argv += ["--chat-history-file", str(scratch_dir / _CHAT), "--input-history-file", str(scratch_dir / "input")]
    argv += ["--model", settings.model] if settings.model else []
    argv += [] if settings.free else ["--no-suggest-shell-commands"]
    env = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "GIT_CONFIG_COUNT": str(len(_NAMED))}
    for number, (key, value) in enumerate(_NAMED.items()):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return Launch(argv=argv, env=env, files={_PROMPT: request.prompt}, results=(_LOG, _CHAT))


def prepare(folder: Path, scratch_dir: Path) -> dict[str, str]:
    """Make the workspace acceptable to aider's git library, which requires `refs` and an object directory.

    The object directory is writable, since aider adds new files to the index.
    """
    common = read_inside(folder, ".git/commondir", max_bytes=_PATH_MAX_BYTES)
    if common is None:
        return {}
    make_folder_inside(folder, ".git/refs")
    (objects := scratch_dir / "objects").mkdir()
    kept = f"{os.fsdecode(common).strip()}/objects"
    return {"GIT_OBJECT_DIRECTORY": str(objects), "GIT_ALTERNATE_OBJECT_DIRECTORIES": kept}


def read(line: bytes) -> Iterator[StreamEvent]:
    if line.startswith(b"Applied edit to "):
        yield FileChange(line.decode(errors="replace").removeprefix("Applied edit to ").strip())
    elif line.startswith(b"litellm."):
        yield Notice(line.decode(errors="replace").strip())  # aider waits and retries


class _Properties(msgspec.Struct, frozen=True):
    reason: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None


class _Event(msgspec.Struct, frozen=True):
    event: str
    properties: _Properties = _Properties()


_EVENTS = msgspec.json.Decoder(_Event)


def read_results(contents: list[bytes]) -> Iterator[StreamEvent]:
    log, chat = contents
    events = [event for line in log.splitlines() if (event := decode_output(line, _EVENTS))]
    answers = [event.properties for event in events if event.event == "message_send"]
    for number, message in enumerate(answers):
        yield UsageSample(
            of=str(number),
            tokens_in=message.prompt_tokens,
            tokens_out=message.completion_tokens,
            cost_usd=message.cost or None,
        )
    if any(event.event == "exit" and event.properties.reason.startswith("Completed") for event in events):
        # `Completed` is also logged when the model gave no answer.
        text = chat.decode(errors="replace")
        yield from _answer(text) if answers and _TOO_MUCH not in text else _no_answer(text)


def _answer(chat: str) -> Iterator[StreamEvent]:
    yield Text(_last_answer(chat))
    yield TurnFinished(text="")


def _last_answer(chat: str) -> str:
    """Return the model's last answer, without the prompt (`####`) and aider's own remarks (`>`)."""
    _, _, after = chat.rpartition("\n#### ")
    lines = after.splitlines()[1:]
    return "\n".join(line for line in lines if not line.startswith("> ")).strip()


def _no_answer(chat: str) -> Iterator[StreamEvent]:
    message = "\n".join(line.removeprefix("> ") for line in _remarks(chat))
    yield TurnFailed(
        reason=classify_error(message).reason, detail=f"the model gave no answer: {message.strip()[-400:]}"
    )


def _remarks(chat: str) -> list[str]:
    return chat.rpartition("\n#### ")[2].splitlines()[1:]


PROGRAM = CliProgram(
    name="aider",
    launch=launch,
    read=read,
    read_results=read_results,
    prepare=prepare,
    tested=VersionRange(first="0.86", before="0.87"),
    reports_cost=True,
    reports_as_it_works=False,
    variables=("OPENAI_API_KEY", "OPENAI_API_BASE", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "DEEPSEEK_API_KEY",
               "OPENROUTER_API_KEY", "AIDER_MODEL"),
    login_command="export OPENAI_API_KEY=… (or the key of your provider)",
    home_dirs=(".aider",),
    settings=(".aider.conf.yml", ".aider.model.settings.yml"),
    resumes=False,
    leftovers=(".aider*",),
)  # fmt: skip


def agent(model: str) -> CliAgent:
    return CliAgent(PROGRAM, model)
