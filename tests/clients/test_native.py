"""/generate and the endpoints around it, as SGLang's users and bench_serving call them."""
import subprocess

import pytest
import requests

from helpers import post, sse


def generate(url, **body):
    return post(url, "/generate", {"sampling_params": {"temperature": 0, "max_new_tokens": 8}, **body})


def test_generate_of_text_tells_ids_and_counts(url):
    answer = generate(url, text="The capital of France is").json()
    meta = answer["meta_info"]
    assert answer["text"] and len(answer["output_ids"]) == meta["completion_tokens"] == 8
    assert meta["finish_reason"] == {"type": "length", "length": 8}
    assert meta["prompt_tokens"] > 0 and meta["cached_tokens"] >= 0 and meta["e2e_latency"] > 0
    assert meta["weight_version"] == "default"


def test_ids_and_text_of_the_same_prompt_agree(url):
    text = "The capital of France is"
    ids = post(url, "/tokenize", {"prompt": text}).json()["tokens"]
    assert generate(url, input_ids=ids).json()["output_ids"] == generate(url, text=text).json()["output_ids"]


def test_batch_is_a_list_in_order(url):
    answers = generate(url, text=["One, two,", "Red, green,"]).json()
    assert len(answers) == 2
    assert all(answer["text"] for answer in answers)
    assert len(generate(url, text=["One, two,"]).json()) == 1


def test_stream_is_cumulative_and_folds_to_the_whole(url):
    whole = generate(url, text="Once upon").json()
    events, done = sse(generate(url, text="Once upon", stream=True))
    assert done
    counts = [event["meta_info"]["completion_tokens"] for event in events]
    assert counts == sorted(counts) and counts[-1] == 8
    for before, after in zip(events, events[1:]):
        assert after["text"].startswith(before["text"])
    assert events[-1]["text"] == whole["text"]
    assert events[-1]["output_ids"] == whole["output_ids"]


def test_payload_of_bench_serving_is_taken_as_it_is(url):
    body = {"text": "Hello", "sampling_params": {"temperature": 0.0, "max_new_tokens": 4, "ignore_eos": True},
            "stream": True, "lora_path": None, "return_logprob": False, "logprob_start_len": -1,
            "return_routed_experts": False, "image_data": None}
    events, done = sse(post(url, "/generate", body))
    assert done and events[-1]["meta_info"]["completion_tokens"] == 4
    assert requests.get(url + "/v1/models", timeout=10).json()["data"][0]["id"]
    assert requests.get(url + "/model_info", timeout=10).json()["tokenizer_path"]
    assert requests.post(url + "/flush_cache", params={"timeout": 60}, timeout=70).status_code == 200
    assert isinstance(requests.get(url + "/server_info", timeout=10).json()["internal_states"][0], dict)


def test_tokenize_and_detokenize_are_inverse(url):
    text = "Grüße, 世界! 😀 <|im_end|>"
    tokens = post(url, "/tokenize", {"prompt": text}).json()
    assert tokens["count"] == len(tokens["tokens"]) and tokens["max_model_len"] == 8192
    back = post(url, "/detokenize", {"tokens": tokens["tokens"], "skip_special_tokens": False}).json()["text"]
    assert back == text


def test_health_and_probe(url):
    assert requests.get(url + "/health", timeout=10).status_code == 200
    assert requests.get(url + "/health_generate", timeout=60).status_code == 200


def test_metrics_count_requests_and_tokens(url):
    def read(name):
        text = requests.get(url + "/metrics", timeout=10).text
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name + "{"))

    requests_before, tokens_before = read("sglang:num_requests_total"), read("sglang:generation_tokens_total")
    generate(url, text="Count me")
    assert read("sglang:num_requests_total") == requests_before + 1
    assert read("sglang:generation_tokens_total") == tokens_before + 8


def test_audit_is_clean(url):
    report = requests.get(url + "/debug/audit", timeout=10)
    assert report.status_code == 200 and report.json()["ok"]


def test_curl_chats_and_streams(url):
    def curl(body):
        return subprocess.run(["curl", "-sS", "-N", url + "/v1/chat/completions", "-H", "Content-Type: application/json",
                               "-d", body], capture_output=True, text=True, check=True, timeout=120).stdout

    message = '"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4'
    assert '"finish_reason"' in curl("{%s}" % message)
    assert curl('{%s, "stream": true}' % message).endswith("data: [DONE]\n\n")


def test_chat_page_loads_nothing_from_elsewhere(url):
    page = requests.get(url + "/", timeout=10)
    assert page.headers["Content-Type"].startswith("text/html")
    assert "http://" not in page.text and "https://" not in page.text


@pytest.mark.parametrize("method, path, status", [("GET", "/generate", 405), ("GET", "/no-such-path", 404)])
def test_wrong_doors_answer_with_the_error_form(url, method, path, status):
    answer = requests.request(method, url + path, timeout=10)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]
