#!/usr/bin/env python3
"""Makes goldens of Medusa heads, one of each kind of file, with PyTorch.

Run from the repository root, with torch and safetensors installed:

    python3 tests/data/model/make_medusa_goldens.py

Writes medusa/KIND/ next to itself: the heads with the file names, tensor names
and config.json of their kind, random and tiny, and golden.json: the target's
vocabulary, hidden states, and the logits of each head for each of these (null:
the head never says the token). The modules are those of the paper
(arXiv:2401.10774): a block is SiLU(W x + b) + x.
"""

import json
import pathlib
import shutil

import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent
HIDDEN = 20
VOCAB = 33
ROWS = 3


class Block(torch.nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.linear = torch.nn.Linear(HIDDEN, HIDDEN, bias=bias)

    def forward(self, x):
        return torch.nn.functional.silu(self.linear(x)) + x


class Heads(torch.nn.Module):
    """`vocabularies`: rows of each head's own one, of one for all, or of none
    but the target's, by its length: heads, 1 or 0."""

    def __init__(self, count, blocks, bias, vocabularies):
        super().__init__()
        self.blocks = torch.nn.ModuleList(
            torch.nn.ModuleList(Block(bias) for _ in range(blocks))
            for _ in range(count))
        self.vocabularies = torch.nn.ModuleList(
            torch.nn.Linear(HIDDEN, rows, bias=False) for rows in vocabularies)

    def forward(self, x, target):
        for k, blocks in enumerate(self.blocks):
            z = x
            for block in blocks:
                z = block(z)
            if len(self.vocabularies) == 0:
                yield z @ target.T
            elif len(self.vocabularies) == 1:
                yield self.vocabularies[0](z)
            else:
                yield self.vocabularies[k](z)


def named(heads, block, vocabulary, prefix=""):
    """The tensors under the names of a kind: `block` of (k, j), `vocabulary` of
    k."""
    tensors = {}
    for k, blocks in enumerate(heads.blocks):
        for j, each in enumerate(blocks):
            for part, value in each.linear.named_parameters():
                tensors[f"{prefix}{block(k, j)}.{part}"] = value
    for k, each in enumerate(heads.vocabularies):
        tensors[f"{prefix}{vocabulary(k)}.weight"] = each.weight
    return {name: value.detach().contiguous() for name, value in tensors.items()}


def medusa(heads):
    return named(heads, lambda k, j: f"{k}.{j}.linear",
                 lambda k: f"{k}.{len(heads.blocks[0])}")


def vllm(heads, prefix=""):
    return named(heads, lambda k, j: f"blocks.{k}.layers.{j}",
                 lambda k: f"lm_heads.{k}", prefix)


def modelopt(heads):
    return named(heads,
                 lambda k, j: f"parallel_draft_heads.{k}.medusa_layers.{j}.linear",
                 lambda k: "parallel_draft_heads.lm_head")


def write(kind, heads, tensors, config, file_name, token_map=None):
    folder = HERE / "medusa" / kind
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    save_file(tensors, folder / file_name)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n",
                                        encoding="utf-8")
    target = torch.randn(VOCAB, HIDDEN) / HIDDEN ** 0.5
    hidden = torch.randn(ROWS, HIDDEN)
    said = []
    with torch.no_grad():
        for logits in heads(hidden, target):
            logits = logits * config.get("logit_scale", 1.0)
            if token_map is not None:
                rows = torch.full((ROWS, VOCAB), float("-inf"))
                rows[:, token_map] = logits
                logits = rows
            said.append([[None if x == float("-inf") else round(x, 6)
                          for x in row] for row in logits.tolist()])
    golden = {"target": [[round(x, 6) for x in row] for row in target.tolist()],
              "hidden": [[round(x, 6) for x in row] for row in hidden.tolist()],
              "logits": said}
    (folder / "golden.json").write_text(json.dumps(golden) + "\n",
                                        encoding="utf-8")


def rounded(heads, dtype):
    """To the type of the file and back: what is read is what was run."""
    for value in heads.parameters():
        value.data = (1.5 * torch.randn(value.shape) /
                      value.shape[-1] ** 0.5).to(dtype).float()
    return heads


def main():
    torch.manual_seed(3)
    f32, f16, bf16 = torch.float32, torch.float16, torch.bfloat16
    file_name = "medusa_lm_head.safetensors"

    # The config of version 1 says 2 heads whatever the file has.
    heads = rounded(Heads(3, 1, True, [VOCAB] * 3), f32)
    write("medusa_v1", heads, medusa(heads),
          {"medusa_num_heads": 2, "medusa_num_layers": 1,
           "base_model_name_or_path": "target"}, file_name)

    heads = rounded(Heads(4, 1, True, []), f16)
    write("medusa_v2", heads,
          {name: value.to(f16) for name, value in medusa(heads).items()},
          {"medusa_num_heads": 4, "medusa_num_layers": 1, "version": "2"},
          file_name)

    token_map = torch.randperm(VOCAB)[:12]
    heads = rounded(Heads(3, 2, False, [12] * 3), f32)
    write("vllm_own", heads, {**vllm(heads), "token_map": token_map},
          {"architectures": ["MedusaModel"], "hidden_size": HIDDEN,
           "vocab_size": VOCAB, "truncated_vocab_size": 12, "num_heads": 3,
           "num_hidden_layers": 2, "medusa_fc_bias": False,
           "original_lm_head": False}, "model.safetensors", token_map)

    heads = rounded(Heads(2, 1, True, [VOCAB]), f32)
    write("vllm_shared", heads, vllm(heads, "medusa_heads."),
          {"architectures": ["MedusaModel"], "hidden_size": HIDDEN,
           "vocab_size": VOCAB, "truncated_vocab_size": VOCAB, "num_heads": 2,
           "num_hidden_layers": 1, "medusa_fc_bias": True,
           "original_lm_head": True, "logit_scale": 0.5}, "model.safetensors")

    heads = rounded(Heads(3, 1, True, [VOCAB]), bf16)
    write("modelopt", heads,
          {name: value.to(bf16) for name, value in modelopt(heads).items()},
          {"parallel_draft_step": 4, "parallel_draft_heads_num_layers": 1},
          "model.safetensors")


if __name__ == "__main__":
    main()
