"""`medusa`: heads over the target's last hidden state, one for each token ahead."""

from __future__ import annotations

import argparse

from . import TrainingError, trainer
from .checkpoint import read_model
from .medusa_files import write_medusa
from .medusa_heads import Medusa

_LR = 1e-3
# As the loader of the services counts (model/medusa_files.h).
_MOST_HEADS, _MOST_BLOCKS = 16, 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    trainer.add_arguments(parser, _LR)
    parser.add_argument("--heads", type=int, default=4,
                        help="tokens ahead (default %(default)s)")
    parser.add_argument("--blocks", type=int, default=1,
                        help="of a head (default %(default)s)")
    parser.add_argument("--own-vocabulary", action="store_true",
                        help="each head gets one of its own, which begins as the "
                             "target's and is trained")


def run(arguments: argparse.Namespace) -> None:
    for flag, value, most in (("--heads", arguments.heads, _MOST_HEADS),
                              ("--blocks", arguments.blocks, _MOST_BLOCKS)):
        if not 1 <= value <= most:
            raise TrainingError(f"{flag} {value} is not from 1 to {most}")
    target = read_model(arguments.target)
    student = Medusa(target.config, target.head().detach(), arguments.heads,
                     arguments.blocks, arguments.own_vocabulary)
    trainer.train_and_write(arguments, student, target,
                            f"medusa:heads={arguments.heads},blocks={arguments.blocks}",
                            write_medusa)
