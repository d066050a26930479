#!/usr/bin/env python3
"""Makes the golden of an early exit draft (EESD, arXiv:2406.03853) with PyTorch.

Run from the repository root, with torch, transformers and safetensors
installed, after make_eagle_goldens.py, whose target it is cut from:

    PYTHONPATH=training python3 tests/data/model/make_eesd_goldens.py

Writes eesd/: a draft as `nacre_training make-eesd --layers 3` makes it (the
target's first three layers and embedding, one more layer, a norm and a head,
which are moved here as training moves them), and golden.json:

  prompt  token ids
  rows    logits for each of its tokens
  fed     the tokens that it is then fed, each the likeliest behind the last
  steps   logits for each of those

Logits are those of transformers, and are compared with what stands in the
paper: the target's own hidden states after three layers, through the draft's
last one.
"""

import json
import pathlib

import torch
from nacre_training.checkpoint import read_model, write_draft
from nacre_training.early_exit import early_exit
from transformers import LlamaForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
LAYERS = 3
STEPS = 3
PROMPT = [7, 31, 2, 18, 18, 5, 39, 0, 24, 11, 7]


def exit_logits(target, draft, ids):
    """By the paper's parts: the target to its exit, then the draft's own layer."""
    hidden = target(torch.tensor([ids]), output_hidden_states=True
                    ).hidden_states[LAYERS]
    positions = torch.arange(len(ids))[None]
    mask = torch.full((len(ids), len(ids)), float("-inf")).triu(1)[None, None]
    rotary = draft.model.rotary_emb(hidden, positions)
    out = draft.model.layers[LAYERS](hidden, attention_mask=mask,
                                     position_ids=positions,
                                     position_embeddings=rotary)
    out = out[0] if isinstance(out, tuple) else out
    return draft.lm_head(draft.model.norm(out.reshape(1, len(ids), -1)))[0]


def main():
    torch.manual_seed(19)
    folder = HERE / "eesd"
    student = early_exit(read_model(HERE / "eagle" / "target"), LAYERS)
    with torch.no_grad():
        own = (list(student.layers[LAYERS].parameters())
               + list(student.norm.parameters())
               + list(student.lm_head.parameters()))
        for parameter in own:
            parameter += 0.2 * torch.randn(parameter.shape) * parameter.std()
    write_draft(folder, student, HERE / "eagle" / "target", {})
    for extra in folder.glob("*"):
        if extra.name not in ("config.json", "model.safetensors"):
            extra.unlink()
    draft = LlamaForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager")
    target = LlamaForCausalLM.from_pretrained(
        HERE / "eagle" / "target", dtype=torch.float32, attn_implementation="eager")
    ids = list(PROMPT)
    with torch.no_grad():
        for _ in range(STEPS):
            ids.append(int(draft(torch.tensor([ids])).logits[0, -1].argmax()))
        logits = draft(torch.tensor([ids])).logits[0]
        difference = (logits - exit_logits(target, draft, ids)).abs().max()
        assert difference <= 1e-4 * logits.abs().max(), difference
        cut = (logits - target(torch.tensor([ids])).logits[0]).abs().max()
        assert cut > 0.1 * logits.abs().max(), "it is the target itself"
    rows = [[round(value, 6) for value in row] for row in logits.tolist()]
    (folder / "golden.json").write_text(json.dumps({
        "prompt": PROMPT, "rows": rows[:len(PROMPT)], "fed": ids[len(PROMPT):],
        "steps": rows[len(PROMPT):]}) + "\n")


if __name__ == "__main__":
    main()
