"""EAGLE-3 (arXiv 2503.01840): one layer over what some layers of its target are
given.

Row i has the target's features of position i beside the token of position i + 1,
and says the token of position i + 2: h = fc(features), a Llama layer over
[norm(token); norm(h)] whose residual is h, a norm, a head. Without features a
row is given what the layer gave for the row before, as it is.

That is also how it learns: after step 0, whose rows have all their features, step
s goes s rows on without any, from one row of `chain_every` (on held-out text from
each). A row of step s sees the keys that serving would have: those of step 0 up to
where its chain began, and its own chain's since.
"""

from __future__ import annotations

from typing import List, Optional

import torch
from torch import nn

from .batches import side_by_side
from .draft import Draft
from .llama import (Llama, Norm, gated, make_attention, make_mlp, merge_heads,
                    rope_tables, rotate, shared_by_heads, split_heads)


class EagleLayer(nn.Module):
    def __init__(self, config: dict) -> None:
        super().__init__()
        d = config["hidden_size"]
        self._heads, self._kv_heads = (config["num_attention_heads"],
                                       config["num_key_value_heads"])
        self.self_attn = make_attention(config, 2 * d)
        self.mlp = make_mlp(config)
        self.input_layernorm = Norm(d, config["rms_norm_eps"])  # of tokens
        self.hidden_norm = Norm(d, config["rms_norm_eps"])
        self.post_attention_layernorm = Norm(d, config["rms_norm_eps"])

    def queries_keys_values(self, token, h, cos, sin):
        """token, h [batch, length, d] to three [batch, heads, length, head_dim]."""
        x = torch.cat([self.input_layernorm(token), self.hidden_norm(h)], -1)
        q = rotate(split_heads(self.self_attn["q_proj"](x), self._heads), cos, sin)
        k = rotate(split_heads(self.self_attn["k_proj"](x), self._kv_heads), cos, sin)
        v = split_heads(self.self_attn["v_proj"](x), self._kv_heads)
        return q, *shared_by_heads(self._heads, k, v)

    def give(self, h, attended):
        """What the layer gives, of what attention did."""
        x = h + self.self_attn["o_proj"](merge_heads(attended))
        return x + gated(self.mlp, self.post_attention_layernorm(x))


class Eagle(Draft):
    """Parameters are named as in a file, but for "layers.0."."""

    first_column = 1

    def __init__(self, config: dict, taps: List[str], tap_size: int, places: int,
                 embedding: torch.Tensor, head: Optional[torch.Tensor],
                 said: Optional[torch.Tensor] = None) -> None:
        """`embedding` [vocab_size, d], and `head` [.., d] where it is the target's,
        stay as they are; without `head` it has one of its own. `said`: the tokens
        that the rows of its head stand for; None: all."""
        super().__init__()
        self.config, self.taps, self.places = config, list(taps), places
        # So there are about as many rows of chains as of texts.
        self.chain_every = max(1, places - 1)
        d = config["hidden_size"]
        self.fc = nn.Linear(len(taps) * tap_size, d, bias=False)
        self.layer = EagleLayer(config)
        self.norm = Norm(d, config["rms_norm_eps"])
        self.lm_head: Optional[nn.Linear] = None
        if head is None:
            rows = len(embedding) if said is None else len(said)
            self.lm_head = nn.Linear(d, rows, bias=False)
        self._embedding, self._target_head, self._said = embedding, head, said

    def begin_as(self, target: Llama) -> None:
        """Begins as the target's last layer, over its last tap: a guess of the
        token one too early, which learns quickly to look one further."""
        last, d = target.layers[-1], self.config["hidden_size"]
        with torch.no_grad():
            self.fc.weight.zero_()
            self.fc.weight[:, -d:].copy_(torch.eye(d))
            for name in ("q_proj", "k_proj", "v_proj"):
                weight = self.layer.self_attn[name].weight
                nn.init.normal_(weight[:, :d], std=0.02)
                weight[:, d:].copy_(last.self_attn[name].weight)
            if self.lm_head is not None:
                self.lm_head.weight.copy_(target.head())
        self.layer.self_attn["o_proj"].load_state_dict(
            last.self_attn["o_proj"].state_dict())
        self.layer.mlp.load_state_dict(last.mlp.state_dict())
        self.layer.hidden_norm.load_state_dict(last.input_layernorm.state_dict())
        self.layer.post_attention_layernorm.load_state_dict(
            last.post_attention_layernorm.state_dict())
        self.norm.load_state_dict(target.norm.state_dict())

    def _first_step(self, ids, features, tables):
        """All rows with features: what the layer gives, keys and values."""
        h = self.fc(torch.cat(features, -1)[:, :-1])
        cos, sin = (table[:h.shape[1]] for table in tables)
        q, k, v = self.layer.queries_keys_values(self._embedding[ids[:, 1:]], h, cos, sin)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.layer.give(h, attended), k, v

    def states(self, batch, features):
        length = batch.ids.shape[1]
        tables = rope_tables(self.config, length + self.places)
        given, keys, values = self._first_step(batch.ids, features, tables)
        columns = (batch.columns - 1).clamp(min=0)
        states = [given[batch.rows, columns]]
        begins = torch.arange(len(batch.rows)) if batch.begins is None else batch.begins
        rows = batch.rows[begins]
        slots, first = side_by_side(rows, columns[begins], len(batch.ids))
        texts = torch.arange(len(batch.ids))[:, None]
        out = given[texts, first]
        unseen = (torch.arange(length - 1) > first[..., None])[:, None]
        chain = []  # (keys, values) of the steps since
        for step in range(1, self.places):
            token = batch.ids[texts, (first + 1 + step).clamp(max=length - 1)]
            cos, sin = (table[first + step][:, None] for table in tables)
            q, k, v = self.layer.queries_keys_values(self._embedding[token], out, cos, sin)
            chain.append((k, v))
            out = self.layer.give(out, _attend(q, keys, values, unseen, chain))
            none = out.new_zeros(len(batch.rows), out.shape[-1])
            states.append(none.index_copy(0, begins, out[rows, slots]))
        return states

    def logits(self, states, place: int):
        head = self._target_head if self.lm_head is None else self.lm_head.weight
        logits = self.norm(states) @ head.T
        if self._said is None:
            return logits
        all_tokens = logits.new_full((len(states), len(self._embedding)), -torch.inf)
        all_tokens[:, self._said] = logits
        return all_tokens


def _attend(q, keys, values, unseen, chain):
    """q [batch, heads, rows, head_dim] over `keys` of the first step but where
    `unseen` [batch, 1, rows, positions], and over each row's own chain."""
    scale = q.shape[-1] ** -0.5
    scores = (q @ keys.transpose(-1, -2) * scale).masked_fill(unseen, -torch.inf)
    own = torch.stack([(q * k).sum(-1) * scale for k, _ in chain], -1)
    weights = torch.cat([scores, own], -1).softmax(-1)
    seen = keys.shape[2]
    attended = weights[..., :seen] @ values
    for i, (_, v) in enumerate(chain):
        attended = attended + weights[..., seen + i, None] * v
    return attended
