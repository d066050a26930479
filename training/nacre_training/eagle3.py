"""`eagle3`: one layer over what some layers of the target are given."""

from __future__ import annotations

import argparse
from typing import List

from . import TrainingError, trainer
from .checkpoint import read_model
from .eagle import Eagle
from .eagle_files import write_eagle

_LR = 1e-3
# Of the services' loader (model/eagle_config.h, model/eagle_files.h).
_MOST_STEPS, _MOST_TAPS = 16, 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    trainer.add_arguments(parser, _LR)
    trainer.add_steps(parser, 4, "in a row, on what it gave itself after the first")
    parser.add_argument("--layers",
                        help="of the target, whose inputs it reads, as in 1,3,5 "
                             "(default: 2, the middle, the last but two; of a target "
                             "of fewer than 9 layers 1, the middle, the last)")
    parser.add_argument("--own-head", action="store_true",
                        help="it gets a head of its own, which begins as the target's "
                             "and is trained")


def choose_layers(text, total: int) -> List[int]:
    """TrainingError: they do not rise within the target."""
    if text is None:
        usual = [2, total // 2, total - 3] if total >= 9 else [1, total // 2, total - 1]
        return sorted(set(usual))
    try:
        layers = [int(part) for part in text.split(",")]
    except ValueError:
        raise TrainingError(f"--layers {text}: not numbers") from None
    if (layers != sorted(set(layers)) or not 0 <= layers[0] <= layers[-1] <= total
            or len(layers) > _MOST_TAPS):
        raise TrainingError(f"--layers {text}: not at most {_MOST_TAPS} that rise "
                            f"within 0 to {total}")
    return layers


def run(arguments: argparse.Namespace) -> None:
    trainer.check_steps(arguments, _MOST_STEPS)
    target = read_model(arguments.target)
    layers = choose_layers(arguments.layers, target.config["num_hidden_layers"])
    student = Eagle(dict(target.config, num_hidden_layers=1),
                    [f"in({layer})" for layer in layers], target.config["hidden_size"],
                    arguments.steps, target.embed_tokens.weight.detach(),
                    None if arguments.own_head else target.head().detach())
    trainer.seed(arguments.seed)
    student.begin_as(target)
    trainer.train_and_write(arguments, student, target, f"eagle3:steps={arguments.steps}",
                            write_eagle)
