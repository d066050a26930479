#!/usr/bin/env python3
"""Is the law of docs/trees.md right about how often a branch is prepared?

    nacre bench ... --methods async --tree best --json A.json   # every other prompt
    nacre bench ... --methods async --tree best --json B.json   # the others
    scripts/hit_rate_law.py A.json B.json

The law: of the mismatches whose token is among the draft's next three, a
constant share finds a branch. Fits the constant to one half, and prints what
the law then says of the other half, from that half's ranks, beside what it had:
the share of its mismatches after which the next position had a node.
"""

import json
import sys


class Half:
    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            methods = json.load(file)["methods"]
        found = [m for m in methods if m["method"] == "async" and m["hit_rate"] > 0]
        if len(found) != 1:
            sys.exit(f"{path}: {len(found)} methods with prepared branches, not 1")
        self.measured = found[0]["hit_rate"]
        ranks = found[0]["ranks"]
        # Of the mismatches those whose token is among the draft's next three.
        self.next_three = sum(ranks[1:4]) / sum(ranks[1:])
        self.constant = self.measured / self.next_three


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    halves = [Half(path) for path in sys.argv[1:]]
    print("fitted on  constant  law, %  measured, %  points")
    for fit, other, name in ((*halves, sys.argv[1]), (*halves[::-1], sys.argv[2])):
        law = min(1.0, fit.constant * other.next_three)
        print(
            f"{name}  {fit.constant:.3f}  {100 * law:.1f}  {100 * other.measured:.1f}"
            f"  {100 * (law - other.measured):+.1f}"
        )


if __name__ == "__main__":
    main()
