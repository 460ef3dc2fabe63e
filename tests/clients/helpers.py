"""What several client tests share."""
import json
import time

import requests

MODEL = "smollm2"
QUESTION = [{"role": "user", "content": "What is the capital of France? Answer with one word."}]


def post(url, path, body, **options):
    return requests.post(url + path, json=body, timeout=120, **options)


def sse(response):
    """The JSON documents of an event stream, and whether it ended with [DONE]."""
    events, done = [], False
    for line in response.iter_lines():
        if not line:
            continue
        assert line.startswith(b"data: "), line
        assert not done, "nothing may follow [DONE]"
        if line == b"data: [DONE]":
            done = True
        else:
            events.append(json.loads(line[6:]))
    return events, done


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def idle(state):
    return state["running"] == 0 and state["waiting"] == 0 and state["prefilling"] == 0 and state["leased_pages"] == 0
