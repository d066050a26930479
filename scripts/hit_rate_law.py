#!/usr/bin/env python3
"""Is the law of docs/trees.md right about how often a branch is prepared?

    nacre bench ... --methods async --tree best --json A.json   # every other prompt
    nacre bench ... --methods async --tree best --json B.json   # the others
    scripts/hit_rate_law.py A.json B.json

Fits the law's one constant to what one half had, and prints what the law then
says of the other half, from that half's acceptance and ranks, beside what it
had: the share of the target's steps after which the next position had a node.
"""

import json
import sys

# Tokens that a session waits for after a miss. It moves the law by less than a
# point.
GATE = 2


class Half:
    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            methods = json.load(file)["methods"]
        found = [m for m in methods if m["method"] == "async" and m["hit_rate"] > 0]
        if len(found) != 1:
            sys.exit(f"{path}: {len(found)} methods with prepared branches, not 1")
        method = found[0]
        self.measured = method["hit_rate"]
        ranks = method["ranks"]
        # Of the mismatches those whose token is among the draft's next three.
        self.next_three = sum(ranks[1:4]) / sum(ranks[1:])
        alpha, ratio = method["alpha"], max(1.0, method["cost_ratio"])
        # Target steps from a mismatch to the next one (speculation/law.h).
        self.after_hit = 1 + alpha ** (ratio + 1) / (1 - alpha**ratio)
        self.after_miss = 1 + alpha ** (GATE + 1) / (1 - alpha**ratio)

    def prepared(self, caught):
        """`caught`: the share of mismatches that find a branch."""
        steps = caught * self.after_hit + (1 - caught) * self.after_miss
        return 1 - (1 - caught) / steps

    def fitted(self):
        """caught / next_three, so that the law says what was measured."""
        low, high = 0.0, 1.0
        for _ in range(50):
            middle = (low + high) / 2
            if self.prepared(middle) < self.measured:
                low = middle
            else:
                high = middle
        return low / self.next_three


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    halves = [Half(path) for path in sys.argv[1:]]
    print("fitted on  constant  law, %  measured, %  points")
    for fit, other, name in ((*halves, sys.argv[1]), (*halves[::-1], sys.argv[2])):
        constant = fit.fitted()
        law = other.prepared(min(1.0, constant * other.next_three))
        print(
            f"{name}  {constant:.3f}  {100 * law:.1f}  {100 * other.measured:.1f}"
            f"  {100 * (law - other.measured):+.1f}"
        )


if __name__ == "__main__":
    main()
