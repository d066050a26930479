#!/usr/bin/env python3
"""Makes greedy.json with Hugging Face transformers in float32.

What the bundled models say at temperature 0: for each, the 40 tokens that
continue each of the first 20 prompts of gsm8k_100.jsonl, beyond any
end-of-sequence. Run from the repository root, with torch, transformers and
sentencepiece installed:

    python3 tests/data/model/make_greedy.py
"""

import json
import pathlib

import sentencepiece
import torch
from transformers import LlamaForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
MODELS = HERE.parents[2] / "models"
PROMPTS = 20
TOKENS = 40


@torch.no_grad()
def continue_greedily(model, token_ids):
    fed, cache, output = token_ids, None, []
    for _ in range(TOKENS):
        step = model(torch.tensor([fed]), past_key_values=cache)
        cache = step.past_key_values
        output.append(int(step.logits[0, -1].argmax()))
        fed = output[-1:]
    return output


def main():
    torch.set_num_threads(1)
    lines = (HERE.parent / "gsm8k_100.jsonl").read_text().splitlines()
    prompts = [json.loads(line)["prompt"] for line in lines[:PROMPTS]]
    greedy = {}
    for name in ("target", "draft"):
        model = LlamaForCausalLM.from_pretrained(
            MODELS / name, dtype=torch.float32
        ).eval()
        pieces = sentencepiece.SentencePieceProcessor(
            str(MODELS / name / "tokenizer.model")
        )
        greedy[name] = [
            continue_greedily(model, [1] + pieces.encode(text))
            for text in prompts
        ]
    (HERE / "greedy.json").write_text(json.dumps(greedy) + "\n")


if __name__ == "__main__":
    main()
