"""n, log probabilities, echo, biases and priorities through the real openai package; the native spellings by requests."""
import math

import openai
import pytest
import requests

from helpers import MODEL, QUESTION, post, sse

STORY = [{"role": "user", "content": "Tell me a story about a bear."}]


def chat(client, **fields):
    return client.chat.completions.create(model=MODEL, **{"messages": QUESTION, "temperature": 0, "max_tokens": 12, **fields})


def native(url, **fields):
    answer = post(url, "/generate", fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


# --- n ---------------------------------------------------------------------------------------------------------------


def test_each_choice_equals_a_call_of_its_own_with_the_next_seed(client):
    fields = dict(messages=STORY, temperature=1.0, max_tokens=16)
    several = chat(client, n=3, seed=40, **fields)
    assert [choice.index for choice in several.choices] == [0, 1, 2]
    solo = [chat(client, seed=40 + i, **fields) for i in range(3)]
    assert [c.message.content for c in several.choices] == [a.choices[0].message.content for a in solo]
    assert several.usage.prompt_tokens == solo[0].usage.prompt_tokens
    assert several.usage.completion_tokens == sum(a.usage.completion_tokens for a in solo)


def test_choices_stream_interleaved_and_fold_to_the_whole(client):
    fields = dict(messages=STORY, temperature=1.0, max_tokens=12, n=3, seed=7)
    whole = chat(client, **fields)
    texts, order = {}, []
    for chunk in chat(client, stream=True, **fields):
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
            order.append(choice.index)
    assert texts == {choice.index: choice.message.content for choice in whole.choices}
    assert order != sorted(order), "choices are computed together"


def test_completion_choices_of_several_prompts_stand_prompt_by_prompt(client):
    answer = client.completions.create(model=MODEL, prompt=["One, two,", "Red, green,"], n=2, temperature=0, max_tokens=4)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert answer.choices[0].text == answer.choices[1].text
    assert answer.choices[2].text == answer.choices[3].text != answer.choices[0].text


def test_choices_share_one_prefill(url, state):
    """The prompt is computed once: the others start on its pages."""
    prompt = [11 + i % 400 for i in range(320)]
    before = state()["steps"]
    answers = native(url, input_ids=prompt, sampling_params={"n": 8, "max_new_tokens": 1, "temperature": 0})
    assert len(answers) == 8
    cached = sorted(answer["meta_info"]["cached_tokens"] for answer in answers)
    assert cached[0] < 32 and cached[1] >= 300, cached
    assert state()["steps"] > before


# --- log probabilities -----------------------------------------------------------------------------------------------


def test_chat_logprobs_are_the_greedy_tokens_own(client):
    answer = chat(client, logprobs=True, top_logprobs=3).choices[0]
    content = answer.logprobs.content
    assert "".join(item.token for item in content if not item.token.startswith("<|")) == answer.message.content
    for item in content:
        assert item.logprob == item.top_logprobs[0].logprob == max(top.logprob for top in item.top_logprobs)
        assert bytes(item.bytes).decode() == item.token
        assert len(item.top_logprobs) == 3 and all(math.isfinite(top.logprob) for top in item.top_logprobs)
        assert sum(math.exp(top.logprob) for top in item.top_logprobs) <= 1.0001
    assert len({item.top_logprobs[1].token for item in content}) > 1


def test_b40_zero_alternatives_is_not_no_answer(client):
    content = chat(client, logprobs=True, top_logprobs=0).choices[0].logprobs.content
    assert content and all(item.top_logprobs == [] for item in content)
    answer = client.completions.create(model=MODEL, prompt="Once", temperature=0, max_tokens=3, logprobs=0)
    assert len(answer.choices[0].logprobs.token_logprobs) == 3


def test_b40_alternatives_stay_finite_when_all_but_one_token_are_biased_away(client):
    content = chat(client, logprobs=True, top_logprobs=5, logit_bias={"700": 100}, max_tokens=4).choices[0].logprobs.content
    assert all(math.isfinite(top.logprob) for item in content for top in item.top_logprobs)


def test_streamed_logprobs_equal_the_whole_ones(client):
    fields = dict(logprobs=True, top_logprobs=2, stop=["is"])
    whole = chat(client, messages=STORY, max_tokens=20, **fields).choices[0]
    streamed = []
    for chunk in chat(client, messages=STORY, max_tokens=20, stream=True, **fields):
        if chunk.choices and chunk.choices[0].logprobs:
            streamed += chunk.choices[0].logprobs.content
    assert [item.model_dump() for item in streamed] == [item.model_dump() for item in whole.logprobs.content]


def test_logprobs_end_where_the_answer_ends(client):
    answer = chat(client, messages=STORY, max_tokens=20, stop=["a"], logprobs=True)
    assert len(answer.choices[0].logprobs.content) == answer.usage.completion_tokens


def test_echo_scores_the_prompt_and_a_warm_one_alike(client):
    fields = dict(model=MODEL, prompt="The capital of France is", echo=True, logprobs=2, temperature=0)
    cold = client.completions.create(max_tokens=1, **fields).choices[0]
    warm = client.completions.create(max_tokens=1, **fields).choices[0]
    assert cold.text.startswith("The capital of France is")
    assert cold.logprobs == warm.logprobs
    assert cold.logprobs.token_logprobs[0] is None and cold.logprobs.top_logprobs[0] is None
    assert all(value < 0 for value in cold.logprobs.token_logprobs[1:])
    for token, offset in zip(cold.logprobs.tokens, cold.logprobs.text_offset):
        assert cold.text[offset:].startswith(token)
    scored = client.completions.create(max_tokens=0, **fields)
    assert scored.choices[0].text == "The capital of France is"
    assert scored.usage.completion_tokens == 0
    assert scored.choices[0].logprobs.token_logprobs == cold.logprobs.token_logprobs[:-1]


def test_native_logprobs(url):
    ids = [504, 3575, 282, 4649, 314]
    answer = native(url, input_ids=ids, sampling_params={"max_new_tokens": 3, "temperature": 0}, return_logprob=True,
                    logprob_start_len=0, top_logprobs_num=2, return_text_in_logprobs=True)
    meta = answer["meta_info"]
    assert [entry[1] for entry in meta["input_token_logprobs"]] == ids
    assert meta["input_token_logprobs"][0][0] is None
    assert [entry[1] for entry in meta["output_token_logprobs"]] == answer["output_ids"]
    assert all(len(top) == 2 for top in meta["output_top_logprobs"])
    assert meta["output_top_logprobs"][0][0][:2] == meta["output_token_logprobs"][0][:2]
    assert isinstance(meta["output_token_logprobs"][0][2], str)
    # A sentence's score doesn't depend on whether it was prompt or answer.
    longer = native(url, input_ids=ids + answer["output_ids"], return_logprob=True, logprob_start_len=len(ids) - 1,
                    sampling_params={"max_new_tokens": 1, "temperature": 0})["meta_info"]
    given = [entry[0] for entry in longer["input_token_logprobs"]][1:]
    assert given == pytest.approx([entry[0] for entry in meta["output_token_logprobs"]], abs=1e-4)


def test_native_stream_ends_with_the_whole_logprobs(url):
    body = {"text": "Once upon a time", "sampling_params": {"max_new_tokens": 5, "temperature": 0}, "return_logprob": True}
    whole = native(url, **body)
    events, done = sse(post(url, "/generate", {**body, "stream": True}, stream=True))
    assert done
    assert events[-1]["meta_info"]["output_token_logprobs"] == whole["meta_info"]["output_token_logprobs"]


def test_hidden_states_are_one_row_per_token(url):
    body = {"input_ids": [504, 3575, 282], "sampling_params": {"max_new_tokens": 4, "temperature": 0}, "return_hidden_states": True}
    states = native(url, **body)["meta_info"]["hidden_states"]
    assert len(states) == 4 and len(states[0]) == 3
    assert {len(row) for row in states[0] + states[1:]} == {576}
    again = native(url, **body)["meta_info"]["hidden_states"]
    assert again == states, "a cached prefix has no hidden states, so it is computed again"


# --- embeddings, loads ----------------------------------------------------------------------------------------------


def test_embeddings_are_the_last_hidden_state_of_length_one(client, url):
    ids = [504, 3575, 282]
    answer = client.embeddings.create(model=MODEL, input=[ids, [504]])  # the client asks for base64
    assert [item.index for item in answer.data] == [0, 1]
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == 4
    states = native(url, input_ids=ids, sampling_params={"max_new_tokens": 1}, return_hidden_states=True)
    last = states["meta_info"]["hidden_states"][0][-1]
    length = math.sqrt(sum(x * x for x in last))
    assert answer.data[0].embedding == pytest.approx([x / length for x in last], abs=1e-5)
    plain = client.embeddings.create(model=MODEL, input=[ids], encoding_format="float").data[0].embedding
    assert plain == pytest.approx(answer.data[0].embedding, abs=1e-6)
    short = client.embeddings.create(model=MODEL, input=[ids], dimensions=8).data[0].embedding
    assert len(short) == 8 and sum(x * x for x in short) == pytest.approx(1, abs=1e-5)


def test_texts_of_like_meaning_lie_closer(client):
    one, two, far = (item.embedding for item in client.embeddings.create(
        model=MODEL, input=["The cat sleeps.", "The cat is sleeping.", "SELECT id FROM orders;"]).data)
    dot = lambda a, b: sum(x * y for x, y in zip(a, b))
    assert dot(one, two) > dot(one, far)


def test_embedding_mistakes_are_named(url):
    for body, status, param in [({}, 400, "input"), ({"input": []}, 400, "input"), ({"input": "a", "dimensions": 0}, 400, "dimensions"),
                                ({"input": "a", "encoding_format": "x"}, 400, "encoding_format"),
                                ({"input": "a", "stream": True}, 400, "stream"), ({"input": [1] * 9000}, 413, None)]:
        answer = post(url, "/v1/embeddings", body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (status, param), answer.text


def test_loads_are_sglangs(url):
    loads = requests.get(url + "/v1/loads", timeout=10).json()
    assert loads["dp_rank_count"] == 1 and loads["aggregate"]["total_reqs"] == 0
    assert loads["loads"][0]["max_total_num_tokens"] > 0


# --- biases, limits, priorities ----------------------------------------------------------------------------------------


def test_logit_bias_forces_and_forbids(client):
    forced = chat(client, logit_bias={"700": 100}, max_tokens=3, logprobs=True).choices[0]
    assert len({item.token for item in forced.logprobs.content}) == 1
    first = chat(client, logprobs=True).choices[0].logprobs.content[0].token
    answer = client.completions.create(model=MODEL, prompt=[504], max_tokens=1, temperature=0)
    assert first and answer.choices[0].text


def test_wishes_out_of_range_are_named(client):
    for field, value in [("n", 0), ("n", 129), ("top_logprobs", 21), ("logit_bias", {"x": 1}), ("logit_bias", {"1": 101})]:
        with pytest.raises(openai.BadRequestError) as refusal:
            chat(client, logprobs=True, **{field: value})
        assert refusal.value.body["param"] == field


def test_ignore_eos_and_min_tokens(client):
    full = chat(client, max_tokens=40, extra_body={"ignore_eos": True})
    assert full.usage.completion_tokens == 40 and full.choices[0].finish_reason == "length"
    least = chat(client, max_tokens=40, extra_body={"min_tokens": 30})
    assert least.usage.completion_tokens >= 30


def test_priority_is_a_number(client, url):
    assert chat(client, extra_body={"priority": 5}).choices
    assert post(url, "/generate", {"text": "a", "priority": "high"}).json()["error"]["param"] == "priority"
