"""A Llama in PyTorch, as model/transformer.cc computes it, for whole texts.

One text is one row of a batch: there is no cache. Weights are float32.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence

import torch
from torch import nn
from torch.nn import functional

from . import TrainingError
from .draft import Draft


class Norm(nn.Module):
    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self._epsilon = epsilon

    def forward(self, x):
        return functional.rms_norm(x, self.weight.shape, self.weight, self._epsilon)


def rope_tables(config: dict, length: int):
    """cosines and sines [length, head_dim / 2]."""
    half = config["head_dim"] // 2
    frequencies = config["rope_theta"] ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * frequencies[None]
    return angles.cos().float(), angles.sin().float()


def rotate(x, cos, sin):
    """x [batch, heads, length, head_dim]; halves are rotated, as Hugging Face does."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def split_heads(x, heads: int):
    """[batch, length, heads * head_dim] to [batch, heads, length, head_dim]."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x):
    """The other way round."""
    return x.transpose(1, 2).flatten(2)


def shared_by_heads(heads: int, k, v):
    """Keys and values of all `heads`, of which some share theirs."""
    group = heads // k.shape[1]
    return (k, v) if group == 1 else (k.repeat_interleave(group, 1),
                                      v.repeat_interleave(group, 1))


def gated(mlp, h):
    """The feed-forward part of a layer."""
    return mlp["down_proj"](functional.silu(mlp["gate_proj"](h)) * mlp["up_proj"](h))


def make_attention(config: dict, width: int) -> nn.ModuleDict:
    """Projections of rows [.., width]."""
    d, q = config["hidden_size"], config["num_attention_heads"] * config["head_dim"]
    kv = config["num_key_value_heads"] * config["head_dim"]
    return nn.ModuleDict({
        "q_proj": nn.Linear(width, q, bias=False),
        "k_proj": nn.Linear(width, kv, bias=False),
        "v_proj": nn.Linear(width, kv, bias=False),
        "o_proj": nn.Linear(q, d, bias=False)})


def make_mlp(config: dict) -> nn.ModuleDict:
    d, size = config["hidden_size"], config["intermediate_size"]
    return nn.ModuleDict({
        "gate_proj": nn.Linear(d, size, bias=False),
        "up_proj": nn.Linear(d, size, bias=False),
        "down_proj": nn.Linear(size, d, bias=False)})


class Layer(nn.Module):
    def __init__(self, config: dict) -> None:
        super().__init__()
        d = config["hidden_size"]
        self._heads, self._kv_heads = (config["num_attention_heads"],
                                       config["num_key_value_heads"])
        self.self_attn = make_attention(config, d)
        self.mlp = make_mlp(config)
        self.input_layernorm = Norm(d, config["rms_norm_eps"])
        self.post_attention_layernorm = Norm(d, config["rms_norm_eps"])

    def keys_values(self, h, cos, sin):
        """h [batch, length, d], normed, to what a KV cache has of it: two [batch,
        heads of keys, length, head_dim]."""
        k = rotate(split_heads(self.self_attn["k_proj"](h), self._kv_heads), cos, sin)
        return k, split_heads(self.self_attn["v_proj"](h), self._kv_heads)

    def queries_keys_values(self, x, cos, sin):
        """x, which is not normed, to three [batch, heads, length, head_dim]."""
        h = self.input_layernorm(x)
        q = rotate(split_heads(self.self_attn["q_proj"](h), self._heads), cos, sin)
        k, v = self.keys_values(h, cos, sin)
        return q, *shared_by_heads(self._heads, k, v)

    def add_attended(self, x, attended):
        return x + self.self_attn["o_proj"](merge_heads(attended))

    def feed_forward(self, x):
        return x + gated(self.mlp, self.post_attention_layernorm(x))

    def forward(self, x, cos, sin):
        q, k, v = self.queries_keys_values(x, cos, sin)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.feed_forward(self.add_attended(x, attended))


class Llama(Draft):
    """Parameters are named as in the checkpoint, without "model."."""

    def __init__(self, config: dict) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.layers = nn.ModuleList(
            Layer(config) for _ in range(config["num_hidden_layers"]))
        self.norm = Norm(config["hidden_size"], config["rms_norm_eps"])
        self.lm_head: Optional[nn.Linear] = None
        if not config["tie_word_embeddings"]:
            self.lm_head = nn.Linear(config["hidden_size"], config["vocab_size"], bias=False)
        self._tables = rope_tables(config, 0)
        self._frozen_layers = 0

    def freeze(self, layers: int) -> None:
        """The embedding and the first `layers` layers stay as they are."""
        self._frozen_layers = layers
        for part in (self.embed_tokens, *self.layers[:layers]):
            part.requires_grad_(False)

    def features(self, ids, taps: Sequence[str]):
        """ids [batch, length] to rows [batch, length, tap_size] of each tap:
        "in(I)", what layer I is given (of the number of layers: what the last one
        gives), "kv(I)", the keys and then the values that layer I keeps, or
        "final", after the last norm. TrainingError: there is no such tap."""
        length = ids.shape[1]
        if length > self._tables[0].shape[0]:
            self._tables = rope_tables(self.config, length)
        cos, sin = (table[:length] for table in self._tables)
        frozen, learns = self._frozen_layers, torch.is_grad_enabled()
        with torch.set_grad_enabled(learns and frozen == 0):
            x = self.embed_tokens(ids)
        found = {"in(0)": x}
        for i, layer in enumerate(self.layers):
            with torch.set_grad_enabled(learns and i >= frozen):
                if f"kv({i})" in taps:
                    kept = layer.keys_values(layer.input_layernorm(x), cos, sin)
                    found[f"kv({i})"] = merge_heads(torch.cat(kept, 1))
                x = layer(x, cos, sin)
            found[f"in({i + 1})"] = x
        found["final"] = self.norm(x)
        if missing := set(taps) - set(found):
            raise TrainingError(f"a model of {len(self.layers)} layers has no tap "
                                f"{', '.join(sorted(missing))}")
        return [found[tap] for tap in taps]

    def tap_size(self, tap: str) -> int:
        """Numbers of a row."""
        if tap.startswith("kv("):
            return 2 * self.config["num_key_value_heads"] * self.config["head_dim"]
        return self.config["hidden_size"]

    def hidden(self, ids):
        """ids [batch, length] to the rows before the head [batch, length, d]."""
        return self.features(ids, ["final"])[0]

    def states(self, batch, features):
        return [self.hidden(batch.ids)[batch.rows, batch.columns]]

    def logits(self, states, place: int):
        return states @ self.head().T

    def head(self) -> torch.Tensor:
        return (self.embed_tokens if self.lm_head is None else self.lm_head).weight

    def forward(self, ids):
        """Logits [batch, length, vocab_size]."""
        return self.hidden(ids) @ self.head().T


def tensor_name(parameter: str) -> str:
    """Of a parameter of Llama, in a checkpoint."""
    return parameter if parameter.startswith("lm_head.") else "model." + parameter


def parameter_names(config: dict) -> List[str]:
    with torch.device("meta"):
        return list(Llama(config).state_dict())


def fill(model: Llama, tensors: Dict[str, torch.Tensor]) -> Llama:
    """The model, with a checkpoint's tensors. TrainingError: one is missing, left
    over or of another shape."""
    state = model.state_dict()
    wanted = {tensor_name(name): name for name in state}
    if model.lm_head is None:  # some files hold it twice
        tensors = {name: tensor for name, tensor in tensors.items()
                   if name != "lm_head.weight"}
    if missing := sorted(set(wanted) - set(tensors)):
        raise TrainingError(f"the checkpoint has no {', '.join(missing[:3])}")
    if strange := sorted(set(tensors) - set(wanted)):
        raise TrainingError(f"unknown in such a model: {', '.join(strange[:3])}")
    for name, parameter in wanted.items():
        if tensors[name].shape != state[parameter].shape:
            raise TrainingError(f"{name} is {list(tensors[name].shape)}, "
                                f"not {list(state[parameter].shape)}")
    model.load_state_dict({wanted[name]: tensors[name].float() for name in tensors})
    return model
