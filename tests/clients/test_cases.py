"""Public bug reports as tests: ids are those of the library's cases."""
import select
import socket
import threading
import time

import pytest
import requests

from helpers import MODEL, QUESTION, idle, post, sse, wait_for

LONG = {"sampling_params": {"temperature": 0, "max_new_tokens": 2000, "ignore_eos": True}}


def plain_request_works(url):
    body = {"model": MODEL, "messages": QUESTION, "max_tokens": 2, "temperature": 0}
    return post(url, "/v1/chat/completions", body).status_code == 200


def emoji_prompt(url):
    """Makes the model likely to answer in emoji: the tests hold for whatever it says."""
    return "😀 😃 😄 😁 😆 😅 😂 🤣 😊 😇 🙂 🙃 😉"


def test_b13_no_delta_splits_a_character_and_a_cut_one_is_the_same_in_both_modes(url):
    for limit in range(1, 9):
        body = {"prompt": emoji_prompt(url), "max_tokens": limit, "temperature": 0, "ignore_eos": True}
        whole = post(url, "/v1/completions", body).json()["choices"][0]["text"]
        events, done = sse(post(url, "/v1/completions", {**body, "stream": True}))
        pieces = [event["choices"][0]["text"] for event in events]
        assert done and "".join(pieces) == whole
        assert "�" not in "".join(pieces[:-2]), "only the end may hold a replacement mark"


def test_b28_tenants_share_no_prefix(url):
    prompt = "A prefix that only namespaces keep apart, long enough to be cached. " * 3

    def cached(**keys):
        answer = post(url, "/v1/completions", {"prompt": prompt, "max_tokens": 1, "temperature": 0, **keys}).json()
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    assert cached(extra_key="c", cache_salt="ab") == 0
    assert cached(extra_key="bc", cache_salt="a") == 0
    assert cached(extra_key="abc") == 0
    assert cached(extra_key="") == 0
    assert cached(extra_key="c", cache_salt="ab") > 0


def test_b36_a_live_request_id_is_refused_the_first_goes_on_and_reuse_is_allowed(url):
    body = {"text": "Once", "rid": "case-b36", "sampling_params": {"temperature": 0, "max_new_tokens": 100,
                                                                   "ignore_eos": True}}
    first = requests.post(url + "/generate", json={**body, "stream": True}, stream=True, timeout=120)
    lines = first.iter_lines()
    next(lines)   # it runs
    second = post(url, "/generate", body)
    assert second.status_code == 409 and second.json()["error"]["param"] == "rid"
    rest = [line for line in lines if line]
    assert rest[-1] == b"data: [DONE]"
    assert post(url, "/generate", body).status_code == 200


def test_b37_empty_stop_is_refused_and_null_and_none_mean_none(url):
    body = {"prompt": "1 2 3", "max_tokens": 3, "temperature": 0}
    assert post(url, "/v1/completions", {**body, "stop": [""]}).status_code == 400
    assert post(url, "/v1/completions", {**body, "stop": ""}).status_code == 400
    plain = post(url, "/v1/completions", body).json()["choices"][0]["text"]
    for stop in (None, []):
        assert post(url, "/v1/completions", {**body, "stop": stop}).json()["choices"][0]["text"] == plain


def test_b39_usage_of_streamed_choices_is_one_chunk_that_counts_the_prompt_once(url):
    body = {"messages": QUESTION, "max_tokens": 9, "temperature": 1, "seed": 4}
    alone = [post(url, "/v1/chat/completions", {**body, "seed": seed}).json()["usage"] for seed in (4, 5, 6)]
    events, done = sse(post(url, "/v1/chat/completions", {**body, "n": 3, "stream": True,
                                                          "stream_options": {"include_usage": True}}))
    told = [event for event in events if event["usage"] is not None]
    assert done and told == events[-1:] and told[0]["choices"] == [], "one chunk, after all finishes"
    usage = told[0]["usage"]
    assert usage["prompt_tokens"] == alone[0]["prompt_tokens"]
    assert usage["completion_tokens"] == sum(one["completion_tokens"] for one in alone)
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert 0 <= usage["prompt_tokens_details"]["cached_tokens"] <= usage["prompt_tokens"]
    events, done = sse(post(url, "/v1/chat/completions", {**body, "n": 3, "stream": True}))
    assert done and not any("usage" in event for event in events), "not unless it is asked for"


@pytest.mark.parametrize("path, body, status, param", [
    ("/v1/completions", '{"prompt": [999999]}', 400, "prompt"),
    ("/v1/completions", '{"prompt": [-1]}', 400, "prompt"),
    ("/v1/completions", '{"prompt": []}', 400, "prompt"),
    ("/v1/completions", '{"prompt": ""}', 400, "prompt"),
    ("/v1/completions", '{"prompt": "a", "stop_token_ids": [999999]}', 400, "stop_token_ids"),
    ("/v1/completions", '{"prompt": "a", "logit_bias": {"999999": 1}}', 400, "logit_bias"),
    ("/v1/completions", '{"prompt": "a", "max_tokens": 0}', 400, "max_tokens"),
    ("/v1/completions", '{"prompt": "a", "max_tokens": -1, "echo": true}', 400, "max_tokens"),
    ("/v1/completions", '{"prompt": "a", "n": 129}', 400, "n"),
    ("/v1/completions", '{"prompt": "a", "logprobs": 6}', 400, "logprobs"),
    ("/generate", '{"text": "a", "top_logprobs_num": 129, "return_logprob": true}', 400, "top_logprobs_num"),
    ("/v1/completions", '{"prompt": "a", "max_tokens": -1}', 400, "max_tokens"),
    ("/v1/completions", '{"prompt": "a", "temperature": 1e999}', 400, None),
    ("/v1/completions", r'{"prompt": "a \ud800 b"}', 400, None),
    ("/v1/completions", r'{"prompt": "a \udfff b"}', 400, None),
    ("/v1/chat/completions", '{"messages": [{"role": "user", "content": null}]}', 400, "messages[0].content"),
    ("/generate", '{"input_ids": [[1], [49152]]}', 400, "input_ids[1]"),
    ("/generate", '{"text": 3}', 400, "text"),
    ("/generate", '[' * 100000, 400, None),
    ("/generate", '{"text": ' + '"a"' * 2 + '}', 400, None),
])
def test_b41_what_is_wrong_is_named_and_the_next_request_works(url, path, body, status, param):
    answer = requests.post(url + path, data=body.encode(), timeout=60)
    assert answer.status_code == status, answer.text
    if param is not None:
        assert answer.json()["error"]["param"] == param
    assert plain_request_works(url)


def test_b41_content_may_be_null_in_tool_turns_or_a_list_of_text_parts(url):
    messages = [{"role": "user", "content": [{"type": "text", "text": "What is"}, {"type": "text", "text": "1+1?"}]},
                {"role": "assistant", "content": None, "tool_calls": []},
                {"role": "user", "content": "Go on."}]
    assert post(url, "/v1/chat/completions", {"messages": messages, "max_tokens": 1}).status_code == 200


def status_of_long_post(url, path, length):
    """Sends a body of this length until an answer comes, as a careful client does: the server need not read it all."""
    host, port = url.removeprefix("http://").split(":")
    piece = b"a" * 65536
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (path.encode(), length))
        sent = 0
        while sent < length and not select.select([connection], [], [], 0)[0]:
            sent += connection.send(piece[:length - sent])
        return int(connection.makefile("rb").readline().split()[1])


def test_b41_bodies_of_1_and_100_megabytes(url):
    one = requests.post(url + "/v1/completions", json={"prompt": "word " * 200_000}, timeout=120)
    assert one.status_code == 413
    assert status_of_long_post(url, "/v1/completions", 100_000_000) == 413
    assert plain_request_works(url)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("delay", [0.0, 0.3])
def test_b42_a_client_that_leaves_frees_its_pages(url, state, stream, delay):
    import json
    assert wait_for(lambda: idle(state()))
    host, port = url.removeprefix("http://").split(":")
    body = json.dumps({"text": ["Tell me everything."] * 3, "stream": stream, **LONG}).encode()
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert wait_for(lambda: not idle(state()))
        time.sleep(delay)
    assert wait_for(lambda: idle(state()), seconds=10), "the requests ran on"
    report = requests.get(url + "/debug/audit", timeout=10).json()
    assert report["ok"], report


def test_b42_polling_the_probe_leaves_nothing_behind(url, state):
    answers = []
    pollers = [threading.Thread(target=lambda: answers.append(requests.get(url + "/health_generate", timeout=60).status_code))
               for _ in range(10)]
    for poller in pollers:
        poller.start()
    for poller in pollers:
        poller.join()
    assert answers == [200] * 10
    assert wait_for(lambda: idle(state()))


def test_abort_ends_a_stream_with_what_it_has(url):
    stream = requests.post(url + "/generate", json={"text": "Go", "rid": "to-abort", "stream": True, **LONG}, stream=True,
                           timeout=120)
    lines = stream.iter_lines()
    next(lines)
    assert post(url, "/abort_request", {"rid": "to-abort"}).status_code == 200
    rest = [line for line in lines if line]
    assert b'"type":"abort"' in rest[-2] and rest[-1] == b"data: [DONE]"


def test_many_clients_at_once_all_get_their_own_answer(url):
    def ask(number, answers):
        body = {"input_ids": [504 + number, 3575, 282], "sampling_params": {"temperature": 0, "max_new_tokens": 12}}
        answers[number] = post(url, "/generate", body).json()

    answers = {}
    threads = [threading.Thread(target=ask, args=(number, answers)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == list(range(12))
    assert all(len(answer["output_ids"]) == answer["meta_info"]["completion_tokens"] for answer in answers.values())
