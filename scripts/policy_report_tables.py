#!/usr/bin/env python3
"""Markdown tables of the runs that scripts/policy_report.sh left in a folder.

  scripts/policy_report_tables.py OUT

Every number is of the JSON files there; nothing is measured here.
"""

import json
import pathlib
import statistics
import sys

METHODS = ("sd", "pearl", "async")
PAIRS = ("c5", "c10", "c20")
PROMPT_FILES = (("gsm8k_100", "GSM8K"), ("humaneval", "HumanEval"))
TEMPERATURES = ("0.5", "0.8", "1.0")


def load(path):
    return json.loads(path.read_text()) if path.exists() else None


def by_method(run):
    """{policy (or verification): {method: entry}}, in the order of the run."""
    rows = {}
    for entry in run["methods"]:
        method, _, rest = entry["name"].partition("/")
        if method != "ar":
            rows.setdefault(rest, {})[method] = entry
    return rows


def spread(run):
    """Median over the entries of (fastest - slowest repetition) / median."""
    return statistics.median(
        (max(entry["tokens_per_second_repeats"])
         - min(entry["tokens_per_second_repeats"]))
        / entry["tokens_per_second"] for entry in run["methods"])


def cost_ratio(run):
    ratios = [entry["cost_ratio"] for entry in run["methods"]
              if entry["method"] != "ar" and entry.get("cost_ratio")]
    return statistics.median(ratios)


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def ratio(entry):
    return f"{entry['speedup']:.2f}" if entry else "-"


def policy_table(run):
    rows = []
    best = {method: max((entries[method]["speedup"]
                         for policy, entries in by_method(run).items()
                         if method in entries and policy != "oracle"),
                        default=0.0)
            for method in METHODS}
    for policy, entries in by_method(run).items():
        cells = [f"`{policy}`"]
        for method in METHODS:
            text = ratio(entries.get(method))
            is_best = (policy != "oracle" and method in entries
                       and entries[method]["speedup"] == best[method])
            cells.append(f"**{text}**" if is_best else text)
        sd = entries.get("sd")
        cells += ([f"{100 * sd['acceptance_rate']:.0f} %",
                   f"{sd['mean_accepted_length']:.2f}"] if sd else ["-", "-"])
        rows.append(cells)
    return table(["policy", *METHODS, "accepted, `sd`", "tokens a round, `sd`"],
                 rows)


def waiting_table(run):
    rows = []
    for method in METHODS:
        entries = [row[method] for policy, row in by_method(run).items()
                   if method in row and policy != "oracle"]
        median = lambda key: statistics.median(e[key] for e in entries)
        rows.append([method, f"{100 * median('target_wait_share'):.0f} %",
                     f"{100 * median('draft_wait_share'):.0f} %"])
    return table(["method", "target waits", "draft waits"], rows)


def predicted_table(run):
    rows = []
    for entry in run["methods"]:
        predicted = entry.get("predicted")
        if predicted:
            rows.append([f"`{entry['name']}`",
                         f"{entry['tokens_per_second']:.1f}",
                         f"{predicted['tokens_per_second']:.1f}",
                         f"{100 * predicted['of_predicted']:.0f} %"])
    return table(["entry", "tokens/s", "predicted", "of predicted"], rows)


def apart_table(out):
    rows = []
    for pair in PAIRS:
        for name, title in PROMPT_FILES:
            run = load(out / f"{pair}-{name}.json")
            apart = load(out / f"{pair}-{name}-apart.json")
            if run is None or apart is None:
                continue
            measured = by_method(run)["constant"]
            simulated = {entry["method"]: entry for entry in apart["methods"]}
            cells = [f"{cost_ratio(run):.1f}", title]
            for method in METHODS:
                cells += [ratio(measured[method]),
                          f"{simulated[method]['speedup']:.2f}"]
            rows.append(cells)
    head = ["c", "prompts"]
    for method in METHODS:
        head += [f"{method}, measured", f"{method}, apart"]
    return table(head, rows)


def runs_table(out):
    """How long the drafts are that are right: runs of matches."""
    rows = []
    for name, title in PROMPT_FILES:
        path = out / f"c5-{name}-matches.jsonl"
        if not path.exists():
            continue
        runs = []
        for line in path.read_text().splitlines():
            run = 0
            for match in json.loads(line)["matches"]:
                if match:
                    run += 1
                else:
                    runs.append(run)
                    run = 0
        share = lambda low, high: (
            f"{100 * sum(low <= r <= high for r in runs) / len(runs):.0f} %")
        rows.append([title, str(len(runs)), share(0, 0), share(1, 1),
                     share(2, 3), share(4, 7), share(8, 10 ** 6),
                     f"{statistics.mean(runs):.1f}"])
    return table(["prompts", "runs", "0", "1", "2 to 3", "4 to 7",
                  "8 and more", "mean"], rows)


def ratio_tables(out):
    rows = []
    for temperature in TEMPERATURES:
        run = load(out / f"ratio-{temperature}.json")
        if run is None:
            continue
        for entry in run["methods"]:
            if entry["method"] == "ar":
                continue
            rows.append([temperature, f"`{entry['name']}`",
                         f"{100 * entry['acceptance_rate']:.1f} %",
                         f"{entry['mean_accepted_length']:.2f}",
                         ratio(entry)])
    return table(["temperature", "method", "accepted", "tokens a round",
                  "speed-up"], rows)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = pathlib.Path(sys.argv[1])
    for pair in PAIRS:
        for name, title in PROMPT_FILES:
            run = load(out / f"{pair}-{name}.json")
            if run is None:
                continue
            print(f"### c = {cost_ratio(run):.1f}, {title}\n")
            print(f"Repetitions of an entry differ by {100 * spread(run):.0f} % "
                  f"(median); all tokens identical: "
                  f"{'yes' if run['identical_tokens'] else 'NO'}.\n")
            print(policy_table(run) + "\n")
            print(waiting_table(run) + "\n")
            print(predicted_table(run) + "\n")
    print("### Apart\n\n" + apart_table(out) + "\n")
    print("### Right tokens in a row\n\n" + runs_table(out) + "\n")
    print("### Exact match and ratio test\n")
    print(ratio_tables(out))


if __name__ == "__main__":
    main()
