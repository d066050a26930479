#!/usr/bin/env python3
"""How long other streams wait for their next token while a long prompt is read.

  scripts/long_prompt.py HOST:PORT TOKENS      of a gateway

The model's context must have room for 20100 tokens and for the prompt.

One stream decodes. When it has some tokens, a prompt of so many comes, and
comes once more when it is answered: then the prefix cache has it. Prints one
line of JSON: the stream's gaps between tokens before the prompt, in the first
and in the last tenth of its steps, the longest one, and the prompt's times to
its first token. Greedy, `ar`; tokens that mean nothing.
"""

import http.client
import json
import statistics
import sys
import threading
import time

FEW_TOKENS = 50  # of the stream before the prompt comes
STREAM_TOKENS = 20000  # at most; the context must have room for them
IDS = (10, 4000)  # tokens of prompts are of this range
REQUEST = {"stream": True, "ignore_eos": True, "temperature": 0,
           "return_token_ids": True, "nacre": {"method": "ar"}}


def token_times(address, prompt, max_tokens):
    """Yields when each event with tokens comes."""
    connection = http.client.HTTPConnection(address, timeout=7200)
    body = {**REQUEST, "prompt": prompt, "max_tokens": max_tokens}
    connection.request("POST", "/v1/completions", json.dumps(body),
                       {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        sys.exit(f"long_prompt: error: {answer.status} {answer.read().decode()}")
    for line in answer:
        if not line.startswith(b"data: {"):
            continue
        choices = json.loads(line[6:]).get("choices")
        if choices and choices[0].get("token_ids"):
            yield time.monotonic()


def prompt_of(length, seed):
    first, end = IDS
    return [first + (i * 7919 + seed * 104729) % (end - first)
            for i in range(length)]


class Stream(threading.Thread):
    """One that decodes until it is stopped; `times` of its tokens."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self.address = address
        self.times = []
        self.stopped = False
        self.error = "long_prompt: error: the stream ended"

    def run(self):
        try:
            for when in token_times(self.address, prompt_of(64, 1), STREAM_TOKENS):
                self.times.append(when)
                if self.stopped:
                    return
        except SystemExit as error:  # which a thread would swallow
            self.error = error

    def gaps(self, begin, end):
        times = [t for t in self.times if begin <= t <= end]
        return [1e3 * (b - a) for a, b in zip(times, times[1:])]


def time_to_first(address, length):
    begin = time.monotonic()
    times = list(token_times(address, prompt_of(length, 2), 16))
    return begin, times[0]


def main():
    if len(sys.argv) != 3 or not sys.argv[2].isdigit():
        sys.exit(__doc__)
    address, length = sys.argv[1], int(sys.argv[2])
    stream = Stream(address)
    stream.start()
    while len(stream.times) < FEW_TOKENS:
        if not stream.is_alive():
            sys.exit(stream.error)
        time.sleep(0.05)
    began, first = time_to_first(address, length)
    again, first_again = time_to_first(address, length)
    stream.stopped = True
    stream.join()
    if stream.times[-1] < first:
        sys.exit(stream.error)
    beside = stream.gaps(began, first)
    if not beside:
        sys.exit("long_prompt: error: the prompt came between two tokens of "
                 "the stream: take a longer one")
    tenth = len(beside) // 10 or 1
    print(json.dumps({
        "prompt_tokens": length,
        "first_token_s": round(first - began, 3),
        "first_token_again_s": round(first_again - again, 3),
        "steps": len(beside),
        "gap_before_ms": round(statistics.median(stream.gaps(0, began)), 1),
        "gap_first_tenth_ms": round(statistics.median(beside[:tenth]), 1),
        "gap_last_tenth_ms": round(statistics.median(beside[-tenth:]), 1),
        "gap_longest_ms": round(max(beside), 1)}))


if __name__ == "__main__":
    main()
