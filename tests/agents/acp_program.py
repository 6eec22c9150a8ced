"""An ACP agent without a library: plays what its prompt tells it to, one word of it after the other."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

SESSION = "sess-1"
asked = 0


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def request(method: str, **params: Any) -> Any:
    """Ask the client; what comes meanwhile is not for us. Its answer, or the error it gave."""
    global asked  # noqa: PLW0603
    asked += 1
    send(id=f"a{asked}", method=method, params={"sessionId": SESSION, **params})
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("id") == f"a{asked}":
            return message.get("result") if "result" in message else {"error": message["error"]}
    sys.exit(0)


def tell(**update: Any) -> None:
    send(method="session/update", params={"sessionId": SESSION, "update": update})


def say(text: str) -> None:
    tell(sessionUpdate="agent_message_chunk", content={"type": "text", "text": text})


def permission(kind: str, path: str) -> str:
    options = [{"optionId": kind, "name": kind, "kind": kind} for kind in ("allow_once", "reject_once")]
    call = {"toolCallId": "t1", "title": kind, "kind": kind, "locations": [{"path": path}]}
    return str(request("session/request_permission", toolCall=call, options=options)["outcome"].get("optionId"))


def shell(line: str) -> str:
    made = request("terminal/create", command="sh", args=["-c", line])
    if "error" in made:
        return "refused"
    number = made["terminalId"]
    code = request("terminal/wait_for_exit", terminalId=number)["exitCode"]
    output = request("terminal/output", terminalId=number)["output"]
    request("terminal/release", terminalId=number)
    return f"{code}:{output.strip()}"


def play(words: list[str]) -> str:
    """Returns the stop reason."""
    match words:
        case ["read", path]:
            say(json.dumps(request("fs/read_text_file", path=path)))
        case ["write", path]:
            say(json.dumps(request("fs/write_text_file", path=path, content="new\n")))
        case ["may", kind, path]:
            say(permission(kind, path))
        case ["shell", *line]:
            say(shell(" ".join(line)))
        case ["env", name]:
            say(os.environ.get(name, "unset"))
        case ["flood"]:
            sys.stderr.write("x" * 2_000_000)
            sys.stderr.flush()
            say("still here")
        case ["spend"]:
            tell(sessionUpdate="usage_update", used=1, size=2, cost={"amount": 0.5, "currency": "USD"})
            time.sleep(600)
        case ["complain"]:
            say("Ran into this error: Rate limit exceeded, try again in 60 seconds.")
        case ["broken", status]:
            tell(sessionUpdate="session_info_update", _meta={"codex": {"threadStatus": {"type": "systemError"}}})
            tell(sessionUpdate="session_info_update", _meta={"codex": {"threadStatus": {"type": status}}})
            say("Selected model is at capacity.")
        case ["reconnect"]:
            error = {"message": "Reconnecting... 1/2", "willRetry": True, "additionalDetails": "last status: 429"}
            tell(sessionUpdate="session_info_update", _meta={"codex": {"error": error}})
            time.sleep(600)
        case ["mutter"]:
            sys.stderr.write("Attempt 1 failed with status 429. Retrying with backoff, retry in 3600s\n")
            sys.stderr.flush()
            time.sleep(600)
        case ["odd"]:
            sys.stdout.write("not json\n")
            send(method="session/update", params={"sessionId": SESSION, "update": {"sessionUpdate": "from_the_future"}})
            say("went on")
        case ["hang", pid]:
            if os.fork() == 0:
                os.setsid()
                Path(pid).write_text(str(os.getpid()))
                time.sleep(600)
            while not Path(pid).exists() or not Path(pid).read_text():
                time.sleep(0.01)
            say("hanging")
            time.sleep(600)
        case ["die"]:
            os._exit(3)
        case ["stop", reason]:
            say("enough")
            return reason
    return "end_turn"


def main() -> None:
    mode = "agent"
    for line in sys.stdin:
        message = json.loads(line)
        method, params = message.get("method"), message.get("params", {})
        match method:
            case "initialize":
                result: Any = {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}
            case "session/new":
                modes = [{"id": name, "name": name} for name in ("agent", "agent-full-access")]
                result = {"sessionId": SESSION, "modes": {"currentModeId": mode, "availableModes": modes}}
            case "session/set_mode":
                mode, result = params["modeId"], {}
            case "session/load":
                say("this is the past")
                result = {}
            case "session/prompt":
                prompt = params["prompt"][0]["text"]
                if prompt == "mode":
                    say(mode)
                result = {"stopReason": play(prompt.split()), "usage": None}
                if "die" not in prompt and "complain" not in prompt:
                    result["usage"] = {"totalTokens": 12, "inputTokens": 10, "outputTokens": 2}
            case _:
                continue
        send(id=message["id"], result=result)


if __name__ == "__main__":
    main()
