"""Drafts of every kind from their folders."""

from __future__ import annotations

import pathlib
from typing import Optional

from . import TrainingError
from .checkpoint import read_model
from .draft import Draft
from .eagle_files import is_eagle, read_eagle
from .glide_files import is_glide, read_glide
from .llama import Llama
from .medusa_files import FILE_NAME, read_medusa


def read_draft(folder: pathlib.Path, target: Optional[Llama]) -> Draft:
    """TrainingError: it is malformed, or reads features of a target that is not
    given."""
    is_medusa, glide = (folder / FILE_NAME).exists(), is_glide(folder)
    if not is_medusa and not glide and not is_eagle(folder):
        return read_model(folder)
    if target is None:
        raise TrainingError(f"{folder} reads features of its target: name it, --target")
    if glide:
        return read_glide(folder, target.config)
    if is_medusa:
        return read_medusa(folder, target.head().detach(), target.config)
    return read_eagle(folder, target.embed_tokens.weight.detach(),
                      target.head().detach(), target.config)
