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
            answer = await asyncio.wait_for(self.read_all(reader), leave_after_s or 120)
        except asyncio.TimeoutError:
            if leave_after_s is None:
                self.faults.append(f"no end within 120 s: {data[:80]!r}")
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

    def request(self, path, body, close=True):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: soak\r\nContent-Length: {len(data)}\r\n" + ("Connection: close\r\n" if close else "")
        return head.encode() + b"\r\n" + data

    def call(self):
        """A good request of some endpoint."""
        stream, tokens = self.random.random() < 0.7, self.random.randint(1, 24)
        messages = [{"role": "user", "content": self.text(self.random.choice([3, 20, 200]))}]
        return self.random.choice([
            ("/v1/chat/completions", {"messages": messages, "max_tokens": tokens, "stream": stream}),
            ("/v1/completions", {"prompt": [self.text(8)] * self.random.randint(1, 3), "max_tokens": tokens, "stream": stream}),
            ("/v1/responses", {"input": self.text(9), "max_output_tokens": tokens, "stream": stream}),
            ("/v1/messages", {"messages": messages, "max_tokens": tokens, "stream": stream}),
            ("/generate", {"text": self.text(5), "stream": stream,
                           "sampling_params": {"max_new_tokens": tokens, "ignore_eos": True}}),
            ("/tokenize", {"prompt": self.text(300)}),
        ])

    async def good(self):
        path, body = self.call()
        status = await self.talk(self.request(path, body))
        if status not in (200, 429):
            self.faults.append(f"{status} for a good request to {path}")

    async def vanish(self):
        path, body = self.call()
        await self.talk(self.request(path, body), leave_after_s=self.random.random() * 1.5)

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

    async def worker(self, until):
        deeds = [self.good] * 6 + [self.vanish] * 6 + [self.half_open, self.slow, self.cut_short, self.damaged,
                                                       self.absurd, self.absurd, self.oversize, self.noise]
        while time.monotonic() < until:
            await self.random.choice(deeds)()


def get(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        return json.load(answer)


def resident_mib(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


async def settle(port, pid):
    """Waits until nothing runs; gives what the process holds then."""
    for _ in range(600):
        state = (await asyncio.to_thread(get, port, "/server_info"))["internal_states"][0]
        if not any(state[key] for key in ("running", "waiting", "prefilling", "leased_pages")):
            break
        await asyncio.sleep(0.1)
    else:
        raise SystemExit(f"not idle a minute after the last client left: {state}")
    await asyncio.sleep(3)  # the heap is trimmed once large bodies are gone
    audit = await asyncio.to_thread(get, port, "/debug/audit")
    if not audit["ok"]:
        raise SystemExit(f"the audit failed: {audit['message']}")
    return {"mib": resident_mib(pid), "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
            "threads": len(os.listdir(f"/proc/{pid}/task"))}


async def run(options):
    port = free_port()
    server = await asyncio.create_subprocess_exec(
        options.binary, "serve", "--port", str(port), "--log-level", "error", "--max-total-tokens", "16384", cwd=ROOT,
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

        async def phase(seconds):
            until = time.monotonic() + seconds
            await asyncio.gather(*(soak.worker(until) for _ in range(WORKERS)))
            return await settle(port, server.pid)

        warm = await phase(max(10, options.seconds / 6))  # caches and pools reach their size
        print("after warm-up:", warm, flush=True)
        end = await phase(options.seconds - options.seconds / 6)
        print("at the end:   ", end)
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
