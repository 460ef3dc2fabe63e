"""/v1/responses with the openai package, /v1/messages with the anthropic package, and /openapi.json against docs/api.md."""
import os
import re

import anthropic
import openai
import pytest
import requests

from helpers import MODEL, QUESTION, post

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIMITS = {"max_tokens": 12, "temperature": 0}


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
    with client.responses.stream(model=MODEL, input="Hi", max_output_tokens=8, temperature=0) as stream:
        final = stream.until_done().get_final_response()
    assert final.output_text == client.responses.create(model=MODEL, input="Hi", max_output_tokens=8,
                                                        temperature=0).output_text


def test_what_needs_kept_answers_is_refused(client):
    with pytest.raises(openai.BadRequestError) as refused:
        respond(client, previous_response_id="resp_1")
    assert refused.value.param == "previous_response_id"


# ---- /v1/messages ----

def test_a_message_says_what_chat_says(claude, client):
    message = claude.messages.create(model=MODEL, messages=QUESTION, max_tokens=12, temperature=0)
    assert message.content[0].text == chat_text(client)
    assert message.stop_reason == "end_turn" and message.role == "assistant"
    assert message.usage.output_tokens > 0


def test_a_streamed_message_accumulates_to_the_whole_one(claude):
    fields = {"model": MODEL, "messages": QUESTION, "max_tokens": 12, "temperature": 0}
    with claude.messages.stream(**fields) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    whole = claude.messages.create(**fields)
    assert text == final.content[0].text == whole.content[0].text
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_stop_sequences_and_limits_are_named_as_the_reason(claude):
    ask = [{"role": "user", "content": "Count: 1, 2, 3, 4, 5, 6"}]
    cut = claude.messages.create(model=MODEL, messages=ask, max_tokens=2, temperature=0)
    assert cut.stop_reason == "max_tokens" and cut.usage.output_tokens == 2
    text = claude.messages.create(model=MODEL, messages=ask, max_tokens=24, temperature=0).content[0].text
    stopped = claude.messages.create(model=MODEL, messages=ask, max_tokens=24, temperature=0, stop_sequences=[text[3:5]])
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
    long = claude.messages.with_raw_response
    with pytest.raises(anthropic.APIStatusError) as too_long:
        long.create(model=MODEL, messages=[{"role": "user", "content": "word " * 9000}], max_tokens=4)
    assert too_long.value.status_code == 413


# S4: one error for over-long input, on every endpoint, streamed or not.
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path, body", [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "word " * 9000}]}),
    ("/v1/completions", {"prompt": "word " * 9000}),
    ("/generate", {"text": "word " * 9000}),
    ("/v1/responses", {"input": "word " * 9000}),
    ("/v1/messages", {"max_tokens": 4, "messages": [{"role": "user", "content": "word " * 9000}]}),
])
def test_over_long_input_is_one_413_everywhere(url, path, body, stream):
    answer = post(url, path, {**body, "stream": stream})
    error = answer.json()["error"]
    assert answer.status_code == 413 and error["type"] == "PayloadTooLargeError" and error["code"] == 413
    assert re.search(r"The input \(\d+ tokens\) is longer than the model's context length \(\d+ tokens\)", error["message"])


# ---- What the server says of itself ----

def test_the_documents_table_and_openapi_list_the_same_endpoints(url):
    with open(os.path.join(ROOT, "docs/api.md")) as file:
        rows = re.findall(r"^\| ((?:GET|POST)[^|]*)\|", file.read(), re.M)
    documented = set()
    for row in rows:
        methods = re.findall(r"GET|POST", row)
        paths = [path.split("?")[0] for path in re.findall(r"/[\w./-]*", row)]
        paths += ["/" + alias for alias in re.findall(r"\((get_\w+)\)", row)]
        documented |= {(method, path) for method in methods for path in paths}
    served = {(method.upper(), path) for path, methods in requests.get(url + "/openapi.json").json()["paths"].items()
              for method in methods}
    assert documented == served


def test_model_info_names_a_folder_that_holds_the_tokenizer(url):
    folder = requests.get(url + "/model_info").json()["tokenizer_path"]
    assert {"tokenizer.json", "tokenizer_config.json"} <= set(os.listdir(folder))
