"""Users of all dialects for locust: each checks that what comes back is whole."""
import json
import random

from locust import HttpUser, between, task

QUESTIONS = ["Name a colour.", "Count to five.", "Why is the sea blue?", "Write one line about bread."]


class Reader(HttpUser):
    wait_time = between(0, 0.2)

    def ask(self, path, body, last):
        """A stream must end as its dialect ends streams."""
        with self.client.post(path, json={**body, "stream": True}, stream=True, catch_response=True) as answer:
            lines = [line for line in answer.iter_lines() if line]
            if answer.status_code != 200 or not lines or not lines[-1].startswith(last):
                answer.failure(f"{answer.status_code}, last line {lines[-1:] or None}")

    def messages(self):
        return [{"role": "user", "content": random.choice(QUESTIONS)}]

    @task
    def chat(self):
        self.ask("/v1/chat/completions", {"messages": self.messages(), "max_tokens": 16}, b"data: [DONE]")

    @task
    def completion(self):
        self.ask("/v1/completions", {"prompt": random.choice(QUESTIONS), "max_tokens": 16}, b"data: [DONE]")

    @task
    def response(self):
        self.ask("/v1/responses", {"input": random.choice(QUESTIONS), "max_output_tokens": 16}, b'data: {"type":"response.')

    @task
    def message(self):
        self.ask("/v1/messages", {"messages": self.messages(), "max_tokens": 16}, b'data: {"type":"message_stop"}')

    @task
    def whole(self):
        body = {"messages": self.messages(), "max_tokens": 8}
        with self.client.post("/v1/chat/completions", json=body, catch_response=True) as answer:
            if "choices" not in json.loads(answer.text):
                answer.failure(answer.text[:200])
