"""A server under clients that vanish, dawdle and talk nonsense, for as long as asked. It must answer everything it can read,
never with a 5xx, and afterwards be as it was: idle, its audit clean, its descriptors closed, its memory flat.

    .deps/venv/bin/python tests/load/soak.py --seconds 600 [--binary build/release/levada] [--seed 1]
"""
import argparse
import asyncio
import collections
import json
import os
import random
import sys
import time
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/clients"))
from conftest import free_port  # noqa: E402

WORDS = "the sea is blue and deep while small boats drift under an old stone bridge every morning".split()
WORKERS = 24
POOL_TOKENS = 8192
LONGEST_S = 300  # any answer; the machine may be busy with other things
READ_ONLY = ["/health", "/ping", "/health_generate", "/v1/models", "/model_info", "/server_info", "/v1/loads", "/metrics",
             "/openapi.json", "/debug/audit", "/", "/nowhere"]
SCHEMA = {"type": "object", "required": ["name", "age"], "properties": {"name": {"type": "string", "maxLength": 9},
                                                                     "age": {"type": "integer", "maximum": 99}}}
TOOL = {"name": "look", "description": "looks at a thing", "parameters": SCHEMA}
ANTHROPIC_TOOL = {"name": "look", "input_schema": SCHEMA}
FLAT_MIB, FLAT_SHARE = 16, 1.05  # what memory may grow by between the end of warm-up and the end


class Soak:
    def __init__(self, port, seed):
        self.port, self.random = port, random.Random(seed)
        self.statuses, self.faults = collections.Counter(), []

    # ---- One connection ----

    async def talk(self, data, leave_after_s=None, half_close=False, pieces=1):
        """Sends the bytes, reads until the server closes or the client leaves; gives the status, 0 without one."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        answer = b""
        try:
            step = max(1, len(data) // pieces)
            for at in range(0, len(data), step):
                writer.write(data[at:at + step])
                await writer.drain()
                if pieces > 1:
                    await asyncio.sleep(0.02)
            if half_close:
                writer.write_eof()
            answer = await asyncio.wait_for(self.read_all(reader), leave_after_s or LONGEST_S)
        except asyncio.TimeoutError:
            if leave_after_s is None:
                self.faults.append(f"no end within {LONGEST_S} s: {data[:80]!r}")
        except (ConnectionError, OSError):
            pass
        finally:
            writer.transport.abort() if self.random.random() < 0.5 else writer.close()
        return self.note(answer, data)

    @staticmethod
    async def read_all(reader):
        answer = b""
        while piece := await reader.read(65536):
            answer = (answer + piece)[:1 << 16] if len(answer) < 1 << 16 else answer
        return answer

    def note(self, answer, data):
        status = int(answer[9:12]) if answer.startswith(b"HTTP/1.1 ") else 0
        self.statuses[status] += 1
        if status >= 500:
            self.faults.append(f"{status} for {data[:200]!r}: {answer[:400]!r}")
        return status

    # ---- What clients do ----

    def text(self, words):
        return " ".join(self.random.choice(WORDS) for _ in range(words))

    def request(self, path, body):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: soak\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
        return head.encode() + data

    def call(self):
        """A good request of some endpoint."""
        stream, tokens, form = self.random.random() < 0.7, self.random.randint(1, 24), self.form()
        messages = [{"role": "user", "content": self.text(self.random.choice([3, 20, 200]))}]
        return self.random.choice([
            ("/v1/chat/completions", {"messages": messages, "max_tokens": tokens, "stream": stream}),
            ("/v1/chat/completions", {"messages": messages, "max_tokens": tokens, "stream": stream, "n": 3, "logprobs": True,
                                      "top_logprobs": 2, "stream_options": {"include_usage": True}}),
            ("/v1/chat/completions", {"messages": messages, "max_tokens": 40, "stream": stream, **form}),
            ("/v1/chat/completions", {"messages": messages, "max_tokens": 60, "stream": stream, "tool_choice": "required",
                                      "tools": [{"type": "function", "function": TOOL}]}),
            ("/v1/completions", {"prompt": self.text(6), "max_tokens": tokens, "n": 2, "best_of": 3, "echo": True}),
            ("/v1/responses", {"input": self.text(9), "max_output_tokens": 60, "stream": stream, "tool_choice": "required",
                               "tools": [{"type": "function", **TOOL}]}),
            ("/v1/messages", {"messages": messages, "max_tokens": 60, "stream": stream, "tool_choice": {"type": "any"},
                              "tools": [ANTHROPIC_TOOL]}),
            ("/v1/messages/count_tokens", {"messages": messages}),
            ("/v1/embeddings", {"input": [self.text(5), self.text(50)]}),
            ("/detokenize", {"tokens": [self.random.randrange(49000) for _ in range(50)]}),
            ("/generate", {"text": [self.text(5), self.text(7)], "return_logprob": True, "stream": stream,
                           "sampling_params": {"max_new_tokens": tokens, "n": 2, "temperature": 1.3}}),
            ("/v1/completions", {"prompt": [self.text(8)] * self.random.randint(1, 3), "max_tokens": tokens, "stream": stream}),
            ("/v1/responses", {"input": self.text(9), "max_output_tokens": tokens, "stream": stream}),
            ("/v1/messages", {"messages": messages, "max_tokens": tokens, "stream": stream}),
            ("/generate", {"text": self.text(5), "stream": stream,
                           "sampling_params": {"max_new_tokens": tokens, "ignore_eos": True}}),
            ("/tokenize", {"prompt": self.text(300)}),
        ])

    def form(self):
        return self.random.choice([
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
            {"response_format": {"type": "json_object"}}, {"guided_choice": ["yes", "no"]},
            {"regex": f"[a-z]{{{self.random.randint(1, 9)}}}( [0-9]+)?"}, {"ebnf": 'root ::= "a" root | "b"'}])

    async def good(self):
        path, body = self.call()
        status = await self.talk(self.request(path, body))
        if status not in (200, 429, 499):  # 499: somebody aborted all
            self.faults.append(f"{status} for a good request to {path}")

    async def vanish(self):
        path, body = self.call()
        await self.talk(self.request(path, body), leave_after_s=self.random.random() * 1.5)

    async def aborted(self):
        path, body = self.call()
        rid = f"soak-{self.random.randrange(1 << 40)}"
        order = {"abort_all": True} if self.random.random() < 0.05 else {"rid": rid}
        async def abort():
            await asyncio.sleep(self.random.random())
            await self.talk(self.request("/abort_request", order))
        await asyncio.gather(self.talk(self.request(path, {**body, "rid": rid})), abort())

    async def look(self):
        path = self.random.choice(READ_ONLY)
        method = self.random.choice(["GET", "GET", "GET", "POST", "OPTIONS", "TRACE", "DELETE"])
        await self.talk(f"{method} {path} HTTP/1.1\r\nHost: soak\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())

    async def flush(self):
        await self.talk(self.request("/flush_cache?timeout=0.2", {}))

    async def half_open(self):
        path, body = self.call()
        await self.talk(self.request(path, body), half_close=True)

    async def slow(self):
        path, body = self.call()
        await self.talk(self.request(path, body), pieces=self.random.randint(2, 20))

    async def cut_short(self):
        data = self.request(*self.call())
        await self.talk(data[:self.random.randrange(len(data))], half_close=True)

    async def damaged(self):
        path, body = self.call()
        data = bytearray(json.dumps(body).encode())
        for _ in range(self.random.randint(1, 8)):
            data[self.random.randrange(len(data))] = self.random.randrange(256)
        await self.talk(self.request(path, bytes(data)))

    async def absurd(self):
        path, body = self.call()
        value = self.random.choice([None, -1, 1e308, 2 ** 63, "", [], {}, "\ud800", [[[]]], True, "x" * 5000])
        body[self.random.choice(list(body) + ["stop", "seed", "temperature", "n", "logprobs", "tools"])] = value
        await self.talk(self.request(path, body))

    async def oversize(self):
        await self.talk(self.random.choice([
            b"GET / HTTP/1.1\r\nX: " + b"x" * 70000 + b"\r\n\r\n", b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n\r\n",
            b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n",
            self.request("/v1/completions", {"prompt": self.text(9000)})]), leave_after_s=20)

    async def noise(self):
        await self.talk(self.random.randbytes(self.random.randint(1, 300)), half_close=True)

    async def fill(self):
        """Touches every page of the KV pool, whose memory is the process's only from then on."""
        for _ in range(POOL_TOKENS // 900 + 1):
            ids = [self.random.randrange(20, 40000) for _ in range(900)]
            await self.talk(self.request("/generate", {"input_ids": ids, "sampling_params": {"max_new_tokens": 1}}))

    async def worker(self, until):
        deeds = [self.good, self.vanish] * 6 + [self.aborted] * 3 + [self.look, self.absurd] * 2 + [
            self.flush, self.half_open, self.slow, self.cut_short, self.damaged, self.oversize, self.noise]
        while time.monotonic() < until:
            await self.random.choice(deeds)()


def get(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        return json.load(answer)


def resident_mib(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


async def settle(port, pid, descriptors=None):
    """Waits until nothing runs; gives what the process holds then. A connection just answered is closed within the minute that
    is waited for as few `descriptors` as before."""
    for _ in range(3000):
        state = (await asyncio.to_thread(get, port, "/server_info"))["internal_states"][0]
        if not any(state[key] for key in ("running", "waiting", "prefilling", "leased_pages")):
            break
        await asyncio.sleep(0.1)
    else:
        raise SystemExit(f"not idle five minutes after the last client left: {state}")
    await asyncio.sleep(3)  # the heap is trimmed once large bodies are gone
    audit = await asyncio.to_thread(get, port, "/debug/audit")
    if not audit["ok"]:
        raise SystemExit(f"the audit failed: {audit['message']}")
    for _ in range(60):
        held = sorted(os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd"))
        if descriptors is None or len(held) <= descriptors:
            break
        print("still open:", *held, flush=True)
        await asyncio.sleep(1)
    return {"mib": resident_mib(pid), "descriptors": len(held), "threads": len(os.listdir(f"/proc/{pid}/task"))}


async def run(options):
    port = free_port()
    server = await asyncio.create_subprocess_exec(
        options.binary, "serve", "--port", str(port), "--log-level", "error", "--max-total-tokens", str(POOL_TOKENS),
        "--context-length", "1024", "--openai-chat-default-max-tokens", "64", cwd=ROOT,
        stdout=asyncio.subprocess.DEVNULL)
    try:
        while True:
            if server.returncode is not None:
                raise SystemExit(f"the server ended with {server.returncode}")
            try:
                await asyncio.to_thread(get, port, "/health")
                break
            except OSError:
                await asyncio.sleep(0.2)
        soak = Soak(port, options.seed)

        async def watch(until):
            while time.monotonic() < until:
                series.append(round(resident_mib(server.pid)))
                await asyncio.sleep(15)

        async def phase(seconds, descriptors=None):
            until = time.monotonic() + seconds
            await asyncio.gather(watch(until), *(soak.worker(until) for _ in range(WORKERS)))
            return await settle(port, server.pid, descriptors)

        series = []

        await soak.fill()
        warm = await phase(max(10, options.seconds / 6))  # caches and pools reach their size
        print("after warm-up:", warm, flush=True)
        end = await phase(options.seconds - options.seconds / 6, warm["descriptors"])
        print("at the end:   ", end)
        print("resident memory every 15 s, MiB:", *series)
        print("answers by status (0: none, the client left or sent no request):", dict(sorted(soak.statuses.items())))
        for fault in soak.faults[:20]:
            print("FAULT", fault)
        flat = end["mib"] <= max(warm["mib"] + FLAT_MIB, warm["mib"] * FLAT_SHARE)
        same = end["descriptors"] <= warm["descriptors"] and end["threads"] == warm["threads"]
        if soak.faults or not flat or not same:
            raise SystemExit(f"failed: {len(soak.faults)} faults, memory flat: {flat}, descriptors and threads as before: {same}")
        print(f"soaked for {options.seconds} s: no fault")
    finally:
        if server.returncode is None:
            server.terminate()
            code = await server.wait()
            if code != 0:
                raise SystemExit(f"the server ended with {code}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--binary", default=os.path.join(ROOT, "build/release/levada"))
    parser.add_argument("--seed", type=int, default=1)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
