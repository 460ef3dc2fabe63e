"""The real openai package: chat, completions, streams, stop, seeds, usage, errors."""
import openai
import pytest

from helpers import MODEL, QUESTION


def chat(client, **fields):
    return client.chat.completions.create(model=MODEL, **{"messages": QUESTION, "temperature": 0, "max_tokens": 24, **fields})


def test_models_list_holds_the_served_model(client):
    assert [model.id for model in client.models.list()] == [MODEL]


def test_chat_answers_with_usage(client):
    answer = chat(client)
    assert "Paris" in answer.choices[0].message.content
    assert answer.choices[0].finish_reason in ("stop", "length")
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert 0 < usage.completion_tokens <= 24


def test_warm_prompt_reports_cached_tokens_and_the_same_answer(client):
    first = chat(client)
    second = chat(client)
    assert 0 < second.usage.prompt_tokens_details.cached_tokens <= second.usage.prompt_tokens
    assert second.choices[0].message.content == first.choices[0].message.content


def test_stream_folds_to_the_whole_answer(client):
    whole = chat(client)
    stream = chat(client, stream=True, stream_options={"include_usage": True})
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    finishes = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices and chunk.choices[0].finish_reason]
    assert finishes == [whole.choices[0].finish_reason]
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_no_usage_chunk_unless_asked(client):
    assert all(chunk.usage is None and chunk.choices for chunk in chat(client, stream=True))


def test_completion_defaults_to_sixteen_tokens(client):
    answer = client.completions.create(model=MODEL, prompt="Once upon a time", temperature=0)
    assert answer.usage.completion_tokens <= 16
    assert answer.choices[0].text


def test_completion_of_several_prompts_keeps_their_order(client):
    prompts = ["The sky is", "Two plus two equals", "My name is"]
    batch = client.completions.create(model=MODEL, prompt=prompts, temperature=0, max_tokens=6)
    assert [choice.index for choice in batch.choices] == [0, 1, 2]
    solo = [client.completions.create(model=MODEL, prompt=prompt, temperature=0, max_tokens=6) for prompt in prompts]
    assert [choice.text for choice in batch.choices] == [answer.choices[0].text for answer in solo]
    assert batch.usage.completion_tokens == sum(answer.usage.completion_tokens for answer in solo)


def test_completion_streams(client):
    whole = client.completions.create(model=MODEL, prompt="Count: 1, 2, 3,", temperature=0, max_tokens=12)
    stream = client.completions.create(model=MODEL, prompt="Count: 1, 2, 3,", temperature=0, max_tokens=12, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == whole.choices[0].text


def test_completion_of_token_ids(client):
    answer = client.completions.create(model=MODEL, prompt=[504, 3575, 282], temperature=0, max_tokens=4)
    assert answer.usage.prompt_tokens == 3


def test_seed_repeats_an_answer(client):
    fields = dict(temperature=1.0, max_tokens=16, messages=[{"role": "user", "content": "Tell me a story."}])
    one, same = (chat(client, seed=11, **fields).choices[0].message.content for _ in range(2))
    assert one == same
    others = {chat(client, seed=seed, **fields).choices[0].message.content for seed in range(20, 24)}
    assert len(others | {one}) > 1


def test_max_completion_tokens_is_the_newer_name(client):
    answer = chat(client, max_tokens=openai.NOT_GIVEN, max_completion_tokens=3, extra_body={"ignore_eos": True})
    assert answer.usage.completion_tokens == 3
    assert answer.choices[0].finish_reason == "length"


def test_stop_string_is_cut_and_never_leaks(client):
    fields = dict(prompt="1, 2, 3, 4, 5, 6,", temperature=0, max_tokens=20)
    plain = client.completions.create(model=MODEL, **fields).choices[0].text
    stop = plain[len(plain) // 2:][:4]
    assert len(stop) == 4
    cut = client.completions.create(model=MODEL, stop=[stop], **fields).choices[0]
    assert cut.text == plain[:plain.index(stop)]
    assert cut.finish_reason == "stop"
    stream = client.completions.create(model=MODEL, stop=[stop], stream=True, **fields)
    assert "".join(chunk.choices[0].text for chunk in stream) == cut.text


@pytest.mark.parametrize("stop", [None, []])
def test_no_stop_in_either_spelling(client, stop):
    assert chat(client, stop=stop).choices[0].message.content


@pytest.mark.parametrize("fields, error, param", [
    (dict(temperature=-1), openai.BadRequestError, "temperature"),
    (dict(max_tokens=0), openai.BadRequestError, "max_tokens"),
    (dict(max_tokens=10**9), openai.BadRequestError, "max_tokens"),
    (dict(stop=[""]), openai.BadRequestError, "stop"),
    (dict(messages=[]), openai.BadRequestError, "messages"),
    (dict(messages=[{"role": "user", "content": None}]), openai.BadRequestError, "messages[0].content"),
    (dict(n=0), openai.BadRequestError, "n"),
    (dict(logprobs=True, top_logprobs=21), openai.BadRequestError, "top_logprobs"),
    (dict(model="no-such-model"), openai.NotFoundError, "model"),
])
def test_errors_arrive_as_the_clients_own_exceptions(client, fields, error, param):
    with pytest.raises(error) as caught:
        client.chat.completions.create(**{"model": MODEL, "messages": QUESTION, **fields})
    assert caught.value.body["param"] == param
    assert chat(client, max_tokens=1).choices


def test_unknown_model_has_openais_code(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="no-such-model", messages=QUESTION)
    assert caught.value.body["code"] == "model_not_found"


def test_over_long_input_is_413_with_both_numbers(client):
    with pytest.raises(openai.APIStatusError) as caught:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "word " * 9000}])
    assert caught.value.status_code == 413
    assert "is longer than the model's context length (8192 tokens)." in caught.value.body["message"]
    assert chat(client, max_tokens=1).choices
