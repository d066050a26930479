"""EAGLE-3 in PyTorch against the goldens that the services' model must meet."""

import json
import pathlib
import tempfile
import unittest

import torch

from nacre_training import TrainingError
from nacre_training.batches import make_batch
from nacre_training.checkpoint import read_model
from nacre_training.corpus import Text
from nacre_training.eagle import Eagle
from nacre_training.eagle3 import choose_layers
from nacre_training.eagle_files import is_eagle, read_eagle, write_eagle

from . import toy

GOLDENS = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "model" / "eagle"


def read(kind):
    target = read_model(GOLDENS / "target")
    draft = read_eagle(GOLDENS / kind, target.embed_tokens.weight.detach(),
                       target.head().detach(), target.config)
    return target, draft


@torch.no_grad()
def all_places(draft, target, ids):
    """Logits by place, [places][length, vocab_size], of chains from each column."""
    batch = make_batch([Text("t", (), tuple(ids))], [0], len(ids))
    states = draft.states(batch, target.features(batch.ids, draft.taps))
    return [draft.logits(rows, place) for place, rows in enumerate(states)]


class EagleGoldenTest(unittest.TestCase):
    def check(self, got, expected):
        expected = torch.tensor([[-torch.inf if x is None else x for x in row]
                                 for row in expected])
        said = expected > -torch.inf
        self.assertTrue(torch.equal(got > -torch.inf, said))
        error = (got[said] - expected[said]).abs().max()
        self.assertLess(error, 1e-3 * expected[said].abs().max())

    def test_rows_with_features_and_self_fed_ones(self):
        golden = json.loads((GOLDENS / "safeailab" / "golden.json").read_text())
        prompt, fed = golden["prompt"], golden["fed"]
        target, draft = read("safeailab")
        self.assertEqual((draft.taps, draft.places), (["in(2)", "in(4)", "in(5)"], 7))
        # One more token: what is said of the last one has no place in a text.
        places = all_places(draft, target, [*prompt, *fed, 0])
        end = len(prompt) - 1  # the column of the prompt's last token
        self.check(places[0][1:end + 1], golden["rows"])
        # Chains that begin there and are given what was fed to the golden's.
        self.check(torch.stack([places[s][end] for s in (1, 2, 3)]), golden["steps"])

    def test_what_is_not_trained_is_refused(self):
        for kind, said in (("speculators", "norm_before_residual"),
                           ("speculators_normed", "norm_before_fc"),
                           ("specforge", "fc_norm"), ("modelopt", "rotary scaling")):
            with self.assertRaisesRegex(TrainingError, said):
                read(kind)
        self.assertFalse(is_eagle(GOLDENS / "target"))
        self.assertTrue(is_eagle(GOLDENS / "speculators"))


class EagleTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.target = toy.make_model(self.folder / "target", 1, layers=3, hidden=32)

    def draft(self, own_head):
        torch.manual_seed(4)
        draft = Eagle(dict(self.target.config, num_hidden_layers=1), ["in(1)", "in(2)"],
                      32, 3, self.target.embed_tokens.weight.detach(),
                      None if own_head else self.target.head().detach())
        draft.begin_as(self.target)
        return draft

    def test_a_folder_is_the_same_draft_again(self):
        ids = list(range(3, 20))
        for own_head in (False, True):
            draft = self.draft(own_head)
            folder = self.folder / f"draft-{own_head}"
            write_eagle(folder, draft, self.folder / "target", {"method": "none"})
            again = read_eagle(folder, self.target.embed_tokens.weight.detach(),
                               self.target.head().detach(), self.target.config)
            self.assertEqual((again.taps, again.places), (["in(1)", "in(2)"], 3))
            self.assertEqual(again.lm_head is None, not own_head)
            for a, b in zip(all_places(draft, self.target, ids),
                            all_places(again, self.target, ids)):
                self.assertLess((a - b).abs().max(), 0.03 * a.abs().max())  # bf16
            toy.check_card(self, folder)

    def test_a_place_sees_no_later_token(self):
        draft = self.draft(False)
        ids = list(range(3, 15))
        before = all_places(draft, self.target, ids)
        for changed in range(1, len(ids)):
            other = list(ids)
            other[changed] = 60
            after = all_places(draft, self.target, other)
            for place in range(3):
                # A chain from column c has seen the tokens up to c + place.
                sees = max(0, changed - place)
                self.assertTrue(torch.equal(before[place][1:sees], after[place][1:sees]))
                if sees < len(ids) - 1 - place and sees > 0:
                    self.assertGreater(
                        (before[place][sees] - after[place][sees]).abs().max(), 0)

    def test_thinned_chains_are_some_of_all(self):
        toy.check_thinned_chains(self, self.draft(False), self.target, [14, 12, 10])

    def test_texts_of_a_batch_do_not_see_each_other(self):
        draft = self.draft(False)
        texts = [Text("a", (3, 4, 5), (6, 7, 8, 9), 0.0), Text("b", (9, 8), (7, 6), 0.0)]
        batch = make_batch(texts, [0, 1], 64)
        together = draft.states(batch, self.target.features(batch.ids, draft.taps))
        for number in (0, 1):
            alone = make_batch(texts, [number], 64)
            states = draft.states(alone, self.target.features(alone.ids, draft.taps))
            for place, rows in enumerate(states):
                starts, _ = alone.place(place, draft.first_column)
                got = together[place][batch.rows == number]
                torch.testing.assert_close(got[starts], rows[starts])

    def test_layers_are_chosen_and_checked(self):
        self.assertEqual(choose_layers(None, 32), [2, 16, 29])
        self.assertEqual(choose_layers(None, 6), [1, 3, 5])
        self.assertEqual(choose_layers(None, 3), [1, 2])
        self.assertEqual(choose_layers("0,6", 6), [0, 6])
        for text in ("", "a", "3,1", "1,1", "7", "-1"):
            with self.assertRaisesRegex(TrainingError, "--layers"):
                choose_layers(text, 6)


if __name__ == "__main__":
    unittest.main()
