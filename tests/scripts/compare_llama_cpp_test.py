#!/usr/bin/env python3
"""scripts/compare_llama_cpp.sh, its tables and its conversion to GGUF, without
llama.cpp: what they refuse, what a file has, what is divided by what."""

import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
sys.path.insert(0, str(SCRIPTS))
import compare_llama_cpp_tables as tables  # noqa: E402
import to_gguf  # noqa: E402

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INTER, VOCAB = 8, 2, 1, 4, 6, 300


def run(script, *arguments):
    return subprocess.run([SCRIPTS / script, *arguments], capture_output=True,
                          text=True, check=False)


def checkpoint(folder, dtype="BF16", **changes):
    """A layer whose elements count up; returns {name: (shape, bytes)}."""
    config = {"architectures": ["LlamaForCausalLM"], "hidden_size": HIDDEN,
              "intermediate_size": INTER, "num_hidden_layers": 1,
              "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
              "head_dim": HEAD_DIM, "max_position_embeddings": 64,
              "rms_norm_eps": 1e-5, "vocab_size": VOCAB, **changes}
    shapes = {"model.embed_tokens": [VOCAB, HIDDEN], "model.norm": [HIDDEN],
              "model.layers.0.input_layernorm": [HIDDEN],
              "model.layers.0.self_attn.q_proj": [HEADS * HEAD_DIM, HIDDEN],
              "model.layers.0.self_attn.k_proj": [KV_HEADS * HEAD_DIM, HIDDEN],
              "model.layers.0.mlp.down_proj": [HIDDEN, INTER]}
    header, data, tensors = {}, b"", {}
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = struct.pack(f"<{count}H", *(i % 65536 for i in range(count)))
        header[name + ".weight"] = {"dtype": dtype, "shape": shape, "data_offsets":
                                    [len(data), len(data) + len(values)]}
        data += values
        tensors[name + ".weight"] = (shape, values)
    text = json.dumps(header).encode()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(
        struct.pack("<Q", len(text)) + text + data)
    return tensors


class Gguf:
    """Reads what to_gguf.py writes."""
    LAYOUTS = {4: "<I", 5: "<i", 6: "<f", 7: "<?"}

    def __init__(self, path):
        self.data, self.at = path.read_bytes(), 0
        magic, version, tensors, entries = self.take("<4sIQQ")
        assert (magic, version) == (b"GGUF", 3)
        self.metadata = {}
        for _ in range(entries):
            name = self.text().decode()
            self.metadata[name] = self.value(*self.take("<I"))
        infos = []
        for _ in range(tensors):
            name, rank = self.text().decode(), self.take("<I")[0]
            infos.append((name, self.take(f"<{rank}Q"), *self.take("<IQ")))
        begin = self.at + -self.at % 32
        self.tensors = {name: (shape, kind, self.data[begin + offset:])
                        for name, shape, kind, offset in infos}
        self.offsets = [info[3] for info in infos]

    def take(self, layout):
        found = struct.unpack_from(layout, self.data, self.at)
        self.at += struct.calcsize(layout)
        return found

    def text(self):
        return self.take(f"{self.take('<Q')[0]}s")[0]

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            inner, count = self.take("<IQ")
            return [self.value(inner) for _ in range(count)]
        return self.take(self.LAYOUTS[kind])[0]


class ToGgufTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.path = self.folder / "model.gguf"

    def test_tensors_have_their_shapes_and_bytes(self):
        tensors = checkpoint(self.folder)
        to_gguf.convert(self.folder, self.path)
        file = Gguf(self.path)
        shape, values = tensors["model.layers.0.mlp.down_proj.weight"]
        found = file.tensors["blk.0.ffn_down.weight"]
        self.assertEqual(found[:2], (tuple(shape[::-1]), 30))
        self.assertEqual(found[2][:len(values)], values)
        self.assertTrue(all(offset % 32 == 0 for offset in file.offsets))
        self.assertNotIn("output.weight", file.tensors)  # tied

    def test_norms_are_float32(self):
        tensors = checkpoint(self.folder)
        to_gguf.convert(self.folder, self.path)
        _, values = tensors["model.norm.weight"]
        shape, kind, data = Gguf(self.path).tensors["output_norm.weight"]
        self.assertEqual((shape, kind), ((HIDDEN,), 0))
        self.assertEqual(struct.unpack_from(f"<{HIDDEN}I", data),
                         tuple(bits << 16 for bits in
                               struct.unpack(f"<{HIDDEN}H", values)))

    def test_queries_that_turn_together_stand_side_by_side(self):
        tensors = checkpoint(self.folder)
        to_gguf.convert(self.folder, self.path)
        tensors_of = Gguf(self.path).tensors
        for name, order in (("q", (0, 2, 1, 3, 4, 6, 5, 7)), ("k", (0, 2, 1, 3))):
            _, values = tensors[f"model.layers.0.self_attn.{name}_proj.weight"]
            row = 2 * HIDDEN
            expected = b"".join(values[i * row:(i + 1) * row] for i in order)
            self.assertEqual(
                tensors_of[f"blk.0.attn_{name}.weight"][2][:len(values)], expected)

    def test_metadata_is_of_the_config(self):
        checkpoint(self.folder, rope_theta=5e5)
        to_gguf.convert(self.folder, self.path)
        metadata = Gguf(self.path).metadata
        self.assertEqual(metadata["llama.attention.head_count_kv"], KV_HEADS)
        self.assertEqual(metadata["llama.rope.freq_base"], 5e5)
        tokens = metadata["tokenizer.ggml.tokens"]
        self.assertEqual(len(tokens), VOCAB)
        self.assertEqual(len(set(tokens)), VOCAB)

    def test_the_vocabulary_is_that_of_the_bundled_models(self):
        found = to_gguf.pieces(ROOT / "models/target", 4096)
        self.assertEqual(found[:3], [(b"<unk>", 0.0, 2), (b"<s>", 0.0, 3),
                                     (b"</s>", 0.0, 3)])
        self.assertEqual(found[3], (b"<0x00>", 0.0, 6))
        self.assertEqual([kind for _, _, kind in found[259:]], [1] * (4096 - 259))
        with self.assertRaisesRegex(to_gguf.Refused, "has 4096 pieces, the model 9"):
            to_gguf.pieces(ROOT / "models/target", 9)

    def test_what_it_does_not_read_is_refused(self):
        for wrong, says in (
                ({"architectures": ["Qwen2ForCausalLM"]}, "architectures is"),
                ({"rope_scaling": {"type": "yarn"}}, "rope_scaling is"),
                ({"dtype": "F16"}, "embed_tokens.weight is F16, not BF16")):
            checkpoint(self.folder, **wrong)
            found = run("to_gguf.py", self.folder, self.path)
            self.assertEqual(found.returncode, 1)
            self.assertIn(says, found.stderr)
            self.assertEqual(len(found.stderr.splitlines()), 1)
            self.assertFalse(self.path.exists())


class ArgumentsTest(unittest.TestCase):
    def test_bad_ones_end_in_a_message(self):
        for arguments, says in (
                ((), "a folder is missing"),
                (("--turns", "3"), "a folder is missing"),
                ((str(ROOT / "build/x"),), "lies within the tree"),
                (("/nowhere", "7b-bf16-1"), "7b-bf16-1 is not one of 110m-bf16-1"),
                (("/nowhere", "--turns", "0"), '--turns: "0" is not in 1..99'),
                (("/nowhere", "--turns"), '--turns: "" is not in 1..99'),
                (("/nowhere", "--threads"), "unknown flag --threads"),
                (("/nowhere", "--no-avx512", "end-to-end"), "no worker")):
            found = run("compare_llama_cpp.sh", *arguments)
            self.assertEqual(found.returncode, 1, arguments)
            self.assertIn("compare_llama_cpp: error: ", found.stderr)
            self.assertIn(says, found.stderr)


class TablesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.results = pathlib.Path(folder.name)

    def steps(self, cell, turn, weights, ours, theirs):
        """Seconds of 1 row, 8 rows and a prompt."""
        out = self.results / cell
        out.mkdir(exist_ok=True)
        for side, seconds in ((weights, ours), ("llama.cpp", theirs)):
            (out / f"{turn}-{side}.json").write_text(json.dumps({
                "steps": [{"rows": rows, "seconds": each}
                          for rows, each in zip((1, 8), seconds)],
                "prompt": {"seconds": seconds[2]}}))

    def report(self):
        found = run("compare_llama_cpp_tables.py", self.results)
        self.assertEqual(found.returncode, 0, found.stderr)
        return found.stdout

    def test_ratios_are_of_a_turn_and_above_one_where_nacre_is_faster(self):
        # The machine was twice as slow in turn 2, and disturbed one run of turn 3.
        self.steps("110m-int8-2", 1, "int8", (.010, .02, .1), (.015, .05, .09))
        self.steps("110m-int8-2", 2, "int8", (.020, .04, .2), (.030, .10, .18))
        self.steps("110m-int8-2", 3, "int8", (.010, .02, .1), (.090, .05, .09))
        text = self.report()
        self.assertIn("| 110M | int8 | 2 | **1.50** (10.0, 30.0) "
                      "| **2.50** (20.0, 50.0) | **0.90** (100, 90.0) |", text)
        self.assertIn("| 110M | int8 | 2 | 2.00, 1.67 |", text)
        self.assertIn("Below 1.00: 1 of 3. 110M int8 2 prompt: 0.90", text)
        cell, = json.loads((self.results / "table.json").read_text())["steps"]
        self.assertEqual(cell["turns"], 3)
        self.assertAlmostEqual(cell["steps"]["1"]["ratios"][2], 9.0)

    def test_rounded_inputs_stand_beside_the_same_runs_of_llama_cpp(self):
        self.steps("1.1b-bf16-1", 1, "bf16", (.1, .2, 1.0), (.1, .2, 1.1))
        self.steps("1.1b-bf16-1", 1, "bf16a16", (.1, .1, .5), (.1, .2, 1.1))
        text = self.report()
        self.assertIn("| 1.1B | bf16 | 1 | **1.00**", text)
        self.assertIn("| 1.1B | bf16a16 | 1 | **1.00** (100, 100) | **2.00**", text)
        self.assertIn("Below the aim: 4 of 6.", text)

    def test_answers_count_their_prompts(self):
        out = self.results / "end-to-end"
        out.mkdir()
        (out / "1-nacre.json").write_text(json.dumps({"methods": [
            {"name": "ar", "tokens_per_second": 80, "acceptance_rate": 0},
            {"name": "async:auto", "tokens_per_second": 150,
             "acceptance_rate": .75}]}))
        (out / "1-plain.json").write_text(json.dumps([
            {"n_threads": 2, "n_gen": 64, "samples_ns": [64e7]}]))
        answer = ("0.01 I encoded   36 tokens in    1.000 seconds, speed: 36 t/s\n"
                  "0.02 I decoded   65 tokens in    0.300 seconds, speed: 2 t/s\n"
                  "n_drafted = 60\nn_accept  = 45\naccept    = 75.000%\n")
        (out / "1-speculative-3.txt").write_text(answer + answer)
        text = self.report()
        self.assertIn("| Nacre `async` | 150.0 | 75 % |", text)
        self.assertIn("| `llama-bench`, threads: 2 | 100.0 | - |", text)
        self.assertIn("| `llama-speculative-simple`, drafts of 3 | 50.0 | 75 % |",
                      text)
        self.assertIn("over the faster of llama.cpp: 1.50", text)

    def test_an_empty_folder_is_an_error(self):
        found = run("compare_llama_cpp_tables.py", self.results)
        self.assertEqual(found.returncode, 1)
        self.assertIn("has no run of scripts/compare_llama_cpp.sh", found.stderr)

    def test_prompts_are_written_as_they_are(self):
        prompts = self.results / "prompts.jsonl"
        prompts.write_text('{"prompt": "a\\nb\\\\n"}\n{"prompt": "c"}\n')
        tables.write_prompts(self.results, prompts, 1)
        self.assertEqual((self.results / "prompt-1.txt").read_text(), "a\nb\\n")
        self.assertFalse((self.results / "prompt-2.txt").exists())


if __name__ == "__main__":
    unittest.main()
