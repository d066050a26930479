"""GliDe drafts in PyTorch against the goldens that the services' model must meet."""

import json
import pathlib
import tempfile
import unittest

import torch
from safetensors.torch import load_file, save_file

from nacre_training import TrainingError
from nacre_training.batches import make_batch
from nacre_training.checkpoint import read_model
from nacre_training.corpus import Text
from nacre_training.glide import begin
from nacre_training.glide_files import is_glide, read_glide, write_glide
from nacre_training.llama import rope_tables

from . import toy

GOLDENS = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "model"


@torch.no_grad()
def all_places(draft, target, ids):
    """Logits by place, [places][length, vocab_size], of chains from each column."""
    batch = make_batch([Text("t", (), tuple(ids))], [0], len(ids))
    states = draft.states(batch, target.features(batch.ids, draft.taps))
    return [draft.logits(rows, place) for place, rows in enumerate(states)]


class GlideGoldenTest(unittest.TestCase):
    def check(self, kind, taps):
        folder = GOLDENS / "glide" / kind
        golden = json.loads((folder / "golden.json").read_text())
        target = read_model(GOLDENS / "eagle" / "target")
        draft = read_glide(folder, target.config)
        self.assertEqual((draft.taps, draft.places), (taps, 5))
        draft.places = 14  # No chain of the golden is longer.
        for case in golden["cases"]:
            if case["first"] > 0:
                continue  # no text begins so in training
            # One more token: what is said of the last one has no place in a text.
            ids = [*golden["prompt"], *case["fed"], 0]
            places = all_places(draft, target, ids)
            for column, row in enumerate(case["rows"] + case["steps"]):
                place = max(0, column - case["target"])
                expected = torch.tensor(row)
                error = (places[place][column - place] - expected).abs().max()
                self.assertLess(error, 1e-3 * expected.abs().max(),
                                f"{case['target']} {column}")

    def test_rows_say_what_the_golden_says(self):
        self.check("one_layer", ["kv(7)"])
        self.check("two_layers", ["kv(6)", "kv(7)"])

    def test_a_kind_is_known_by_its_tensors(self):
        self.assertTrue(is_glide(GOLDENS / "glide" / "one_layer"))
        self.assertFalse(is_glide(GOLDENS / "eagle" / "target"))



class GlideTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.target = toy.make_model(self.folder / "target", 1, layers=3, hidden=32)
        self.first = toy.make_model(self.folder / "first", 2, layers=2, hidden=16)

    def begin(self, **changes):
        values = {"layers": 2, "steps": 4, "own_head": False, **changes}
        first = values.pop("first", self.first)
        return begin(first, self.target.config, **values)

    def draft(self, **changes):
        """One that uses what the target keeps."""
        torch.manual_seed(4)
        draft = self.begin(**changes)
        for layer in draft.layers:
            for part in layer.cross_attn.values():
                torch.nn.init.normal_(part.weight, std=0.3)
        return draft

    def test_it_begins_as_a_draft_that_sees_nothing_of_the_target(self):
        ids = list(range(3, 20))
        for own_head in (False, True):
            draft = self.begin(own_head=own_head)
            self.assertEqual(draft.lm_head is not None, own_head)
            with torch.no_grad():
                said = self.first(torch.tensor([ids]))[0]
            for place, rows in enumerate(all_places(draft, self.target, ids)):
                count = len(ids) - 1 - place
                torch.testing.assert_close(rows[:count], said[place:place + count])

    def test_it_can_begin_as_the_targets_last_layers(self):
        draft = self.begin(first=self.target, layers=1)
        self.assertEqual((draft.taps, draft.config["hidden_size"]), (["kv(2)"], 32))
        for name, value in self.target.layers[2].state_dict().items():
            self.assertTrue(torch.equal(draft.layers[0].state_dict()[name], value), name)
        for layers in (0, 4):
            with self.assertRaisesRegex(TrainingError, f"--layers {layers}"):
                self.begin(first=self.target, layers=layers)

    def test_its_queries_begin_as_the_targets(self):
        # Of the target's own first layers the rows tell all that the target asks.
        draft = self.begin(first=self.target, layers=3)
        batch = make_batch([Text("t", (), tuple(range(3, 60)))], [0], 64)
        draft.aim(self.target, batch)
        h = draft.embed_tokens(batch.ids)
        layer, of_target = draft.layers[0], self.target.layers[0]
        with torch.no_grad():
            tables = rope_tables(draft.config, h.shape[1])
            q, k, v = layer.queries_keys_values(h, *tables)
            attended = torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=True)
            asks = layer.cross_attn["q_proj"](layer.add_attended(h, attended))
            asked = of_target.self_attn["q_proj"](of_target.input_layernorm(h))
        error = (asks - asked)[0, :-1].pow(2).mean() / asked.pow(2).mean()
        self.assertLess(error, 0.5)

    def test_a_folder_is_the_same_draft_again(self):
        ids = list(range(3, 20))
        for own_head in (False, True):
            draft = self.draft(own_head=own_head)
            folder = self.folder / f"draft-{own_head}"
            write_glide(folder, draft, self.folder / "target", {"method": "none"})
            again = read_glide(folder, self.target.config)
            self.assertEqual((again.taps, again.places), (["kv(1)", "kv(2)"], 4))
            for a, b in zip(all_places(draft, self.target, ids),
                            all_places(again, self.target, ids)):
                self.assertLess((a - b).abs().max(), 0.03 * a.abs().max())  # bf16
            toy.check_card(self, folder)
            fields = json.loads((folder / "config.json").read_text())
            self.assertEqual(fields["large_num_key_value_heads"],
                             self.target.config["num_key_value_heads"])

    def test_a_chain_sees_of_the_target_what_its_first_row_sees(self):
        draft = self.draft()
        batch = make_batch([Text("t", (), tuple(range(3, 15)))], [0], 64)
        with torch.no_grad():
            features = self.target.features(batch.ids, draft.taps)
            before = draft.states(batch, features)
            for changed in range(12):
                other = [tap.clone() for tap in features]
                for tap in other:
                    tap[:, changed] += 1
                for rows, now in zip(before, draft.states(batch, other)):
                    # The row of a column sees the target's columns before it.
                    self.assertTrue(torch.equal(rows[:changed + 1], now[:changed + 1]))
                    if changed < 10:
                        self.assertGreater((rows - now)[changed + 1].abs().max(), 0)

    def test_a_place_sees_no_later_token(self):
        draft = self.draft()
        ids = list(range(3, 15))
        before = all_places(draft, self.target, ids)
        for changed in range(len(ids)):
            other = list(ids)
            other[changed] = 60
            after = all_places(draft, self.target, other)
            for place in range(4):
                # A chain from column c has seen the tokens up to c + place.
                sees = max(0, changed - place)
                self.assertTrue(torch.equal(before[place][:sees], after[place][:sees]))
                if sees < len(ids) - 1 - place:
                    self.assertGreater(
                        (before[place][sees] - after[place][sees]).abs().max(), 0)

    def test_thinned_chains_are_some_of_all(self):
        toy.check_thinned_chains(self, self.draft(), self.target, [15, 12, 10, 8])

    def test_what_does_not_fit_the_target_is_refused(self):
        write_glide(self.folder / "a", self.draft(), self.folder / "target", {})
        file = self.folder / "a" / "config.json"
        good = json.loads(file.read_text())

        def refuse(said, target=self.target.config, **changes):
            file.write_text(json.dumps({name: value for name, value in
                                        {**good, **changes}.items() if value != "none"}))
            with self.assertRaisesRegex(TrainingError, said):
                read_glide(self.folder / "a", target)

        refuse("large_head_dim is 16, that of the target 8", large_head_dim=16)
        refuse("large_num_attention_heads is 2", large_num_attention_heads=2)
        refuse("has no 'large_num_attention_heads'", large_num_attention_heads="none")
        refuse("use_remap", use_remap=True)
        refuse("2 layers .* target, which has 1",
               dict(self.target.config, num_hidden_layers=1))
        file.write_text(json.dumps(good))
        path = self.folder / "a" / "model.safetensors"
        tensors = load_file(path)
        save_file(tensors | {"model.layers.0.cross_attn.q_proj.bias": torch.zeros(1)}, path)
        with self.assertRaisesRegex(TrainingError, "unknown .*q_proj.bias"):
            read_glide(self.folder / "a", self.target.config)


if __name__ == "__main__":
    unittest.main()
