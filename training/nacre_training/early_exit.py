"""`make-eesd`: the first layers of a target, one more, a norm and a head of its own.

Early exit with self-distillation (EESD, arXiv 2406.03853): the first N layers and
the embedding are the target's and stay frozen. The layer after them begins as the
target's last one, the norm and the head as its own. On a draft worker of its own
that is a Llama of N + 1 layers.
"""

from __future__ import annotations

import argparse

from . import TrainingError, trainer
from .checkpoint import read_model
from .llama import Llama

# Of weights that stand in another place than they were trained for.
_LR = 1e-3


def early_exit(target: Llama, layers: int) -> Llama:
    """An untrained student. TrainingError: the target has no more than `layers`."""
    total = target.config["num_hidden_layers"]
    if not 1 <= layers < total:
        raise TrainingError(f"--layers {layers} is not from 1 to {total - 1}")
    student = Llama(dict(target.config, num_hidden_layers=layers + 1,
                         tie_word_embeddings=False))
    student.embed_tokens.load_state_dict(target.embed_tokens.state_dict())
    for i in range(layers):
        student.layers[i].load_state_dict(target.layers[i].state_dict())
    student.layers[layers].load_state_dict(target.layers[total - 1].state_dict())
    student.norm.load_state_dict(target.norm.state_dict())
    student.lm_head.load_state_dict({"weight": target.head().detach()})
    return student


def add_arguments(parser: argparse.ArgumentParser) -> None:
    trainer.add_arguments(parser, _LR)
    parser.add_argument("--layers", type=int, default=1,
                        help="N, of the target (default %(default)s)")


def run(arguments: argparse.Namespace) -> None:
    target = read_model(arguments.target)
    student = early_exit(target, arguments.layers)
    student.freeze(arguments.layers)
    trainer.train_and_write(arguments, student, target,
                            f"eesd:layers={arguments.layers}")
