"""Trains a student on its target's text; what all commands share.

The end: --epochs or --minutes, whichever comes first, or no better acceptance
for a while. What is written is the best of all that were tried on held-out text.
"""

from __future__ import annotations

import argparse
import math
import pathlib
from typing import Callable, Dict, Iterator, List

import torch

from . import TrainingError, device
from .acceptance import HeldOut, describe, mean_length
from .batches import Batch, epoch, usable
from .checkpoint import check_pair, write_draft
from .corpus import Origin, Text, read_corpus
from .draft import Draft
from .llama import Llama
from .losses import Kl, Race
from .progress import Progress
from .schedule import Schedule
from .teacher import Teacher

STATE = "training_state.pt"
# How much a place counts beside the one before it, as in EAGLE-3.
_PLACE_WEIGHT = 0.8
# Of the learning rate, for what begins as nothing beside what does not.
_FRESH_SHARE = 5.0


def add_arguments(parser: argparse.ArgumentParser, lr: float) -> None:
    parser.add_argument("--target", type=pathlib.Path, required=True, help="checkpoint")
    parser.add_argument("--corpus", type=pathlib.Path, required=True,
                        help="what the target wrote, by `text`")
    parser.add_argument("--held-out", type=pathlib.Path, required=True,
                        help="more of it, from other prompts: decides when to stop")
    parser.add_argument("--out", type=pathlib.Path, required=True,
                        help="folder of the new draft")
    parser.add_argument("--epochs", type=float, default=3.0, help="default %(default)s")
    parser.add_argument("--minutes", type=float, default=25.0,
                        help="at most, of all runs that go on (default %(default)s)")
    parser.add_argument("--cpu-minutes", type=float, default=math.inf,
                        help="at most, of all threads together, likewise: for a busy "
                             "machine (default: no limit)")
    parser.add_argument("--lr", type=float, default=lr,
                        help="peak learning rate (default %(default)s)")
    parser.add_argument("--rows", type=int, default=32,
                        help="texts of a batch (default %(default)s)")
    parser.add_argument("--context", type=int, default=384,
                        help="tokens of a text that count (default %(default)s)")
    parser.add_argument("--race-share", type=float, default=0.4,
                        help="share of the run, its end, that trains on the race and "
                             "not on KL (default %(default)s)")
    parser.add_argument("--evaluations", type=int, default=10,
                        help="of held-out acceptance (default %(default)s)")
    parser.add_argument("--patience", type=int, default=4,
                        help="evaluations without a better one that end the run "
                             "(default %(default)s)")
    parser.add_argument("--cache-mib", type=int, default=4096,
                        help="memory of --device for the target's hidden rows; with "
                             "less than all of them it computes each epoch anew "
                             "(default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="default %(default)s")
    parser.add_argument("--threads", type=int, default=2, help="default %(default)s")
    device.add_arguments(parser)


def add_steps(parser: argparse.ArgumentParser, steps: int, where: str) -> None:
    parser.add_argument("--steps", type=int, default=steps,
                        help=f"tokens that it learns to draft {where} "
                             "(default %(default)s)")


def check_steps(arguments: argparse.Namespace, most: int) -> None:
    """TrainingError: they are not from 1 to `most`."""
    if not 1 <= arguments.steps <= most:
        raise TrainingError(f"--steps {arguments.steps} is not from 1 to {most}")


def seed(number: int) -> None:
    torch.manual_seed(number)


class Trainer:
    """Trains those parameters of the student that take a gradient."""

    def __init__(self, arguments: argparse.Namespace, student: Draft,
                 target: Llama) -> None:
        torch.set_num_threads(arguments.threads)
        seed(arguments.seed)
        self._arguments = arguments
        self._origin, self._texts = read_corpus(arguments.corpus)
        held_origin, held_texts = read_corpus(arguments.held_out)
        _check_held_out(self._origin, self._texts, held_origin, held_texts)
        check_pair(target.config, student.config, self._origin)
        self._held_out = HeldOut(held_texts, self._origin.vocab_size, arguments.context,
                                 target)
        self._student = student
        self._teacher = Teacher(target, self._texts, arguments.context,
                                arguments.cache_mib, student.taps)
        self._trained = [p for p in student.parameters() if p.requires_grad]
        self._optimizer = torch.optim.AdamW(_groups(student), lr=arguments.lr,
                                            betas=(0.9, 0.95), weight_decay=0.01)
        self._noise = torch.Generator(torch.get_default_device())
        self._noise.manual_seed(arguments.seed)
        per_epoch = -(-len(usable(self._texts, arguments.context)) // arguments.rows)
        self._per_epoch = max(1, per_epoch)
        self._schedule = Schedule(max(1, round(arguments.epochs * self._per_epoch)),
                                  60 * arguments.minutes, 60 * arguments.cpu_minutes)
        self._tried: List[dict] = []
        self._best: Dict[str, torch.Tensor] = {}

    def run(self) -> dict:
        """Trains to the end and leaves the best weights in the student. Returns
        what its card says of that."""
        self._arguments.out.mkdir(parents=True, exist_ok=True)
        if not self._resume():
            self._evaluate()
        progress = Progress("training", 1000)
        batches = self._batches()
        while not self._is_over():
            loss = self._step(next(batches))
            progress.at(int(1000 * self._schedule.progress()), f"loss {loss:.3f}")
            if self._due() > self._tried[-1]["due"]:
                self._evaluate()
        progress.close()
        self._student.load_state_dict(self._best)
        return self._card()

    def finish(self) -> None:
        """Removes what a stopped run would go on from."""
        (self._arguments.out / STATE).unlink(missing_ok=True)

    def _batches(self) -> Iterator[Batch]:
        """Endless, from the step where the run is."""
        number, skip = divmod(self._schedule.step, self._per_epoch)
        while True:
            for batch in epoch(self._texts, self._arguments.context,
                               self._arguments.rows, self._arguments.seed + number):
                if skip == 0:
                    yield batch
                else:
                    skip -= 1
            number += 1

    def _loss(self, batch: Batch) -> torch.Tensor:
        """Of all places, each weighted less than the one before."""
        batch = batch.thinned(self._student.chain_every, self._schedule.step)
        target, features = self._teacher.look(batch)
        if self._schedule.progress() < 1 - self._arguments.race_share:
            aim = Kl(target)
        else:
            aim = Race(target, batch.temperatures, self._noise)
        total, weights = torch.zeros(()), 0.0
        for place, states in enumerate(self._student.states(batch, features)):
            starts, ends = batch.place(place, self._student.first_column)
            if len(starts) == 0:
                break
            weight = _PLACE_WEIGHT ** place
            draft = self._student.logits(states[starts], place)
            total, weights = total + weight * aim.loss(draft, ends), weights + weight
        return total / max(weights, 1.0)  # none: too short a text, nothing to learn

    def _step(self, batch: Batch) -> float:
        loss = self._loss(batch)
        if not torch.isfinite(loss):
            raise TrainingError(f"the loss is {loss.item()}: lower --lr, now "
                                f"{self._arguments.lr}")
        for group in self._optimizer.param_groups:
            group["lr"] = group["share"] * self._schedule.rate(self._arguments.lr)
        if loss.requires_grad:
            self._optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self._trained, 1.0)
            self._optimizer.step()
        self._schedule.step += 1
        return loss.item()

    def _due(self) -> int:
        """Evaluations that there should have been; where time leaps one does for
        several."""
        return int(self._schedule.progress() * self._arguments.evaluations)

    def _evaluate(self) -> None:
        counts = self._held_out.acceptance(self._student)
        mean = mean_length(counts)
        if not self._tried or mean > max(tried["mean"] for tried in self._tried):
            self._best = {name: value.detach().clone()
                          for name, value in self._student.state_dict().items()}
        self._tried.append({
            "step": self._schedule.step, "seconds": round(self._schedule.elapsed()),
            "mean": mean, "due": self._due(),
            "cpu_seconds": round(self._schedule.cpu_elapsed()),
            "acceptance": {f"{t:g}": c.rate for t, c in counts.items()},
            "places": {f"{t:g}": c.rates for t, c in counts.items()},
            "lengths": {f"{t:g}": c.length for t, c in counts.items()}})
        print(f"step {self._schedule.step}, {self._schedule.elapsed():.0f} s, held out: "
              f"{describe(counts)}", flush=True)
        self._save()

    def _is_over(self) -> bool:
        means = [tried["mean"] for tried in self._tried]
        since_best = len(means) - 1 - means.index(max(means))
        return self._schedule.progress() >= 1 or since_best >= self._arguments.patience

    def _settings(self) -> dict:
        """What must be the same for a run to go on."""
        return {name: str(value) for name, value in vars(self._arguments).items()
                if name not in ("minutes", "cpu_minutes", "threads", "patience", "cache_mib",
                                "command")}

    def _save(self) -> None:
        path = self._arguments.out / STATE
        partial = path.with_suffix(".partial")
        torch.save({
            "settings": self._settings(), "student": self._student.state_dict(),
            "best": self._best, "optimizer": self._optimizer.state_dict(),
            "noise": self._noise.get_state(), "tried": self._tried,
            "step": self._schedule.step, "seconds": self._schedule.elapsed(),
            "cpu_seconds": self._schedule.cpu_elapsed()}, partial)
        partial.replace(path)

    def _resume(self) -> bool:
        path = self._arguments.out / STATE
        if not path.exists():
            return False
        state = torch.load(path, map_location=torch.get_default_device(),
                           weights_only=True)
        # Runs of before there was a choice.
        settings = {"device": "cpu"} | state["settings"]
        changed = {name: value for name, value in self._settings().items()
                   if settings.get(name) != value}
        if changed:
            raise TrainingError(f"{path} is of a run with other flags than {changed}: "
                                "remove it, or choose another --out")
        self._student.load_state_dict(state["student"])
        shares = [group["share"] for group in self._optimizer.param_groups]
        try:
            self._optimizer.load_state_dict(state["optimizer"])
        except ValueError:
            raise TrainingError(f"{path} is of another version of this program: remove "
                                "it, or choose another --out") from None
        for group, share in zip(self._optimizer.param_groups, shares):
            group["share"] = share
        self._noise.set_state(state["noise"].cpu())
        self._best, self._tried = state["best"], state["tried"]
        self._schedule.step, self._schedule.spent = state["step"], state["seconds"]
        self._schedule.cpu_spent = state["cpu_seconds"]
        # With more time than before the run is not as far as it was.
        self._tried[-1]["due"] = min(self._tried[-1]["due"], self._due())
        print(f"goes on at step {self._schedule.step}", flush=True)
        return True

    def _card(self) -> dict:
        best = max(self._tried, key=lambda tried: tried["mean"])
        rounded = lambda rates: {t: round(rate, 4) for t, rate in rates.items()}
        card = {
            "target_fingerprint": self._origin.fingerprint,
            "taps": list(self._student.taps),
            "texts": len(self._texts),
            "tokens": sum(len(text.token_ids) for text in self._texts),
            "steps": best["step"],
            "seconds": best["seconds"],
            "cpu_seconds": best["cpu_seconds"],
            "held_out_acceptance_before": rounded(self._tried[0]["acceptance"]),
            "held_out_acceptance": rounded(best["acceptance"]),
        }
        if self._student.places > 1:
            card["max_lag"] = self._student.places
            card["held_out_acceptance_by_place"] = {
                t: [round(rate, 4) for rate in rates] for t, rates in best["places"].items()}
            card["held_out_chain_length"] = rounded(best["lengths"])
        return card


def _groups(student: Draft) -> List[dict]:
    """What is trained, by the share of the learning rate that it gets."""
    named = [(n, p) for n, p in student.named_parameters() if p.requires_grad]
    groups = [{"params": [p for n, p in named if student.fresh(n) == is_fresh],
               "share": _FRESH_SHARE if is_fresh else 1.0} for is_fresh in (False, True)]
    return [group for group in groups if group["params"]]


def _check_held_out(origin: Origin, texts: List[Text], held_origin: Origin,
                    held_texts: List[Text]) -> None:
    if origin.fingerprint != held_origin.fingerprint:
        raise TrainingError("--corpus and --held-out are of different targets")
    trained = {text.prompt for text in texts if text.prompt}
    for text in held_texts:
        if text.prompt in trained:
            raise TrainingError(f"the prompt of held-out text {text.id} is trained on")


def train_and_write(arguments: argparse.Namespace, student: Draft, target: Llama,
                    method: str, write: Callable = write_draft) -> None:
    """`write`: as write_draft, of the student's kind."""
    trainer = Trainer(arguments, student, target)
    card = {"method": method} | trainer.run()
    write(arguments.out, student, arguments.target, card)
    trainer.finish()
    print(f"{arguments.out}: held-out acceptance {card['held_out_acceptance']}, before "
          f"{card['held_out_acceptance_before']}")
