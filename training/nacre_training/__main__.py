"""python -m nacre_training COMMAND: see training/README.md."""

from __future__ import annotations

import argparse
import importlib
import sys

from . import TrainingError

# Command to (module, what it does). A module is imported only for its command:
# `text` needs no PyTorch, the others no gRPC.
COMMANDS = {
    "text": ("generate", "let a running service write the text to train on"),
    "distill": ("distill", "train a draft on the target's text (DistillSpec)"),
    "make-eesd": ("early_exit", "first layers of the target, one more and a head (EESD)"),
    "glide": ("glide", "train a Llama that sees the target's keys and values (GliDe)"),
    "eagle3": ("eagle3", "train a layer over the target's features (EAGLE-3)"),
    "medusa": ("medusa", "train heads over the target's last state (Medusa)"),
    "cut-layers": ("cut_layers", "a target with fewer layers (LayerSkip, Self-SD)"),
    "acceptance": ("acceptance", "how often a draft says what the target said"),
}


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(prog="nacre_training", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    argv = sys.argv[1:] if argv is None else argv
    modules = {}
    for name, (module, purpose) in COMMANDS.items():
        sub = commands.add_parser(name, help=purpose, description=purpose)
        if name in argv[:1]:
            modules[name] = importlib.import_module(f".{module}", __package__)
            modules[name].add_arguments(sub)
    arguments = parser.parse_args(argv)
    try:
        if "device" in arguments:
            importlib.import_module(".device", __package__).use(arguments.device)
        modules[arguments.command].run(arguments)
    except TrainingError as error:
        print(f"nacre_training {arguments.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; the same command goes on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
