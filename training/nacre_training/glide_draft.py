"""GliDe (arXiv 2402.02082): a small Llama whose layers also attend to the keys and
values that its target keeps.

    h += self attention(norm(h))
    h += cross attention(h), over what a layer of the target keeps
    h += feed-forward(norm(h))

Layer i of m reads the target's layer L - m + i, with the target's heads. The row of
column c sees the target's columns below c.

It learns under the lag with which services draft. A chain that goes on from column
c has the tokens after it, and sees of the target no more than the row of column c.
Of the draft's own keys it sees those of the text up to c, and its own. As it is
given tokens, and nothing that a row before gave, all its rows are computed at once.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import TrainingError
from .batches import Batch, side_by_side
from .llama import (Layer, Llama, merge_heads, rope_tables, rotate, shared_by_heads,
                    split_heads)

# By which queries turn, whatever the target's base is (model/glide_config.h).
_CROSS_ROPE_THETA = 10000.0
# Scores of what is not seen. Finite: a row may see nothing.
_UNSEEN = -1e30
# Of the mean square of a number, so that rows that are alike can be solved for.
_RIDGE = 1e-3


class Chains:
    """Chains of `steps` rows each, side by side: [batch, chains * steps] rows."""

    def __init__(self, first: Tensor, steps: int) -> None:
        """`first` [batch, chains]: the columns from which they go on."""
        self.first, self.steps = first, steps
        self.columns = (first[..., None] + 1 + torch.arange(steps)).flatten(1)

    def tables(self, config: dict, length: int):
        """cosines and sines of a text's columns, and of the rows."""
        whole = rope_tables(config, length + self.steps)
        return ([table[:length] for table in whole],
                [table[self.columns][:, None] for table in whole])

    def fold(self, x: Tensor) -> Tensor:
        """[.., chains * steps, d] to [.., chains, steps, d]"""
        return x.unflatten(-2, (self.first.shape[1], self.steps))

    def scores(self, q: Tensor, keys: Tensor, end: Tensor) -> Tensor:
        """q [batch, heads, chains * steps, d] over the keys [batch, heads, columns,
        d] of a text's columns below `end` [batch, chains]."""
        unseen = torch.arange(keys.shape[2]) >= end[..., None]
        scores = self.fold(q @ keys.transpose(-1, -2) * q.shape[-1] ** -0.5)
        return scores.masked_fill(unseen[:, None, :, None], _UNSEEN)


class GlideLayer(Layer):
    def __init__(self, config: dict) -> None:
        super().__init__(config)
        d = config["hidden_size"]
        self._target_heads = config["large_num_attention_heads"]
        size = self._target_heads * config["large_head_dim"]
        self.cross_attn = nn.ModuleDict({"q_proj": nn.Linear(d, size, bias=False),
                                         "o_proj": nn.Linear(size, d, bias=False)})

    def _look(self, x, tables):
        """Queries into what the target keeps."""
        return rotate(split_heads(self.cross_attn["q_proj"](x), self._target_heads),
                      *tables)

    def _add_found(self, x, found):
        return self.feed_forward(x + self.cross_attn["o_proj"](merge_heads(found)))

    def of_text(self, x, attended, target, tables):
        """x [batch, length, d], of whose own attention is `attended`. `target`: keys
        and values [batch, heads, length, head_dim]."""
        x = self.add_attended(x, attended)
        # The first row sees nothing.
        keys, values = (part[:, :, :-1] for part in target)
        found = functional.scaled_dot_product_attention(
            self._look(x, tables)[:, :, 1:], keys, values, is_causal=True)
        return self._add_found(x, functional.pad(found, (0, 0, 1, 0)))

    def of_chains(self, y, chains: Chains, own, target, tables):
        """y [batch, chains * steps, d]. `own`: the text's keys and values."""
        own_tables, cross_tables = tables
        q, k, v = self.queries_keys_values(y, *own_tables)
        y = self.add_attended(y, _attend_own(chains, (q, k, v), *own))
        keys, values = target
        weights = chains.scores(self._look(y, cross_tables), keys, chains.first)
        sees = (chains.first > 0)[:, None, :, None, None]
        found = (weights.softmax(-1) * sees).flatten(2, 3) @ values
        return self._add_found(y, found)


def _attend_own(chains: Chains, rows, keys, values):
    """Of `rows`, queries, keys and values, to what they and the text have."""
    q, k, v = rows
    later = torch.ones(chains.steps, chains.steps, dtype=torch.bool).triu(1)
    within = chains.fold(q) @ chains.fold(k).transpose(-1, -2) * q.shape[-1] ** -0.5
    weights = torch.cat([chains.scores(q, keys, chains.first + 1),
                         within.masked_fill(later, _UNSEEN)], -1).softmax(-1)
    of_text, of_chain = weights.split([keys.shape[2], chains.steps], -1)
    return (of_text.flatten(2, 3) @ values + (of_chain @ chains.fold(v)).flatten(2, 3))


def _least_squares(rows, wanted):
    """The matrix by which `rows` [n, d] come nearest to `wanted` [n, size]."""
    rows, wanted = rows.double(), wanted.double()
    square = rows.T @ rows
    square += _RIDGE * square.diagonal().mean() * torch.eye(len(square))
    return torch.linalg.solve(square, rows.T @ wanted).T


class Glide(Llama):
    """Parameters are named as those of Llama. Without its target it is one."""

    def __init__(self, config: dict, target_config: dict) -> None:
        """`config`: a Llama's, and as published `large_num_attention_heads` and
        `large_head_dim` of the target and `block_size`, the tokens of a chain.
        TrainingError: it does not fit the target's."""
        layers, of_target = config["num_hidden_layers"], target_config["num_hidden_layers"]
        if layers > of_target:
            raise TrainingError(f"a GliDe draft of {layers} layers reads as many of its "
                                f"target, which has {of_target}")
        for name in ("num_attention_heads", "head_dim"):
            if config["large_" + name] != target_config[name]:
                raise TrainingError(f"large_{name} is {config['large_' + name]}, that of "
                                    f"the target {target_config[name]}")
        super().__init__(config)
        self.layers = nn.ModuleList(GlideLayer(config) for _ in range(layers))
        self.places = config["block_size"]
        self.taps = [f"kv({i})" for i in range(of_target - layers, of_target)]
        # So there are about as many rows of chains as of texts.
        self.chain_every = max(1, self.places - 1)
        self._cross = {"head_dim": config["large_head_dim"],
                       "rope_theta": _CROSS_ROPE_THETA}

    def fresh(self, name):
        return ".cross_attn." in name

    def _of_target(self, kept):
        """[batch, length, keys and values] to those of each of its heads."""
        heads = self.config["large_num_attention_heads"]
        size = self.config["large_head_dim"]
        return shared_by_heads(heads, *split_heads(kept, kept.shape[-1] // size).chunk(2, 1))

    @torch.no_grad()
    def aim(self, target: Llama, batch: Batch) -> None:
        """Lets its queries ask as those of the target's layers do, as far as its own
        rows tell. For a draft that adds nothing of what it finds yet. Random ones
        would look everywhere alike, and learn slowly: there is no norm before them."""
        first = target.config["num_hidden_layers"] - len(self.layers)
        given = target.features(batch.ids, [f"in({first + i})"
                                            for i in range(len(self.layers))])
        tables = rope_tables(self.config, batch.ids.shape[1])
        x = self.embed_tokens(batch.ids)
        for layer, of_target, h in zip(self.layers, target.layers[first:], given):
            q, k, v = layer.queries_keys_values(x, *tables)
            x = layer.add_attended(x, functional.scaled_dot_product_attention(
                q, k, v, is_causal=True))
            asked = of_target.self_attn["q_proj"](of_target.input_layernorm(h))
            layer.cross_attn["q_proj"].weight.copy_(_least_squares(
                x[batch.rows, batch.columns], asked[batch.rows, batch.columns]))
            x = layer.feed_forward(x)

    def states(self, batch, features):
        length = batch.ids.shape[1]
        begins = torch.arange(len(batch.rows)) if batch.begins is None else batch.begins
        rows = batch.rows[begins]
        slots, first = side_by_side(rows, batch.columns[begins], len(batch.ids))
        chains = Chains(first, self.places - 1)
        own_tables, own_chains = chains.tables(self.config, length)
        cross_tables, cross_chains = chains.tables(self._cross, length)
        x = self.embed_tokens(batch.ids)
        y = self.embed_tokens(batch.ids.gather(1, chains.columns.clamp(max=length - 1)))
        for layer, kept in zip(self.layers, features):
            target = self._of_target(kept)
            q, k, v = layer.queries_keys_values(x, *own_tables)
            attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = layer.of_text(x, attended, target, cross_tables)
            y = layer.of_chains(y, chains, (k, v), target, (own_chains, cross_chains))
        states = [self.norm(x[batch.rows, batch.columns])]
        steps = chains.fold(self.norm(y))
        for step in range(chains.steps):
            none = x.new_zeros(len(batch.rows), x.shape[-1])
            states.append(none.index_copy(0, begins, steps[rows, slots, step]))
        return states
