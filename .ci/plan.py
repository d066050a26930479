#!/usr/bin/env python3
"""Which of CI's stages in turn a run takes, and how many runs cover them all.

  .ci/plan.py SECONDS FILE COUNT asan=1500 tsan=1200 tidy=320x3 ...
  .ci/plan.py --parts FILE COUNT NAME ...
  .ci/plan.py --left FILE "READ ..." NAME ...
  .ci/plan.py --self-test

SECONDS are left for these stages, each of which may take as long as said with
nothing cached. FILE has a line "stage time" for each that passed on this
machine, and "stage time nothing" for one that could run nothing when its turn
came: it waits for its next turn as if it had passed. Without FILE, as on a new
machine, COUNT (of commits) says which stage comes first: each does within as
many counts as there are stages. One with "x3" passes in parts: only the third
run that takes it ends it.

Prints two lines: the stages in the order in which to try them, and the number
of runs like this one that cover all, on a machine where FILE stays ("never", if
one takes longer than SECONDS).

--parts: those of a stage that passes in parts, in the order in which a run takes
them: first those of FILE, which runs before have left. Without any COUNT says which
comes first. --left: a run took the parts READ, and not those named. As long as
there are any that no run has taken, FILE then has all: a line "part N" for each of
these, with the number that this run took, and "part read" for each of the others.

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


def runs_to_cover(stages, costs, seconds, parts=None):
    """How many runs pass each of `stages` (by age) once; None: never. `parts`:
    how many runs have to take a stage, where that is more than one."""
    left, number = {stage: (parts or {}).get(stage, 1) for stage in stages}, 0
    while any(left.values()):
        took = taken(order_of(stages, costs, seconds), costs, seconds)
        if not any(left[stage] for stage in took):
            return None
        for stage in took:
            left[stage] = max(left[stage] - 1, 0)
        # What has not passed stays the oldest.
        passed = [stage for stage in took if not left[stage]]
        stages = [s for s in stages if s not in passed] + passed
        number += 1
    return number


def read(path):
    passed = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for line in file:
                stage, time, *_ = [*line.split(), "", ""]
                if time.isdigit():
                    passed[stage] = int(time)
    return passed


def in_turn(names, unread, count):
    """`names` in the order in which a run takes them."""
    first = count % len(names)
    names = names[first:] + names[:first]
    return ([name for name in unread if name in names]
            + [name for name in names if name not in unread])


def still_left(unread, read_before, named):
    """Of those that this run left, what none before has read: also what is new. The
    first of them comes last: the run may have spent its time on that one."""
    found = [name for name in unread if name in named]
    found += [name for name in named if name not in unread and name not in read_before]
    return found[1:] + found[:1]


def parts_of(path):
    """(unread, read) of a file of --left; none, where there is no such file."""
    unread, done = [], []
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for name, state in map(str.split, filter(str.strip, file)):
                (done if state == "read" else unread).append(name)
    return unread, done


def self_test_parts(stages, costs):
    """What is wrong where stages pass in parts."""
    wrong = []
    for seconds, parts, expected in (
            (5420, {}, 1), (5420, {"tidy": 3}, 3), (5420, {"tidy": 1}, 1),
            # One of the two runs has no room for tidy.
            (2900, {"tidy": 2}, 3), (2900, {"tidy": 3}, 4),
            (1499, {"tidy": 3}, None)):
        found = runs_to_cover(stages, costs, seconds, parts)
        if found != expected:
            wrong.append(f"{seconds} s, {parts}: {found} runs")
    for seconds in range(1500, 5600, 50):
        for first in range(len(stages)):
            ages = stages[first:] + stages[:first]
            found = runs_to_cover(ages, costs, seconds, {"tidy": 4})
            if not max(4, runs_to_cover(ages, costs, seconds)) <= found <= 8:
                wrong.append(f"{seconds} s from {ages[0]}: {found} runs")
    names = [*"abcd"]
    for unread, count, expected in (([], 0, "abcd"), ([], 6, "cdab"),
                                    (["d", "b"], 0, "dbac"),
                                    # One that is no part any more.
                                    (["x", "c"], 1, "cbda")):
        if in_turn(names, unread, count) != [*expected]:
            wrong.append(f"parts {unread} {count}")
    # One that is new is not read, though runs before have left nothing of that name.
    if still_left(["b"], {"a"}, ["a", "new"]) != ["new"]:
        wrong.append("a new part counts as read")
    # Whatever a run has time for, all are taken once before one comes again; also
    # where one ("a") never ends, which then takes the time of a whole run.
    for some, endless in itertools.product((1, 2, 3, 4), (False, True)):
        unread, done, number, seen = [], set(), 0, set()
        while number == 0 or unread and seen != {*names[1:]}:
            order = in_turn(names, unread, 17 + number)
            took = [*itertools.takewhile(lambda name: not endless or name != "a",
                                         order)][:some]
            seen.update(took)
            unread = still_left(unread, done, [n for n in names if n not in took])
            done.update(took)
            number += 1
            if number > 2 * len(names):
                wrong.append(f"{some} parts a run, endless {endless}: starved")
                break
        if not endless and number > len(names):
            wrong.append(f"{some} parts a run: {number} runs")
    return wrong


def self_test():
    costs = {"asan": 1500, "tsan": 1200, "fuzz": 800, "tidy": 320,
             "aarch64": 1000, "training": 600}
    stages = [*costs]
    wrong = self_test_parts(stages, costs)
    for seconds, expected in ((5420, 1), (2900, 2), (2500, 3), (2100, 3),
                              (1500, 4), (1499, None)):
        if runs_to_cover(stages, costs, seconds) != expected:
            wrong.append(f"{seconds} s: {runs_to_cover(stages, costs, seconds)}")
    # Whatever time is left, the oldest that fits is taken, so all are in time.
    for seconds in range(1500, 5600, 50):
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
            "tsan", "fuzz", "training", "tidy", "aarch64", "asan"]:
        wrong.append("ages")
    for problem in wrong:
        print(f"self-test: {problem}", file=sys.stderr)
    print(f"self-test: {len(wrong)} wrong plans")
    return 1 if wrong else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if sys.argv[1:2] == ["--parts"]:
        print(*in_turn(sys.argv[4:], parts_of(sys.argv[2])[0], int(sys.argv[3])))
        return 0
    if sys.argv[1:2] == ["--left"]:
        path, took = sys.argv[2], sys.argv[3].split()
        os.makedirs(os.path.dirname(path), exist_ok=True)
        unread, done = parts_of(path)
        found = still_left(unread, done, sys.argv[4:])
        lines = [f"{name} {max(len(took), 1)}" for name in found]
        if found:
            lines += [f"{name} read" for name in dict.fromkeys(done + took)]
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
        return 0
    seconds, path, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    costs, parts = {}, {}
    for word in sys.argv[4:]:
        name, _, cost = word.partition("=")
        cost, _, number = cost.partition("x")
        costs[name], parts[name] = int(cost), int(number or 1)
    stages = by_age([*costs], read(path), count)
    print(*order_of(stages, costs, seconds))
    print(runs_to_cover(stages, costs, seconds, parts) or "never")
    return 0


if __name__ == "__main__":
    sys.exit(main())
