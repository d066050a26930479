"""Where commands compute."""

import argparse
import contextlib
import io
import pathlib
import tempfile
import unittest
from unittest import mock

import torch

from nacre_training import TrainingError, device, trainer
from nacre_training.__main__ import COMMANDS, main
from nacre_training.trainer import STATE

from . import toy


def run(*words):
    """The exit status of a command, and what it said is wrong."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main([str(word) for word in words])
    return status, err.getvalue()


def some_gpus(count):
    """What PyTorch sees."""
    return mock.patch.multiple(torch.cuda, is_available=lambda: count > 0,
                               device_count=lambda: count)


class UseTest(unittest.TestCase):
    def setUp(self):
        self.addCleanup(torch.set_default_device, "cpu")

    def test_tensors_are_made_on_the_device_that_was_asked_for(self):
        for name, there in (("cpu", 0), ("cuda", 1), ("cuda:0", 1), ("cuda:3", 4)):
            # A GPU that only the mock has makes no tensor.
            with some_gpus(there), mock.patch.object(torch, "set_default_device") as made:
                device.use(name)
            made.assert_called_once_with(torch.device(name))
        torch.set_default_device("meta")
        device.use("cpu")
        self.assertEqual(torch.zeros(1).device.type, "cpu")

    def test_what_is_not_there_is_refused(self):
        for name, there, why in (("cuda", 0, "--device cuda: PyTorch sees 0 GPUs here"),
                                 ("cuda:1", 1, "--device cuda:1: PyTorch sees 1 GPUs here"),
                                 ("gpu", 1, "--device gpu is not cpu, cuda or cuda:N"),
                                 ("meta", 1, "--device meta is not cpu, cuda or cuda:N"),
                                 ("", 1, "--device  is not cpu, cuda or cuda:N")):
            with some_gpus(there), self.assertRaises(TrainingError) as refused:
                device.use(name)
            self.assertEqual(str(refused.exception), why)


class CommandsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(torch.set_default_device, "cpu")
        self.folder = pathlib.Path(folder.name)

    def test_each_but_text_has_the_flag(self):
        with some_gpus(0):
            for command in COMMANDS:
                if command == "text":
                    continue
                with mock.patch.object(argparse.ArgumentParser, "error"):
                    status, said = run(command, "--device", "cuda")
                self.assertEqual(status, 1, command)
                self.assertEqual(said, f"nacre_training {command}: --device cuda: "
                                       "PyTorch sees 0 GPUs here\n")

    def make_pair(self):
        target = toy.make_model(self.folder / "target", 1, layers=2, hidden=32)
        toy.make_model(self.folder / "draft", 2, layers=1, hidden=32)
        toy.write_corpus(self.folder / "corpus.jsonl", toy.write_texts(target, 40, 1.0))
        toy.write_corpus(self.folder / "held.jsonl",
                         toy.write_texts(target, 8, 1.0, first=1000))

    def flags(self, out, name):
        return ["--target", self.folder / "target", "--corpus",
                self.folder / "corpus.jsonl", "--held-out", self.folder / "held.jsonl",
                "--out", self.folder / out, "--epochs", 1, "--context", 64,
                "--evaluations", 2, "--threads", 1, "--device", name]

    def test_every_command_runs_where_it_can(self):
        self.make_pair()
        for name in ["cpu"] + ["cuda"] * torch.cuda.is_available():
            for command, more in (("distill", ["--draft", self.folder / "draft"]),
                                  ("make-eesd", []), ("glide", []),
                                  ("glide", ["--draft", self.folder / "draft"]),
                                  ("eagle3", ["--own-head"]), ("medusa", [])):
                with self.subTest(device=name, command=command):
                    out = f"{name}_{command}_{len(more)}"
                    for words in ([command, *more, *self.flags(out, name)],
                                  ["acceptance", "--draft", self.folder / out, "--target",
                                   self.folder / "target", "--held-out",
                                   self.folder / "held.jsonl", "--threads", 1,
                                   "--device", name]):
                        status, said = run(*words)
                        self.assertEqual(status, 0, said)

    def test_a_run_goes_on_on_its_own_device(self):
        self.make_pair()
        words = ["distill", "--draft", self.folder / "draft", *self.flags("out", "cpu")]
        with mock.patch.object(trainer.Trainer, "_step", side_effect=KeyboardInterrupt):
            self.assertEqual(run(*words)[0], 130)
        path = self.folder / "out" / STATE
        state = torch.load(path, weights_only=True)
        self.assertEqual(state["settings"].pop("device"), "cpu")
        torch.save(state, path)  # as of before there was a choice
        torch.save({**state, "settings": {**state["settings"], "device": "cuda"}},
                   path.with_suffix(".other"))
        self.assertEqual(run(*words)[0], 0)
        path.with_suffix(".other").replace(path)
        status, said = run(*words)
        self.assertEqual(status, 1)
        self.assertIn("is of a run with other flags than {'device': 'cpu'}", said)


if __name__ == "__main__":
    unittest.main()
