"""aider: `aider --message-file`. It always exits with 0 and prints text; its analytics log says how it went."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from ratchet.agents import Ask, Failed, FileChange, Finished, Text
from ratchet.agents.faults import complaint
from ratchet.agents.hearing import Heard, Metered
from ratchet.agents.native import Launch, Native, Program, Setting, decoded
from ratchet.agents.versions import Tested
from ratchet.core.failure import Reason

_PROMPT, _LOG = "prompt.md", "analytics.jsonl"
_PLAIN = ("--yes-always", "--no-stream", "--no-pretty", "--no-fancy-input", "--no-check-update",
          "--no-show-model-warnings", "--no-show-release-notes", "--analytics-disable", "--no-detect-urls",
          "--no-auto-commits", "--no-dirty-commits", "--no-gitignore", "--no-auto-lint")  # fmt: skip
_CHATTER = re.compile(
    r"(Aider v|Main model:|Model:|Weak model:|Editor model:|Git repo:|Repo-map:|Tokens:|Cost estimates"
    r"|Added .* to the chat|Applied edit to |Note: in-chat filenames|Analytics have been|Warning: )"
)


def launch(ask: Ask, setting: Setting) -> Launch:
    place = setting.place
    argv = [*_PLAIN, "--message-file", str(place / _PROMPT), "--analytics-log", str(place / _LOG)]
    argv += ["--chat-history-file", str(place / "chat.md"), "--input-history-file", str(place / "input")]
    argv += ["--model", setting.model] if setting.model else []
    argv += [] if setting.free else ["--no-suggest-shell-commands"]
    env = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    return Launch(argv=argv, env=env, files={_PROMPT: ask.prompt}, result=_LOG)


def read(line: bytes) -> Iterator[Heard]:
    text = line.decode(errors="replace").rstrip()
    if text.startswith("Applied edit to "):
        yield FileChange(text.removeprefix("Applied edit to "))
    elif not _CHATTER.match(text):
        yield Text(text)


class _Properties(msgspec.Struct, frozen=True):
    reason: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None


class _Event(msgspec.Struct, frozen=True):
    event: str
    properties: _Properties = _Properties()


_EVENTS = msgspec.json.Decoder(_Event)


def read_result(log: bytes, printed: bytes) -> Iterator[Heard]:
    events = [event for line in log.splitlines() if (event := decoded(line, _EVENTS))]
    answers = [event for event in events if event.event == "message_send"]
    for number, answer in enumerate(answers):
        said = answer.properties
        yield Metered(
            of=str(number), tokens_in=said.prompt_tokens, tokens_out=said.completion_tokens, cost_usd=said.cost or None
        )
    if not any(event.event == "exit" and event.properties.reason.startswith("Completed") for event in events):
        return
    # `completed` is also said when the model gave no answer at all.
    yield Finished(text="") if answers else _no_answer(printed.decode(errors="replace"))


def _no_answer(printed: str) -> Failed:
    said = complaint(printed[-2_000:])
    detail = f"the model gave no answer: {printed.strip()[-400:]}"
    return Failed(reason=said.reason if printed.strip() else Reason.AGENT_CRASHED, detail=detail)


PROGRAM = Program(
    name="aider",
    launch=launch,
    read=read,
    read_result=read_result,
    tested=Tested(first="0.86", before="0.87"),
    variables=("OPENAI_API_KEY", "OPENAI_API_BASE", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "DEEPSEEK_API_KEY",
               "OPENROUTER_API_KEY", "AIDER_MODEL"),
    homes=(".aider",),
    resumes=False,
    litter=(".aider*",),
)  # fmt: skip


def agent(model: str) -> Native:
    return Native(PROGRAM, model)
