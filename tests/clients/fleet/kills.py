"""Kills coordinators, targets and drafts every few seconds under streams of Python
and HTTP clients. Every stream must end, with exactly the answer that is not cut.

  kills.py --programs DIR --models DIR [--seconds N] [--streams N] [--envoy PROGRAM]

Prints what was killed and what came of the streams as JSON; exits with 1 where a
stream was lost, wrong or without an end, or where a process ended by itself.
"""

import argparse
import collections
import json
import random
import sys
import tempfile
import threading
import time

import fleet as fleets
import streams as clients
from streams import nacre

GAP_SECONDS = (2.0, 5.0)
ORDERS = 24
# Of a machine that may be so busy that nothing comes for a minute.
PATIENT_FLAGS = {
    "coordinator": ["--failover-timeout", "inf", "--queue-timeout", "inf",
                    "--client-timeout", "0", "--worker-timeout", "60s"],
    "gateway": ["--resume-timeout", "1h", "--write-timeout", "1h"]}
PATIENT_RETRY = nacre.Retry(attempts=1 << 20, patience=3600)


class Faults:
    """What must not happen, told at once and kept."""

    def __init__(self):
        self._lock = threading.Lock()
        self.count = 0
        self.seen = threading.Event()

    def add(self, what):
        with self._lock:
            self.count += 1
            print(f"FAULT: {what}", file=sys.stderr, flush=True)
        self.seen.set()


class Killer:
    """Which process dies next: of each kind in turn, a random one.

    A coordinator dies only once each stream that the one before may have cut goes
    on: after three tries without a new token clients give up, as they should.
    """

    def __init__(self, fleet, streams, seed):
        self._fleet = fleet
        self._streams = streams
        self._cut = []
        self._random = random.Random(seed)
        self._kinds = []
        self.kills = collections.Counter()

    def kill_one(self):
        if not self._kinds:
            self._kinds = ["coordinator", "gateway's coordinator", "target", "draft"]
            self._random.shuffle(self._kinds)
        kind = self._kinds.pop()
        if "coordinator" in kind:
            self._streams.await_all(self._cut)
        name = self._gateways() if kind.startswith("gateway") else self._any(kind)
        if name is None or not self._fleet.kill(name):
            self.kills["found dead"] += 1
        else:
            self.kills[kind] += 1
        if "coordinator" in kind:
            self._cut = self._streams.running()

    def gap(self):
        return self._random.uniform(*GAP_SECONDS)

    def _any(self, kind):
        return self._random.choice(
            [name for name in self._fleet.processes if name.startswith(kind)])

    def _gateways(self):
        """The coordinator that has most of the gateway's answers; None: none has one."""
        answers = {
            f"coordinator-{index}": sum(
                session["request_id"].startswith("http-")
                for session in coordinator.get("sessions", []))
            for index, coordinator in enumerate(self._fleet.view() or [])}
        name = max(answers, key=answers.get, default=None)
        return name if name is not None and answers[name] > 0 else None


def run(arguments, folder, faults):
    fleet = fleets.Fleet(
        arguments.programs, arguments.models, folder, faults.add, envoy=arguments.envoy,
        flags=PATIENT_FLAGS if arguments.patient else {})
    try:
        fleet.await_whole()
        streams = clients.Streams(fleet, clients.make_orders(ORDERS), faults.add,
                                  PATIENT_RETRY if arguments.patient else nacre.Retry())
        streams.ask_uncut()
        print("the uncut answers are there", file=sys.stderr, flush=True)
        streams.start(arguments.streams)
        killer = Killer(fleet, streams, arguments.seed)
        begin = time.monotonic()
        end = begin + arguments.seconds
        while time.monotonic() < end and not (arguments.stop_at_fault and faults.seen.is_set()):
            time.sleep(killer.gap())
            killer.kill_one()
        seconds = time.monotonic() - begin
        streams.stop()
        if faults.count == 0:
            fleet.await_whole()
            fleet.await_empty()
    finally:
        fleet.stop()
    return {"seconds": round(seconds), "kills": dict(killer.kills),
            "streams": streams.ended, "tokens": streams.tokens,
            "python": {"retries": streams.retries, "resumes": streams.resumes,
                       "cut": streams.cut},
            "longest_pause_s": round(streams.longest_pause, 2),
            "longest_answer_s": round(streams.longest_wait, 2), "faults": faults.count}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", default="build/bin", help="folder of the programs")
    parser.add_argument("--models", default="models", help="folder of target and draft")
    parser.add_argument("--seconds", type=float, default=60, help="of kills")
    parser.add_argument("--streams", type=int, default=32, help="at once")
    parser.add_argument("--seed", type=int, default=1, help="of what is killed when")
    parser.add_argument("--envoy", help="program of Envoy, to stand in front")
    parser.add_argument("--logs", help="folder for the logs (default: they are dropped)")
    parser.add_argument("--stop-at-fault", action="store_true")
    parser.add_argument("--patient", action="store_true",
                        help="no time limits: for a machine that is busy otherwise")
    arguments = parser.parse_args()
    faults = Faults()
    with tempfile.TemporaryDirectory() as folder:
        report = run(arguments, arguments.logs or folder, faults)
    print(json.dumps(report, indent=2))
    sys.exit(1 if faults.count else 0)


if __name__ == "__main__":
    main()
