"""A real service, which writes text and drafts: NACRE is the program."""

import contextlib
import io
import os
import pathlib
import subprocess
import tempfile
import time
import unittest

from nacre_training.__main__ import main
from nacre_training.acceptance import HeldOut
from nacre_training.checkpoint import read_model
from nacre_training.corpus import read_corpus
from nacre_training.glide import begin
from nacre_training.glide_files import write_glide

PROGRAM = os.environ.get("NACRE")
ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = ROOT / "models"
LIMIT_S = 600


@unittest.skipUnless(PROGRAM, "NACRE is not set")
class ServiceTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, *flags):
        log = open(self.folder / "up.log", "w", encoding="utf-8")
        self.addCleanup(log.close)
        service = subprocess.Popen(
            [PROGRAM, "up", "--port", "0", "--drafts", "0", "--target-model",
             f"{MODELS}/target", *flags],
            stdout=subprocess.PIPE, stderr=log, text=True)
        self.addCleanup(service.communicate)
        self.addCleanup(service.terminate)
        self.address = None
        for line in service.stdout:
            if line.startswith("coordinator "):
                self.address = line.split()[1]
            if line.startswith("ready"):
                return
        self.fail("no service: " + (self.folder / "up.log").read_text()[-2000:])


class TextTest(ServiceTest):
    def setUp(self):
        super().setUp()
        self.start("--draft-model", f"{MODELS}/draft")

    def text(self, out, *more):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            status = main(["text", "--address", self.address, "--prompts",
                           str(self.folder / "p.jsonl"), "--out", str(self.folder / out),
                           "--max-tokens", "12", "--temperatures", "0,1", *more])
        return status, said.getvalue()

    def test_the_text_is_the_targets_and_the_same_again(self):
        (self.folder / "p.jsonl").write_text(
            '{"id": "a", "prompt": "Question: How many eggs?\\nAnswer:"}\n'
            '{"id": "d", "text": "def f(x):\\n    return x\\n"}\n'
            '{"id": "b", "prompt": "def main("}\n')
        self.assertEqual(self.text("whole")[0], 0)
        origin, texts = read_corpus(self.folder / "whole")
        self.assertEqual(origin.vocab_size, 4096)
        self.assertEqual([text.id for text in texts],
                         ["a@0", "a@1", "d", "b@0", "b@1"])
        counts = HeldOut(texts, 4096, 64).acceptance(read_model(MODELS / "target"))
        for count in counts.values():
            self.assertGreater(count.rate, 0.9)

        # In two runs, the first of which writes less.
        self.assertEqual(self.text("parts", "--limit", "1")[0], 0)
        self.assertEqual(len(read_corpus(self.folder / "parts")[1]), 2)
        self.assertEqual(self.text("parts")[0], 0)
        self.assertEqual((self.folder / "parts").read_bytes(),
                         (self.folder / "whole").read_bytes())

        # Without time nothing more is begun.
        self.assertEqual(self.text("none", "--minutes", "0")[0], 0)
        self.assertEqual(len((self.folder / "none").read_text().splitlines()), 1)

    def test_a_test_prompt_never_reaches_the_service(self):
        (self.folder / "p.jsonl").write_text('{"prompt": "Question: What?\\nAnswer:"}\n')
        (self.folder / "t.jsonl").write_text('{"prompt": "Question: What?"}\n')
        status, said = self.text("x", "--never", str(self.folder / "t.jsonl"))
        self.assertEqual(status, 1)
        self.assertIn("holds the test prompt", said)
        self.assertFalse((self.folder / "x").exists())


class GlideTest(ServiceTest):
    def test_a_target_drafts_from_the_folder(self):
        import nacre

        target = read_model(MODELS / "target")
        draft = begin(read_model(MODELS / "draft"), target.config, 2, 8, own_head=True)
        write_glide(self.folder / "glide", draft, MODELS / "target", {"method": "none"})
        # Rows cost nothing, and a look little.
        self.start("--glide", f"{self.folder}/glide", "--suffix-drafter", "off",
                   "--target-step-time", "1:250,64:250")
        with nacre.Client(self.address) as client:
            def generate(method):
                return client.generate("Question: How many eggs?\nAnswer:", max_tokens=24,
                                       method=method, temperature=0.0, seed=1,
                                       ignore_eos=True).choices[0]

            expected = generate("ar").token_ids
            # The draft begins as models/draft, which is right for three of four
            # tokens: one request is enough where cores are idle. On a busy machine
            # a look may cost more than a session may spend.
            accepted, end = 0, time.monotonic() + LIMIT_S
            while accepted <= 4 and time.monotonic() < end:
                choice = generate("async")
                self.assertEqual(choice.token_ids, expected)
                accepted += choice.speculation.suffix_accepted
            self.assertGreater(accepted, 4)


if __name__ == "__main__":
    unittest.main()
