"""Many streams at once through one gateway, and the same over gRPC: each must say
what it says alone. How much memory the gateway takes, how many tokens come a second.

  crowd.py --programs DIR --models DIR [--streams N] [--tokens N] [--rounds N]

Prints what was measured as JSON. Exits with 1 where a stream was wrong, where the
gateway took more memory than it may, or where HTTP cost the service's processes so much
more CPU than gRPC that it would lose more than a tenth of the tokens a second were CPU
all there is. How fast it all went depends on the machine, and on what else it does:
that is printed alone.

Both clients keep the bytes that come and read them after the clock has stopped.
"""

import argparse
import asyncio
import json
import os
import pathlib
import resource
import statistics
import sys
import tempfile
import threading
import time

import grpc

import fleet as fleets
import streams as clients
from streams import nacre

from nacre import _messages, _request  # after `streams`, which says where it is

MOST_KIB = 30_000_000 / 1024  # of the gateway beyond idle, for a thousand streams
MOST_CPU = round(1 / 0.9, 3)  # of the service's processes, over HTTP by gRPC
KINDS = 8  # of requests, each by another seed
PROMPT = clients.PROMPTS[0]
SAMPLE_SECONDS = 0.02


def options_of(index, tokens):
    return {"max_tokens": tokens, "temperature": 0.8, "seed": index % KINDS,
            "ignore_eos": True}


async def over_grpc(fleet, count, tokens):
    async with grpc.aio.insecure_channel(fleet.grpc[0]) as channel:
        generate = channel.unary_stream("/nacre.v1.Inference/Generate")

        async def one(index):
            request = _request.build_request(PROMPT, options_of(index, tokens))
            return [message async for message in generate(request.SerializeToString())]

        return await asyncio.gather(*map(one, range(count)))


def text_of_grpc(messages):
    responses = [_messages.GenerateResponse.FromString(message) for message in messages]
    ends = [response.HasField("complete") for response in responses]
    assert ends.count(True) == 1 and ends[-1], f"an end at {ends}"
    return "".join(response.chunk.text for response in responses)


async def over_http(fleet, count, tokens):
    host, port = fleet.http.rsplit(":", 1)

    async def one(index):
        reader, writer = await asyncio.open_connection(host, int(port))
        body = json.dumps({"prompt": PROMPT, "stream": True, **options_of(index, tokens)})
        writer.write((f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\n"
                      f"Connection: close\r\nContent-Type: application/json\r\n"
                      f"Content-Length: {len(body)}\r\n\r\n{body}").encode())
        answer = await reader.read()
        writer.close()
        return answer

    return await asyncio.gather(*map(one, range(count)))


def text_of_http(answer):
    text, done = [], False
    # A chunk of the body is a whole event; its size has a line of its own.
    for line in answer.splitlines():
        if not line.startswith(b"data: "):
            continue
        assert not done, f"after the end: {line!r}"
        data = line[6:].strip()
        done = data == b"[DONE]"
        if not done:
            text += [choice["text"] for choice in json.loads(data)["choices"]]
    assert done, f"the stream ended within {text!r}"
    return "".join(text)


WAYS = {"grpc": (over_grpc, text_of_grpc), "http": (over_http, text_of_http)}


def resident_kib(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError(f"process {pid} has no VmRSS")


class Peak:
    """The most memory that a process has within a `with`."""

    def __init__(self, pid):
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self.kib = 0

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()

    def _sample(self):
        while not self._ended.wait(SAMPLE_SECONDS):
            self.kib = max(self.kib, resident_kib(self._pid))


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def own_cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(fleet, way, count, tokens, want):
    """One round: tokens a second, seconds of CPU by process, wrong streams."""
    before = {name: cpu_seconds(process.pid) for name, process in fleet.processes.items()}
    own, begin = own_cpu_seconds(), time.monotonic()
    ask, text_of = WAYS[way]
    answers = asyncio.run(ask(fleet, count, tokens))
    seconds, own = time.monotonic() - begin, own_cpu_seconds() - own
    texts = list(map(text_of, answers))
    cpu = {name: round(cpu_seconds(process.pid) - before[name], 2)
           for name, process in fleet.processes.items()}
    return {"tokens_per_second": round(count * tokens / seconds, 1),
            "seconds": round(seconds, 2),
            "service_cpu_seconds": round(sum(cpu.values()), 2),
            "cpu_seconds": {**cpu, "clients": round(own, 2)},
            "wrong": sum(text != want[index % KINDS] for index, text in enumerate(texts))}


def run(arguments, folder):
    count, tokens = arguments.streams, arguments.tokens
    resource.setrlimit(resource.RLIMIT_NOFILE,
                       (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    fleet = fleets.Fleet(arguments.programs, arguments.models, folder, sys.exit, count=1,
                         flags={"coordinator": ["--max-running", count, "--max-queue", count]})
    try:
        fleet.await_whole()
        want = list(map(text_of_grpc, asyncio.run(over_grpc(fleet, KINDS, tokens))))
        asyncio.run(over_http(fleet, KINDS, tokens))
        gateway = fleet.processes["gateway"].pid
        idle = resident_kib(gateway)
        report = {"streams": count, "tokens": tokens, "gateway_idle_kib": idle,
                  "gateway_more_kib": 0, "grpc": [], "http": []}
        for _ in range(arguments.rounds):
            report["grpc"].append(measure(fleet, "grpc", count, tokens, want))
            with Peak(gateway) as peak:
                report["http"].append(measure(fleet, "http", count, tokens, want))
            report["gateway_more_kib"] = max(report["gateway_more_kib"], peak.kib - idle)
        fleet.await_empty()
        return report
    finally:
        fleet.stop()


def judge(report):
    """What is beyond its limit, a line each; adds what it compares to the report."""
    def ratio(field):
        of_way = {way: statistics.median(one[field] for one in report[way]) for way in WAYS}
        # A tiny run may take less than the clock can tell.
        return round(of_way["http"] / of_way["grpc"], 3) if of_way["grpc"] else None

    report["most_more_kib"] = round(MOST_KIB * max(1, report["streams"] / 1000))
    report["http_by_grpc"] = {
        "service_cpu": ratio("service_cpu_seconds"), "most_service_cpu": MOST_CPU,
        "tokens_per_second": ratio("tokens_per_second")}
    faults = []
    if wrong := sum(one["wrong"] for way in WAYS for one in report[way]):
        faults.append(f"{wrong} streams are wrong")
    if report["gateway_more_kib"] > report["most_more_kib"]:
        faults.append(f"the gateway takes {report['gateway_more_kib']} KiB more than idle")
    cpu = report["http_by_grpc"]["service_cpu"]
    if cpu is None:
        faults.append("gRPC took no CPU that could be measured: too few streams or tokens")
    elif cpu > MOST_CPU:
        faults.append(f"HTTP costs {cpu} times the CPU of gRPC")
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", default="build/bin", help="folder of the programs")
    parser.add_argument("--models", default="models", help="folder of target and draft")
    parser.add_argument("--streams", type=int, default=1000, help="at once")
    parser.add_argument("--tokens", type=int, default=48, help="of each")
    parser.add_argument("--rounds", type=int, default=3, help="of gRPC and HTTP in turn")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = run(arguments, folder)
    faults = judge(report)
    print(json.dumps(report, indent=2))
    for fault in faults:
        print(f"FAULT: {fault}", file=sys.stderr)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
