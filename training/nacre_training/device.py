"""--device: where a command computes."""

from __future__ import annotations

import argparse

import torch

from . import TrainingError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="cpu",
                        help="cpu, or a GPU that PyTorch sees: cuda, or cuda:N of several "
                             "(default %(default)s)")


def use(name: str) -> None:
    """From now on tensors and models are made there. What files and NumPy hold is
    brought there where it is used. TrainingError: there is no such device here."""
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise TrainingError(f"--device {name} is not cpu, cuda or cuda:N")
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            raise TrainingError(f"--device {name}: PyTorch sees {count} GPUs here")
    torch.set_default_device(device)
