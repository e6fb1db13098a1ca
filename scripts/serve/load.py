#!/usr/bin/env python3
"""Sends `ferrane serve` what many clients send, and reports latencies and the server's memory.

Most clients stream an answer, one in four leaves halfway, one in eight sends rubbish, and one reads very slowly. It fails if
a request of a well-behaved client fails for another reason than a full queue, or if the server does not answer at the end.

  ferrane serve MODEL --port 8080 & python3 scripts/serve/load.py 127.0.0.1:8080 --pid $! --clients 64 --seconds 60
"""

import argparse
import asyncio
import json
import random
import sys
import time

RUBBISH = [
    b"GET / HTTP/1.1\r\nHost: localhost\r\n",
    b"\x16\x03\x01\x00\xff\x01\x00",
    b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{\"model\":",
    b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n[]",
    b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"DELETE /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
]


class Load:
    def __init__(self, args):
        self.host, _, port = args.address.rpartition(":")
        self.port = int(port)
        self.args = args
        self.model = None
        self.until = time.monotonic() + args.seconds
        self.first, self.whole, self.tokens = [], [], 0
        self.counts = dict(done=0, left=0, rubbish=0, refused=0, failed=0)
        self.failures = []

    def request(self, body, method="POST", path="/v1/completions"):
        data = json.dumps(body).encode() if body is not None else b""
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
        return head.encode() + data

    async def whole_reply(self, data):
        reader, writer = await asyncio.open_connection(self.host, self.port)
        writer.write(data)
        reply = await reader.read()
        writer.close()
        return reply

    def body(self):
        return {
            "model": self.model,
            "prompt": random.choice(["Once upon a time", "One day a cat", "The little girl", "There was a big tree"]),
            "max_tokens": random.randint(4, self.args.tokens),
            "stream": True,
            "ignore_eos": True,
        }

    async def client(self, number):
        while time.monotonic() < self.until:
            kind = "rubbish" if number % 8 == 7 else "left" if number % 4 == 2 else "done"
            try:
                await getattr(self, kind)()
            except (ConnectionError, asyncio.IncompleteReadError) as error:
                if kind != "rubbish":
                    self.fail(f"{kind}: {type(error).__name__} {error}")

    def fail(self, text):
        self.counts["failed"] += 1
        self.failures.append(text)

    async def done(self, leave=None):
        reader, writer = await asyncio.open_connection(self.host, self.port)
        begun = time.monotonic()
        body = self.body()
        writer.write(self.request(body))
        status = await reader.readline()
        if b" 429 " in status:
            self.counts["refused"] += 1
            writer.close()
            await asyncio.sleep(0.2)
            return
        if b" 200 " not in status:
            return self.fail(f"{status} {await reader.read()}")
        seen, last = 0, b""
        while line := await reader.readline():
            if not line.startswith(b"data: "):
                continue
            seen += 1
            last = line
            if seen == 1:
                self.first.append(time.monotonic() - begun)
            if leave is not None and seen >= leave:
                writer.transport.abort()
                self.counts["left"] += 1
                return
        writer.close()
        if last.strip() != b"data: [DONE]":
            return self.fail(f"a stream ended with {last}")
        self.whole.append(time.monotonic() - begun)
        self.tokens += body["max_tokens"]
        self.counts["done"] += 1

    async def left(self):
        await self.done(leave=random.randint(1, 4))

    async def rubbish(self):
        reader, writer = await asyncio.open_connection(self.host, self.port)
        writer.write(random.choice(RUBBISH))
        try:
            await asyncio.wait_for(reader.read(400), 0.5)
        except asyncio.TimeoutError:
            pass
        writer.transport.abort()
        self.counts["rubbish"] += 1
        await asyncio.sleep(0.1)

    async def slow(self):
        """Reads sixty-four bytes a second of a stream with all log-probabilities."""
        while time.monotonic() < self.until:
            reader, writer = await asyncio.open_connection(self.host, self.port, limit=64)
            writer.write(self.request(self.body() | {"logprobs": 20, "n": 4, "max_tokens": self.args.tokens}))
            while time.monotonic() < self.until:
                if not await reader.read(64):
                    break
                await asyncio.sleep(1)
            writer.transport.abort()

    async def run(self):
        models = await self.whole_reply(self.request(None, "GET", "/v1/models"))
        self.model = json.loads(models.split(b"\r\n\r\n", 1)[1])["data"][0]["id"]
        memory = [resident(self.args.pid)]
        clients = [asyncio.create_task(self.client(i)) for i in range(self.args.clients - 1)]
        clients.append(asyncio.create_task(self.slow()))
        while time.monotonic() < self.until:
            await asyncio.sleep(self.args.seconds / 10)
            memory.append(resident(self.args.pid))
        _, late = await asyncio.wait(clients, timeout=60)
        for task in late:
            self.fail("a client had no end after 60 seconds")
            task.cancel()
        health = await self.whole_reply(self.request(None, "GET", "/health"))
        if b" 200 " not in health:
            self.fail(f"health: {health}")
        self.report(memory)

    def report(self, memory):
        print(f"{self.args.clients} clients, {self.args.seconds} s: " + ", ".join(f"{n} {k}" for k, n in self.counts.items()))
        print(f"time to first token: {spread(self.first)}")
        print(f"time of a request:   {spread(self.whole)}")
        print(f"{self.tokens / self.args.seconds:.0f} tokens/s in whole answers")
        if memory[0]:
            print("resident MiB: " + " ".join(f"{m:.1f}" for m in memory))
        for text in self.failures[:10]:
            print(f"FAILED: {text}")
        sys.exit(1 if self.failures else 0)


def spread(times):
    if not times:
        return "none"
    times = sorted(times)
    at = lambda p: times[min(len(times) - 1, int(p * len(times)))]
    return f"p50 {at(0.5):.3f} s, p99 {at(0.99):.3f} s, longest {times[-1]:.3f} s ({len(times)})"


def resident(pid):
    if pid is None:
        return 0
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address", help="HOST:PORT")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--tokens", type=int, default=48, help="largest number of tokens of an answer")
    parser.add_argument("--pid", type=int, help="the server, to report its memory")
    asyncio.run(Load(parser.parse_args()).run())


if __name__ == "__main__":
    main()
