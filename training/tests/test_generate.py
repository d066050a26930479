"""`text`, with a service that answers when the test says so."""

import contextlib
import io
import itertools
import json
import pathlib
import sys
import tempfile
import threading
import types
import unittest
from unittest import mock

from nacre_training import generate
from nacre_training.__main__ import main
from nacre_training.corpus import read_corpus

LIMIT_S = 60


class FakeClient:
    """Continues a prompt by its seed. `before(prompt)`: called before an answer."""

    def __init__(self, before):
        self._before = before

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def model(self, timeout):
        return types.SimpleNamespace(fingerprint="f" * 64, numerics_id="cpu",
                                     vocab_size=256)

    def tokenize(self, text):
        return list(text.encode())

    def generate(self, prompt, seed, **_):
        self._before(bytes(prompt).decode())
        return types.SimpleNamespace(token_ids=(seed % 256,))


class StatusError(Exception):
    pass


class GenerateTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "p.jsonl").write_text(
            "".join(json.dumps({"id": name, "prompt": name}) + "\n" for name in "abcd"))

    def text(self, out, before=lambda prompt: None, *more):
        """(exit status, what it said)."""
        nacre = types.SimpleNamespace(Client=lambda address: FakeClient(before),
                                      StatusError=StatusError)
        said = io.StringIO()
        with mock.patch.dict(sys.modules, nacre=nacre), contextlib.redirect_stderr(said):
            status = main(["text", "--prompts", str(self.folder / "p.jsonl"), "--out",
                           str(self.folder / out), "--temperatures", "1", *more])
        return status, said.getvalue()

    def ids(self, out):
        return [text.id for text in read_corpus(self.folder / out)[1]]

    def test_the_order_is_that_of_the_prompts_whichever_is_ready_first(self):
        last = threading.Event()

        def before(prompt):
            if prompt == "d":
                last.set()
            else:
                self.assertTrue(last.wait(LIMIT_S))

        self.assertEqual(self.text("late", before)[0], 0)
        self.assertEqual(self.ids("late"), ["a@1", "b@1", "c@1", "d@1"])
        self.assertEqual(self.text("one", lambda prompt: None, "--streams", "1")[0], 0)
        self.assertEqual((self.folder / "late").read_bytes(),
                         (self.folder / "one").read_bytes())

    def test_a_run_that_broke_off_leaves_no_gap_and_goes_on(self):
        others = threading.Semaphore(0)

        def before(prompt):
            if prompt in "cd":
                others.release()
            if prompt == "b":
                for _ in "cd":
                    self.assertTrue(others.acquire(timeout=LIMIT_S))
                raise StatusError("gone")

        status, said = self.text("parts", before)
        self.assertEqual(status, 1)
        self.assertIn("gone", said)
        self.assertEqual(self.ids("parts"), ["a@1"])
        self.assertEqual(self.text("parts")[0], 0)
        self.assertEqual(self.text("whole")[0], 0)
        self.assertEqual((self.folder / "parts").read_bytes(),
                         (self.folder / "whole").read_bytes())

    def test_time_that_is_over_leaves_no_gap(self):
        # The second looks at the clock too late, the third had looked before.
        clock = itertools.chain([0.0, 0.0, 61.0], itertools.repeat(0.0))
        with mock.patch.object(generate, "time", types.SimpleNamespace(
                monotonic=lambda: next(clock))):
            self.assertEqual(self.text("short", lambda prompt: None, "--minutes", "1",
                                       "--streams", "1")[0], 0)
        self.assertEqual(self.ids("short"), ["a@1"])


if __name__ == "__main__":
    unittest.main()
