"""Clients that ask for one stream after the other, over gRPC and HTTP, and compare
each with the answer that was not cut.
"""

import asyncio
import dataclasses
import http.client
import itertools
import json
import sys
import threading
import time

from fleet import ROOT

sys.path.insert(0, str(ROOT / "clients/python"))

import nacre  # noqa: E402  (of clients)

METHODS = ("ar", "sd", "pearl", "async")
PROMPTS = (
    "Question: A baker makes 12 loaves and sells 7 of them. How many are left?\nAnswer:",
    "def main():",
    "import os\n\n\nclass Reader:\n",
    "Question: Tom has 3 boxes with 14 pens each. He gives 5 pens away.\nAnswer:",
)
STOPS = (None, ["\n\n"], ["return", "Answer:"])
# HTTP's "stop" is gRPC's "stop" or "eos".
REASONS = {"eos": "stop", "stop": "stop", "length": "length"}
IDLE_SECONDS = 900  # after which a stream never ends
POLL_SECONDS = 0.05


@dataclasses.dataclass(frozen=True)
class Order:
    """What is asked for, but for the method. gRPC and HTTP have the same names for
    these options."""

    prompt: str
    options: dict

    def over_http(self, method):
        return {"prompt": self.prompt, **self.options, "nacre": {"method": method},
                "stream": True, "stream_options": {"include_usage": True},
                "return_token_ids": True}


def make_orders(count):
    orders = []
    for index in range(count):
        stop = STOPS[index % len(STOPS)]
        orders.append(Order(PROMPTS[index % len(PROMPTS)], {
            "temperature": (0, 0.8, 1)[index // 2 % 3], "n": 1 + index % 3,
            "max_tokens": 60 + 20 * (index % 5), "seed": 1000 + 7 * index,
            "ignore_eos": stop is None, **({} if stop is None else {"stop": stop}),
            **({"repetition_penalty": 1.1} if index % 4 == 3 else {})}))
    return orders


@dataclasses.dataclass(frozen=True)
class Choice:
    text: str
    token_ids: tuple
    reason: str


def choices_of(completion):
    return [Choice(one.text, one.token_ids, REASONS[one.finish_reason])
            for one in completion.choices]


class HttpAnswer:
    """Puts the events of a stream together; AssertionError where they are none."""

    def __init__(self, n):
        self._texts = [""] * n
        self._ids = [[] for _ in range(n)]
        self._reasons = [None] * n
        self._tokens = None
        self._done = False

    def take(self, data):
        assert not self._done, f"after the end: {data!r}"
        if data == b"[DONE]":
            self._done = True
            return
        event = json.loads(data)
        assert "error" not in event, event
        if not event["choices"]:
            assert self._tokens is None, "usage twice"
            self._tokens = event["usage"]["completion_tokens"]
        for choice in event["choices"]:
            index = choice["index"]
            assert self._reasons[index] is None, f"after the end of choice {index}: {choice}"
            self._texts[index] += choice["text"]
            self._ids[index] += choice.get("token_ids") or []
            self._reasons[index] = choice["finish_reason"]

    def choices(self):
        assert self._done, f"the stream ended within {self._texts}"
        assert None not in self._reasons, f"no end of a choice: {self._reasons}"
        count = sum(map(len, self._ids))
        assert self._tokens == count, f"usage has {self._tokens} tokens, {count} came"
        return [Choice(text, tuple(ids), reason)
                for text, ids, reason in zip(self._texts, self._ids, self._reasons)]


class Stream:
    """One that runs: its pauses."""

    def __init__(self, name):
        self.name = name
        self.began = self.last = time.monotonic()
        self.longest = 0.0
        self.events = 0
        self.first_attempts = 0  # calls until the first event

    def mark(self):
        now = time.monotonic()
        if self.events > 0:
            self.longest = max(self.longest, now - self.last)
        self.events += 1
        self.last = now


class Streams:
    """Threads and tasks with one stream after the other until stop()."""

    def __init__(self, fleet, orders, on_fault, retry):
        self._fleet = fleet
        self._retry = retry
        self._orders = orders
        self._on_fault = on_fault
        self._lock = threading.Lock()
        self._turn = itertools.count()
        self._stopping = threading.Event()
        self._threads = []
        self._running = {}
        self._want = {}
        self.ended = {"python": 0, "python-async": 0, "http": 0}
        self.tokens = self.retries = self.resumes = self.cut = 0
        self.longest_pause = self.longest_wait = 0.0

    def ask_uncut(self):
        """What the target says by itself, before anything dies."""
        async def ask():
            async with nacre.AsyncClient(self._fleet.grpc) as client:
                answers = await asyncio.gather(
                    *(client.generate(order.prompt, method="ar", **order.options)
                      for order in self._orders))
            return list(map(choices_of, answers))

        self._want = dict(enumerate(asyncio.run(ask())))

    def start(self, count):
        for index in range(count):
            if index % 2:
                self._add(self._loop, f"http-{index}", "http", self._over_http())
            elif index % 4:
                self._add(self._loop, f"python-{index}", "python", self._over_grpc())
        names = [f"python-async-{index}" for index in range(0, count, 4)]
        self._add(lambda: asyncio.run(self._run_tasks(names)))

    def running(self):
        """Each stream that runs, and how many events it has."""
        with self._lock:
            return [(stream, stream.events) for stream in self._running.values()]

    def await_all(self, before):
        """Until each of running() before has more events, or has ended."""
        while any(stream in self._alive() and stream.events == events
                  for stream, events in before):
            if self._lost_patience():
                return
            time.sleep(POLL_SECONDS)

    def stop(self):
        """Lets what runs end; a stream in which nothing happens is a fault."""
        self._stopping.set()
        while any(thread.is_alive() for thread in self._threads):
            if self._lost_patience():
                return
            time.sleep(POLL_SECONDS)

    def _alive(self):
        with self._lock:
            return list(self._running.values())

    def _lost_patience(self):
        """Whether nothing comes in a stream any more: a fault."""
        idle = [stream.name for stream in self._alive()
                if time.monotonic() - stream.last > IDLE_SECONDS]
        if idle:
            self._on_fault(f"no end of {', '.join(idle)}")
        return bool(idle)

    def _add(self, function, *arguments):
        thread = threading.Thread(target=function, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _next(self, name):
        turn = next(self._turn)
        stream = Stream(name)
        with self._lock:
            self._running[name] = stream
        # Each order in turn, with another method each time.
        index, lap = turn % len(self._orders), turn // len(self._orders)
        return index, METHODS[(index + lap) % len(METHODS)], stream

    def _loop(self, name, kind, ask):
        while not self._stopping.is_set():
            index, method, stream = self._next(name)
            try:
                self._check(kind, index, method, stream, ask(self._orders[index], method, stream))
            except Exception as error:  # whatever it is, a stream was lost
                self._lose(index, method, stream, error)

    async def _run_tasks(self, names):
        async with nacre.AsyncClient(self._fleet.grpc, retry=self._retry) as client:
            await asyncio.gather(*(self._loop_async(name, client) for name in names))

    async def _loop_async(self, name, client):
        while not self._stopping.is_set():
            index, method, stream = self._next(name)
            order = self._orders[index]
            try:
                answer = client.stream(order.prompt, method=method, **order.options)
                async for _ in answer:
                    self._note(stream, answer.attempts)
                self._count(stream, answer.attempts)
                self._check("python-async", index, method, stream,
                            choices_of(answer.completion))
            except Exception as error:  # as above
                self._lose(index, method, stream, error)

    def _over_grpc(self):
        def ask(order, method, stream):
            with client.stream(order.prompt, method=method, **order.options) as answer:
                for _ in answer:
                    self._note(stream, answer.attempts)
            self._count(stream, answer.attempts)
            return choices_of(answer.completion)

        client = nacre.Client(self._fleet.grpc, retry=self._retry)
        return ask

    def _over_http(self):
        def ask(order, method, stream):
            connection = http.client.HTTPConnection(self._fleet.http)
            try:
                connection.request(
                    "POST", "/v1/completions", json.dumps(order.over_http(method)),
                    {"Content-Type": "application/json", "X-Request-Id": stream.name})
                answer = connection.getresponse()
                assert answer.status == 200, f"{answer.status}: {answer.read()[:300]}"
                whole = HttpAnswer(order.options["n"])
                for line in answer:
                    if line.startswith(b"data: "):
                        stream.mark()
                        whole.take(line[6:].strip())
                return whole.choices()
            finally:
                connection.close()

        return ask

    def _note(self, stream, attempts):
        if stream.events == 0:
            stream.first_attempts = attempts
        stream.mark()

    def _count(self, stream, attempts):
        with self._lock:
            self.retries += stream.first_attempts - 1
            self.resumes += attempts - stream.first_attempts
            self.cut += attempts > stream.first_attempts

    def _check(self, kind, index, method, stream, choices):
        want = self._want[index]
        if choices != want:
            self._on_fault(f"{stream.name}, order {index}, {method}: {choices} is not {want}")
        with self._lock:
            self.ended[kind] += 1
            self.tokens += sum(len(choice.token_ids) for choice in choices)
            self.longest_pause = max(self.longest_pause, stream.longest)
            self.longest_wait = max(self.longest_wait, stream.last - stream.began)
            self._running.pop(stream.name)

    def _lose(self, index, method, stream, error):
        self._on_fault(f"{stream.name}, order {index}, {method}, after {stream.events} events: "
                       f"{type(error).__name__}: {error}")
        with self._lock:
            self._running.pop(stream.name, None)
