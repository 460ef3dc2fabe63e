"""Answers of a given form, tool calls: what the model says is judged by jsonschema and regex, which know nothing of levada."""
import json

import jsonschema
import openai
import pytest
import regex

from helpers import MODEL, post

SCHEMAS = {
    "flat": {"type": "object", "required": ["name", "age", "alive"], "properties": {
        "name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "alive": {"type": "boolean"}}},
    "nested": {"type": "object", "required": ["city"], "additionalProperties": False, "properties": {
        "city": {"type": "object", "required": ["zip", "kind"], "properties": {
            "zip": {"type": "string", "pattern": "^[0-9]{5}$"}, "kind": {"enum": ["town", "village", 3, None]}}}}},
    "list": {"type": "array", "minItems": 2, "maxItems": 3, "items": {"type": "integer", "minimum": -5, "maximum": 5}},
    "tuple": {"type": "array", "prefixItems": [{"type": "boolean"}, {"const": "x"}], "items": False, "minItems": 2},
    "either": {"anyOf": [{"type": "null"}, {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer",
               "minimum": 1, "maximum": 99}}}]},
    "reference": {"$defs": {"pair": {"type": "object", "required": ["l"], "properties": {
        "l": {"type": "boolean"}, "r": {"$ref": "#/$defs/leaf"}}}, "leaf": {"enum": ["a", "b"]}}, "$ref": "#/$defs/pair"},
    "date": {"type": "object", "required": ["day"], "properties": {"day": {"type": "string", "format": "date"}}},
    "types": {"type": ["boolean", "null"]},
    "map": {"type": "object", "patternProperties": {"^[a-z]{1,3}$": {"type": "boolean"}}, "additionalProperties": False,
            "maxProperties": 3},
    "union": {"type": "object", "required": ["shape"], "properties": {"shape": {"oneOf": [
        {"type": "object", "required": ["kind", "r"], "properties": {"kind": {"const": "circle"}, "r": {"enum": [1, 2]}}},
        {"type": "object", "required": ["kind", "a"], "properties": {"kind": {"const": "square"}, "a": {"enum": [3]}}}]}}},
}

PATTERNS = [r"(cat|dog)s? and [0-9]{2,3}", r"[A-Z][a-z]{2,8} [A-Z]\.", r"\d{4}-(0[1-9]|1[0-2])-[0-3]\d", r"[äöü]{3}ß?",
            r"(?:ab|cd)+e", r"[^a-z]{4}", r"\w{3}\s\S"]

WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "weather of a city", "parameters": {
    "type": "object", "required": ["city", "days"], "additionalProperties": False,
    "properties": {"city": {"enum": ["Graz", "Porto"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}}}}}
CLOCK = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}
ASK = [{"role": "user", "content": "What is the weather in Graz?"}]


@pytest.fixture(scope="module")
def client(url):
    return openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)


def judge(schema, text):
    jsonschema.validate(json.loads(text), schema, format_checker=jsonschema.FormatChecker())


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("temperature", [0, 1.5])
def test_answers_satisfy_their_schema_in_the_eyes_of_jsonschema(client, name, temperature):
    form = {"type": "json_schema", "json_schema": {"name": name, "schema": SCHEMAS[name], "strict": True}}
    answer = client.chat.completions.create(model=MODEL, messages=ASK, response_format=form, temperature=temperature,
                                            seed=7, max_tokens=400).choices[0]
    assert answer.finish_reason == "stop", answer
    judge(SCHEMAS[name], answer.message.content)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_answers_match_their_regular_expression_in_the_eyes_of_regex(url, pattern):
    for seed in range(3):
        body = {"text": "Say it:", "sampling_params": {"regex": pattern, "temperature": 1.2, "seed": seed,
                                                       "max_new_tokens": 60}}
        answer = post(url, "/generate", body).json()
        whole = answer["meta_info"]["finish_reason"]["type"] == "stop"
        assert regex.fullmatch(pattern, answer["text"], partial=not whole), answer


def test_json_object_is_an_object_streamed_as_whole(client):
    ask = {"model": MODEL, "messages": ASK, "response_format": {"type": "json_object"}, "temperature": 0, "seed": 1,
           "max_tokens": 60}
    whole = client.chat.completions.create(**ask).choices[0]
    assert whole.message.content.lstrip().startswith("{")
    stream = client.chat.completions.create(**ask, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == whole.message.content
    if whole.finish_reason == "stop":
        assert isinstance(json.loads(whole.message.content), dict)


def test_ebnf_in_a_batch_and_for_every_choice(client):
    grammar = 'root ::= ("yes" | "no") " " [0-9]'
    answer = client.completions.create(model=MODEL, prompt=["Well?", "So?"], n=2, max_tokens=20, temperature=1,
                                       extra_body={"ebnf": grammar})
    assert len(answer.choices) == 4
    for choice in answer.choices:
        assert regex.fullmatch("(yes|no) [0-9]", choice.text), answer


def test_a_schema_that_cannot_be_obeyed_is_named(client):
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "array", "uniqueItems": True}}}
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model=MODEL, messages=ASK, response_format=form)
    assert refused.value.param == "response_format.json_schema.schema" and "uniqueItems" in refused.value.message


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_forced_tool_calls_whole_and_streamed(client, choice):
    ask = {"model": MODEL, "messages": ASK, "tools": [WEATHER, CLOCK], "tool_choice": choice, "temperature": 0,
           "seed": 1, "max_tokens": 200, "parallel_tool_calls": False}
    whole = client.chat.completions.create(**ask).choices[0]
    assert whole.finish_reason == "tool_calls" and whole.message.content is None
    call, = whole.message.tool_calls
    assert call.type == "function" and call.id
    if call.function.name == "get_weather":
        judge(WEATHER["function"]["parameters"], call.function.arguments)

    calls, reason = {}, None
    for chunk in client.chat.completions.create(**ask, stream=True):
        for delta in chunk.choices[0].delta.tool_calls or []:
            if delta.index not in calls:
                assert delta.id and delta.type == "function" and delta.function.name, "the first fragment says who"
                calls[delta.index] = [delta.function.name, ""]
            calls[delta.index][1] += delta.function.arguments or ""
        reason = chunk.choices[0].finish_reason or reason
    assert calls == {0: [call.function.name, call.function.arguments]} and reason == "tool_calls"


def test_b38_a_call_cut_by_the_limit_is_none(client):
    answer = client.chat.completions.create(model=MODEL, messages=ASK, tools=[WEATHER], tool_choice="required",
                                            temperature=0, max_tokens=12).choices[0]
    assert answer.finish_reason == "length" and not answer.message.tool_calls
    assert answer.message.content, "what was said of it stays text"


def test_a_conversation_with_tools_goes_on(client):
    messages = ASK + [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": {
            "name": "get_weather", "arguments": '{"city": "Graz", "days": 1}'}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"}]
    answer = client.chat.completions.create(model=MODEL, messages=messages, tools=[WEATHER], temperature=0, max_tokens=8)
    assert answer.choices[0].finish_reason in ("length", "stop")


def test_n_calls_have_ids_of_their_own(client):
    answer = client.chat.completions.create(model=MODEL, messages=ASK, tools=[WEATHER], tool_choice="required", n=3,
                                            parallel_tool_calls=False, temperature=1, max_tokens=200)
    ids = [call.id for choice in answer.choices for call in choice.message.tool_calls or []]
    assert len(ids) == len(set(ids)) == 3
