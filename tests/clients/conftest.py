"""One real server for the whole session: SmolLM2 on the CPU, on a free port, stopped at the end."""
import contextlib
import os
import socket
import subprocess
import time

import openai
import pytest
import requests

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def pytest_addoption(parser):
    parser.addoption("--binary", default=os.path.join(ROOT, "build/release/levada"), help="the levada binary to test")
    parser.addoption("--server", default=None, help="use a running server at this URL instead of starting one")
    parser.addoption("--device", default="cpu", help="what the servers of these tests compute on: cpu or cuda")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until_healthy(url, process, seconds=180):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert process.poll() is None, f"the server ended with code {process.returncode}"
        try:
            if requests.get(url + "/health", timeout=1).status_code == 200:
                return
        except requests.RequestException:
            time.sleep(0.1)
    raise TimeoutError(f"no answer from {url} within {seconds} s")


@contextlib.contextmanager
def serving(request, folder, *flags, **environment):
    """A server of these flags on a free port; it must outlive the tests and then end well."""
    port = free_port()
    with open(folder / "log", "wb") as log:
        words = [request.config.getoption("--binary"), "serve", "--port", str(port), "--device",
                 request.config.getoption("--device"), *flags]
        process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT, env={**os.environ, **environment})
    address = f"http://127.0.0.1:{port}"
    try:
        wait_until_healthy(address, process)
        yield address
        assert process.poll() is None, "the server must outlive every test"
    finally:
        process.terminate()
        try:
            assert process.wait(timeout=30) == 0
        finally:
            process.kill()
            print(open(folder / "log", errors="replace").read()[-4000:])


@pytest.fixture(scope="session")
def url(request, tmp_path_factory):
    given = request.config.getoption("--server")
    if given:
        yield given
        return
    # Tests compare answers word for word. On a GPU bfloat16 rounds otherwise in a step of another shape (docs/gpu.md).
    exact = ("--dtype", "float32") if request.config.getoption("--device") == "cuda" else ()
    with serving(request, tmp_path_factory.mktemp("server"), "--model", "smollm2", "--enable-return-hidden-states", *exact) as address:
        yield address


@pytest.fixture(scope="session")
def client(url):
    return openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=120)


@pytest.fixture
def state(url):
    """Reads the scheduler's counters."""
    return lambda: requests.get(url + "/server_info", timeout=10).json()["internal_states"][0]
