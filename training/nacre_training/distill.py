"""`distill`: a draft learns from what its target writes (DistillSpec)."""

from __future__ import annotations

import argparse
import pathlib

from . import trainer
from .checkpoint import read_model

# Of weights that are good already.
_LR = 5e-4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    trainer.add_arguments(parser, _LR)
    parser.add_argument("--draft", type=pathlib.Path, required=True,
                        help="checkpoint to begin with; it stays as it is")


def run(arguments: argparse.Namespace) -> None:
    trainer.train_and_write(arguments, read_model(arguments.draft),
                            read_model(arguments.target), "distill")
