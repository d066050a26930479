"""Whole runs of the commands on a toy pair."""

import contextlib
import io
import pathlib
import tempfile
import unittest
from unittest import mock

import torch
from safetensors.torch import load_file

from nacre_training import losses, trainer
from nacre_training.__main__ import main
from nacre_training.checkpoint import read_model
from nacre_training.schedule import Schedule

from . import toy


def run(*words) -> str:
    """Of a command that succeeds, what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main([str(word) for word in words])
    if status != 0:
        raise AssertionError(f"exit status {status}: {err.getvalue()}")
    return out.getvalue()


class LossTest(unittest.TestCase):
    def test_kl_is_zero_for_equal_rows_and_positive_else(self):
        torch.manual_seed(1)
        a, b = torch.randn(5, 9), torch.randn(5, 9)
        self.assertAlmostEqual(losses.Kl(a).loss(a).item(), 0, places=6)
        p, q = b.softmax(-1), a.softmax(-1)
        self.assertAlmostEqual(losses.Kl(b).loss(a).item(),
                               (p * (p / q).log()).sum(-1).mean().item(), places=5)

    def test_the_race_falls_as_the_draft_comes_near(self):
        torch.manual_seed(1)
        target, other = torch.randn(2000, 9), torch.randn(2000, 9)
        temperatures = torch.tensor([0.0, 1.0]).repeat(1000)

        def loss(share):
            race = losses.Race(target, temperatures, torch.Generator().manual_seed(3))
            return race.loss(share * target + (1 - share) * other).item()

        self.assertLess(loss(1.0), loss(0.5))
        self.assertLess(loss(0.5), loss(0.0))

    def test_without_temperature_the_race_is_the_likeliest_token(self):
        target = torch.tensor([[0.0, 3.0, 1.0]])
        draft = torch.tensor([[2.0, 0.5, 0.0]])
        got = losses.Race(target, torch.zeros(1), torch.Generator()).loss(draft)
        want = -(draft / losses.SOFTNESS).log_softmax(-1)[0, 1]
        self.assertAlmostEqual(got.item(), want.item(), places=5)


class RunTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.target = toy.make_model(cls.folder / "target", 1, layers=3, hidden=32)
        toy.make_model(cls.folder / "draft", 2, layers=1, hidden=32)
        cls.write_corpora(cls.target, 200, "")
        # Here a token tells more of the one after it.
        untied = toy.make_model(cls.folder / "untied", 1, layers=3, hidden=32,
                                tie_word_embeddings=False)
        cls.write_corpora(untied, 400, "untied_")

    @classmethod
    def write_corpora(cls, target, count, prefix):
        texts, held = [], []
        for t in (0.0, 1.0):
            texts += toy.write_texts(target, count, t)
            held += toy.write_texts(target, 40, t, first=1000)
        toy.write_corpus(cls.folder / f"{prefix}corpus.jsonl", texts)
        toy.write_corpus(cls.folder / f"{prefix}held.jsonl", held)

    def flags(self, out, **changes):
        values = {"target": self.folder / "target", "corpus": self.folder / "corpus.jsonl",
                  "held-out": self.folder / "held.jsonl", "out": self.folder / out,
                  "epochs": 6, "lr": 3e-3, "context": 64, "evaluations": 3,
                  "patience": 9, "threads": 1, **changes}
        return [word for name, value in values.items() for word in (f"--{name}", value)]

    def flags_of_untied(self, out, **changes):
        return self.flags(out, target=self.folder / "untied", **{
            "corpus": self.folder / "untied_corpus.jsonl",
            "held-out": self.folder / "untied_held.jsonl", "epochs": 8, **changes})

    def distill(self, out, **changes):
        return run("distill", "--draft", self.folder / "draft",
                   *self.flags(out, **changes))

    def check_improved(self, out):
        card = toy.card(self.folder / out)
        for t in ("0", "1"):
            self.assertGreater(card["held_out_acceptance"][t],
                               card["held_out_acceptance_before"][t] + 0.05)
        self.assertEqual(card["target_fingerprint"], toy.ORIGIN.fingerprint)
        self.assertFalse((self.folder / out / trainer.STATE).exists())
        return card

    def test_distilling_raises_acceptance(self):
        self.distill("distilled")
        card = self.check_improved("distilled")
        said = run("acceptance", "--draft", self.folder / "distilled", "--held-out",
                   self.folder / "held.jsonl", "--context", 64, "--threads", 1)
        rates = [float(part.split(": ")[1].split(" ")[0])
                 for part in said.partition(": ")[2].split(", ")]
        for rate, expected in zip(rates, card["held_out_acceptance"].values()):
            # The checkpoint is bf16, the numbers of the card are before that.
            self.assertAlmostEqual(rate / 100, expected, delta=0.03)

    def test_the_target_accepts_itself(self):
        said = run("acceptance", "--draft", self.folder / "target", "--held-out",
                   self.folder / "held.jsonl", "--context", 64, "--threads", 1)
        self.assertIn("T 0: 100.00 %, T 1: 100.00 %", said)

    def test_early_exit_keeps_the_first_layers(self):
        run("make-eesd", "--layers", 1, *self.flags("eesd"))
        self.check_improved("eesd")
        made = load_file(self.folder / "eesd" / "model.safetensors")
        target = load_file(self.folder / "target" / "model.safetensors")
        for name, value in target.items():
            if name.startswith(("model.embed_tokens.", "model.layers.0.")):
                self.assertTrue(torch.equal(made[name], value), name)
        self.assertFalse(torch.equal(made["lm_head.weight"],
                                     target["model.embed_tokens.weight"]))

    def places_of(self, out, places):
        """Each of a card has a rate; a chain ends where a place is wrong."""
        card = toy.card(self.folder / out)
        self.assertEqual(card["max_lag"], places)
        for t, rate in card["held_out_acceptance"].items():
            rates = card["held_out_acceptance_by_place"][t]
            self.assertEqual((len(rates), rates[0]), (places, rate))
            self.assertLess(card["held_out_chain_length"][t], sum(rates) + 1e-3)
            self.assertGreaterEqual(card["held_out_chain_length"][t], rate)
        return card

    def measured(self, out):
        said = run("acceptance", "--draft", self.folder / out, "--target",
                   self.folder / "untied", "--held-out", self.folder / "untied_held.jsonl",
                   "--context", 64, "--threads", 1)
        return [float(part.split(": ")[1].split(" ")[0])
                for part in said.partition(": ")[2].split(", ")]

    def test_eagle_learns_from_what_layers_are_given(self):
        run("eagle3", "--steps", 3, *self.flags_of_untied("eagle"))
        self.check_improved("eagle")
        card = self.places_of("eagle", 3)
        self.assertEqual((card["method"], card["taps"]),
                         ("eagle3:steps=3", ["in(1)", "in(2)"]))
        for rate, expected in zip(self.measured("eagle"),
                                  card["held_out_acceptance"].values()):
            self.assertAlmostEqual(rate / 100, expected, delta=0.03)
        made = load_file(self.folder / "eagle" / "model.safetensors")
        self.assertNotIn("lm_head.weight", made)
        self.assertIn("layers.0.hidden_norm.weight", made)

    def test_glide_learns_from_what_the_target_keeps(self):
        run("glide", "--draft", self.folder / "draft", "--steps", 3,
            *self.flags_of_untied("glide"))
        self.check_improved("glide")
        card = self.places_of("glide", 3)
        self.assertEqual((card["method"], card["taps"]), ("glide:steps=3", ["kv(2)"]))
        for rate, expected in zip(self.measured("glide"),
                                  card["held_out_acceptance"].values()):
            self.assertAlmostEqual(rate / 100, expected, delta=0.03)
        made = load_file(self.folder / "glide" / "model.safetensors")
        self.assertGreater(
            made["model.layers.0.cross_attn.o_proj.weight"].abs().max(), 0)

    def test_glide_of_the_targets_layers_keeps_its_vocabulary(self):
        run("glide", "--layers", 2, "--steps", 2, *self.flags_of_untied("own", epochs=2))
        made = load_file(self.folder / "own" / "model.safetensors")
        target = load_file(self.folder / "untied" / "model.safetensors")
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            self.assertTrue(torch.equal(made[name], target[name]), name)
        self.assertFalse(torch.equal(made["model.layers.1.mlp.down_proj.weight"],
                                     target["model.layers.2.mlp.down_proj.weight"]))

    def test_medusa_heads_learn_to_look_further(self):
        run("medusa", "--heads", 2, "--own-vocabulary", *self.flags_of_untied("medusa"))
        self.check_improved("medusa")
        card = self.places_of("medusa", 2)
        self.assertEqual((card["method"], card["taps"]),
                         ("medusa:heads=2,blocks=1", ["final"]))
        for rate, expected in zip(self.measured("medusa"),
                                  card["held_out_acceptance"].values()):
            self.assertAlmostEqual(rate / 100, expected, delta=0.03)

    def test_drafts_over_features_are_measured_beside_their_target(self):
        run("medusa", *self.flags("alone", epochs=0.1))
        with self.assertRaisesRegex(AssertionError, "name it, --target"):
            run("acceptance", "--draft", self.folder / "alone", "--held-out",
                self.folder / "held.jsonl", "--threads", 1)

    def test_flags_of_drafts_over_features_are_checked(self):
        for command, flag, value in (("eagle3", "--steps", 17), ("eagle3", "--layers", "4"),
                                     ("medusa", "--heads", 0), ("medusa", "--blocks", 9),
                                     ("glide", "--steps", 65), ("glide", "--layers", 4)):
            with self.assertRaisesRegex(AssertionError, f"{flag} {value}"):
                run(command, flag, value, *self.flags("x"))

    def test_cutting_layers_needs_no_training(self):
        said = run("cut-layers", "--target", self.folder / "target", "--held-out",
                   self.folder / "held.jsonl", "--out", self.folder / "cut",
                   "--keep", "0,2", "--context", 64, "--threads", 1)
        self.assertIn("layers [0, 2]", said)
        self.assertEqual(read_model(self.folder / "cut").config["num_hidden_layers"], 2)
        self.assertEqual(toy.card(self.folder / "cut")["method"], "cut-layers:keep=0,2")

    def check_that_it_goes_on(self, command, whole, stopped):
        """A run that is stopped ends as one that was not: `command` of a folder."""
        command(whole)

        class Stop(Exception):
            pass

        evaluate, seen = trainer.Trainer._evaluate, []

        def stop_at_the_second(self):
            evaluate(self)
            seen.append(None)
            if len(seen) == 2:
                raise Stop

        with mock.patch.object(trainer.Trainer, "_evaluate", stop_at_the_second):
            with self.assertRaises(Stop):
                command(stopped)
        self.assertTrue((self.folder / stopped / trainer.STATE).exists())
        with self.assertRaisesRegex(AssertionError, "other flags.*'lr'"):
            command(stopped, lr=1e-4)
        path = self.folder / stopped / trainer.STATE
        state = torch.load(path, weights_only=True)
        groups = state["optimizer"]["param_groups"]
        for group in groups:
            del group["share"]  # as before there were any
        torch.save({**state, "optimizer": {**state["optimizer"], "param_groups": []}}, path)
        with self.assertRaisesRegex(AssertionError, "of another version"):
            command(stopped)
        torch.save(state, path)
        self.assertIn("goes on at step", command(stopped))
        [file] = (self.folder / whole).glob("*.safetensors")
        unbroken = load_file(file)
        for name, value in load_file(self.folder / stopped / file.name).items():
            self.assertTrue(torch.equal(value, unbroken[name]), name)

    def test_a_stopped_run_ends_as_one_that_was_not(self):
        def of(*command):
            return lambda out, **changes: run(
                *command, *self.flags(out, epochs=1, **changes))

        self.check_that_it_goes_on(of("distill", "--draft", self.folder / "draft"),
                                   "whole", "stopped")
        self.check_that_it_goes_on(of("eagle3"), "whole_eagle", "stopped_eagle")
        self.check_that_it_goes_on(of("medusa"), "whole_medusa", "stopped_medusa")
        self.check_that_it_goes_on(of("glide"), "whole_glide", "stopped_glide")

    def test_a_run_that_gets_more_time_is_still_evaluated(self):
        class Stop(Exception):
            pass

        evaluate, steps = trainer.Trainer._evaluate, []

        def stop_at_the_third(self):
            evaluate(self)
            steps.append(self._schedule.step)
            if len(steps) == 3:
                raise Stop

        def distill(minutes):
            self.distill("longer", epochs=1000, evaluations=4, minutes=minutes)

        # A step takes a second.
        with mock.patch.object(trainer.Trainer, "_evaluate", stop_at_the_third), \
                mock.patch.object(Schedule, "elapsed", lambda self: float(self.step)):
            with self.assertRaises(Stop):
                distill(1)
            distill(2)
        self.assertEqual(steps, [0, 15, 30, 60, 90, 120])

    def test_time_of_the_processor_ends_a_run(self):
        self.distill("short", epochs=1000, **{"cpu-minutes": 0.02})
        card = toy.card(self.folder / "short")
        self.assertLess(card["cpu_seconds"], 30)

    def test_without_memory_for_the_targets_rows_the_losses_are_nearly_the_same(self):
        self.distill("kept", epochs=2)
        self.distill("not_kept", epochs=2, **{"cache-mib": 0})
        kept, anew = (toy.card(self.folder / name)["held_out_acceptance"]
                      for name in ("kept", "not_kept"))
        for t in ("0", "1"):
            self.assertAlmostEqual(kept[t], anew[t], delta=0.1)

    def test_held_out_prompts_must_not_be_trained_on(self):
        with self.assertRaisesRegex(AssertionError, "is trained on"):
            self.distill("x", **{"held-out": self.folder / "corpus.jsonl"})

    def test_a_pair_needs_one_vocabulary(self):
        toy.make_model(self.folder / "other", 3, layers=1, hidden=32, vocab_size=65)
        with self.assertRaisesRegex(AssertionError, "vocabulary sizes differ"):
            run("distill", "--draft", self.folder / "other", *self.flags("x"))


if __name__ == "__main__":
    unittest.main()
