#!/usr/bin/env python3
"""Markdown tables of the runs that scripts/draft_report.sh left in a folder.

  scripts/draft_report_tables.py OUT
  scripts/draft_report_tables.py --cost FOLDER MS    what a step of a draft takes
      where one of models/draft takes MS, by the weights that each reads

Every number is of the JSON files there; nothing is measured here. What was not
run has no row.
"""

import json
import math
import pathlib
import statistics
import sys

from pearl_report_tables import PROMPT_FILES, load, show, table

DRAFTS = (("draft", "bundled"), ("distilled", "distilled"), ("eesd", "EESD"),
          ("glide", "GliDe"), ("eagle", "EAGLE-3"),
          ("own_eagle", "EAGLE-3, at the target"), ("medusa", "Medusa, at the target"))
TEMPERATURES = ("0", "0.8", "1")
RATIOS = (5, 10, 20)
BEST = (("0", 10), ("0.8", 5), ("1", 5))
METHODS = ("sd", "pearl", "async")
SHAPES = ("chain", "best", "cape", "eagle2", "static")
MODELS = pathlib.Path(__file__).resolve().parent.parent / "models"


def tensors(folder):
    """Parameters of each tensor."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        sys.exit(f"{folder} has no .safetensors")
    sizes = {}
    for path in files:
        with open(path, "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        for name, tensor in header.items():
            if name != "__metadata__":
                sizes[name] = math.prod(tensor["shape"])
    return sizes


def read_for_a_token(folder):
    """Parameters that a draft reads for a token: all but an embedding, of which it
    reads one row; where it has no head of its own, the head that it borrows."""
    sizes = tensors(folder)
    embedding = sum(size for name, size in sizes.items() if "embed_tokens" in name)
    total = sum(sizes.values()) - embedding
    if any("lm_head" in name for name in sizes):
        return total
    if embedding:
        return total + embedding  # tied
    return total + tensors(MODELS / "target")["model.embed_tokens.weight"]


def folder_of(name):
    return MODELS / name.removeprefix("own_")


def cost(folder):
    """Of a step, in steps of models/draft."""
    return read_for_a_token(folder) / read_for_a_token(MODELS / "draft")


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
        before = None
        for name, title in DRAFTS:
            runs = [load(out / f"best-{temperature}-{ratio}-{name}-{turn}.json")
                    for turn in (1, 2, 3)]
            if None in runs:
                continue
            speed, length = (
                statistics.median(run["methods"][0][key] for run in runs)
                for key in ("tokens_per_second", "mean_accepted_length"))
            before = before or speed
            rows.append([temperature, str(ratio), title,
                         f"{30 / ratio * cost(folder_of(name)):.1f}", f"{speed:.1f}",
                         f"{speed / before:.3f}", show(length)])
    return table(["T", "c", "draft", "its step, ms", "tokens/s", "over bundled",
                  "tokens a step"], rows)


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


def plain_rows(out):
    for name, title in PROMPT_FILES:
        for temperature in TEMPERATURES:
            for draft, draft_title in DRAFTS:
                run = load(out / f"plain-{draft}-{temperature}-{name}.json")
                if run is not None:
                    yield [title, temperature, draft_title], entries(run)


def in_shape(cell, method, shape, with_length):
    """Over `ar`, in parentheses tokens a step. A draft on the target itself has no
    `sd`, no `pearl` and no shape of a request."""
    entry = cell.get(f"{method}@{shape}")
    if entry is None:
        return "-"
    speed = show(entry["tokens_per_second"] / cell["ar"]["tokens_per_second"])
    return f"{speed} ({show(entry['mean_accepted_length'])})" if with_length else speed


def speed_table(out, method):
    return table(["prompts", "T", "c", "draft"] + [f"`{shape}`" for shape in SHAPES],
                 [head + [in_shape(cell, method, shape, True) for shape in SHAPES]
                  for head, cell in method_rows(out)
                  if f"{method}@chain" in cell])


def plain_table(out):
    names = [(method, shape) for method in METHODS for shape in SHAPES
             if shape in ("chain", "best")]
    return table(["prompts", "T", "draft", "`ar`, tokens/s"]
                 + [f"`{method}@{shape}`" for method, shape in names],
                 [head + [f"{cell['ar']['tokens_per_second']:.0f}"]
                  + [in_shape(cell, method, shape, False) for method, shape in names]
                  for head, cell in plain_rows(out)])


def gain_table(out):
    """Of each shape over the chain of its method: the median of all cells."""
    rows = []
    for method in METHODS:
        for temperature in TEMPERATURES:
            gains = []
            for shape in SHAPES[1:]:
                ratios = [cell[f"{method}@{shape}"]["tokens_per_second"]
                          / cell[f"{method}@chain"]["tokens_per_second"]
                          for head, cell in method_rows(out)
                          if head[1] == temperature and f"{method}@{shape}" in cell
                          and "at the target" not in head[3]]
                gains.append(f"{show(statistics.median(ratios))} "
                             f"({show(min(ratios))} to {show(max(ratios))})"
                             if ratios else "-")
            rows.append([f"`{method}`", temperature] + gains)
    return table(["method", "T"] + [f"`{shape}`" for shape in SHAPES[1:]], rows)


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
    runs = [run for run in runs if "target_step_time" in run]
    if not runs:
        return ""
    shares = [entries(run)["ar"]["tokens_per_second"] * 0.03 for run in runs]
    return (f"`ar` has {100 * min(shares):.0f} to {100 * max(shares):.0f} % of one "
            f"token every 30 ms, median {100 * statistics.median(shares):.0f} %.")


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "--cost":
        folder = pathlib.Path(sys.argv[2])
        print(f"{float(sys.argv[3]) * (cost(folder) if folder.is_dir() else 1):.4f}")
        return
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
                        *((f"Speed over `ar` of `{method}`",
                           lambda out, method=method: speed_table(out, method))
                          for method in METHODS),
                        ("Shapes over the chain of their method", gain_table),
                        ("On this machine, not paced", plain_table),
                        ("Suffixes alone", suffix_table)):
        print(f"### {title}\n\n{make(out)}\n")


if __name__ == "__main__":
    main()
