#!/usr/bin/env python3
"""Markdown tables of the runs that scripts/pearl_report.sh left in a folder.

  scripts/pearl_report_tables.py OUT

Every number is of the JSON files there; nothing is measured here.
"""

import json
import pathlib
import statistics
import sys

RATIOS = (4, 6, 8, 10)
PAIRS = (("bundled", "bundled draft"), ("int4", "int4 draft"))
PROMPT_FILES = (("gsm8k_100", "GSM8K"), ("humaneval", "HumanEval"))


def load(path):
    return json.loads(path.read_text()) if path.exists() else None


def cells(out):
    """(pair, ratio, prompts, {name: entry}), policies included, as far as run."""
    for pair, pair_title in PAIRS:
        for name, title in PROMPT_FILES:
            for ratio in RATIOS:
                run = load(out / f"{pair}-{ratio}-{name}.json")
                if run is None:
                    continue
                entries = {entry["name"]: entry for entry in run["methods"]}
                more = load(out / f"{pair}-{ratio}-{name}-policies.json")
                for entry in more["methods"] if more else []:
                    entries[entry["name"]] = entry
                same = run["identical_tokens"] and (
                    more is None or more["identical_tokens"])
                yield pair_title, ratio, title, entries, same


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def speedup(entries, name):
    """Over ar of the cell: policies ran after it, on the same prompts."""
    if name not in entries:
        return None
    return (entries[name]["tokens_per_second"]
            / entries["ar"]["tokens_per_second"])


def show(value):
    return "-" if value is None else f"{value:.2f}"


def rows_of(out, names, first=lambda entries, ratio: []):
    rows = []
    for pair, ratio, title, entries, _ in cells(out):
        rows.append([pair, title, str(ratio), *first(entries, ratio)]
                    + [show(speedup(entries, name.format(c=ratio)))
                       for name in names])
    return rows


def main_table(out):
    accepted = lambda entries, ratio: [
        f"{100 * entries[f'pearl:{ratio}']['acceptance_rate']:.0f} %"]
    head = ["draft", "prompts", "c", "accepted", "`sd`", "`pearl`",
            "`pearl` / `sd`", "`async`, chain", "`async`"]
    rows = rows_of(out, ("sd", "pearl:{c}", "async@chain", "async@best"),
                   accepted)
    for row in rows:
        row.insert(6, f"{float(row[5]) / float(row[4]):.2f}")
    return table(head, rows)


def ablation_table(out):
    rows = rows_of(out, ("pearl-no-pre-verify:{c}", "pearl-no-post-verify:{c}",
                         "pearl:{c}"))
    return table(["draft", "prompts", "c", "without pre-verify",
                  "without post-verify", "both"], rows)


def window_table(out):
    rows = []
    for pair, ratio, title, entries, _ in cells(out):
        speeds = {step: entries[f"pearl:{ratio + step}"]["tokens_per_second"]
                  for step in (-2, -1, 0, 1, 2)}
        best = max(speeds.values())
        rows.append([pair, title, str(ratio)]
                    + [f"**{speed:.1f}**" if speed == best else f"{speed:.1f}"
                       for speed in speeds.values()])
    return table(["draft", "prompts", "c", "c - 2", "c - 1", "c", "c + 1",
                  "c + 2"], rows)


def waiting_table(out):
    rows = []
    names = ("sd", "pearl:{c}", "async@best")
    for pair, ratio, title, entries, _ in cells(out):
        row = [pair, title, str(ratio)]
        for name in names:
            entry = entries[name.format(c=ratio)]
            row.append(f"{100 * entry['target_wait_share']:.0f} / "
                       f"{100 * entry['draft_wait_share']:.0f}")
        row.append(f"{entries[f'pearl:{ratio}']['mean_accepted_length']:.2f}")
        rows.append(row)
    return table(["draft", "prompts", "c", "`sd`", "`pearl`", "`async`",
                  "tokens a step, `pearl`"], rows)


def policy_table(out):
    names = ("sd:5", "sd/heuristic", "sd/svip:h=0.3", "pearl:{c}",
             "pearl:{c}/heuristic", "pearl:{c}/svip:h=0.3")
    return table(["draft", "prompts", "c", "`sd`, 5", "`sd`, heuristic",
                  "`sd`, SVIP", "`pearl`", "`pearl`, heuristic",
                  "`pearl`, SVIP"], rows_of(out, names))


def pace(out):
    """How near paced ar comes to its device, and repetitions to each other."""
    shares, spreads = [], []
    for _, _, _, entries, _ in cells(out):
        shares.append(entries["ar"]["tokens_per_second"] * 0.03)
        for entry in entries.values():
            repeats = entry["tokens_per_second_repeats"]
            spreads.append((max(repeats) - min(repeats))
                           / entry["tokens_per_second"])
    text = (f"`ar` has {100 * min(shares):.1f} to {100 * max(shares):.1f} % of "
            "one token every 30 ms, prompts included")
    if any(spreads):
        text += ("; repetitions differ by "
                 f"{100 * statistics.median(spreads):.1f} % (median)")
    return text + "."


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = pathlib.Path(sys.argv[1])
    same = [identical for *_, identical in cells(out)]
    if not same:
        sys.exit(f"{out} has no run of scripts/pearl_report.sh")
    print(f"{len(same)} cells; all tokens identical: "
          f"{'yes' if all(same) else 'NO'}. {pace(out)}\n")
    for title, make in (("Main table", main_table),
                        ("Ablations", ablation_table),
                        ("The window, tokens/s", window_table),
                        ("Waiting, target / draft, %", waiting_table),
                        ("SVIP", policy_table)):
        print(f"### {title}\n\n{make(out)}\n")


if __name__ == "__main__":
    main()
