"""Medusa heads in PyTorch against the goldens that the services' heads must meet."""

import json
import pathlib
import tempfile
import unittest

import torch
from safetensors.torch import load_file, save_file

from nacre_training import TrainingError
from nacre_training.batches import make_batch
from nacre_training.corpus import Text
from nacre_training.medusa_files import FILE_NAME, read_medusa, write_medusa
from nacre_training.medusa_heads import Medusa

from . import toy

GOLDENS = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "model" / "medusa"


def batch_of(count):
    """Positions 1 to `count` of a text; each is beside the state before it."""
    return make_batch([Text("t", (1, 2), tuple(range(3, 3 + count)))], [0], count + 2)


class MedusaGoldenTest(unittest.TestCase):
    def test_heads_say_what_the_golden_says(self):
        for kind, heads, owns in (("medusa_v1", 3, True), ("medusa_v2", 4, False)):
            golden = json.loads((GOLDENS / kind / "golden.json").read_text())
            hidden = torch.tensor(golden["hidden"])
            draft = read_medusa(GOLDENS / kind, torch.tensor(golden["target"]), {})
            self.assertEqual((draft.places, len(draft.vocabularies) > 0), (heads, owns))
            with torch.no_grad():
                states = draft.states(batch_of(len(hidden)), [hidden[None]])
                for place, rows in enumerate(states):
                    expected = torch.tensor(golden["logits"][place])
                    error = (draft.logits(rows, place) - expected).abs().max()
                    self.assertLess(error, 1e-3 * expected.abs().max())


class MedusaTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.target = toy.make_model(self.folder / "target", 1, layers=2, hidden=16)

    def draft(self, **changes):
        values = {"heads": 3, "blocks": 1, "own_vocabulary": False, **changes}
        return Medusa(self.target.config, self.target.head().detach(), **values)

    def test_untrained_heads_say_what_the_target_says(self):
        for changes in ({}, {"blocks": 2}, {"own_vocabulary": True}):
            draft, batch = self.draft(**changes), batch_of(5)
            with torch.no_grad():
                [final] = self.target.features(batch.ids, ["final"])
                for place, rows in enumerate(draft.states(batch, [final])):
                    torch.testing.assert_close(
                        draft.logits(rows, place),
                        self.target(batch.ids)[0, batch.columns - 1])

    def test_a_folder_is_the_same_draft_again(self):
        for number, changes in enumerate(({}, {"blocks": 2, "own_vocabulary": True})):
            draft = self.draft(**changes)
            torch.manual_seed(5)
            for parameter in draft.parameters():
                parameter.data = torch.randn(parameter.shape).bfloat16().float()
            folder = self.folder / f"draft-{number}"
            write_medusa(folder, draft, self.folder / "target", {"method": "none"})
            again = read_medusa(folder, self.target.head().detach(), self.target.config)
            for name, value in draft.state_dict().items():
                self.assertTrue(torch.equal(value, again.state_dict()[name]), name)
            toy.check_card(self, folder)

    def test_a_file_that_is_not_whole_is_refused(self):
        write_medusa(self.folder / "a", self.draft(), self.folder / "target", {})
        path = self.folder / "a" / FILE_NAME
        tensors = load_file(path)

        def refuse(changed, said):
            save_file(changed, path)
            with self.assertRaisesRegex(TrainingError, said):
                read_medusa(self.folder / "a", self.target.head().detach(),
                            self.target.config)

        missing = {name: value for name, value in tensors.items()
                   if name != "2.0.linear.bias"}
        refuse(missing, "missing .*2.0.linear.bias")
        refuse(tensors | {"strange": torch.zeros(1)}, "unknown .*strange")
        refuse(tensors | {"1.1.weight": torch.zeros(64, 16)}, "3 heads.*1 vocabularies")
        refuse(tensors | {"0.0.linear.weight": torch.zeros(3, 3)}, "size mismatch")
        refuse({"strange": torch.zeros(1)}, "0 heads")


if __name__ == "__main__":
    unittest.main()
