"""/v1/responses with the openai package, /v1/messages with the anthropic package: texts, tools, reasoning, errors."""
import json

import anthropic
import openai
import pytest

from conftest import serving
from helpers import MODEL, QUESTION

LIMITS = {"max_tokens": 12, "temperature": 0}
GREEDY = {"extra_body": {"temperature": 0}}  # the anthropic package has no such field of its own


@pytest.fixture(scope="session")
def claude(url):
    return anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, timeout=120)


def chat_text(client):
    return client.chat.completions.create(model=MODEL, messages=QUESTION, **LIMITS).choices[0].message.content


# ---- /v1/responses ----

def respond(client, **fields):
    return client.responses.create(model=MODEL, input=QUESTION, max_output_tokens=12, temperature=0, **fields)


def test_a_response_says_what_chat_says(client):
    response = respond(client, metadata={"key": "value"})
    assert response.output_text == chat_text(client)
    assert response.status == "completed" and response.metadata == {"key": "value"}
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens


def test_a_streamed_response_ends_with_the_whole_one(client):
    events = list(respond(client, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created" and events[-1].type == "response.completed"
    deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert deltas == events[-1].response.output_text == respond(client).output_text


def test_a_response_cut_by_its_limit_is_incomplete(client):
    response = client.responses.create(model=MODEL, input="Count to one hundred.", max_output_tokens=3, temperature=0)
    assert response.status == "incomplete" and response.incomplete_details.reason == "max_output_tokens"
    assert response.usage.output_tokens == 3


def test_the_openai_packages_stream_helper_follows_a_response(client):
    with client.responses.stream(model=MODEL, input=QUESTION, max_output_tokens=60, temperature=0) as stream:
        final = stream.until_done().get_final_response()
    assert final.output_text == client.responses.create(model=MODEL, input=QUESTION, max_output_tokens=60,
                                                        temperature=0).output_text


def test_what_needs_kept_answers_is_refused(client):
    with pytest.raises(openai.BadRequestError) as refused:
        respond(client, previous_response_id="resp_1")
    assert refused.value.param == "previous_response_id"


# ---- /v1/messages ----

def test_a_message_says_what_chat_says(claude, client):
    message = claude.messages.create(model=MODEL, messages=QUESTION, max_tokens=12, **GREEDY)
    assert message.content[0].text == chat_text(client)
    assert message.stop_reason == "end_turn" and message.role == "assistant"
    assert message.usage.output_tokens > 0


def test_a_streamed_message_accumulates_to_the_whole_one(claude):
    fields = {"model": MODEL, "messages": QUESTION, "max_tokens": 12, **GREEDY}
    with claude.messages.stream(**fields) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    whole = claude.messages.create(**fields)
    assert text == final.content[0].text == whole.content[0].text
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_stop_sequences_and_limits_are_named_as_the_reason(claude):
    ask = [{"role": "user", "content": "Count: 1, 2, 3, 4, 5, 6"}]
    cut = claude.messages.create(model=MODEL, messages=ask, max_tokens=2, **GREEDY)
    assert cut.stop_reason == "max_tokens" and cut.usage.output_tokens == 2
    text = claude.messages.create(model=MODEL, messages=ask, max_tokens=24, **GREEDY).content[0].text
    stopped = claude.messages.create(model=MODEL, messages=ask, max_tokens=24, **GREEDY, stop_sequences=[text[3:5]])
    assert stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == text[3:5]
    assert text[3:5] not in stopped.content[0].text


def test_counting_tokens_agrees_with_the_answers_usage(claude):
    fields = {"model": MODEL, "messages": QUESTION, "system": "Be brief."}
    counted = claude.messages.count_tokens(**fields).input_tokens
    usage = claude.messages.create(max_tokens=1, **fields).usage
    assert counted == usage.input_tokens + usage.cache_read_input_tokens


def test_anthropic_clients_understand_our_errors(claude, url):
    with pytest.raises(anthropic.BadRequestError) as refused:
        claude.messages.create(model=MODEL, messages=[{"role": "user", "content": [{"type": "image"}]}], max_tokens=4)
    assert refused.value.body["type"] == "error"
    assert refused.value.body["error"]["param"] == "messages[0].content[0].type"
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.create(model="another", messages=QUESTION, max_tokens=4)
    with pytest.raises(anthropic.APIStatusError) as too_long:
        claude.messages.create(model=MODEL, messages=[{"role": "user", "content": "word " * 9000}], max_tokens=4)
    assert too_long.value.status_code == 413


# ---- Tools ----

PARAMETERS = {"type": "object", "required": ["city", "days"], "additionalProperties": False,
              "properties": {"city": {"enum": ["Graz", "Porto"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}}}
ASK = "What is the weather in Graz?"
OPENAI_TOOL = {"type": "function", "name": "get_weather", "description": "weather of a city", "parameters": PARAMETERS}
ANTHROPIC_TOOL = {"name": "get_weather", "description": "weather of a city", "input_schema": PARAMETERS}


def test_a_response_calls_a_tool_streamed_as_whole_and_goes_on_with_its_result(client):
    ask = {"model": MODEL, "input": ASK, "tools": [OPENAI_TOOL], "tool_choice": {"type": "function", "name": "get_weather"},
           "temperature": 0, "max_output_tokens": 200}
    whole = client.responses.create(**ask)
    call, = whole.output
    assert call.type == "function_call" and call.name == "get_weather" and call.status == "completed"
    assert json.loads(call.arguments)["city"] in ("Graz", "Porto")

    events = list(client.responses.create(**ask, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = "".join(event.delta for event in events if event.type == "response.function_call_arguments.delta")
    assert deltas == call.arguments
    with client.responses.stream(**ask) as stream:
        final = stream.until_done().get_final_response()
    assert [item.arguments for item in final.output] == [call.arguments]

    history = [{"role": "user", "content": ASK}, call.model_dump(exclude_none=True),
               {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}]
    answer = client.responses.create(model=MODEL, input=history, tools=[OPENAI_TOOL], temperature=0, max_output_tokens=8)
    assert answer.status in ("completed", "incomplete") and answer.usage.input_tokens > whole.usage.input_tokens


def test_a_message_uses_a_tool_streamed_as_whole_and_goes_on_with_its_result(claude):
    ask = {"model": MODEL, "messages": [{"role": "user", "content": ASK}], "tools": [ANTHROPIC_TOOL],
           "tool_choice": {"type": "tool", "name": "get_weather"}, **GREEDY, "max_tokens": 200}
    whole = claude.messages.create(**ask)
    use, = whole.content
    assert use.type == "tool_use" and use.name == "get_weather" and use.input["city"] in ("Graz", "Porto")
    assert whole.stop_reason == "tool_use"
    with claude.messages.stream(**ask) as stream:
        final = stream.get_final_message()
    assert [(block.name, block.input) for block in final.content] == [(use.name, use.input)]
    assert final.stop_reason == "tool_use" and final.usage.output_tokens == whole.usage.output_tokens

    history = ask["messages"] + [{"role": "assistant", "content": [use.model_dump(exclude_none=True)]},
                                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "sunny"}]}]
    answer = claude.messages.create(model=MODEL, messages=history, tools=[ANTHROPIC_TOOL], **GREEDY, max_tokens=8)
    assert answer.stop_reason in ("end_turn", "max_tokens")


def test_any_asks_for_some_tool_and_none_for_no_tool(claude, client):
    fields = {"model": MODEL, "messages": [{"role": "user", "content": ASK}], "tools": [ANTHROPIC_TOOL], **GREEDY}
    some = claude.messages.create(max_tokens=200, tool_choice={"type": "any", "disable_parallel_tool_use": True}, **fields)
    assert [block.type for block in some.content] == ["tool_use"]
    none = claude.messages.create(max_tokens=12, tool_choice={"type": "none"}, **fields)
    assert [block.type for block in none.content] == ["text"]
    required = client.responses.create(model=MODEL, input=ASK, tools=[OPENAI_TOOL], tool_choice="required", temperature=0,
                                       parallel_tool_calls=False, max_output_tokens=200)
    assert [item.type for item in required.output] == ["function_call"]


def test_b38_a_call_cut_by_the_limit_is_text_in_both_dialects(claude, client):
    response = client.responses.create(model=MODEL, input=ASK, tools=[OPENAI_TOOL], tool_choice="required", temperature=0,
                                       max_output_tokens=12)
    assert response.status == "incomplete" and [item.type for item in response.output] == ["message"]
    message = claude.messages.create(model=MODEL, messages=[{"role": "user", "content": ASK}], tools=[ANTHROPIC_TOOL],
                                     tool_choice={"type": "any"}, **GREEDY, max_tokens=12)
    assert message.stop_reason == "max_tokens" and [block.type for block in message.content] == ["text"]


def test_tools_that_only_the_makers_servers_run_are_refused_by_name(claude, client):
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model=MODEL, input=ASK, tools=[{"type": "web_search"}])
    assert refused.value.param == "tools[0].type"
    with pytest.raises(anthropic.BadRequestError) as refused:
        claude.messages.create(model=MODEL, max_tokens=4, messages=QUESTION,
                               tools=[{"type": "bash_20250124", "name": "bash"}])
    assert refused.value.body["error"]["param"] == "tools[0].type"


# ---- Reasoning ----

THINK = '<think>the sea</think>so it is'  # what a grammar makes the model say: thoughts, then text


@pytest.fixture(scope="module")
def thinker(request, tmp_path_factory):
    """SmolLM2 as a model that marks its thoughts."""
    with serving(request, tmp_path_factory.mktemp("thinker"), "--model", "smollm2", "--reasoning-parser", "qwen3") as address:
        yield address


def test_thoughts_are_an_item_of_a_response_streamed_as_whole(thinker):
    client = openai.OpenAI(base_url=thinker + "/v1", api_key="none", max_retries=0, timeout=120)
    ask = {"model": MODEL, "input": "Hi", "max_output_tokens": 40, "extra_body": {"regex": THINK}}
    whole = client.responses.create(**ask)
    assert [item.type for item in whole.output] == ["reasoning", "message"]
    assert whole.output[0].content[0].text == "the sea" and whole.output_text == "so it is"
    events = list(client.responses.create(**ask, stream=True))
    thoughts = "".join(event.delta for event in events if event.type == "response.reasoning_text.delta")
    assert thoughts == "the sea" and events[-1].response.output_text == "so it is"
    assert [item.type for item in events[-1].response.output] == ["reasoning", "message"]


def test_thoughts_are_a_block_of_a_message_streamed_as_whole(thinker):
    claude = anthropic.Anthropic(base_url=thinker, api_key="none", max_retries=0, timeout=120)
    ask = {"model": MODEL, "messages": QUESTION, "max_tokens": 40, "extra_body": {"regex": THINK},
           "thinking": {"type": "enabled", "budget_tokens": 1024}}
    whole = claude.messages.create(**ask)
    assert [block.type for block in whole.content] == ["thinking", "text"]
    assert whole.content[0].thinking == "the sea" and whole.content[1].text == "so it is"
    with claude.messages.stream(**ask) as stream:
        final = stream.get_final_message()
    assert [(block.type, getattr(block, "thinking", None)) for block in final.content] == [("thinking", "the sea"), ("text", None)]
    assert final.content[1].text == "so it is"
