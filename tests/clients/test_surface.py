"""What clients of SGLang, vLLM and other servers expect beside OpenAI's own: keys, limits, aliases, switches, names of metrics."""
import re
import socket

import anthropic
import openai
import pytest
import requests

from conftest import serving
from helpers import MODEL, QUESTION, post, sse

LONG = "word " * 9000
TINY = ["--model", "tests/vectors/tiny/llama", "--context-length", "64", "--chat-template", "tests/load/plain.jinja"]


# ---- S4: one error for over-long input, on every endpoint, streamed or not; nothing of it reaches the scheduler ----

@pytest.mark.parametrize("path, body", [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": LONG}]}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": LONG}], "n": 3}),
    ("/v1/completions", {"prompt": LONG}),
    ("/v1/completions", {"prompt": ["fine", LONG]}),
    ("/v1/completions", {"prompt": [5] * 9000}),
    ("/generate", {"text": LONG}),
    ("/generate", {"input_ids": [[5], [5] * 9000]}),
    ("/v1/responses", {"input": LONG}),
    ("/v1/messages", {"max_tokens": 4, "messages": [{"role": "user", "content": LONG}]}),
    ("/v1/embeddings", {"input": LONG}),
    ("/v1/embeddings", {"input": [[5] * 9000]}),
])
def test_over_long_input_is_one_413_everywhere(url, state, path, body):
    before = state()["steps"]
    for stream in [False] if path == "/v1/embeddings" else [False, True]:
        answer = post(url, path, {**body, "stream": stream})
        error = answer.json()["error"]
        assert answer.status_code == 413 and error["type"] == "PayloadTooLargeError" and error["code"] == 413, error
        assert re.search(r"The input \(\d+ tokens\) is longer than the model's context length \(\d+ tokens\)", error["message"])
    assert state()["steps"] == before, "it must not be computed"


# ---- vLLM's names of forms; best_of ----

@pytest.mark.parametrize("form, pattern", [
    ({"guided_choice": ["yes, sir", "no\n\"way\""]}, r'yes, sir|no\n"way"'),
    ({"guided_regex": "[a-c]{3}"}, "[a-c]{3}"),
    ({"guided_grammar": 'root ::= "x" [0-9]'}, "x[0-9]"),
    ({"guided_json": {"enum": ["é", 3]}}, '"é"|3'),
    ({"structured_outputs": {"choice": ["left", "right"]}}, "left|right"),
    ({"structured_outputs": {"regex": "z{2}"}}, "zz"),
    ({"structured_outputs": {"json": {"const": 5}}}, "5"),
])
def test_vllms_names_of_forms(client, form, pattern):
    answer = client.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=30, temperature=1, seed=1, extra_body=form)
    assert re.fullmatch(pattern, answer.choices[0].message.content), answer


@pytest.mark.parametrize("form, param", [
    ({"guided_choice": "yes"}, "guided_choice"), ({"guided_choice": [1]}, "guided_choice"), ({"guided_choice": []}, "guided_choice"),
    ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs.choice"),
    ({"guided_regex": "a", "regex": "b"}, "guided_regex"),
])
def test_forms_that_are_none_are_named(client, form, param):
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model=MODEL, messages=QUESTION, extra_body=form)
    assert refused.value.param == param


def test_best_of_tells_the_most_probable_of_all_choices(client):
    ask = {"model": MODEL, "prompt": ["The sea is", "Once upon"], "max_tokens": 6, "temperature": 1, "seed": 5}
    every = client.completions.create(**ask, n=4, logprobs=0)
    best = client.completions.create(**ask, n=2, best_of=4)
    for prompt in range(2):
        choices = every.choices[prompt * 4:prompt * 4 + 4]
        scored = sorted(choices, key=lambda c: -sum(c.logprobs.token_logprobs) / len(c.logprobs.token_logprobs))
        assert [c.text for c in best.choices[prompt * 2:prompt * 2 + 2]] == [c.text for c in scored[:2]]
    assert [c.index for c in best.choices] == [0, 1, 2, 3] and best.choices[0].logprobs is None
    assert best.usage.completion_tokens == every.usage.completion_tokens, "all that was made is counted"
    for wrong in ({"n": 3, "best_of": 2}, {"best_of": 2, "stream": True}):
        with pytest.raises(openai.BadRequestError) as refused:
            client.completions.create(**ask, **wrong)
        assert refused.value.param == "best_of"


# ---- What the server says of itself ----

def test_health_has_its_aliases_and_server_info_tells_how_answers_are_read(url):
    for path in ("/health", "/ping", "/ready"):
        assert requests.get(url + path).json()["status"] == "ok"
    assert requests.get(url + "/server_info").json()["parsers"] == {"tool_calls": "hermes", "reasoning": "none"}


def test_metrics_have_sglangs_names(url):
    post(url, "/generate", {"text": "Hi", "sampling_params": {"max_new_tokens": 4, "ignore_eos": True}})
    text = requests.get(url + "/metrics").text
    for name in ("num_running_reqs", "num_queue_reqs", "gen_throughput", "cache_hit_rate", "token_usage", "num_used_tokens",
                 "kv_used_tokens", "http_requests_total", "http_responses_total", "kv_available_tokens",
                 "kv_evictable_tokens", "max_total_num_tokens", "page_size", "context_len",
                 "prompt_tokens_total", "generation_tokens_total", "num_requests_total", "cached_tokens_total",
                 "realtime_tokens_total", "num_aborted_requests_total", "num_retracted_requests_total", "evicted_tokens_total",
                 "time_to_first_token_seconds_bucket", "e2e_request_latency_seconds_bucket", "queue_time_seconds_bucket",
                 "inter_token_latency_seconds_bucket", "request_time_per_output_token_seconds_bucket"):
        assert re.search(rf"^sglang:{name}{{[^}}]*model_name=", text, re.M), f"{name} is missing or has no model_name"
    for mode in ("prefill_compute", "prefill_cache", "decode"):
        assert re.search(rf'^sglang:realtime_tokens_total{{[^}}]*mode="{mode}"', text, re.M)


# ---- Keys ----

@pytest.fixture(scope="module")
def guarded(request, tmp_path_factory):
    with serving(request, tmp_path_factory.mktemp("guarded"), *TINY, "--api-key", "users", "--admin-api-key", "admins",
                 "--openai-compat", "kimi", "--openai-normalize-tool-choice") as address:
        yield address


@pytest.mark.parametrize("key, user, admin", [(None, 401, 401), ("wrong", 401, 401), ("users", 200, 401), ("admins", 200, 200)])
def test_each_key_opens_its_doors(guarded, key, user, admin):
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    assert requests.get(guarded + "/health", headers=headers).status_code == 200
    for path in ("/v1/models", "/server_info", "/metrics", "/v1/loads", "/openapi.json"):
        assert requests.get(guarded + path, headers=headers).status_code == user, path
    body = {"messages": QUESTION, "max_tokens": 2}
    for path in ("/v1/chat/completions", "/v1/messages"):
        assert post(guarded, path, body, headers=headers).status_code == user, path
    assert requests.post(guarded + "/flush_cache", headers=headers).status_code == admin
    assert requests.get(guarded + "/debug/audit", headers=headers).status_code == admin
    assert post(guarded, "/abort_request", {"rid": "none"}, headers=headers).status_code == admin
    if key is None:
        assert requests.get(guarded + "/v1/models").json()["error"]["type"] == "authentication_error"


def test_anthropics_clients_send_their_key_in_a_header_of_its_own(guarded):
    ask = {"model": "default", "messages": QUESTION, "max_tokens": 2}
    assert anthropic.Anthropic(base_url=guarded, api_key="users", max_retries=0).messages.create(**ask).usage.output_tokens == 2
    with pytest.raises(anthropic.AuthenticationError):
        anthropic.Anthropic(base_url=guarded, api_key="wrong", max_retries=0).messages.create(**ask)


# ---- S5: switches for clients of other makers ----

def test_kimis_clients_find_cached_tokens_in_usage(guarded, url):
    headers = {"Authorization": "Bearer users"}
    body = {"messages": QUESTION, "max_tokens": 2, "temperature": 0}
    for ask in (lambda: post(guarded, "/v1/chat/completions", body, headers=headers).json()["usage"],
                lambda: sse(post(guarded, "/v1/chat/completions", {**body, "stream": True, "stream_options": {"include_usage": True}},
                                 headers=headers, stream=True))[0][-1]["usage"]):
        usage = ask()
        assert usage["cached_tokens"] == usage["prompt_tokens_details"]["cached_tokens"]
    assert "cached_tokens" not in post(url, "/v1/chat/completions", body).json()["usage"], "off by default"


@pytest.mark.parametrize("choice, status", [("any", 200), ({"type": "any"}, 200), ({"type": "auto"}, 200), ({"type": "none"}, 200),
                                            ({"type": "tool", "name": "f"}, 200), ({"type": "function", "name": "f"}, 200),
                                            ({"type": "tool", "name": "g"}, 400), ("some", 400)])
def test_tool_choice_may_be_spelt_as_elsewhere_if_the_server_says_so(guarded, url, choice, status):
    body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2, "tool_choice": choice,
            "tools": [{"type": "function", "function": {"name": "f"}}]}
    answer = post(guarded, "/v1/chat/completions", body, headers={"Authorization": "Bearer users"})
    assert answer.status_code == status, answer.text
    assert post(url, "/v1/chat/completions", body).status_code == 400, "off by default"


def test_glms_clients_find_reasoning_tokens_in_every_usage(request, tmp_path_factory):
    with serving(request, tmp_path_factory.mktemp("glm"), *TINY, "--openai-compat", "glm") as address:
        usage = post(address, "/v1/chat/completions", {"messages": QUESTION, "max_tokens": 2}).json()["usage"]
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 0}


def test_reasoning_tokens_are_counted_between_their_tags(client):
    usage = client.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=4).usage
    assert usage.completion_tokens_details is None, "SmolLM2 has no tags"


# ---- Slow, half-open and over-large clients ----

def talk(url, data, pieces=1, half_close=False):
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        for at in range(pieces):
            connection.sendall(data[at * len(data) // pieces:(at + 1) * len(data) // pieces])
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
        return answer


def raw(path, body, headers=""):
    return (f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}Content-Length: {len(body)}\r\n\r\n" + body).encode()


def test_a_request_that_trickles_in_is_answered_as_any(url):
    body = '{"text": "Hi", "sampling_params": {"max_new_tokens": 3, "temperature": 0}}'
    answer = talk(url, raw("/generate", body), pieces=60)
    assert answer.startswith(b"HTTP/1.1 200 ") and b'"completion_tokens":' in answer


@pytest.mark.parametrize("stream", ["false", "true"])
def test_a_client_that_closed_its_sending_half_still_gets_its_answer_or_frees_all(url, state, stream):
    body = f'{{"text": "Hi", "stream": {stream}, "sampling_params": {{"max_new_tokens": 3, "temperature": 0}}}}'
    answer = talk(url, raw("/generate", body), half_close=True)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 200 ")
    assert state()["running"] + state()["waiting"] <= 1


@pytest.mark.parametrize("data, status", [
    (b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"y" * (65 << 10) + b"\r\n\r\n", 431),
    (b"GET /" + b"y" * (65 << 10) + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
    (b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n", 413),
    (b"TRACE /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 405),
    (b"QUERY /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 405),
    (b"BREW /health HTTP/1.1\r\nHost: x\r\n\r\n", 501),
    (b"\x16\x03\x01\x02\x00", None),
])
def test_what_no_server_takes_is_refused_at_the_door(url, data, status):
    answer = talk(url, data, half_close=True)
    assert status is None or answer.startswith(f"HTTP/1.1 {status} ".encode()), answer[:200]
    assert requests.get(url + "/health").status_code == 200
