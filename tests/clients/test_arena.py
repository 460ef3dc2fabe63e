"""Captures into an arena on a device (the CPU twin, spec 4 and 9): what replies name and how consumers free it."""
import json
import socket
import subprocess

import pytest
import requests

from conftest import ROOT, serving
from test_capture import TOKEN, generate, item, patch

MODEL = ("--model", "tests/vectors/tiny/llama", "--dtype", "float32", "--enable-spec-capture", "--spec-capture-store-id",
         "run", "--spec-capture-aux-layer-ids", "0,2")


@pytest.fixture(scope="module")
def server(request, tmp_path_factory):
    if request.config.getoption("--server"):
        pytest.skip("needs a server of its own")
    folder = tmp_path_factory.mktemp("arena")
    with serving(request, folder, *MODEL, "--arena-device", "cpu", "--arena-bytes", str(64 << 20), "--store-shm-url",
                 f"nvlink://{folder}/arena.sock", "--store-control-plain", SGLANG_SPEC_CAPTURE_TOKEN=TOKEN) as address:
        yield address


@pytest.fixture
def metric(server):
    def read(name):
        lines = requests.get(server + "/metrics", timeout=10).text.splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith("levada:store_" + name))
    return read


class Control:
    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=10)
        self.answers = self.socket.makefile("r", encoding="utf-8")

    def say(self, line):
        self.socket.sendall((json.dumps(line) + "\n").encode())

    def hear(self):
        return json.loads(self.answers.readline())


def capture(server, task):
    ids = [3, 1, 4, 1, 5]
    return generate(server, patch([ids], [item(task, ids)])).json()[0]["meta_info"]["spec_capture"]


def keys_of(result):
    return [f"run/{result['sample_id']}/g{result['gen']}/{name}" for name in result["features"]]


def test_i6_a_reply_names_the_arena_twice_and_every_address(server):
    result = capture(server, "named")
    assert result["nvlink"] == result["arena"]
    assert set(result["nvlink"]) == {"session", "control"}
    assert result["nvlink"]["control"].startswith("127.0.0.1:")
    addresses = [feature["address"] for feature in result["features"].values()]
    assert all(isinstance(address, int) and address > 0 for address in addresses)
    assert len(set(addresses)) == len(result["features"]) == 3
    assert result["store"]["shm"].startswith("nvlink://")


def test_n3_server_info_says_how_the_memory_is_shared(server):
    facts = requests.get(server + "/server_info", timeout=10).json()["capture"]
    assert facts["share_kind"] == "memory file"
    assert facts["control"] == requests.get(server + "/health", timeout=10).json()["control"]


def test_n10_upstreams_plain_line_frees_and_a_greeted_one_is_answered(server, metric):
    plain, greeted = capture(server, "plain"), capture(server, "greeted")
    before = metric("objects")
    control = Control(plain["nvlink"]["control"])
    for byte in (json.dumps(keys_of(plain)) + "\n").encode():
        control.socket.sendall(bytes([byte]))
    with_hello = Control(plain["arena"]["control"])
    with_hello.say({"hello": {"token": TOKEN, "run": "run", "incarnation": greeted["incarnation"]}})
    with_hello.say(keys_of(greeted) + ["run/run:never/g1/x"])
    assert with_hello.hear() == {"freed": keys_of(greeted), "unknown": ["run/run:never/g1/x"]}
    with_hello.say(keys_of(plain))
    assert with_hello.hear() == {"freed": [], "unknown": keys_of(plain)}, "the plain line was heard before"
    assert metric("objects") == before - 6


def test_f46_a_client_that_lost_its_first_reply_frees_what_health_names(server, metric):
    before = metric("used_bytes")
    result = capture(server, "lost")  # its reply is thrown away: only what the client itself asked for is used below
    control = Control(requests.get(server + "/health", timeout=10).json()["control"])
    control.say({"hello": {"token": TOKEN}})
    control.say(["run/run:lost/g1/" + name for name in ("hidden_states", "target", "input_ids")])
    assert sorted(control.hear()["freed"]) == sorted(keys_of(result))
    assert metric("used_bytes") == before


def test_t6_an_arena_in_host_memory_names_none_of_it(request, tmp_path):
    if request.config.getoption("--server"):
        pytest.skip("needs a server of its own")
    with serving(request, tmp_path, *MODEL, "--arena-bytes", str(1 << 20), "--store-tcp-url", "tcp://127.0.0.1:0",
                 SGLANG_SPEC_CAPTURE_TOKEN=TOKEN) as address:
        result = capture(address, "host")
        assert not {"nvlink", "arena"} & set(result)
        assert all("address" not in feature for feature in result["features"].values())
        assert requests.get(address + "/health", timeout=10).json() == {"status": "ok"}


@pytest.mark.parametrize("flags, says", [
    ((), "needs its size"),
    (("--arena-bytes", "0"), "arena-bytes"),
    (("--arena-bytes", "many"), "arena-bytes"),
    (("--arena-bytes", "65536"), "raise --arena-bytes"),
    (("--arena-bytes", str(64 << 20), "--arena-fabric", "required"), "fabric"),
    (("--arena-bytes", str(64 << 20), "--store-control-url", "tcp://0.0.0.0:0"), "store_control_url"),
])
def test_t5_n3_what_is_wrong_with_the_arena_is_said_at_start(request, flags, says):
    if request.config.getoption("--server"):
        pytest.skip("needs a server of its own")
    ended = subprocess.run([request.config.getoption("--binary"), "serve", "--port", "0", *MODEL, "--arena-device", "cpu",
                            *flags], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0
    assert says in ended.stderr, ended.stderr
