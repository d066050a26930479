#!/usr/bin/env python3
"""deploy/prometheus/autoscaling.yaml and the chart's autoscalers in closed loop:
a load that changes, a fleet that `nacre simulate` runs, the rules as Prometheus
evaluates them and the autoscalers as Kubernetes documents them (promql.py, hpa.py,
fleet.py). Virtual time: the same on every machine.

  loop_test.py NACRE     the program; --trace prints what each scenario does
"""

import pathlib
import sys
import unittest

try:
    import yaml
except ImportError:
    print("no PyYAML: skipped")
    sys.exit(77)

import fleet
import hpa
import promql

ROOT = pathlib.Path(__file__).resolve().parents[3]
RULES = ROOT / "deploy/prometheus/autoscaling.yaml"
VALUES = ROOT / "deploy/helm/nacre/values.yaml"
ROLES = ("target", "draft")
MINUTE = 60
NACRE = ""
TRACES = False

# A draft that keeps up with 16 sessions at once, and one that does not.
QUICK_DRAFT = fleet.Speeds(target="1:20,32:30", draft="1:1,32:2")
SLOW_DRAFT = fleet.Speeds(target="1:20,32:30", draft="1:3,8:8")


def load_rules():
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    assert group["interval"] == f"{fleet.SCRAPE_SECONDS}s"
    return group["rules"]


def autoscalers():
    values = yaml.safe_load(VALUES.read_text())
    return {
        role: hpa.Hpa(scaling["minReplicas"], scaling["maxReplicas"],
                      scaling["behavior"])
        for role in ROLES
        for scaling in [values[role]["autoscaling"]]
    }


class Loop:
    """`load`: sessions by seconds."""

    def __init__(self, speeds, load):
        self.fleet = fleet.Fleet(NACRE, speeds)
        self.load = load
        self.rules, self.hpas = load_rules(), autoscalers()
        self.series = promql.Series()
        self.replicas = {role: [] for role in ROLES}  # by scrape
        self.tokens = []

    def run(self, seconds):
        for role in ROLES:
            self.fleet.scale(role, self.hpas[role].least, 0, ready_now=True)
        for now in range(0, seconds, fleet.SCRAPE_SECONDS):
            sessions = self.load(now)
            self.fleet.scrape(self.series, sessions, now)
            promql.record(self.rules, self.series, now)
            for role in ROLES:
                current = len(self.fleet.pods[role])
                wanted = self.hpas[role].sync(now, self.wanted(role, now), current)
                self.fleet.scale(role, wanted, now)
                self.replicas[role].append(wanted)
            self.fleet.run(sessions, now)
            self.tokens.append(self.fleet.tokens_per_second)
        if TRACES:
            self.trace(seconds // MINUTE)
        return self

    def trace(self, minutes):
        print("\nminute sessions targets drafts tokens/s")
        before = None
        for minute in range(minutes):
            now = (self.load(minute * MINUTE),
                   *(self.at(role, minute) for role in ROLES),
                   round(self.tokens[self.index(minute)]))
            if now != before:
                print(minute, *now)
            before = now

    def wanted(self, role, now):
        found = promql.evaluate(f"nacre:{role}:desired_replicas", self.series, now)
        return next(iter(found.values())) if found else None

    @staticmethod
    def index(minute):
        return minute * MINUTE // fleet.SCRAPE_SECONDS

    def at(self, role, minute):
        return self.replicas[role][self.index(minute)]

    def between(self, role, first_minute, last_minute):
        return self.replicas[role][self.index(first_minute):self.index(last_minute)]


def constant(sessions):
    return lambda now: sessions


def steps(*parts):
    """(from this minute on, so many sessions), ..."""
    return lambda now: [s for minute, s in parts if minute * MINUTE <= now][-1]


class ClosedLoopTest(unittest.TestCase):
    def assert_steady(self, loop, first_minute, last_minute):
        for role in ROLES:
            seen = loop.between(role, first_minute, last_minute)
            self.assertEqual(set(seen), {seen[0]}, f"{role}s: {seen}")

    def test_a_constant_load_settles(self):
        for speeds in (QUICK_DRAFT, SLOW_DRAFT):
            for sessions in (0, 1, 3, 8, 16, 24, 33, 48, 64):
                with self.subTest(sessions=sessions, draft=speeds.draft):
                    loop = Loop(speeds, constant(sessions)).run(80 * MINUTE)
                    self.assert_steady(loop, 30, 80)

    def test_target_bound_load_scales_targets(self):
        loop = Loop(QUICK_DRAFT, steps((0, 8), (20, 64), (60, 8))).run(120 * MINUTE)
        self.assertEqual(loop.at("target", 19), 1)
        self.assertEqual(max(loop.replicas["target"]), 4)
        self.assert_steady(loop, 40, 60)
        self.assertEqual(loop.at("target", 59), 4)
        # No more of them than hold the sessions: 32 each.
        self.assertEqual(max(loop.replicas["draft"]), 2)
        self.assertEqual(loop.at("target", 119), 1)
        self.assertEqual(loop.at("draft", 119), 1)
        self.assertGreater(loop.tokens[loop.index(59)],
                           2 * loop.tokens[loop.index(21)])

    def test_targets_that_may_run_few_sessions_are_more(self):
        few = fleet.Speeds(target="1:20,32:30", draft="1:1,32:2", max_running=4)
        loop = Loop(few, steps((0, 4), (20, 12), (60, 4))).run(120 * MINUTE)
        self.assertEqual(loop.at("target", 19), 1)
        self.assert_steady(loop, 40, 60)
        # None waits for long; 16 each would make one target.
        self.assertEqual(loop.at("target", 59), 3)
        self.assertEqual(loop.at("target", 119), 1)

    def test_draft_bound_load_scales_drafts(self):
        loop = Loop(SLOW_DRAFT, steps((0, 2), (20, 16), (60, 2))).run(120 * MINUTE)
        self.assertEqual(loop.at("draft", 19), 1)
        self.assertEqual(set(loop.replicas["target"]), {1})
        self.assert_steady(loop, 40, 60)
        self.assertIn(loop.at("draft", 59), (2, 3, 4))
        self.assertEqual(loop.at("draft", 119), 1)
        self.assertGreater(loop.tokens[loop.index(59)],
                           1.1 * loop.tokens[loop.index(20)])

    def test_a_spike_passes(self):
        loop = Loop(QUICK_DRAFT, steps((0, 8), (20, 64), (22, 8))).run(80 * MINUTE)
        # At most half as many more, or one, in a minute; none runs away later.
        self.assertLessEqual(max(loop.replicas["target"]), 3)
        self.assertLessEqual(max(loop.between("target", 24, 80)),
                             loop.at("target", 24))
        self.assert_steady(loop, 50, 80)
        self.assertEqual(loop.at("target", 79), 1)
        self.assertEqual(loop.at("draft", 79), 1)

    def test_a_slow_wave_is_followed(self):
        # Up and down by 8 sessions every 10 minutes.
        wave = [8 * n for n in (1, 2, 3, 4, 5, 6, 7, 8, 7, 6, 5, 4, 3, 2, 1, 1)]
        loop = Loop(SLOW_DRAFT,
                    steps(*((10 * i, s) for i, s in enumerate(wave)))).run(
                        10 * len(wave) * MINUTE)
        for role in ROLES:
            seen = loop.replicas[role]
            top = seen.index(max(seen))
            # One way, then the other.
            self.assertEqual(seen[:top], sorted(seen[:top]), role)
            self.assertEqual(seen[top:], sorted(seen[top:], reverse=True), role)
        self.assertEqual(max(loop.replicas["target"]), 4)
        self.assertEqual(loop.replicas["target"][-1], 1)
        for i, sessions in enumerate(wave):
            drafts = max(loop.between("draft", 10 * i + 9, 10 * i + 10))
            self.assertLessEqual(drafts, max(1, -(-sessions // 4)))


if __name__ == "__main__":
    arguments = [a for a in sys.argv[1:] if a != "--trace"]
    TRACES = len(arguments) + 1 < len(sys.argv)
    NACRE = str(pathlib.Path(arguments[0]).resolve())
    unittest.main(argv=[sys.argv[0], *arguments[1:]])
