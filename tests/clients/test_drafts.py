"""Drafts of a running server: loaded, swapped under load, rolled back, refused; the answers are those of plain decoding."""
import json
import subprocess
import sys
import threading
import time

import pytest
import requests

from conftest import ROOT, serving
from drafts import SMOLLM2, write_circle, write_draft, write_eagle
from helpers import idle, wait_for

PROMPTS = [[(7 * i + 3 * j) % 380 + 3 for j in range(5 + 4 * i)] for i in range(6)]


def answers(server, tokens=40):
    body = {"input_ids": PROMPTS, "sampling_params": {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}}
    return [row["output_ids"] for row in requests.post(server + "/generate", json=body, timeout=120).json()]


def sampled(server):
    body = {"input_ids": PROMPTS[3], "sampling_params": {"temperature": 0.9, "seed": 5, "max_new_tokens": 40, "ignore_eos": True}}
    return requests.post(server + "/generate", json=body, timeout=120).json()


def load(server, path, **fields):
    return requests.post(server + "/drafts", json={"path": str(path), **fields}, timeout=60)


@pytest.fixture(scope="module")
def folders(request, tmp_path_factory):
    if request.config.getoption("--server"):
        pytest.skip("needs servers of its own")
    root = tmp_path_factory.mktemp("drafts")
    return {"a": write_draft(root / "a", seed=1), "b": write_draft(root / "b", seed=2, block_size=3),
            "large": write_draft(root / "large", layers=4), "foreign": write_draft(root / "foreign", num_target_layers=9),
            "damaged": write_draft(root / "damaged"), "root": root}


@pytest.fixture(scope="module")
def plain(request, tmp_path_factory):
    if request.config.getoption("--server"):
        pytest.skip("needs servers of its own")
    with serving(request, tmp_path_factory.mktemp("plain"), "--model", "tests/vectors/tiny/llama", "--dtype", "float32",
                 "--speculative-algorithm", "none") as address:
        yield {"greedy": answers(address), "sampled": sampled(address)["output_ids"], "meta": sampled(address)["meta_info"]}


@pytest.fixture(scope="module")
def server(request, tmp_path_factory, folders):
    with serving(request, tmp_path_factory.mktemp("drafts"), "--model", "tests/vectors/tiny/llama", "--dtype", "float32",
                 "--speculative-draft-room", folders["a"], "--speculative-adaptive=false") as address:
        yield address


@pytest.fixture(autouse=True)
def clean(request):
    yield
    if "server" in request.fixturenames:
        server = request.getfixturevalue("server")
        assert wait_for(lambda: idle(requests.get(server + "/server_info", timeout=10).json()["internal_states"][0]))
        audit = requests.get(server + "/debug/audit", timeout=10).json()
        assert audit["ok"], audit


def test_a_loaded_draft_changes_no_token(server, folders, plain):
    assert load(server, folders["a"], name="first").status_code == 200
    assert answers(server) == plain["greedy"]
    answer = sampled(server)
    assert answer["output_ids"] == plain["sampled"]
    meta = answer["meta_info"]
    assert meta["spec_draft_token_num"] > 0 and meta["spec_verify_ct"] > 0
    assert meta["spec_accept_length"] == pytest.approx(1 + meta["spec_accepted_drafts"] / meta["spec_verify_ct"], abs=1e-3)
    assert "spec_verify_ct" not in plain["meta"]
    shown = requests.get(server + "/drafts", timeout=10).json()
    assert shown["serving"]["name"] == "first" and shown["serving"]["path"] == folders["a"]
    assert shown["serving"]["speculation"]["steps"] > 0
    info = requests.get(server + "/server_info", timeout=10).json()
    assert info["speculation"]["draft"] == "first"
    assert info["internal_states"][0]["avg_spec_accept_length"] >= 1
    assert "sglang:spec_accept_length" in requests.get(server + "/metrics", timeout=10).text


def test_swaps_under_load_change_no_token(server, folders, plain):
    over, wrong = threading.Event(), []

    def ask():
        while not over.is_set():
            if answers(server) != plain["greedy"]:
                wrong.append(1)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    versions = []
    for turn in range(12):
        versions.append(load(server, folders["ab"[turn % 2]]).json()["serving"]["version"])
        time.sleep(0.05)
        if turn % 4 == 3:
            assert requests.delete(server + "/drafts", timeout=60).json()["serving"] is None
            assert requests.post(server + "/drafts/rollback", timeout=60).json()["serving"]["version"] == versions[-1]
    over.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert versions == sorted(set(versions)), "a version names one loaded draft"


def test_one_order_rolls_back(server, folders):
    load(server, folders["a"], name="old")
    load(server, folders["b"], name="new")
    rolled = requests.post(server + "/drafts/rollback", timeout=60).json()
    assert (rolled["serving"]["name"], rolled["previous"]["name"]) == ("old", "new")


def test_refused_drafts_change_nothing(server, folders):
    load(server, folders["a"], name="kept")
    data = open(folders["damaged"] + "/model.safetensors", "rb").read()
    open(folders["damaged"] + "/model.safetensors", "wb").write(data[:len(data) // 2])
    for path, status, words in [(folders["root"] / "none", 404, "none"), (folders["large"], 413, "layers"),
                                (folders["foreign"], 400, "num_target_layers"), (folders["damaged"], 400, "safetensors"),
                                ("", 400, "missing"), ("x" * 5000, 400, "4096")]:
        answer = load(server, path)
        assert answer.status_code == status, answer.text
        assert answer.json()["error"]["param"] == "path" and words in answer.json()["error"]["message"], answer.text
    assert requests.get(server + "/drafts", timeout=10).json()["serving"]["name"] == "kept"


def test_the_command_line_asks_the_same(request, server, folders):
    def draft(*words, code=0):
        done = subprocess.run([request.config.getoption("--binary"), "draft", *words, "--url", server], capture_output=True,
                              text=True, timeout=60, cwd=ROOT)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    assert "serving   cli (version" in draft("load", folders["a"], "--name", "cli")
    assert json.loads(draft("list", "--json"))["serving"]["name"] == "cli"
    assert "serving   none" in draft("unload")
    assert "serving   cli" in draft("rollback")
    assert "HTTP 413" in draft("load", folders["large"], code=2)
    assert "give one of" in draft("replace", code=2)


def test_a_server_may_start_with_a_draft(request, tmp_path, folders, plain):
    with serving(request, tmp_path, "--model", "tests/vectors/tiny/llama", "--dtype", "float32",
                 "--speculative-draft-model-path", folders["b"]) as address:
        assert requests.get(address + "/drafts", timeout=10).json()["serving"]["name"] == "b"
        assert answers(address) == plain["greedy"]
        assert load(address, folders["a"]).status_code == 413, "its blocks are larger than the room that b left"


def test_eagle_drafts_change_no_token_and_keep_to_themselves(request, tmp_path, folders, plain):
    one, two = write_eagle(tmp_path / "one", seed=1), write_eagle(tmp_path / "two", seed=2)
    with serving(request, tmp_path, "--model", "tests/vectors/tiny/llama", "--dtype", "float32", "--speculative-algorithm", "EAGLE3",
                 "--speculative-draft-model-path", one, "--speculative-adaptive=false") as address:
        state = requests.get(address + "/drafts", timeout=10).json()
        assert (state["serving"]["algorithm"], state["room"]["algorithm"]) == ("EAGLE3", "EAGLE3")
        for _ in range(2):  # cold, then warm
            assert answers(address) == plain["greedy"]
            assert sampled(address)["output_ids"] == plain["sampled"]
        assert load(address, two).status_code == 200
        assert answers(address) == plain["greedy"]
        assert sampled(address)["meta_info"]["spec_draft_token_num"] > 0
        refused = load(address, folders["a"])
        assert refused.status_code == 400 and "EAGLE3" in refused.json()["error"]["message"], refused.text
        assert requests.get(address + "/debug/audit", timeout=10).json()["ok"]


def test_an_eagle_draft_that_is_right_for_a_known_reason_is_always_right(request, tmp_path):
    target, draft = write_circle(tmp_path / "circle", tmp_path / "eagle")
    with serving(request, tmp_path, "--model", target, "--dtype", "float32", "--speculative-algorithm", "EAGLE3", "--page-size", "4",
                 "--speculative-draft-model-path", draft, "--speculative-adaptive=false", "--chunked-prefill-size", "32") as address:
        def follow(first, count, new):
            body = {"input_ids": list(range(first, first + count)),
                    "sampling_params": {"max_new_tokens": new, "temperature": 0, "ignore_eos": True}}
            answer = requests.post(address + "/generate", json=body, timeout=120).json()
            assert answer["output_ids"] == [token % 384 for token in range(first + count, first + count + new)]
            return answer["meta_info"]

        # Cold, a chunked prompt that begins as the first did, a warm one, and one that goes on behind an answer.
        for first, count, new, cached in [(10, 5, 121, 0), (10, 90, 121, 80), (10, 90, 81, 88), (10, 190, 81, 180)]:
            meta = follow(first, count, new)
            assert meta["cached_tokens"] >= cached
            assert meta["spec_accept_length"] > 7.4, meta  # eight a step, but for the last
        assert requests.get(address + "/debug/audit", timeout=10).json()["ok"]


def test_a_server_that_is_ended_amid_loads_ends_well(request, tmp_path, folders):
    with serving(request, tmp_path, "--model", "tests/vectors/tiny/llama", "--dtype", "float32",
                 "--speculative-draft-room", folders["a"]) as address:
        def ask():
            try:
                load(address, folders["a"])
            except requests.RequestException:
                pass  # the server went

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        time.sleep(0.01)
    for thread in threads:
        thread.join()


def test_flags_that_contradict_each_other_are_refused(request, folders):
    for flags, words in [(["--speculative-algorithm", "DFLASH"], "speculative_draft_model_path"),
                         (["--speculative-algorithm", "EAGLE3", "--speculative-draft-room", folders["a"]], "DFLASH"),
                         (["--speculative-algorithm", "none", "--speculative-draft-model-path", folders["a"]], "never asked"),
                         (["--speculative-draft-model-path", str(folders["root"] / "none")], "none"),
                         (["--speculative-draft-model-path", folders["large"], "--speculative-draft-room", folders["a"]], "layers"),
                         (["--compat", "sglang", "--speculative-num-draft-tokens", "4", "--speculative-dflash-block-size", "8"],
                          "must agree")]:
        done = subprocess.run([request.config.getoption("--binary"), "serve", "--model", "tests/vectors/tiny/llama", "--port", "0",
                               *flags], capture_output=True, text=True, timeout=60, cwd=ROOT)
        assert done.returncode == 2 and words in done.stderr, (flags, done.returncode, done.stderr)


def test_openais_client_notices_nothing(request, tmp_path, folders):
    """The whole suite of the openai package once more, against a server whose draft is wrong almost always."""
    draft = write_draft(tmp_path / "noise", block_size=6, target=SMOLLM2, target_layer_ids=(8, 20), mask=4)
    with serving(request, tmp_path, "--model", "smollm2", "--enable-return-hidden-states", "--speculative-adaptive=false",
                 "--speculative-draft-model-path", draft) as address:
        done = subprocess.run([sys.executable, "-m", "pytest", "-q", "tests/clients/test_openai.py",
                               "tests/clients/test_openai_wishes.py", "--server", address], capture_output=True, text=True,
                              timeout=900, cwd=ROOT)
        assert done.returncode == 0, done.stdout[-6000:]
        assert requests.get(address + "/drafts", timeout=10).json()["serving"]["speculation"]["drafts"] > 0
