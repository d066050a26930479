#!/usr/bin/env python3
"""Makes goldens of EAGLE drafts, one of each kind of file, with PyTorch.

Run from the repository root, with torch, transformers and safetensors
installed:

    python3 tests/data/model/make_eagle_goldens.py

Writes eagle/target/, a tiny random Llama, and eagle/KIND/: a draft of it with
the file names, tensor names and config.json of its kind, and golden.json:

  prompt  token ids
  rows    logits of the draft for each token of the prompt but the first, beside
          the target's features of the position before it
  fed     the tokens that it is then fed, each the likeliest after the last
  steps   logits for each of those, beside what the layer gave before
          (null: the draft never says the token)

The modules are those of the papers (arXiv:2401.15077 and 2503.01840).
"""

import json
import pathlib
import shutil

import torch
from safetensors.torch import save_file
from torch.nn.functional import linear, silu
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

HERE = pathlib.Path(__file__).resolve().parent
VOCAB = 40
WIDTH = 20
LAYERS = 8
STEPS = 3
EPSILON = 1e-5
TARGET = dict(hidden_size=WIDTH, intermediate_size=28, num_hidden_layers=LAYERS,
              num_attention_heads=4, num_key_value_heads=2, head_dim=6,
              vocab_size=VOCAB, max_position_embeddings=64,
              rms_norm_eps=EPSILON, hidden_act="silu", attention_bias=False,
              mlp_bias=False, tie_word_embeddings=False)
DRAFT = dict(hidden_size=WIDTH, intermediate_size=36, num_attention_heads=4,
             num_key_value_heads=1, head_dim=8, num_hidden_layers=1,
             vocab_size=VOCAB, max_position_embeddings=64, rms_norm_eps=EPSILON,
             hidden_act="silu", model_type="llama")
PROMPT = [7, 31, 2, 18, 18, 5, 39, 0, 24, 11, 7]


def rms_norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON) * weight


def random(*shape, dtype):
    """As it is read back from a file of the type."""
    return (1.2 * torch.randn(shape) / shape[-1] ** 0.5).to(dtype).float()


def random_norm(size, dtype):
    return (1 + 0.4 * torch.randn(size)).to(dtype).float()


class Draft:
    """One layer with a cache of its own. `fields`: of its Llama; `ids`: what
    rows of its head stand for; `window`: positions that it attends to."""

    def __init__(self, fields, is_third, taps, dtype, ids=None, window=None,
                 biases=False, **variant):
        self.is_third = is_third
        self.taps = taps
        self.fields = fields
        self.window = window
        self.ids = ids
        self.variant = variant
        d, inter = fields["hidden_size"], fields["intermediate_size"]
        head = fields["head_dim"]
        q = fields["num_attention_heads"] * head
        kv = fields["num_key_value_heads"] * head
        read = len(taps) * WIDTH
        said = VOCAB if ids is None else len(ids)
        width = 2 * d if is_third else d
        w = {"fc.weight": random(d, read if is_third else d + read, dtype=dtype)}
        for name, rows, cols in [("q", q, width), ("k", kv, width),
                                 ("v", kv, width), ("o", d, q)]:
            w[f"layer.self_attn.{name}_proj.weight"] = random(rows, cols,
                                                              dtype=dtype)
            if biases:
                w[f"layer.self_attn.{name}_proj.bias"] = random(rows,
                                                                dtype=dtype)
        for name, rows, cols in [("gate", inter, d), ("up", inter, d),
                                 ("down", d, inter)]:
            w[f"layer.mlp.{name}_proj.weight"] = random(rows, cols, dtype=dtype)
        norms = ["layer.post_attention_layernorm"]
        if is_third:
            norms += ["layer.input_layernorm", "layer.hidden_norm", "norm"]
        elif variant.get("fc_bias", True):
            w["fc.bias"] = random(d, dtype=dtype)
        if variant.get("add_para_norm"):
            norms += ["embedding_layernorm", "hidden_states_layernorm"]
        for norm in norms:
            w[f"{norm}.weight"] = random_norm(d, dtype)
        if variant.get("norm_before_fc"):
            w["input_norm.weight"] = random_norm(read, dtype)
        if variant.get("fc_norm"):
            for i in range(len(taps)):
                w[f"fc_norm.{i}.weight"] = random_norm(WIDTH, dtype)
        if variant.get("own_head", True):
            w["lm_head.weight"] = random(said, d, dtype=dtype)
        if variant.get("own_embedding"):
            w["embed_tokens.weight"] = 2 * random(VOCAB, d, dtype=dtype)
        self.w = w
        rope = {key: value for key, value in fields.items()
                if key in ("rope_theta", "rope_scaling")}
        self.rotary = LlamaRotaryEmbedding(LlamaConfig(
            **{key: value for key, value in fields.items()
               if key not in ("rope_theta", "rope_scaling")},
            rope_parameters={"rope_theta": rope["rope_theta"],
                             "rope_type": "default",
                             **rope.get("rope_scaling", {})}))
        self.keys, self.values = [], []

    def project(self, features):
        """Of the target's, [rows, taps, WIDTH]."""
        if not self.is_third:
            return features[:, 0]
        if self.variant.get("fc_norm"):
            features = torch.stack(
                [rms_norm(features[:, i], self.w[f"fc_norm.{i}.weight"])
                 for i in range(len(self.taps))], dim=1)
        x = features.flatten(1)
        if self.variant.get("norm_before_fc"):
            x = rms_norm(x, self.w["input_norm.weight"])
        return linear(x, self.w["fc.weight"])

    def attend(self, x, position):
        """Of one row."""
        heads, kv_heads = (self.fields["num_attention_heads"],
                           self.fields["num_key_value_heads"])
        size = self.fields["head_dim"]

        def projected(name, count):
            return linear(x, self.w[f"layer.self_attn.{name}_proj.weight"],
                          self.w.get(f"layer.self_attn.{name}_proj.bias")
                          ).view(count, size)

        cos, sin = (part[0, 0] for part in self.rotary(
            x[None, None], torch.tensor([[position]])))

        def turned(y):
            half = size // 2
            other = torch.cat([-y[:, half:], y[:, :half]], dim=-1)
            return y * cos + other * sin

        self.keys.append(turned(projected("k", kv_heads)))
        self.values.append(projected("v", kv_heads))
        first = 0 if self.window is None else max(
            0, len(self.keys) - self.window)
        k = torch.stack(self.keys[first:]).repeat_interleave(
            heads // kv_heads, 1)
        v = torch.stack(self.values[first:]).repeat_interleave(
            heads // kv_heads, 1)
        scores = torch.einsum("hd,phd->hp", turned(projected("q", heads)), k)
        weights = torch.softmax(scores / size ** 0.5, dim=-1)
        return linear(torch.einsum("hp,phd->hd", weights, v).flatten(),
                      self.w["layer.self_attn.o_proj.weight"],
                      self.w.get("layer.self_attn.o_proj.bias"))

    def row(self, target, token, given):
        """Logits, and what the next row is given."""
        e = self.w.get("embed_tokens.weight",
                       target.model.embed_tokens.weight)[token]
        if self.is_third:
            h = rms_norm(given, self.w["layer.hidden_norm.weight"])
            residual = h if self.variant.get("norm_before_residual") else given
            x = torch.cat(
                [rms_norm(e, self.w["layer.input_layernorm.weight"]), h])
        else:
            if self.variant.get("add_para_norm"):
                e = rms_norm(e, self.w["embedding_layernorm.weight"])
                given = rms_norm(given,
                                 self.w["hidden_states_layernorm.weight"])
            x = residual = linear(torch.cat([e, given]), self.w["fc.weight"],
                                  self.w.get("fc.bias"))
        x = residual + self.attend(x, len(self.keys))
        y = rms_norm(x, self.w["layer.post_attention_layernorm.weight"])
        gate = silu(linear(y, self.w["layer.mlp.gate_proj.weight"]))
        x = x + linear(gate * linear(y, self.w["layer.mlp.up_proj.weight"]),
                       self.w["layer.mlp.down_proj.weight"])
        out = rms_norm(x, self.w["norm.weight"]) if self.is_third else x
        said = linear(out, self.w.get("lm_head.weight", target.lm_head.weight))
        if self.ids is not None:
            all_ids = torch.full((VOCAB,), float("-inf"))
            all_ids[self.ids] = said
            said = all_ids
        return said, out if self.variant.get("norm_output") else x


def golden(draft, target):
    with torch.no_grad():
        states = target(torch.tensor([PROMPT]),
                        output_hidden_states=True).hidden_states
        # states[i] is what layer i is given; the last one is normed.
        features = torch.stack([states[tap][0] for tap in draft.taps], dim=1)
        given = draft.project(features)
        rows = []
        for i, token in enumerate(PROMPT[1:]):
            said, output = draft.row(target, token, given[i])
            rows.append(said)
        fed, steps = [], []
        for _ in range(STEPS):
            fed.append(int(said.argmax()))
            said, output = draft.row(target, fed[-1], output)
            steps.append(said)

    def numbers(rows):
        return [[None if x == float("-inf") else round(x, 6) for x in row]
                for row in torch.stack(rows).tolist()]

    return {"prompt": PROMPT, "rows": numbers(rows), "fed": fed,
            "steps": numbers(steps)}


def write(kind, draft, target, dtype, config, layer="midlayer", fc="fc",
          extra=None):
    folder = HERE / "eagle" / kind
    folder.mkdir(parents=True)

    def named(name):
        part, rest = name.split(".", 1)
        return f"{ {'layer': layer, 'fc': fc}.get(part, part)}.{rest}"

    tensors = {named(name): value.to(dtype) for name, value in draft.w.items()}
    tensors = {name: value.contiguous()
               for name, value in {**tensors, **(extra or {})}.items()}
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n",
                                        encoding="utf-8")
    (folder / "golden.json").write_text(
        json.dumps(golden(draft, target)) + "\n", encoding="utf-8")


def make_target():
    model = LlamaForCausalLM(LlamaConfig(
        **TARGET, bos_token_id=1, eos_token_id=2,
        rope_parameters={"rope_theta": 10000.0, "rope_type": "default"})).eval()
    for name, value in model.named_parameters():
        value.data = (random_norm(value.shape[0], torch.bfloat16)
                      if "norm" in name
                      else 1.5 * random(*value.shape, dtype=torch.bfloat16))
        value.data = value.data.to(torch.bfloat16).float()
    folder = HERE / "eagle" / "target"
    folder.mkdir(parents=True)
    save_file({name: value.to(torch.bfloat16)
               for name, value in model.state_dict().items()},
              folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(
        {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **TARGET,
         "rope_theta": 10000.0, "bos_token_id": 1, "eos_token_id": 2},
        indent=1) + "\n", encoding="utf-8")
    return model


def offsets(ids):
    return ids - torch.arange(len(ids))


def main():
    torch.manual_seed(11)
    shutil.rmtree(HERE / "eagle", ignore_errors=True)
    f16, bf16, f32 = torch.float16, torch.bfloat16, torch.float32
    target = make_target()
    rope = {"rope_theta": 500.0}

    # SafeAILab: the usual layers, a vocabulary of the most frequent tokens.
    ids = torch.randperm(VOCAB)[:24].sort().values
    draft = Draft({**DRAFT, **rope}, True, [2, LAYERS // 2, LAYERS - 3], f16,
                  ids=ids)
    write("safeailab", draft, target, f16,
          {"architectures": ["LlamaForCausalLM"], **DRAFT, **rope,
           "draft_vocab_size": len(ids)},
          extra={"d2t": offsets(ids),
                 "t2d": torch.isin(torch.arange(VOCAB), ids)})

    # SpecForge: layers by what they give, an embedding of its own, and the
    # norms of EAGLE-3.1.
    scaling = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 8}
    draft = Draft({**DRAFT, **rope, "rope_scaling": scaling}, True, [2, 4, 7],
                  f32, ids=ids, own_embedding=True, fc_norm=True,
                  norm_output=True)
    write("specforge", draft, target, f32,
          {"architectures": ["LlamaForCausalLMEagle3"], **DRAFT, **rope,
           "rope_scaling": scaling, "draft_vocab_size": len(ids),
           "fc_norm": True, "norm_output": True,
           "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 6],
                            "use_aux_hidden_state": True}},
          extra={"d2t": offsets(ids),
                 "t2d": torch.isin(torch.arange(VOCAB), ids)})

    # ModelOpt: the target's head, and rope stretched when it was exported.
    scaling = {"rope_type": "yarn", "factor": 32.0,
               "original_max_position_embeddings": 16}
    draft = Draft({**DRAFT, **rope, "rope_scaling": scaling}, True, [2, 4, 5],
                  bf16, own_head=False)
    write("modelopt", draft, target, bf16,
          {"architectures": ["LlamaForCausalLMEagle3"], **DRAFT, **rope,
           "rope_scaling": scaling, "draft_vocab_size": VOCAB,
           "eagle_config": {"eagle_aux_hidden_state_layer_ids": [],
                            "use_aux_hidden_state": True,
                            "use_last_layernorm": True}}, layer="layers.0")

    # vLLM-speculators: narrower or wider than the target, with a window, biases
    # and the residual that it takes where the file does not say.
    fields = {**DRAFT, **rope, "hidden_size": 28}
    draft = Draft(fields, True, [1, 3, 6], bf16, ids=ids, window=4, biases=True,
                  own_embedding=True, norm_before_residual=True)
    speculators = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3", "speculators_version": "0.3.0",
        "draft_vocab_size": len(ids), "target_hidden_size": WIDTH,
        "eagle_aux_hidden_state_layer_ids": [1, 3, 6],
        "speculators_config": {
            "algorithm": "eagle3", "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy",
                                  "speculative_tokens": 3}],
            "verifier": {"name_or_path": "target",
                         "architectures": ["LlamaForCausalLM"]}}}
    write("speculators", draft, target, bf16,
          {**speculators,
           "transformer_layer_config": {
               **fields, "attention_bias": True, "sliding_window": 4,
               "layer_types": ["sliding_attention"]}},
          layer="layers.0",
          extra={"d2t": offsets(ids),
                 "t2d": torch.isin(torch.arange(VOCAB), ids)})

    # The same producer's: all taps normed together, the raw residual.
    draft = Draft({**DRAFT, **rope}, True, [1, 3, 6], f32, ids=ids,
                  norm_before_fc=True)
    write("speculators_normed", draft, target, f32,
          {**speculators, "target_hidden_size": None,
           "norm_before_residual": False, "norm_before_fc": True,
           "fc_norm": False, "norm_output": False,
           "transformer_layer_config": {**DRAFT, "rope_parameters": {
               **rope, "rope_type": "default"}}},
          layer="layers.0", extra={"d2t": offsets(ids)})

    # EAGLE-1 and 2. Those of further producers come last: each takes the next
    # random numbers.
    draft = Draft({**DRAFT, **rope}, False, [LAYERS], f16, own_head=False,
                  own_embedding=True)
    write("eagle1", draft, target, f16,
          {"architectures": ["LlamaForCausalLM"], **DRAFT, **rope},
          layer="layers.0")

    # HASS: EAGLE-1 that norms what it is given, over the target's embedding.
    draft = Draft({**DRAFT, **rope}, False, [LAYERS], bf16, own_head=False,
                  fc_bias=False, add_para_norm=True)
    write("hass", draft, target, bf16,
          {"architectures": ["LlamaForCausalLM"], **DRAFT, **rope,
           "add_para_norm": True}, layer="layers.0")

    # vLLM-speculators' EAGLE-1, with names of its own.
    draft = Draft({**DRAFT, **rope}, False, [LAYERS], f32, own_embedding=True)
    write("speculators_first", draft, target, f32,
          {"architectures": ["EagleSpeculator", "LlamaDecoderLayer"],
           "speculators_model_type": "eagle", "speculators_version": "0.1.0",
           "fusion_bias": True, "layernorms": False,
           "transformer_layer_architecture": "LlamaDecoderLayer",
           "transformer_layer_config": {"model_type": "llama", **DRAFT, **rope},
           "speculators_config": {
               "algorithm": "eagle", "default_proposal_method": "greedy",
               "proposal_methods": [{"proposal_type": "greedy",
                                     "speculative_tokens": 4}],
               "verifier": {"name_or_path": "target",
                            "architectures": ["LlamaForCausalLM"]}}},
          layer="transformer", fc="fusion_fc")


if __name__ == "__main__":
    main()
