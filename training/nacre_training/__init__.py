"""Trains drafts for Nacre on text that their target wrote (training/README.md)."""


class TrainingError(Exception):
    """Something the user can put right: a flag, a file, an unreachable service."""
