import argparse
import json
import pathlib
import tempfile
import unittest

from nacre_training import TrainingError
from nacre_training.batches import epoch, make_batch, usable
from nacre_training.corpus import CorpusWriter, Origin, Text, read_corpus
from nacre_training.generate import (jobs_of, parse_temperatures, read_prompts,
                                     refuse_test_prompts, seed_of)

ORIGIN = Origin("f" * 64, "cpu", 50)


class CorpusTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name, "corpus.jsonl")

    def write(self, *texts, origin=ORIGIN):
        writer = CorpusWriter(self.path, origin)
        for text in texts:
            writer.add(text)
        writer.close()
        return writer

    def test_reads_what_was_written(self):
        texts = [Text("a@0.8", (1, 2), (3, 4), 0.8, 1 << 63), Text("b", (), (5,))]
        self.write(*texts)
        self.assertEqual(read_corpus(self.path), (ORIGIN, texts))

    def test_goes_on_behind_the_last_whole_line(self):
        self.write(Text("a", (), (1,)))
        with open(self.path, "a", encoding="utf-8") as file:
            file.write('{"id": "b", "prom')
        writer = self.write(Text("c", (), (2,)))
        self.assertEqual(writer.known, {"a", "c"})
        self.assertEqual([text.id for text in read_corpus(self.path)[1]], ["a", "c"])

    def test_another_target_may_not_go_on(self):
        self.write(Text("a", (), (1,)))
        with self.assertRaisesRegex(TrainingError, "choose another file"):
            self.write(origin=Origin("0" * 64, "cpu", 50))

    def test_says_which_line_is_wrong(self):
        for line, said in [('{"id": "b", "prompt": []}', "line 3.*answer"),
                           ("[]", "line 3"),
                           ('{"id": "b", "prompt": [50], "answer": [1]}',
                            "line 3: token 50 is not below 50")]:
            self.path.unlink(missing_ok=True)
            self.write(Text("a", (), (1,)))
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(line + "\n")
            with self.assertRaisesRegex(TrainingError, said):
                read_corpus(self.path)

    def test_an_empty_or_missing_corpus_is_an_error(self):
        with self.assertRaisesRegex(TrainingError, "No such file"):
            read_corpus(self.path)
        self.write()
        with self.assertRaisesRegex(TrainingError, "no text"):
            read_corpus(self.path)
        self.path.write_text("")
        with self.assertRaisesRegex(TrainingError, "is empty"):
            read_corpus(self.path)


class PromptsTest(unittest.TestCase):
    def test_a_test_prompt_is_refused_also_within_a_document(self):
        never = [{"id": "t", "prompt": "Question: How many?\nAnswer:"}]
        good = {"id": "g", "prompt": "Question: How much?\nAnswer:"}
        refuse_test_prompts([good], never)
        for bad in ({"id": "p", "prompt": "Question: How many?\nAnswer:"},
                    {"id": "d", "text": "Question: How many?\nAnswer: 3\n"}):
            with self.assertRaisesRegex(TrainingError, f"prompt {bad['id']} holds"):
                refuse_test_prompts([good, bad], never)

    def test_a_test_prompt_may_be_a_document(self):
        never = [{"id": "t", "text": "Question: How many?\n"}]
        refuse_test_prompts([{"id": "g", "prompt": "Question: How much?"}], never)
        with self.assertRaisesRegex(TrainingError, "prompt p holds the test prompt t"):
            refuse_test_prompts([{"id": "p", "prompt": "Question: How many?\nA:"}], never)

    def test_lines_end_where_json_does(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "p.jsonl")
            lines = [{"prompt": "a\u2028b", "other": 1}, {"text": "c", "id": 7}]
            path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n"
                                    for line in lines), encoding="utf-8")
            self.assertEqual(read_prompts([path]), [
                {"id": "p-1", "prompt": "a\u2028b"}, {"id": "7", "text": "c"}])

    def test_says_which_line_is_no_prompt(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "p.jsonl")
            for line, said in (('{"id": 1}', "neither `prompt` nor `text`"),
                               ('["prompt"]', "neither `prompt` nor `text`"),
                               ('{"prompt": ""}', "`prompt` is not a text, or an empty"),
                               ('{"prompt": " ", "text": "a"}', "`prompt` is not"),
                               ('{"text": 7}', "`text` is not"),
                               ("", "Expecting value")):
                path.write_text('{"prompt": "a"}\n' + line + '\n{"text": "b"}\n')
                with self.assertRaisesRegex(TrainingError, "p.jsonl: line 2: " + said):
                    read_prompts([path])

    def test_a_prompt_is_asked_at_each_temperature_and_a_document_once(self):
        jobs = jobs_of([{"id": "a", "prompt": "x"}, {"id": "b", "text": "y"}], [0, 0.8])
        self.assertEqual([(name, t) for name, _, t in jobs],
                         [("a@0", 0), ("a@0.8", 0.8), ("b", -1)])

    def test_seeds_are_the_same_again_and_differ(self):
        self.assertEqual(seed_of(1, "a@0"), seed_of(1, "a@0"))
        self.assertEqual(len({seed_of(1, "a"), seed_of(2, "a"), seed_of(1, "b")}), 3)

    def test_temperatures_are_checked(self):
        self.assertEqual(parse_temperatures("0,0.8,1"), [0, 0.8, 1])
        for text in ("hot", "0,-1", "3", ""):
            with self.assertRaisesRegex(TrainingError, "--temperatures"):
                parse_temperatures(text)


class BatchesTest(unittest.TestCase):
    def test_positions_are_those_before_answers(self):
        texts = [Text("a", (10, 11, 12), (13, 14), 0.8, 1), Text("b", (), (20, 21, 22))]
        batch = make_batch(texts, [0, 1], 4)
        self.assertEqual(batch.ids.tolist(), [[10, 11, 12, 13], [20, 21, 22, 0]])
        self.assertEqual(batch.next_ids.tolist(), [13, 21, 22])
        self.assertEqual(batch.rows.tolist(), [0, 1, 1])
        self.assertEqual(batch.columns.tolist(), [2, 0, 1])
        self.assertEqual([round(t, 1) for t in batch.temperatures.tolist()], [0.8, 1, 1])

    def test_an_epoch_has_each_usable_text_once(self):
        texts = [Text(str(n), (1,) * (n % 5), (2,) * (n % 7), 1.0) for n in range(200)]
        expected = [n for n in range(200)
                    if min(n % 5 + n % 7, 6) > max(1, n % 5)]
        self.assertEqual(usable(texts, 6), expected)
        batches = list(epoch(texts, 6, 3, seed=1))
        self.assertEqual(sorted(n for b in batches for n in b.numbers), expected)
        again = [b.numbers for b in epoch(texts, 6, 3, seed=1)]
        self.assertEqual([b.numbers for b in batches], again)
        self.assertNotEqual(again, [b.numbers for b in epoch(texts, 6, 3, seed=2)])


if __name__ == "__main__":
    unittest.main()
