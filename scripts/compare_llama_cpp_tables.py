#!/usr/bin/env python3
"""Markdown tables of what scripts/compare_llama_cpp.sh left in a folder.

  scripts/compare_llama_cpp_tables.py RESULTS

They go to RESULTS/table.json, too. Every number is of the files there; what was
not run has no row. Two more calls are the script's own:

  ... --prompts FOLDER FILE N     the first N prompts of FILE, each as a text file
  ... --prompt-tokens FOLDER      their mean length, from the first run of Nacre
"""

import json
import pathlib
import re
import statistics
import sys

from pearl_report_tables import load, table

AIM, PROMPT_AIM, END_TO_END_AIM = 1.15, 1.2, 1.4
SHAPES, WEIGHTS = ("110m", "1.1b"), ("bf16", "bf16a16", "int8", "int4", "q8_0", "q4_0")
# What a cell's folder has as Nacre's.
CELL_OF = {"bf16a16": "bf16"}
PROMPT = "prompt"


def seconds_of(path):
    """{rows or PROMPT: seconds of a step}"""
    run = load(path)
    seconds = {step["rows"]: step["seconds"] for step in run["steps"]}
    return {**seconds, PROMPT: run["prompt"]["seconds"]}


def turns(out, side):
    """{turn: path}"""
    return {int(path.name.split("-")[0]): path
            for path in out.glob(f"*-{side}.json")}


def step_cells(results):
    """A row for each shape, type of weights and number of threads that ran."""
    for shape in SHAPES:
        for weights in WEIGHTS:
            for threads in (1, 2):
                out = results / f"{shape}-{CELL_OF.get(weights, weights)}-{threads}"
                theirs = turns(out, "llama.cpp")
                ours = turns(out, weights)
                both = sorted(ours.keys() & theirs.keys())
                if both:
                    pairs = [(seconds_of(ours[turn]), seconds_of(theirs[turn]))
                             for turn in both]
                    yield step_cell(shape, weights, threads, pairs)


def step_cell(shape, weights, threads, pairs):
    cell = {"shape": shape, "weights": weights, "threads": threads,
            "turns": len(pairs), "steps": {}}
    for key in pairs[0][0]:
        ratios = [theirs[key] / ours[key] for ours, theirs in pairs]
        cell["steps"][str(key)] = {
            "nacre_ms": 1e3 * statistics.median(ours[key] for ours, _ in pairs),
            "llama_cpp_ms":
                1e3 * statistics.median(theirs[key] for _, theirs in pairs),
            "ratio": statistics.median(ratios), "ratios": ratios}
    return cell


def name(cell):
    return [cell["shape"].upper(), cell["weights"], str(cell["threads"])]


def milliseconds(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def ratio_table(cells):
    keys = list(cells[0]["steps"])
    rows = [name(cell) + [
        f"**{step['ratio']:.2f}** ({milliseconds(step['nacre_ms'])}, "
        f"{milliseconds(step['llama_cpp_ms'])})" for step in cell["steps"].values()]
        for cell in cells]
    heads = ["prompt of 512" if key == PROMPT else f"{key} rows".replace("1 rows",
             "1 row") if key in ("1", "16") else key for key in keys]
    return table(["shape", "weights", "threads"] + heads, rows)


def growth_table(cells):
    keys = [key for key in cells[0]["steps"] if key not in ("1", PROMPT)]

    def growth(cell, side, key):
        return f"{cell['steps'][key][side] / cell['steps']['1'][side]:.2f}"
    rows = [name(cell) + [
        f"{growth(cell, 'nacre_ms', key)}, {growth(cell, 'llama_cpp_ms', key)}"
        for key in keys] for cell in cells]
    return table(["shape", "weights", "threads"] + [f"{key} rows" for key in keys],
                 rows)


def behind(cells):
    below = {"1.00": [], "the aim": []}
    for cell in cells:
        for key, step in cell["steps"].items():
            aim = PROMPT_AIM if key == PROMPT else AIM
            label = " ".join(name(cell)) + f" {key}: {step['ratio']:.2f}"
            if step["ratio"] < 1:
                below["1.00"].append(label)
            elif step["ratio"] < aim:
                below["the aim"].append(label)
    count = sum(len(cell["steps"]) for cell in cells)
    return "\n".join(
        f"Below {what}: {len(names)} of {count}. {'; '.join(names)}".rstrip()
        for what, names in below.items())


def speculative(path):
    """(tokens a second, share of drafted tokens that were accepted)"""
    log = path.read_text()

    def total(pattern):
        found = re.findall(pattern, log)
        if not found:
            sys.exit(f"{path} does not say {pattern}")
        return sum(map(float, found))
    seconds = total(r"(?:en|de)coded +\d+ tokens in +([\d.]+) seconds")
    return (total(r"decoded +(\d+) tokens in") / seconds,
            total(r"n_accept += (\d+)") / total(r"n_drafted += (\d+)"))


def end_to_end(out):
    """{side: {turn: (tokens a second, prompts included; share accepted)}}"""
    sides = {}

    def add(side, turn, value, accepted=None):
        sides.setdefault(side, {})[turn] = (value, accepted)
    for turn, path in sorted(turns(out, "nacre").items()):
        for method in load(path)["methods"]:
            share = method["acceptance_rate"] if method["name"] != "ar" else None
            add(f"Nacre `{method['name'].split(':')[0]}`", turn,
                method["tokens_per_second"], share)
    for turn, path in sorted(turns(out, "nacre-ar").items()):
        add("Nacre `ar`, both cores to the target", turn,
            load(path)["methods"][0]["tokens_per_second"])
    for turn, path in sorted(turns(out, "plain").items()):
        for run in load(path):
            add(f"`llama-bench`, threads: {run['n_threads']}", turn,
                run["n_gen"] / statistics.mean(run["samples_ns"]) * 1e9)
    for path in sorted(out.glob("*-speculative-*.txt")):
        turn, _, drafted = path.stem.split("-")
        add(f"`llama-speculative-simple`, drafts of {drafted}", int(turn),
            *speculative(path))
    return sides


def median_of(column, of):
    values = [pair[column] for pair in of.values()]
    return None if None in values else statistics.median(values)


def end_to_end_ratio(sides):
    """Nacre's default over the fastest of llama.cpp's, by turns."""
    ours = sides.get("Nacre `async`", {})
    theirs = [of for side, of in sides.items() if side.startswith("`llama-")]
    ratios = [ours[turn][0] / max(of[turn][0] for of in theirs) for turn in ours
              if theirs and all(turn in of for of in theirs)]
    return statistics.median(ratios) if ratios else None


def end_to_end_table(sides):
    def share(of):
        value = median_of(1, of)
        return "-" if value is None else f"{100 * value:.0f} %"
    return table(["", "tokens/s", "accepted"],
                 [[side, f"{median_of(0, of):.1f}", share(of)]
                  for side, of in sides.items()])


def report(results):
    cells = list(step_cells(results))
    sides = end_to_end(results / "end-to-end")
    if not cells and not sides:
        sys.exit(f"{results} has no run of scripts/compare_llama_cpp.sh")
    found = {"steps": cells, "end_to_end": {
        "tokens_per_second": {side: median_of(0, of) for side, of in sides.items()},
        "ratio": end_to_end_ratio(sides)}}
    (results / "table.json").write_text(json.dumps(found, indent=1) + "\n")
    if cells:
        print(f"Time of llama.cpp over Nacre's (milliseconds of Nacre, of "
              f"llama.cpp)\n\n{ratio_table(cells)}\n\n{behind(cells)}\n\n"
              f"Time over that of one row (Nacre, llama.cpp)\n\n"
              f"{growth_table(cells)}\n")
    if sides:
        print(f"Whole answers, prompts included\n\n{end_to_end_table(sides)}")
    if found["end_to_end"]["ratio"] is not None:
        print(f"\nNacre's default over the faster of llama.cpp: "
              f"{found['end_to_end']['ratio']:.2f} (aim: {END_TO_END_AIM})")


def write_prompts(out, path, count):
    lines = pathlib.Path(path).read_text().splitlines()[:int(count)]
    for number, line in enumerate(lines, 1):
        (out / f"prompt-{number}.txt").write_text(json.loads(line)["prompt"])


def write_prompt_tokens(out):
    requests = load(out / "1-nacre.json")["requests"]
    mean = statistics.mean(each["prompt_tokens"] for each in requests)
    (out / "prompt-tokens.txt").write_text(f"{round(mean)}\n")


def main():
    arguments = sys.argv[1:]
    if len(arguments) == 4 and arguments[0] == "--prompts":
        write_prompts(pathlib.Path(arguments[1]), *arguments[2:])
    elif len(arguments) == 2 and arguments[0] == "--prompt-tokens":
        write_prompt_tokens(pathlib.Path(arguments[1]))
    elif len(arguments) == 1 and not arguments[0].startswith("-"):
        report(pathlib.Path(arguments[0]))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
