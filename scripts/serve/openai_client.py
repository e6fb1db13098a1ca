#!/usr/bin/env python3
"""Runs OpenAI's Python client against `ferrane serve` and checks what it reads.

  python3 -m venv venv && venv/bin/pip install openai
  ferrane serve MODEL --device reference --port 8080 &
  venv/bin/python scripts/serve/openai_client.py http://127.0.0.1:8080/v1 [--key KEY]

The model needs a chat template and a context of some 1500 tokens, which the descriptions of tools take. Replies to two requests with one
seed are compared. On a device they may differ where two tokens are about equally likely, because what a slot already holds decides how its
prompt is divided into windows, which round differently.
"""

import argparse
import json
import sys
from typing import Literal

import openai
import pydantic


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--key", default="none")
    args = parser.parse_args()
    client = openai.OpenAI(base_url=args.address, api_key=args.key, max_retries=0)
    model = client.models.list().data[0].id
    assert client.models.retrieve(model).id == model
    print(f"model {model}")
    failed = 0
    for check in [completions, logprobs, streamed, chat, streamed_chat, tools, forced_call, embeddings, schema, parsed, errors]:
        try:
            print(f"{check.__name__}: {check(client, model)}")
        except Exception as error:  # The next check may still work.
            failed += 1
            print(f"{check.__name__}: FAILED: {type(error).__name__}: {error}")
    sys.exit(failed)


def completions(client, model):
    reply = client.completions.create(model=model, prompt="Once upon a time", max_tokens=24, temperature=0)
    again = client.completions.create(model=model, prompt="Once upon a time", max_tokens=24, temperature=0)
    assert reply.choices[0].text == again.choices[0].text
    several = client.completions.create(model=model, prompt=["One day", "The cat"], n=2, max_tokens=5, seed=1)
    assert [c.index for c in several.choices] == [0, 1, 2, 3]
    return repr(reply.choices[0].text)


def logprobs(client, model):
    reply = client.completions.create(model=model, prompt="Once upon a time", max_tokens=3, temperature=0, echo=True, logprobs=2)
    probs = reply.choices[0].logprobs
    count = reply.usage.total_tokens
    assert len(probs.tokens) == len(probs.token_logprobs) == len(probs.top_logprobs) == len(probs.text_offset)
    assert len(probs.tokens) in (count, count - 1) and probs.token_logprobs[0] is None
    assert reply.choices[0].text.startswith("Once upon a time")
    # Greedy output is the most probable token.
    assert probs.token_logprobs[-1] == max(probs.top_logprobs[-1].values())
    return f"{sum(p for p in probs.token_logprobs if p is not None):.3f} for {probs.tokens}"


def streamed(client, model):
    asked = dict(model=model, prompt="Once upon a time", max_tokens=24, temperature=0)
    whole = client.completions.create(**asked)
    chunks = list(client.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].text for c in chunks if c.choices) == whole.choices[0].text
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    return f"{len(chunks)} chunks"


def chat(client, model):
    messages = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "Say hello."}]
    reply = client.chat.completions.create(
        model=model, messages=messages, max_completion_tokens=16, temperature=0, logprobs=True, top_logprobs=3
    )
    entries = reply.choices[0].logprobs.content
    assert reply.choices[0].message.role == "assistant" and all(len(e.top_logprobs) == 3 for e in entries)
    return repr(reply.choices[0].message.content)


def streamed_chat(client, model):
    asked = dict(model=model, messages=[{"role": "user", "content": "Say hello."}], max_tokens=16, seed=7)
    whole = client.chat.completions.create(**asked)
    chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == (whole.choices[0].message.content or ""), (text, whole.choices[0].message.content)
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[-1].usage.total_tokens == whole.usage.total_tokens
    return f"{len(chunks)} chunks"


def tools(client, model):
    tool = {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bern"}'}}
    messages = [
        {"role": "user", "content": "What is the weather in Bern?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    ]
    reply = client.chat.completions.create(model=model, messages=messages, tools=[tool], max_tokens=8, temperature=0)
    return reply.choices[0].finish_reason


def forced_call(client, model):
    parameters = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["city", "days"],
        "additionalProperties": False,
    }
    tool = {"type": "function", "function": {"name": "weather", "parameters": parameters, "strict": True}}
    asked = dict(model=model, messages=[{"role": "user", "content": "Is it cold?"}], tools=[tool], max_tokens=120)
    named = {"type": "function", "function": {"name": "weather"}}
    for choice in ["required", named]:
        try:
            reply = client.chat.completions.create(**asked, tool_choice=choice)
        except openai.BadRequestError as error:
            assert error.code == "unsupported_parameter" and error.param == "tool_choice", error
            return "the template writes no calls"
        (call,) = reply.choices[0].message.tool_calls
        arguments = json.loads(call.function.arguments)
        assert call.function.name == "weather" and sorted(arguments) == ["city", "days"], call
        assert len(arguments["city"]) <= 8 and 1 <= arguments["days"] <= 9, call
    return arguments


def embeddings(client, model):
    # The client asks for base64 by default.
    vectors = client.embeddings.create(model=model, input=["a cat", "a dog"]).data
    assert len(vectors) == 2 and abs(sum(v * v for v in vectors[0].embedding) - 1) < 1e-5
    same = client.embeddings.create(model=model, input="a cat", encoding_format="float").data[0].embedding
    # A device rounds to fp16 between programs, and what a slot holds already decides which programs
    # run.
    assert max(abs(a - b) for a, b in zip(same, vectors[0].embedding)) < 1e-2
    return f"{len(same)} elements"


def schema(client, model):
    shape = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 8}, "legs": {"enum": [2, 4]}},
        "required": ["name", "legs"],
        "additionalProperties": False,
    }
    asked = dict(
        model=model,
        messages=[{"role": "user", "content": "Name a cat."}],
        max_tokens=80,
        seed=3,
        response_format={"type": "json_schema", "json_schema": {"name": "cat", "strict": True, "schema": shape}},
    )
    whole = client.chat.completions.create(**asked, n=2, logprobs=True)
    texts = [choice.message.content for choice in whole.choices]
    for choice, text in zip(whole.choices, texts):
        value = json.loads(text)
        assert choice.finish_reason == "stop" and sorted(value) == ["legs", "name"] and value["legs"] in (2, 4), text
        assert b"".join(bytes(entry.bytes) for entry in choice.logprobs.content).decode() == text
    chunks = list(client.chat.completions.create(**asked, stream=True))
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == texts[0]
    cut = client.chat.completions.create(**asked | {"max_tokens": 3}).choices[0]
    assert cut.finish_reason == "length" and texts[0].startswith(cut.message.content)
    return texts


def parsed(client, model):
    class Pet(pydantic.BaseModel):
        kind: Literal["cat", "dog"]
        tame: bool

    class Pets(pydantic.BaseModel):
        first: Pet
        second: Pet | None

    reply = client.chat.completions.parse(
        model=model, messages=[{"role": "user", "content": "Two pets?"}], max_tokens=160, response_format=Pets
    )
    assert isinstance(reply.choices[0].message.parsed, Pets)
    return repr(reply.choices[0].message.parsed)


def errors(client, model):
    def refused(kind, call):
        try:
            call()
        except kind as error:
            assert error.body["message"] and "type" in error.body, error.body
            return
        raise AssertionError(f"{kind.__name__} was expected")

    text = dict(prompt="a", max_tokens=1)
    refused(openai.NotFoundError, lambda: client.completions.create(model="gpt-4", **text))
    refused(openai.BadRequestError, lambda: client.completions.create(model=model, temperature=9, **text))
    refused(openai.BadRequestError, lambda: client.completions.create(model=model, prompt=[10**9]))
    refused(openai.BadRequestError, lambda: client.completions.create(model=model, extra_body={"unknown": 1}, **text))
    refused(openai.BadRequestError, lambda: client.chat.completions.create(model=model, messages=[]))
    bad = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "string", "pattern": "("}}}
    messages = [{"role": "user", "content": "a"}]
    refused(
        openai.BadRequestError,
        lambda: client.chat.completions.create(model=model, messages=messages, response_format=bad),
    )
    return "6 refusals"


if __name__ == "__main__":
    main()
