"""A fleet whose workers come and go, and what Prometheus scrapes of it. How its
workers spend their time is `nacre simulate`'s answer: the service's own dispatcher
and engines in virtual time. Between two scrapes a fleet is what it is at the
first: it settles within seconds.
"""

import functools
import json
import pathlib
import subprocess
import tempfile

SCRAPE_SECONDS = 15
TOKENS = 100
REQUESTS = 2


class Speeds:
    """Of a pair of devices: milliseconds of a step by its rows, as of the flags of
    `nacre simulate`, and how many sessions a worker's KV holds. `max_running`: the
    coordinator's flag."""

    def __init__(self, target, draft, method="async", target_kv=40, draft_kv=64,
                 max_running=0):
        self.target, self.draft, self.method = target, draft, method
        self.max_running = max_running
        self.kv = {"target": target_kv, "draft": draft_kv}


@functools.lru_cache(maxsize=None)
def shares(nacre, target, draft, method, sessions, targets, drafts):
    """Seconds that a second of each role's workers together is spent, busy and
    waiting, and tokens a second."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "result.json"
        subprocess.run(
            [nacre, "simulate", "--alpha", "0.8", "--tree", "chain",
             "--step-times", target, "--draft-step-times", draft,
             "--latency-us", "100", "--streams", str(sessions),
             "--tokens", str(TOKENS), "--requests", str(REQUESTS),
             "--targets", str(targets), "--drafts", str(drafts),
             "--methods", method, "--json", str(path)],
            check=True, stdout=subprocess.DEVNULL)
        result = json.loads(path.read_text())["methods"][0]
    seconds = result["seconds"]
    return {
        "tokens": result["tokens_per_second"],
        **{
            (role, kind): result[role][f"{kind}_s"] / seconds
            for role in ("target", "draft")
            for kind in ("busy", "wait")
        },
    }


class Fleet:
    START_SECONDS = {"target": 60, "draft": 30}  # until a pod is ready

    def __init__(self, nacre, speeds):
        self.nacre, self.speeds = nacre, speeds
        self.pods = {"target": [], "draft": []}  # [(name, ready at)]
        self.made = 0
        self.spent = {}  # (role, pod, kind) -> seconds
        self.tokens_per_second = 0.0

    def scale(self, role, replicas, now, ready_now=False):
        pods = self.pods[role]
        del pods[replicas:]
        while len(pods) < replicas:
            self.made += 1
            wait = 0 if ready_now else self.START_SECONDS[role]
            pods.append((f"{role}-{self.made}", now + wait))

    def ready(self, role, now):
        return [name for name, at in self.pods[role] if at <= now]

    def run(self, sessions, now):
        """From `now` to the next scrape."""
        targets, drafts = self.ready("target", now), self.ready("draft", now)
        running = self.running(sessions, len(targets))
        self.tokens_per_second = 0.0
        if running == 0:
            return
        share = shares(
            self.nacre, self.speeds.target, self.speeds.draft,
            self.speeds.method if drafts else "ar", running, len(targets),
            max(1, len(drafts)))
        self.tokens_per_second = share["tokens"]
        for role, pods in (("target", targets), ("draft", drafts)):
            for pod in pods:
                for kind in ("busy", "wait"):
                    key = (role, pod, kind)
                    self.spent[key] = self.spent.get(key, 0.0) + (
                        SCRAPE_SECONDS * share[role, kind] / len(pods))

    def running(self, sessions, num_targets):
        most = self.speeds.max_running or self.speeds.kv["target"]
        return min(sessions, num_targets * min(most, self.speeds.kv["target"]))

    def scrape(self, series, sessions, now):
        ready = {role: self.ready(role, now) for role in self.pods}
        running = self.running(sessions, len(ready["target"]))

        def add(name, value, **labels):
            series.add(name, frozenset(labels.items()), now, float(value))

        add("nacre_num_requests_running", running)
        add("nacre_num_requests_waiting", sessions - running)
        for pod in ready["target"]:
            add("nacre_max_running_sessions", self.speeds.max_running, worker=pod)
        for role, pods in ready.items():
            add("nacre_workers", len(pods), role=role, state="ready")
            waits = {"target": ("nacre_target_wait_seconds_total", "draft_tokens"),
                     "draft": ("nacre_draft_wait_seconds_total", "verdict")}[role]
            for pod in pods:
                usage = running / (len(pods) * self.speeds.kv[role])
                add("nacre_kv_cache_usage_ratio", min(1.0, usage), role=role,
                    worker=pod)
                add("nacre_worker_busy_seconds_total",
                    self.spent.get((role, pod, "busy"), 0.0), role=role, worker=pod)
                add(waits[0], self.spent.get((role, pod, "wait"), 0.0), role=role,
                    worker=pod, reason=waits[1])


