#!/usr/bin/env python3
"""Writes FOLDER/rendered.json: conversations, and what `transformers` renders for them.

    pip install transformers==4.53.3 jinja2
    scripts/llm/chat_templates.py crates/llm/tests/data/chat

FOLDER has the templates as NAME.jinja, and sources.json with their origin and special tokens. A rendering that
raises is recorded as null. Arguments of tool calls are given as objects, and as text if the template fails for these.
"""

import json
import sys
from datetime import datetime
from pathlib import Path

from transformers.utils import chat_template_utils

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Returns the weather at a place, e.g. \"Zürich\" & <others>.",
            "parameters": {
                "type": "object",
                "properties": {
                    "place": {"type": "string", "description": "Name of the place"},
                    "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                    "days": {"type": "array", "items": {"type": "integer"}},
                },
                "required": ["place"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Adds two numbers.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "number", "default": 1.0}, "b": {"type": "number"}},
                "required": ["a", "b"],
            },
        },
    },
]


def say(role, content, **more):
    return {"role": role, "content": content, **more}


def call(name, arguments, id):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


SYSTEM = say("system", "You are a careful assistant.\nAnswer briefly.")
ASK = say("user", "What is 2 + 2?")
TALK = [ASK, say("assistant", "It is 4."), say("user", "And 3 + 3?")]
CALL = call("get_weather", {"place": "Zürich", "days": [1, 2], "unit": None, "exact": True}, "call00001")
SUM = call("add", {"a": 1.0, "b": 2e-7}, "call00002")
WEATHER = say("user", "How is the weather in Zürich?")
ANSWER = say("tool", "{\"degrees\": 21.5}", tool_call_id="call00001", name="get_weather")

CASES = {
    "question": dict(messages=[ASK], add_generation_prompt=True),
    "question without an answer's begin": dict(messages=[ASK], add_generation_prompt=False),
    "system": dict(messages=[SYSTEM, ASK], add_generation_prompt=True),
    "turns": dict(messages=TALK, add_generation_prompt=True),
    "turns with system": dict(messages=[SYSTEM, *TALK], add_generation_prompt=True),
    "finished": dict(messages=[SYSTEM, *TALK, say("assistant", "6.")], add_generation_prompt=False),
    "empty": dict(messages=[say("system", ""), say("user", "")], add_generation_prompt=True),
    "spaces": dict(messages=[say("user", "  a\n\n b\t "), say("assistant", "\n c \n"), say("user", "\n")],
                   add_generation_prompt=True),
    "other scripts": dict(messages=[say("system", "日本語で"), say("user", "Grüße, мир! 👩‍🚀 \u2028 'a' \"b\" \\n {{ x }}")],
                          add_generation_prompt=True),
    "two users": dict(messages=[ASK, ASK], add_generation_prompt=True),
    "assistant first": dict(messages=[say("assistant", "Hello."), ASK], add_generation_prompt=True),
    "unknown role": dict(messages=[say("wizard", "Abracadabra."), ASK], add_generation_prompt=True),
    "no messages": dict(messages=[], add_generation_prompt=True),
    "tools": dict(messages=[WEATHER], tools=TOOLS, add_generation_prompt=True),
    "tools with system": dict(messages=[SYSTEM, WEATHER], tools=TOOLS, add_generation_prompt=True),
    "call": dict(messages=[WEATHER, say("assistant", None, tool_calls=[CALL])], tools=TOOLS, add_generation_prompt=False),
    "call with text": dict(messages=[WEATHER, say("assistant", "I look.", tool_calls=[CALL])], tools=TOOLS,
                           add_generation_prompt=False),
    "result": dict(messages=[SYSTEM, WEATHER, say("assistant", "", tool_calls=[CALL]), ANSWER], tools=TOOLS,
                   add_generation_prompt=True),
    "two calls": dict(
        messages=[WEATHER, say("assistant", "", tool_calls=[CALL, SUM]), ANSWER,
                  say("tool", "3", tool_call_id="call00002", name="add"), say("assistant", "21.5 degrees."), ASK],
        tools=TOOLS, add_generation_prompt=True),
    "calls as text": dict(
        messages=[WEATHER, say("assistant", None, tool_calls=[call("add", "{\"a\": 1, \"b\": [2]}", "call00001")]),
                  say("tool", "3", tool_call_id="call00001")],
        add_generation_prompt=True),
    "thoughts": dict(messages=[ASK, say("assistant", "<think>\nTwo and two.\n</think>\n\nIt is 4."), ASK],
                     add_generation_prompt=True),
    "thoughts of its own": dict(messages=[ASK, say("assistant", "4", reasoning_content="Two and two.")],
                                add_generation_prompt=False),
    "without thinking": dict(messages=[ASK], add_generation_prompt=True, enable_thinking=False),
    "parts": dict(messages=[say("user", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])],
                  add_generation_prompt=True),
}


def objects(arguments):
    return json.loads(arguments) if isinstance(arguments, str) else arguments


def text(arguments):
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))


def with_arguments(messages, form):
    """The messages with the arguments of calls as most templates take them, objects, or as text."""
    messages = json.loads(json.dumps(messages))
    for message in messages:
        for call in message.get("tool_calls", []):
            call["function"]["arguments"] = form(call["function"]["arguments"])
    return messages


class Clock(datetime):
    """A clock that stands still at 1,700,000,000 seconds."""

    @classmethod
    def now(cls, tz=None):
        return datetime(2023, 11, 14, 22, 13, 20)


def main():
    folder = Path(sys.argv[1])
    chat_template_utils.datetime = Clock
    sources = json.loads((folder / "sources.json").read_text())
    rendered = {}
    for name, source in sources.items():
        template = (folder / f"{name}.jinja").read_text()
        rendered[name] = {}
        for case, given in CASES.items():
            given = dict(given)
            messages = given.pop("messages")
            rendered[name][case] = None
            for form in [objects, text]:
                try:
                    texts, _ = chat_template_utils.render_jinja_template(
                        conversations=[with_arguments(messages, form)], tools=given.get("tools"),
                        chat_template=template, **{k: v for k, v in given.items() if k != "tools"}, **source["tokens"])
                    rendered[name][case] = texts[0]
                    break
                except Exception as error:
                    print(f"{name}: {case}: {type(error).__name__}: {error}", file=sys.stderr)
    written = json.dumps({"cases": CASES, "rendered": rendered}, ensure_ascii=False, indent=1)
    (folder / "rendered.json").write_text(written + "\n")


main()
