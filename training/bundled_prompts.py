#!/usr/bin/env python3
"""Writes the prompts that the drafts of the bundled target are trained on.

    bundled_prompts.py --gsm8k train.jsonl --out DIR

`train.jsonl` is the training split of GSM8K (openai/grade-school-math), as
published (`question`, `answer`) or as one `text` a line. Code comes from the
standard library of the Python that runs this. Writes into DIR:

  train.jsonl      questions and function heads to continue, and as many whole
                   documents as half of the continuations at three temperatures
  held_out.jsonl   other questions of the training split, to stop by. The test
                   prompts of tests/data are in neither
"""

import argparse
import ast
import json
import pathlib
import random
import sysconfig

HELD_OUT = 100


def questions(path):
    """(prompt, whole document) of each line."""
    for line in path.open(encoding="utf-8"):
        fields = json.loads(line)
        text = fields.get("text") or (
            f"Question: {fields['question']}\nAnswer: {fields['answer']}\n")
        question, mark, _ = text.partition("\nAnswer:")
        yield question + mark, text


def functions():
    """(head with the documentation, whole source) of documented functions."""
    library = pathlib.Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(library.glob("*.py")):
        source = path.read_text(encoding="utf-8", errors="replace")
        lines = source.splitlines(keepends=True)
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.FunctionDef) or not ast.get_docstring(node):
                continue
            if len(node.body) < 2 or node.col_offset != 0:
                continue
            head = "".join(lines[node.lineno - 1:node.body[0].end_lineno])
            whole = "".join(lines[node.lineno - 1:node.end_lineno])
            if len(whole) < 4000:
                yield head, whole


def write(path, lines):
    with open(path, "w", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    print(f"{path}: {len(lines)} lines")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gsm8k", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()

    order = random.Random(1)
    math = list(questions(arguments.gsm8k))
    order.shuffle(math)
    held_out, math = math[:HELD_OUT], math[HELD_OUT:]
    code = list(functions())
    pairs = [("math", i, pair) for i, pair in enumerate(math)]
    pairs += [("code", i, pair) for i, pair in enumerate(code)]
    train = [{"id": f"{kind}-{i}", "prompt": prompt} for kind, i, (prompt, _) in pairs]
    train += [{"id": f"{kind}-{i}-text", "text": text} for kind, i, (_, text) in pairs]
    order.shuffle(train)
    arguments.out.mkdir(parents=True, exist_ok=True)
    write(arguments.out / "train.jsonl", train)
    write(arguments.out / "held_out.jsonl",
          [{"id": f"held-out-{i}", "prompt": prompt}
           for i, (prompt, _) in enumerate(held_out)])


if __name__ == "__main__":
    main()
