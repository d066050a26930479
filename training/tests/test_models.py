"""The models against Hugging Face's numbers, and what is made of a target."""

import json
import pathlib
import tempfile
import unittest

import numpy
import torch
from safetensors.torch import load_file

from nacre_training import TrainingError
from nacre_training.acceptance import HeldOut
from nacre_training.checkpoint import read_config, read_model, write_draft
from nacre_training.cut_layers import choose, cut
from nacre_training.early_exit import early_exit

from . import toy

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDENS = ROOT / "tests" / "data" / "model"


class GoldenTest(unittest.TestCase):
    def test_logits_are_hugging_faces(self):
        # The goldens that the services' models must meet, too.
        goldens = json.loads((GOLDENS / "goldens.json").read_text())
        model = read_model(ROOT / "models" / "target")
        for case in goldens["logits"]:
            name = case["name"]
            if not name.startswith("target_"):
                continue
            expected = numpy.fromfile(GOLDENS / f"{name}.logits.f32", numpy.float32)
            expected = expected.reshape(-1, model.config["vocab_size"])
            with torch.no_grad():
                logits = model(torch.tensor([case["token_ids"]]))[0, case["positions"]]
            error = numpy.abs(logits.numpy() - expected).max()
            self.assertLess(error, 1e-3 * numpy.abs(expected).max())


class FolderTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_a_checkpoint_is_the_same_again(self):
        model = toy.make_model(self.folder / "a", 1, layers=2, hidden=16,
                               tie_word_embeddings=False)
        write_draft(self.folder / "b", model, self.folder / "a", {"method": "none"})
        for name, value in load_file(self.folder / "a" / "model.safetensors").items():
            self.assertTrue(torch.equal(
                value, load_file(self.folder / "b" / "model.safetensors")[name]), name)
        toy.check_card(self, self.folder / "b")

    def test_what_is_computed_otherwise_is_refused(self):
        toy.make_model(self.folder / "a", 1, layers=1, hidden=16)
        file = self.folder / "a" / "config.json"
        config = json.loads(file.read_text())
        for change, word in (({"attention_bias": True}, "attention_bias"),
                             ({"partial_rotary_factor": 0.5}, "partial_rotary_factor")):
            file.write_text(json.dumps({**config, **change}))
            with self.assertRaisesRegex(TrainingError, word):
                read_config(self.folder / "a")
        file.write_text(json.dumps({**config, "head_dim": None,
                                    "rope_parameters": {"rope_theta": 7.0}}))
        self.assertEqual(read_config(self.folder / "a")["rope_theta"], 7.0)

    def test_the_tokenizer_comes_with_the_draft(self):
        target = ROOT / "models" / "target"
        model = toy.make_model(self.folder / "a", 1, layers=1, hidden=16)
        write_draft(self.folder / "a", model, target, {})
        for name in ("tokenizer.model", "tokenizer_config.json", "generation_config.json"):
            self.assertEqual((self.folder / "a" / name).read_bytes(),
                             (target / name).read_bytes())

    def test_what_cannot_be_trained_is_refused(self):
        toy.make_model(self.folder, 1, layers=1, hidden=16)
        good = json.loads((self.folder / "config.json").read_text())
        for field, value, said in [
            ("architectures", ["MistralForCausalLM"], "MistralForCausalLM"),
            ("hidden_act", "gelu", "silu"),
            ("rope_scaling", {"rope_type": "llama3"}, "llama3")]:
            (self.folder / "config.json").write_text(json.dumps({**good, field: value}))
            with self.assertRaisesRegex(TrainingError, said):
                read_config(self.folder)
        (self.folder / "config.json").write_text(
            json.dumps({**good, "num_hidden_layers": 2}))
        with self.assertRaisesRegex(TrainingError, "has no model.layers.1"):
            read_model(self.folder)

    def test_early_exit_begins_as_parts_of_the_target(self):
        target = toy.make_model(self.folder, 1, layers=4, hidden=16)
        student = early_exit(target, 2)
        self.assertEqual(student.config["num_hidden_layers"], 3)
        self.assertFalse(student.config["tie_word_embeddings"])
        kept = cut(target, [0, 1, 3])
        ids = torch.tensor([[1, 2, 3, 4]])
        with torch.no_grad():
            torch.testing.assert_close(student(ids), kept(ids))
            self.assertGreater((kept(ids) - target(ids)).abs().max(), 0.1)
        # Its own head: the target's stays.
        student.lm_head.weight.data.zero_()
        self.assertGreater(target.head().abs().max(), 0)
        for layers in (0, 4):
            with self.assertRaisesRegex(TrainingError, f"--layers {layers}"):
                early_exit(target, layers)

    def test_the_layer_that_does_nothing_is_the_first_to_go(self):
        target = toy.make_model(self.folder, 1, layers=4, hidden=16)
        for part in (target.layers[2].self_attn["o_proj"], target.layers[2].mlp["down_proj"]):
            part.weight.data.zero_()
        texts = toy.write_texts(target, 8, 0.0) + toy.write_texts(target, 8, 1.0)
        held_out = HeldOut(texts, toy.VOCAB, 64)
        self.assertEqual(choose(target, 3, held_out), [0, 1, 3])
        counts = held_out.acceptance(cut(target, [0, 1, 3]))
        self.assertEqual([count.rate for count in counts.values()], [1.0, 1.0])
        for keep in ([], [1, 0], [0, 0], [4]):
            with self.assertRaisesRegex(TrainingError, "do not rise"):
                cut(target, keep)


if __name__ == "__main__":
    unittest.main()
