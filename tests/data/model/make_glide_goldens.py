#!/usr/bin/env python3
"""Makes goldens of GliDe drafts with PyTorch.

Run from the repository root, with torch, transformers and safetensors
installed, after make_eagle_goldens.py, whose target they are drafts of:

    python3 tests/data/model/make_glide_goldens.py

Writes glide/KIND/: a tiny random draft as published, config.json and
model.safetensors, and golden.json:

  prompt  token ids
  cases   for each number of the target's positions that are there ("target"):
    first   the token of the prompt that the draft is fed first: it has seen
            none before, the target has
    rows    logits of the draft for each token of the prompt from there on, each
            of which sees the target's positions before its own that are there
    fed     the tokens that it is then fed, each the likeliest behind the last
    steps   logits for each of those, which see no more of the target

The module is that of the paper (arXiv:2402.02082): a Llama with, in each layer
between the two usual blocks, attention to the keys and values of a layer of the
target. It is computed row by row from its formulas, not by Nacre's.
"""

import json
import pathlib
import shutil

import torch
from safetensors.torch import save_file
from torch.nn.functional import linear, silu
from transformers import LlamaForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
EPSILON = 1e-5
CROSS_BASE = 10000.0
STEPS = 3
MAX_LAG = 5
PROMPT = [7, 31, 2, 18, 18, 5, 39, 0, 24, 11, 7]
OWN = dict(hidden_size=16, intermediate_size=36, num_attention_heads=4,
           num_key_value_heads=2, head_dim=8, vocab_size=40,
           max_position_embeddings=64, rms_norm_eps=EPSILON, hidden_act="silu",
           model_type="llama", attention_bias=False, mlp_bias=False)


def rms_norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON) * weight


def random(*shape, dtype):
    """As it is read back from a file of the type."""
    return (1.2 * torch.randn(shape) / shape[-1] ** 0.5).to(dtype).float()


def turned(x, position, base):
    """x [heads, size] at a position: pairs are half a head apart."""
    half = x.shape[-1] // 2
    angles = position * base ** (-torch.arange(half).float() / half)
    cos, sin = angles.cos(), angles.sin()
    low, high = x[:, :half], x[:, half:]
    return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)


def attend(q, keys, values):
    """q [heads, size]; keys, values [kv heads, positions, size]."""
    shared = q.shape[0] // keys.shape[0]
    keys = keys.repeat_interleave(shared, 0)
    values = values.repeat_interleave(shared, 0)
    scores = torch.einsum("hd,hpd->hp", q, keys) / q.shape[-1] ** 0.5
    return torch.einsum("hp,hpd->hd", torch.softmax(scores, -1),
                        values).flatten()


class Draft:
    """`heads`, `size`: of the target."""

    def __init__(self, fields, heads, size, dtype):
        self.fields, self.heads, self.size = fields, heads, size
        hidden, inter = fields["hidden_size"], fields["intermediate_size"]
        own = fields["num_attention_heads"] * fields["head_dim"]
        kv = fields["num_key_value_heads"] * fields["head_dim"]
        w = {"model.embed_tokens.weight":
             2 * random(fields["vocab_size"], hidden, dtype=dtype)}
        for i in range(fields["num_hidden_layers"]):
            for name, rows, cols in [
                    ("self_attn.q", own, hidden), ("self_attn.k", kv, hidden),
                    ("self_attn.v", kv, hidden), ("self_attn.o", hidden, own),
                    ("cross_attn.q", heads * size, hidden),
                    ("cross_attn.o", hidden, heads * size),
                    ("mlp.gate", inter, hidden), ("mlp.up", inter, hidden),
                    ("mlp.down", hidden, inter)]:
                w[f"model.layers.{i}.{name}_proj.weight"] = random(
                    rows, cols, dtype=dtype)
            for norm in ("input_layernorm", "post_attention_layernorm"):
                w[f"model.layers.{i}.{norm}.weight"] = (
                    1 + 0.4 * torch.randn(hidden)).to(dtype).float()
        w["model.norm.weight"] = (1 + 0.4 * torch.randn(hidden)).to(
            dtype).float()
        if not fields["tie_word_embeddings"]:
            w["lm_head.weight"] = random(fields["vocab_size"], hidden,
                                         dtype=dtype)
        self.w = w
        self.forget()

    def forget(self):
        self.keys = [[] for _ in range(self.fields["num_hidden_layers"])]
        self.values = [[] for _ in range(self.fields["num_hidden_layers"])]

    def project(self, layer, name, x):
        return linear(x, self.w[f"model.layers.{layer}.{name}_proj.weight"])

    def self_attention(self, layer, x, position):
        size, base = self.fields["head_dim"], self.fields["rope_theta"]
        q, k, v = (self.project(layer, f"self_attn.{part}", x).view(-1, size)
                   for part in "qkv")
        self.keys[layer].append(turned(k, position, base))
        self.values[layer].append(v)
        found = attend(turned(q, position, base),
                       torch.stack(self.keys[layer], 1),
                       torch.stack(self.values[layer], 1))
        return self.project(layer, "self_attn.o", found)

    def cross_attention(self, layer, x, position, kept, seen):
        """kept [target's layers] of keys and values, [kv heads, positions,
        size] each, of which `seen` are there."""
        if seen == 0:
            return torch.zeros_like(x)
        keys, values = kept[layer - self.fields["num_hidden_layers"]]
        q = self.project(layer, "cross_attn.q", x).view(self.heads, self.size)
        found = attend(turned(q, position, CROSS_BASE), keys[:, :seen],
                       values[:, :seen])
        return self.project(layer, "cross_attn.o", found)

    def row(self, token, position, kept, there):
        x = self.w["model.embed_tokens.weight"][token]
        for i in range(self.fields["num_hidden_layers"]):
            prefix = f"model.layers.{i}."
            x = x + self.self_attention(
                i, rms_norm(x, self.w[prefix + "input_layernorm.weight"]),
                position)
            x = x + self.cross_attention(i, x, position, kept,
                                         min(position, there))
            y = rms_norm(x, self.w[prefix + "post_attention_layernorm.weight"])
            x = x + self.project(i, "mlp.down",
                                 silu(self.project(i, "mlp.gate", y))
                                 * self.project(i, "mlp.up", y))
        head = self.w.get("lm_head.weight", self.w["model.embed_tokens.weight"])
        return linear(rms_norm(x, self.w["model.norm.weight"]), head)


def case(draft, kept, there, first=0):
    draft.forget()
    rows = [draft.row(PROMPT[i], i, kept, there)
            for i in range(first, len(PROMPT))]
    fed, steps = [], []
    said = rows[-1]
    for i in range(STEPS):
        fed.append(int(said.argmax()))
        said = draft.row(fed[-1], len(PROMPT) + i, kept, there)
        steps.append(said)

    def numbers(said):
        return [[round(x, 6) for x in row]
                for row in torch.stack(said).tolist()]

    return {"target": there, "first": first, "rows": numbers(rows), "fed": fed,
            "steps": numbers(steps)}


def write(kind, draft, kept, dtype, config):
    folder = HERE / "glide" / kind
    folder.mkdir(parents=True)
    save_file({name: value.to(dtype).contiguous()
               for name, value in draft.w.items()},
              folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n",
                                        encoding="utf-8")
    there = [len(PROMPT) - lag for lag in range(1, MAX_LAG + 1)] + [0]
    with torch.no_grad():
        cases = [case(draft, kept, each) for each in there]
        cases.append(case(draft, kept, len(PROMPT) - 2, first=4))
    (folder / "golden.json").write_text(
        json.dumps({"prompt": PROMPT, "cases": cases}) + "\n",
        encoding="utf-8")


def main():
    torch.manual_seed(12)
    shutil.rmtree(HERE / "glide", ignore_errors=True)
    target = LlamaForCausalLM.from_pretrained(
        HERE / "eagle" / "target", dtype=torch.float32).eval()
    with torch.no_grad():
        cache = target(torch.tensor([PROMPT]), use_cache=True).past_key_values
    kept = [(layer.keys[0], layer.values[0]) for layer in cache.layers]
    heads = target.config.num_attention_heads
    size = target.config.head_dim
    large = {"large_hidden_size": target.config.hidden_size,
             "large_num_attention_heads": heads, "large_head_dim": size}

    # As published: one layer, over the target's last.
    fields = {**OWN, "num_hidden_layers": 1, "rope_theta": 10000.0,
              "tie_word_embeddings": False}
    write("one_layer", Draft(fields, heads, size, torch.float32), kept,
          torch.float32,
          {"architectures": ["smallLlamaForCausalLM"], **fields, **large,
           "block_size": 5})

    # Two layers over the target's last two; its own positions turn by another
    # base, and its head is its embedding.
    fields = {**OWN, "num_hidden_layers": 2, "rope_theta": 500.0,
              "tie_word_embeddings": True}
    write("two_layers", Draft(fields, heads, size, torch.bfloat16), kept,
          torch.bfloat16,
          {"architectures": ["LlamaForCausalLM"], **fields, **large})


if __name__ == "__main__":
    main()
