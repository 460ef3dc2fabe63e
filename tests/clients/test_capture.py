"""Captures over HTTP, as SpecForge's producers ask for them, against a server of the tiny llama."""
import json
import os

import pytest
import requests

from conftest import serving

TOKEN = "capture-secret"
AUTH = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def server(request, tmp_path_factory):
    if request.config.getoption("--server"):
        pytest.skip("needs a server of its own")
    folder = tmp_path_factory.mktemp("capture")
    with serving(request, folder, "--model", "tests/vectors/tiny/llama", "--dtype", "float32", "--enable-spec-capture",
                 "--spec-capture-store-id", "run", "--spec-capture-aux-layer-ids", "0,2", "--arena-bytes", str(1 << 20),
                 "--capture-space-wait-s", "1", "--store-shm-url", f"shm://{folder}/store.sock",
                 SGLANG_SPEC_CAPTURE_TOKEN=TOKEN) as address:
        yield address
    assert not os.path.exists(folder / "store.sock"), "the socket's file goes with the server"


def item(task, ids, **fields):
    return {"store_id": "run", "sample_id": f"run:{task}", "gen": 1, "replace": False,
            "features": {"aux": "hidden_states", "last_hidden": "target"},
            "passthrough": [{"name": "input_ids", "data": ids, "shape": [1, len(ids)], "dtype": "int64"}], **fields}


def generate(server, body, headers=AUTH):
    return requests.post(server + "/generate", json=body, headers=headers, timeout=60)


def patch(prompts, items):
    return {"input_ids": prompts, "sampling_params": {"temperature": 0.0, "max_new_tokens": 0}, "spec_capture": items}


def test_the_patch_spelling_answers_one_row_per_prompt(server):
    prompts = [list(range(10, 40)), [7, 8, 9]]
    rows = generate(server, patch(prompts, [item("p1", prompts[0]), item("p2", prompts[1])])).json()
    for row, prompt, task in zip(rows, prompts, ("p1", "p2")):
        result = row["meta_info"]["spec_capture"]
        assert (result["sample_id"], result["store_id"], result["gen"]) == (f"run:{task}", "run", 1)
        assert result["aux_layer_ids"] == [0, 2]
        assert result["features"]["hidden_states"]["shape"] == [1, len(prompt), 2 * 72]
        assert result["features"]["target"]["shape"] == [1, len(prompt), 72]
        assert result["features"]["input_ids"]["dtype"] == "int64"
        assert set(result["features"]) == {"hidden_states", "target", "input_ids"}


def test_the_plugin_spelling_wants_results_in_lists(server):
    ids = [1, 2, 3, 4]
    params = {"temperature": 0.0, "max_new_tokens": 1, "custom_params": {"spec_capture": json.dumps(item("plugin", ids))}}
    rows = generate(server, {"input_ids": [ids], "sampling_params": [params], "extra_key": ["0f" * 16]}).json()
    assert rows[0]["meta_info"]["spec_capture"][0]["sample_id"] == "run:plugin"


def test_one_bad_item_fails_alone(server):
    ids = [5, 6, 7]
    items = [item("good", ids), item("bad", ids, layers=[9]), item("also-good", ids), item("x", ids, store_id="other")]
    results = [row["meta_info"]["spec_capture"] for row in generate(server, patch([ids] * 4, items)).json()]
    assert "error" not in results[0] and "error" not in results[2]
    assert "layer 9 is outside 0 to 2" in results[1]["error"] and results[1]["retryable"] is False
    assert "this server writes in \"run\" only" in results[3]["error"]


def test_one_bad_prompt_fails_alone(server):
    prompts = [[5, 6, 7], [1, 99999], [], [8, 9], list(range(2, 7)) * 2000]
    items = [item(f"prompt-{i}", ids) for i, ids in enumerate(prompts)]
    answer = generate(server, patch(prompts, items))
    assert answer.status_code == 200
    results = [row["meta_info"]["spec_capture"] for row in answer.json()]
    assert "error" not in results[0] and "error" not in results[3]
    assert "token id 99999 is outside the vocabulary" in results[1]["error"] and results[1]["retryable"] is False
    assert "at least one token" in results[2]["error"]
    assert "context length" in results[4]["error"] and results[4]["retryable"] is False


def test_the_same_generation_again_is_the_recorded_result(server):
    ids = [9, 9, 9]
    first = generate(server, patch([ids], [item("again", ids)])).json()
    second = generate(server, patch([ids], [item("again", ids)])).json()
    assert first[0]["meta_info"]["spec_capture"] == second[0]["meta_info"]["spec_capture"]
    stale = [item("stale", ids, gen=3)], [item("stale", ids, gen=2)]
    generate(server, patch([ids], stale[0]))
    assert "stale" in generate(server, patch([ids], stale[1])).json()[0]["meta_info"]["spec_capture"]["error"]


def test_without_the_token_nothing_is_captured(server):
    ids = [3, 3, 3]
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        refused = generate(server, patch([ids], [item("auth", ids)]), headers)
        assert refused.status_code == 401 and TOKEN not in refused.text
    shown = generate(server, patch([ids], [item("auth", ids, auth_token=TOKEN)]), {})
    assert "error" not in shown.json()[0]["meta_info"]["spec_capture"]


def test_a_full_arena_is_an_error_of_the_sample_and_the_server_goes_on(server):
    ids = list(range(2, 302))  # 300 tokens: 86,400 + 172,800 + 2,400 bytes
    rows = [generate(server, patch([ids], [item(f"full-{i}", ids)])).json()[0]["meta_info"]["spec_capture"]
            for i in range(6)]
    failed = [row for row in rows if "error" in row]
    assert failed and all(row["retryable"] for row in failed)
    answer = generate(server, {"input_ids": [4, 5], "sampling_params": {"max_new_tokens": 2}})
    assert answer.status_code == 200


def test_an_openai_answer_is_captured_with_its_prompt(server):
    wish = {"sample_id": "run:live", "features": {"aux": "hidden_states"}}
    body = {"prompt": [11, 12, 13], "max_tokens": 4, "temperature": 0, "capture": wish}
    answer = requests.post(server + "/v1/completions", json=body, headers=AUTH, timeout=60).json()
    result = answer["capture"]
    tokens = answer["usage"]["total_tokens"]
    assert result["features"]["hidden_states"]["shape"] == [1, tokens, 144]
    assert set(result["features"]) == {"hidden_states", "input_ids", "loss_mask"}


def test_a_streamed_answer_names_its_capture_before_done(server):
    wish = {"sample_id": "run:streamed", "features": {"aux": "hidden_states"}}
    body = {"prompt": [11, 12, 13], "max_tokens": 4, "stream": True, "capture": wish}
    text = requests.post(server + "/v1/completions", json=body, headers=AUTH, timeout=60).text
    events = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    assert json.loads(events[-2])["capture"]["sample_id"] == "run:streamed"


def test_a_server_that_does_not_capture_says_so(url):
    refused = generate(url, patch([[1, 2]], [item("x", [1, 2])]), {})
    assert refused.status_code == 400 and "--enable-spec-capture" in refused.text
