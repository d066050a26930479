"""A toy pair and text of its target, made in a second."""

from __future__ import annotations

import hashlib
import json
import pathlib
from typing import List

import numpy
import torch
from safetensors.torch import load_file

from nacre_training.batches import make_batch
from nacre_training.checkpoint import read_model, write_draft
from nacre_training.corpus import CorpusWriter, Origin, Text
from nacre_training.generate import seed_of
from nacre_training.llama import Llama
from nacre_training.noise import gumbel_noise

VOCAB = 64
ORIGIN = Origin("0" * 64, "toy", VOCAB)


def config(layers: int, hidden: int, **changes) -> dict:
    fields = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "hidden_size": hidden, "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "vocab_size": VOCAB,
        "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "attention_bias": False, "tie_word_embeddings": True, "hidden_act": "silu",
        "bos_token_id": 1, "eos_token_id": 2}
    return {**fields, **changes}


def make_model(folder: pathlib.Path, seed: int, layers: int, hidden: int,
               **changes) -> Llama:
    """A random model on disk, as it is read again."""
    torch.manual_seed(seed)
    model = Llama(config(layers, hidden, **changes))
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=1.5 / parameter.shape[-1] ** 0.5)
    # Sharp enough that drafts have something to learn.
    torch.nn.init.normal_(model.embed_tokens.weight, std=0.7)
    write_draft(folder, model, folder, {})
    return read_model(folder)


@torch.no_grad()
def write_texts(model: Llama, count: int, temperature: float, length: int = 24,
                first: int = 0) -> List[Text]:
    """Texts as a service with this target would write them."""
    numbers = range(first, first + count)
    ids = torch.tensor([[1, 3 + n % (VOCAB - 3), 3 + n // (VOCAB - 3)] for n in numbers])
    names = [f"toy-{n}@{temperature:g}" for n in numbers]
    seeds = [seed_of(1, name) for name in names]
    noise = torch.zeros(count, length, VOCAB)
    if temperature > 0:
        noise = torch.from_numpy(numpy.stack(
            [gumbel_noise(seed, numpy.arange(length), VOCAB) for seed in seeds]))
    for position in range(ids.shape[1], length):
        scores = model(ids)[:, -1] / (temperature or 1.0) + noise[:, position]
        ids = torch.cat([ids, scores.argmax(-1, keepdim=True)], 1)
    return [Text(name, tuple(row[:3]), tuple(row[3:]), temperature, seed)
            for name, row, seed in zip(names, ids.tolist(), seeds)]


def check_card(case, folder: pathlib.Path) -> None:
    """Of a draft whose card says no more than "none": its file is known by it."""
    [file] = folder.glob("*.safetensors")
    case.assertEqual(card(folder), {
        "method": "none",
        "parameters": sum(value.numel() for value in load_file(file).values()),
        "weights_sha256": hashlib.sha256(file.read_bytes()).hexdigest()})


def check_thinned_chains(case, draft, target: Llama, every_place: List[int]) -> None:
    """The chains of thinned batches are together those of the whole one, each once:
    as many as `every_place` says, with the same rows."""
    texts = [Text("a", (3, 4, 5), tuple(range(6, 16)), 0.0),
             Text("b", (9, 8), (7, 6, 5, 4), 0.0), Text("c", (1,), (2,), 0.0)]
    whole = make_batch(texts, [0, 1, 2], 64)
    features = target.features(whole.ids, draft.taps)
    expected = draft.states(whole, features)
    found = [0] * draft.places
    for offset in range(draft.chain_every):
        batch = whole.thinned(draft.chain_every, offset)
        for place, rows in enumerate(draft.states(batch, features)):
            starts, ends = batch.place(place, draft.first_column)
            torch.testing.assert_close(rows[starts], expected[place][starts])
            found[place] += len(starts)
            case.assertTrue(torch.equal(ends - starts, torch.full((len(starts),), place)))
    case.assertGreater(draft.chain_every, 1)
    case.assertEqual(found, [draft.chain_every * every_place[0], *every_place[1:]])
    case.assertEqual([len(whole.place(place, draft.first_column)[0])
                      for place in range(draft.places)], every_place)


def write_corpus(path: pathlib.Path, texts: List[Text]) -> pathlib.Path:
    writer = CorpusWriter(path, ORIGIN)
    for text in texts:
        writer.add(text)
    writer.close()
    return path


def card(folder: pathlib.Path) -> dict:
    return json.loads((folder / "nacre_draft.json").read_text(encoding="utf-8"))
