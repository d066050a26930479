#!/usr/bin/env python3
"""Which of CI's stages in turn a run takes, and how many runs cover them all.

  .ci/plan.py SECONDS FILE COUNT asan=1500 tsan=1200 ...
  .ci/plan.py --self-test

SECONDS are left for these stages, each of which may take as long as said with
nothing cached. FILE has a line "stage time" for each that passed on this
machine. Without it, as on a new machine, COUNT (of commits) says which stage
comes first: each does within as many counts as there are stages.

Prints two lines: the stages in the order in which to try them, and the number
of runs like this one that cover all ("never", if one takes longer than
SECONDS).

The stage that has waited longest is always first, so that none starves. With it
go those that let the others pass in the fewest runs; then comes the rest.
"""

import functools
import itertools
import os
import sys


def by_age(stages, passed, count):
    """The stages, from the one that has waited longest."""
    if not passed:
        first = count % len(stages)
        return stages[first:] + stages[:first]
    return sorted(stages, key=lambda stage: passed.get(stage, 0))


def order_of(stages, costs, seconds):
    """`stages` by age to the order in which a run tries them."""
    fits = [s for s in stages if costs[s] <= seconds]
    if not fits:
        return stages

    @functools.lru_cache(maxsize=None)
    def runs(left):
        """(number, stages of the first run) for `left`, by age."""
        if not left:
            return 0, ()
        best = None
        # Where several do, those of the older stages: they come first.
        for picks in itertools.product((True, False), repeat=len(left) - 1):
            chosen = (left[0], *itertools.compress(left[1:], picks))
            if sum(costs[s] for s in chosen) > seconds:
                continue
            number = 1 + runs(tuple(s for s in left if s not in chosen))[0]
            if best is None or number < best[0]:
                best = number, chosen
        return best

    chosen = runs(tuple(fits))[1]
    return [*chosen, *(s for s in stages if s not in chosen)]


def taken(order, costs, seconds):
    """What a run takes that tries `order` and needs the times of `costs`."""
    found = []
    for stage in order:
        if costs[stage] <= seconds:
            seconds -= costs[stage]
            found.append(stage)
    return found


def runs_to_cover(stages, costs, seconds):
    """How many runs pass each of `stages` (by age) once; None: never."""
    missing, number = set(stages), 0
    while missing:
        passed = taken(order_of(stages, costs, seconds), costs, seconds)
        if not set(passed) & missing:
            return None
        missing -= set(passed)
        stages = [s for s in stages if s not in passed] + passed
        number += 1
    return number


def read(path):
    passed = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for line in file:
                stage, _, time = line.partition(" ")
                if time.strip().isdigit():
                    passed[stage] = int(time)
    return passed


def self_test():
    costs = {"asan": 1500, "tsan": 1200, "fuzz": 800, "tidy": 320,
             "aarch64": 1000}
    stages = [*costs]
    wrong = []
    for seconds, expected in ((4820, 1), (2900, 2), (2500, 2), (2100, 3),
                              (1500, 4), (1499, None)):
        if runs_to_cover(stages, costs, seconds) != expected:
            wrong.append(f"{seconds} s: {runs_to_cover(stages, costs, seconds)}")
    # Whatever time is left, the oldest that fits is taken, so all are in time.
    for seconds in range(1500, 5200, 50):
        for first in range(len(stages)):
            ages = stages[first:] + stages[:first]
            if taken(order_of(ages, costs, seconds), costs, seconds)[0] != ages[0]:
                wrong.append(f"{seconds} s: {ages[0]} is not first")
            if runs_to_cover(ages, costs, seconds) > len(stages):
                wrong.append(f"{seconds} s from {ages[0]}: too many runs")
    firsts = {by_age(stages, {}, count)[0] for count in range(17, 17 + len(stages))}
    if firsts != set(stages):
        wrong.append(f"without a file only {firsts} come first")
    if by_age(stages, {"asan": 30, "tidy": 10, "aarch64": 20}, 1) != [
            "tsan", "fuzz", "tidy", "aarch64", "asan"]:
        wrong.append("ages")
    for problem in wrong:
        print(f"self-test: {problem}", file=sys.stderr)
    print(f"self-test: {len(wrong)} wrong plans")
    return 1 if wrong else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    seconds, path, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    costs = {name: int(cost) for name, _, cost in
             (word.partition("=") for word in sys.argv[4:])}
    stages = by_age([*costs], read(path), count)
    print(*order_of(stages, costs, seconds))
    print(runs_to_cover(stages, costs, seconds) or "never")
    return 0


if __name__ == "__main__":
    sys.exit(main())
