#!/usr/bin/env python3
"""Markdown tables of the runs that scripts/draft_report.sh left in a folder.

  scripts/draft_report_tables.py OUT

Every number is of the JSON files there; nothing is measured here. What was not
run has no row.
"""

import pathlib
import statistics
import sys

from pearl_report_tables import PROMPT_FILES, load, show, table

DRAFTS = (("draft", "bundled"), ("distilled", "distilled"))
TEMPERATURES = ("0", "0.8", "1")
RATIOS = (5, 10, 20)
BEST = (("0", 10), ("0.8", 5), ("1", 5))
METHODS = ("sd", "pearl", "async@chain", "async@best")


def entries(run):
    return {entry["name"].split(":")[0]: entry for entry in run["methods"]}


def rank_table(out):
    rows = []
    for temperature in TEMPERATURES:
        for name, title in DRAFTS:
            run = load(out / f"ranks-{temperature}-{name}.json")
            if run is None:
                continue
            ranks = run["methods"][0]["ranks"]
            rows.append([title, temperature, str(sum(ranks))]
                        + [f"{100 * sum(ranks[:k]) / sum(ranks):.1f} %"
                           for k in (1, 2, 4, 8)])
    return table(["draft", "T", "positions", "rank 1", "<= 2", "<= 4", "<= 8"], rows)


def best_table(out):
    rows = []
    for temperature, ratio in BEST:
        medians = []
        for name, _ in DRAFTS:
            runs = [load(out / f"best-{temperature}-{ratio}-{name}-{turn}.json")
                    for turn in (1, 2, 3)]
            if None in runs:
                break
            medians.append([statistics.median(run["methods"][0][key] for run in runs)
                            for key in ("tokens_per_second", "mean_accepted_length")])
        else:
            (before, length), (after, longer) = medians
            rows.append([temperature, str(ratio), f"{before:.1f}", f"{after:.1f}",
                         f"{after / before:.3f}", show(length), show(longer)])
    return table(["T", "c", "bundled, tokens/s", "distilled, tokens/s", "ratio",
                  "bundled, tokens a step", "distilled, tokens a step"], rows)


def method_rows(out):
    """(file, temperature, ratio, draft, entries by name) of each cell that ran."""
    for name, title in PROMPT_FILES:
        for temperature in TEMPERATURES:
            for ratio in RATIOS:
                for draft, draft_title in DRAFTS:
                    run = load(out / f"{draft}-{temperature}-{ratio}-{name}.json")
                    if run is not None:
                        yield ([title, temperature, str(ratio), draft_title],
                               entries(run))


def speed_table(out):
    rows = []
    for head, cell in method_rows(out):
        base = cell["ar"]["tokens_per_second"]
        rows.append(head + [f"{100 * cell['async@chain']['alpha']:.0f} %"]
                    + [f"{cell[name]['tokens_per_second'] / base:.2f}"
                       for name in METHODS])
    return table(["prompts", "T", "c", "draft", "alpha"]
                 + [f"`{name}`" for name in METHODS], rows)


def length_table(out):
    return table(["prompts", "T", "c", "draft"] + [f"`{name}`" for name in METHODS],
                 [head + [show(cell[name]["mean_accepted_length"])
                          for name in METHODS] for head, cell in method_rows(out)])


def suffix_table(out):
    rows = []
    for name, title in PROMPT_FILES:
        for temperature in TEMPERATURES:
            run = load(out / f"suffixes-{temperature}-{name}.json")
            if run is None:
                continue
            base, ours = run["methods"]
            rows.append([title, temperature,
                         f"{ours['suffix_accepted']} of {ours['suffix_proposed']}",
                         show(ours["mean_accepted_length"]),
                         show(ours["tokens_per_second"] / base["tokens_per_second"])])
    return table(["prompts", "T", "right rows", "tokens a step", "over `ar`"], rows)


def pace(runs):
    """How near paced ar comes to its device."""
    shares = [entries(run)["ar"]["tokens_per_second"] * 0.03 for run in runs]
    return (f"`ar` has {100 * min(shares):.0f} to {100 * max(shares):.0f} % of one "
            f"token every 30 ms, median {100 * statistics.median(shares):.0f} %.")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = pathlib.Path(sys.argv[1])
    runs = [load(path) for path in sorted(out.glob("*.json"))]
    if not runs:
        sys.exit(f"{out} has no run of scripts/draft_report.sh")
    # A run of one method has nothing to compare.
    several = [run for run in runs if len(run["methods"]) > 1]
    if not several:
        sys.exit(f"{out} has no run of several methods yet")
    same = all(run["identical_tokens"] for run in several)
    print(f"{len(runs)} runs, {len(several)} of several methods; all tokens of these "
          f"identical: {'yes' if same else 'NO'}. {pace(several)}\n")
    for title, make in (("Where the target's token stands", rank_table),
                        ("`best` trees, drafts by turns", best_table),
                        ("Speed over `ar`", speed_table),
                        ("Tokens a step", length_table),
                        ("Suffixes alone", suffix_table)):
        print(f"### {title}\n\n{make(out)}\n")


if __name__ == "__main__":
    main()
