#!/usr/bin/env python3
"""Runs the benchmarks of two build trees in turns, and prints the time of the second
over that of the first.

  git worktree add ../before COMMIT && (build it there)
  scripts/compare_builds.py ../before/build build --cpu 0 [--turns 5] [--only NAMES]
  scripts/compare_builds.py ... --target build/quickstart/target \\
    --draft build/quickstart/draft    # and the methods, on all cores

Each number is the median over the turns, and the ratio is that of the ratios of the
turns: what a shared machine does to one build it then does to the other. Rows that both
print are compared; the others are counted. "spread": half of the turns have a ratio
within so much of that. A ratio closer to 1 says nothing.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

DECODE = ["--layers", "3", "--rows", "1,2,4,8,16"]
# Of each benchmark: its arguments, and the column of its milliseconds, microseconds or
# nanoseconds, counted from the end of a row's line.
KERNELS = {
    "gemm": (["bench_gemm", "--repetitions", "3"], -5, 1),
    "attention": (
        ["bench_attention", "--contexts", "1024", "--rows", "1,8",
         "--kv-type", "bf16"], -7, 2),
    "decode bf16": (["bench_decode", "--weights", "bf16", *DECODE], -5, 1),
    "decode bf16a16": (
        ["bench_decode", "--weights", "bf16a16", *DECODE], -5, 1),
    "decode int8": (["bench_decode", "--weights", "int8", *DECODE], -5, 1),
    "decode int4": (["bench_decode", "--weights", "int4", *DECODE], -5, 1),
    "sampling": (
        ["bench_sampling", "--vocab", "32000,128256", "--repetitions", "5"], -3, 0),
    "dispatcher": (["bench_dispatcher"], -2, 1),
}  # fmt: skip
NUMBER = re.compile(r"-?\d+(\.\d+)?")


def rows(text, column, labels):
    """{label: number} of a benchmark's table. A row is labelled by the last heading and
    its first `labels` words (0: all words up to the first number after a name)."""
    found, heading = {}, ""
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 4 and all(map(NUMBER.fullmatch, words[-3:])):
            name = words[:labels] if labels else words[:column]
            label = f"{heading} {' '.join(name)}".strip()
            while label in found:
                label += ", again"
            found[label] = float(words[column])
        elif re.search(r", \d+ MB|query heads|^cpu|sampl", line):
            heading = re.split(r"[:;]", line)[0]
        elif match := re.match(r"(prompt of \d+): (\S+) ms", line):
            found[match[1]] = float(match[2])
    return found


def run_kernel(build, words, column, labels, cpu):
    cpus = [] if words[0] == "bench_dispatcher" else ["--cpus", str(cpu)]
    command = ["taskset", "-c", str(cpu), os.path.join(build, "bin", words[0])]
    text = subprocess.run(
        command + words[1:] + cpus, check=True, text=True, stdout=subprocess.PIPE
    ).stdout
    return rows(text, column, labels)


def run_methods(build, arguments):
    """Seconds a token of each method, by its options."""
    nacre = os.path.join(build, "bin", "nacre")
    help_text = subprocess.run(
        [nacre, "bench", "--help"], text=True, stdout=subprocess.PIPE
    ).stdout
    # What came later, or decides more than it did, is told: the same work is compared.
    later = {"--suffix-drafter": "off", "--tree": "chain", "--weights": "bf16"}
    own = [w for name, value in later.items() if name in help_text
           for w in (name, value)]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out.json")
        subprocess.run(
            [nacre, "bench", "--target-model", arguments.target, "--draft-model",
             arguments.draft, "--prompts", arguments.prompts, "--limit", "4",
             "--max-tokens", "64", "--repeat", "1", "--methods",
             arguments.methods, "--json", path, *own],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
    # A later build names what was left out, as in "async:4@chain".
    return {
        m["name"].split("@")[0]: 1 / m["tokens_per_second"] for m in report["methods"]
    }


def compare(name, run, builds, turns):
    """Prints a benchmark's rows; returns the ratios."""
    times = [{}, {}]
    for turn in range(turns):
        for which in (0, 1) if turn % 2 == 0 else (1, 0):
            for label, value in run(builds[which]).items():
                times[which].setdefault(label, []).append(value)
        print(f"{name}: turn {turn + 1} of {turns}", file=sys.stderr, flush=True)
    before, after = times
    ratios = []
    for label in before:
        if label not in after:
            continue
        of_turns = [new / old for old, new in zip(before[label], after[label])]
        ratio = statistics.median(of_turns)
        spread = statistics.median(abs(each - ratio) for each in of_turns)
        ratios.append(ratio)
        old, new = statistics.median(before[label]), statistics.median(after[label])
        print(f"{name:12} {label:52} {old:10.4g} {new:10.4g} {ratio:7.3f} {spread:7.3f}")
    alone = len(set(before) ^ set(after))
    if not ratios:
        sys.exit(f"{name}: the two print no row in common")
    print(
        f"{name:12} {len(ratios)} rows, geometric mean "
        f"{statistics.geometric_mean(ratios):.3f}, worst {max(ratios):.3f}; "
        f"{alone} rows of one of them alone\n",
        flush=True,
    )
    return ratios


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", help="a build tree")
    parser.add_argument("after", help="another build tree")
    parser.add_argument("--cpu", type=int, default=0, help="of the kernels (0)")
    parser.add_argument("--turns", type=int, default=5, help="runs of each (5)")
    parser.add_argument("--only", default="", help="names of benchmarks, by commas")
    parser.add_argument("--target", help="a model: compares the methods, too")
    parser.add_argument("--draft", help="its draft")
    parser.add_argument("--prompts", default="tests/data/gsm8k_100.jsonl")
    parser.add_argument("--methods", default="ar,sd:4,pearl:4,async:4")
    arguments = parser.parse_args()
    only = [n for n in arguments.only.split(",") if n]
    print(f"{'':12} {'row':52} {'before':>10} {'after':>10} {'ratio':>7} {'spread':>7}")
    builds = (arguments.before, arguments.after)
    for name, (words, column, labels) in KERNELS.items():
        if only and name not in only:
            continue

        def run(build, words=words, column=column, labels=labels):
            return run_kernel(build, words, column, labels, arguments.cpu)

        compare(name, run, builds, arguments.turns)
    if arguments.target and (not only or "methods" in only):
        compare("methods", lambda b: run_methods(b, arguments), builds, arguments.turns)


if __name__ == "__main__":
    main()
