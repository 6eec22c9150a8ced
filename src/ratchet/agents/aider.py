"""aider: `aider --message-file`. It exits with 0 whatever happens; its analytics log and chat history say what did."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from ratchet.agents import Ask, Failed, FileChange, Finished, Noticed, Text
from ratchet.agents.faults import complaint
from ratchet.agents.hearing import Heard, Metered
from ratchet.agents.native import Launch, Native, Program, Setting, decoded
from ratchet.agents.versions import Tested

_PROMPT, _LOG, _CHAT = "prompt.md", "analytics.jsonl", "chat.md"
_TOO_MUCH = " has hit a token limit!"
# Without a name it writes one into the repository's settings, which it may not; those of the home are not seen.
_NAMED = {"user.name": "aider", "user.email": "aider@localhost"}
_PLAIN = ("--yes-always", "--no-stream", "--no-pretty", "--no-fancy-input", "--no-check-update",
          "--no-show-model-warnings", "--no-show-release-notes", "--analytics-disable", "--no-detect-urls",
          "--no-auto-commits", "--no-dirty-commits", "--no-gitignore", "--no-auto-lint")  # fmt: skip


def launch(ask: Ask, setting: Setting) -> Launch:
    place = setting.place
    argv = [*_PLAIN, "--message-file", str(place / _PROMPT), "--analytics-log", str(place / _LOG)]
    argv += ["--chat-history-file", str(place / _CHAT), "--input-history-file", str(place / "input")]
    argv += ["--model", setting.model] if setting.model else []
    argv += [] if setting.free else ["--no-suggest-shell-commands"]
    env = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "GIT_CONFIG_COUNT": str(len(_NAMED))}
    for number, (key, value) in enumerate(_NAMED.items()):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return Launch(argv=argv, env=env, files={_PROMPT: ask.prompt}, results=(_LOG, _CHAT))


def prepare(folder: Path, place: Path) -> dict[str, str]:
    """It reads git with a library that takes a folder for a repository only if it holds `refs` and its objects are
    known; and it adds new files to the index, for which it needs objects that it may write."""
    common = folder / ".git" / "commondir"
    if not common.is_file():
        return {}
    (folder / ".git" / "refs").mkdir(exist_ok=True)
    (objects := place / "objects").mkdir()
    kept = f"{common.read_text().strip()}/objects"
    return {"GIT_OBJECT_DIRECTORY": str(objects), "GIT_ALTERNATE_OBJECT_DIRECTORIES": kept}


def read(line: bytes) -> Iterator[Heard]:
    if line.startswith(b"Applied edit to "):
        yield FileChange(line.decode(errors="replace").removeprefix("Applied edit to ").strip())
    elif line.startswith(b"litellm."):
        yield Noticed(line.decode(errors="replace").strip())  # it waits, and tries again


class _Properties(msgspec.Struct, frozen=True):
    reason: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None


class _Event(msgspec.Struct, frozen=True):
    event: str
    properties: _Properties = _Properties()


_EVENTS = msgspec.json.Decoder(_Event)


def read_results(contents: list[bytes]) -> Iterator[Heard]:
    log, chat = contents
    events = [event for line in log.splitlines() if (event := decoded(line, _EVENTS))]
    answers = [event.properties for event in events if event.event == "message_send"]
    for number, said in enumerate(answers):
        yield Metered(
            of=str(number), tokens_in=said.prompt_tokens, tokens_out=said.completion_tokens, cost_usd=said.cost or None
        )
    if any(event.event == "exit" and event.properties.reason.startswith("Completed") for event in events):
        # `completed` is also said when the model gave no answer at all.
        text = chat.decode(errors="replace")
        yield from _answer(text) if answers and _TOO_MUCH not in text else _no_answer(text)


def _answer(chat: str) -> Iterator[Heard]:
    yield Text(_spoken(chat))
    yield Finished(text="")


def _spoken(chat: str) -> str:
    """What the model said, without what it was asked (`####`) and what aider itself remarks (`>`)."""
    _, _, after = chat.rpartition("\n#### ")
    lines = after.splitlines()[1:]
    return "\n".join(line for line in lines if not line.startswith("> ")).strip()


def _no_answer(chat: str) -> Iterator[Heard]:
    said = "\n".join(line.removeprefix("> ") for line in _remarks(chat))
    yield Failed(reason=complaint(said).reason, detail=f"the model gave no answer: {said.strip()[-400:]}")


def _remarks(chat: str) -> list[str]:
    return chat.rpartition("\n#### ")[2].splitlines()[1:]


PROGRAM = Program(
    name="aider",
    launch=launch,
    read=read,
    read_results=read_results,
    prepare=prepare,
    tested=Tested(first="0.86", before="0.87"),
    tells_cost=True,
    variables=("OPENAI_API_KEY", "OPENAI_API_BASE", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "DEEPSEEK_API_KEY",
               "OPENROUTER_API_KEY", "AIDER_MODEL"),
    homes=(".aider",),
    resumes=False,
    litter=(".aider*",),
)  # fmt: skip


def agent(model: str) -> Native:
    return Native(PROGRAM, model)
