"""An agent that is recorded once, and then runs again without its model and its tools.

    python examples/agent.py record demo-archive
    python examples/agent.py replay demo-archive

The model is a script, so that the example needs no network and no account; everything else is real. The tools
read files, search them, calculate, and look at the clock. The loop in `run_agent` does not know whether it is
recorded or replayed: it is given a session, through which every call goes.
"""

from __future__ import annotations

import argparse
import ast
import operator
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import replaypack

NOTES = Path(__file__).resolve().parent / "notes"
NAME = "agents/expenses"
TASK = "What did the trip cost, with 20 % for food on top?"


# The tools, genuinely executed while recording.


def list_files(pattern: str) -> list[str]:
    return sorted(path.name for path in NOTES.glob(pattern))


def search(text: str, file: str) -> list[dict[str, Any]]:
    lines = (NOTES / file).read_text(encoding="utf-8").splitlines()
    return [{"line": number, "text": line} for number, line in enumerate(lines, 1) if text in line]


_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def calculate(expression: str) -> float:
    def value(node: ast.expr) -> float:
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return node.value
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return float(_OPERATORS[type(node.op)](value(node.left), value(node.right)))
        raise ValueError(f"not arithmetic: {ast.unparse(node)}")

    return round(value(ast.parse(expression, mode="eval").body), 2)


def clock() -> str:
    return time.strftime("%H:%M:%S", time.gmtime()) + f".{time.time_ns() % 1_000_000_000:09d}"


TOOLS: dict[str, Callable[..., Any]] = {
    "list_files": list_files,
    "search": search,
    "calculate": calculate,
    "clock": clock,
}


def call_tool(name: str, arguments: dict[str, Any]) -> Any:
    return TOOLS[name](**arguments)


# The model: a script that reads the conversation, as a model does, and decides what comes next.


def scripted_model(request: dict[str, Any]) -> dict[str, Any]:
    results = [message for message in request["messages"] if message["role"] == "tool"]
    done = [message["name"] for message in results]
    if not done:
        return {"call": "clock", "arguments": {}}
    if "list_files" not in done:
        return {"call": "list_files", "arguments": {"pattern": "*.txt"}}
    files = next(message["result"] for message in results if message["name"] == "list_files")
    if done.count("search") < len(files):
        return {"call": "search", "arguments": {"text": "EUR", "file": files[done.count("search")]}}
    found = [hit["text"] for message in results if message["name"] == "search" for hit in message["result"]]
    amounts = [match[1] for text in found if (match := re.search(r"([\d.]+) EUR", text))]
    if "calculate" not in done:
        return {"call": "calculate", "arguments": {"expression": f"sum({', '.join(amounts)})"}}  # it will be told
    if done.count("calculate") == 1:
        return {"call": "calculate", "arguments": {"expression": f"({' + '.join(amounts)}) * 1.2"}}
    if done.count("clock") == 1:
        return {"call": "clock", "arguments": {}}
    times = [message["result"] for message in results if message["name"] == "clock"]
    total = [message["result"] for message in results if message["name"] == "calculate"][-1]
    return {"text": f"{len(amounts)} expenses, {total:.2f} EUR in all (asked at {times[0]}, done at {times[1]})."}


# The loop.


def run_agent(task: str, session: replaypack.ReplaySession) -> list[dict[str, Any]]:
    """Ask the model until it answers with text; return the whole conversation."""
    messages: list[dict[str, Any]] = [{"role": "user", "text": task}]
    while True:
        request = {"temperature": 0, "messages": list(messages)}
        answer = session.model("script-1", request, lambda request=request: scripted_model(request))
        messages.append({"role": "assistant", **answer})
        if "call" not in answer:
            return messages
        name, arguments = answer["call"], answer["arguments"]
        try:
            result = session.tool(name, arguments, lambda name=name, args=arguments: call_tool(name, args))
        except replaypack.ReplayMismatch:
            raise
        except Exception as error:  # what the tool raised, live or replayed
            result = f"error: {error}"
        messages.append({"role": "tool", "name": name, "result": result})


def record(archive: replaypack.Archive) -> list[dict[str, Any]]:
    """Run the agent for real, and record every call of the model and of the tools."""
    with archive.session(NAME, "record", if_exists="replace", metadata={"task": TASK}) as session:
        transcript = run_agent(TASK, session)
        session.note("lifecycle", "transcript", transcript)
    return transcript


def replay(archive: replaypack.Archive) -> list[dict[str, Any]]:
    """Run the same loop; every call is answered from the recording, none is executed."""
    try:
        with archive.session(NAME, "replay", strict=True) as session:
            return run_agent(TASK, session)
    except replaypack.ReplayMismatch as miss:
        raise SystemExit(f"the recording does not have this {miss.kind} call: {miss}") from None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["record", "replay"])
    parser.add_argument("archive", help="directory or URL of the archive")
    options = parser.parse_args()
    with replaypack.Archive(options.archive) as archive:
        if options.what == "record":
            transcript = record(archive)
            recording = archive.open(NAME)
            calls = recording.count("model"), recording.count("tool")
            print(f"recorded {calls[0]} calls of the model and {calls[1]} of its tools as {recording.locator}")
        else:
            # Nothing is left that could answer: no tools, no model, no notes.
            TOOLS.clear()
            globals().update(scripted_model=None, call_tool=None, NOTES=None)
            transcript = replay(archive)
            expected = archive.open(NAME).lookup("lifecycle", {"name": "transcript"})
            if expected is None or transcript != expected.response:
                sys.exit("the replayed conversation differs from the recorded one")
            print(f"replayed {len(transcript)} messages without model, tools and notes: the same conversation")
            if faults := list(archive.verify([NAME])):
                sys.exit("\n".join(map(str, faults)))
    for message in transcript:
        if message["role"] == "assistant" and "call" in message:
            print(f"  model: call {message['call']} {message['arguments']}")
        elif message["role"] == "tool":
            print(f"  tool:  {message['result']}")
        else:
            print(f"  {message['role']}: {message['text']}")


if __name__ == "__main__":
    main()
