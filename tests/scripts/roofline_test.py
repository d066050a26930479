#!/usr/bin/env python3
"""scripts/roofline.py: bytes, operations and limits; the page has its tables."""

import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import roofline  # noqa: E402

H200 = roofline.Device()
OF_1B, OF_8B, OF_70B = roofline.MODELS
ROWS = (1, 16, 64)
BF16 = roofline.Format("bf16")


class ShapesTest(unittest.TestCase):
    def test_weights_of_8b(self):
        # 32 layers of 218103808, and 128256 x 4096.
        self.assertEqual(roofline.operations(OF_8B, 1, 1), 2 * 7504658432)
        self.assertEqual(roofline.operations(OF_8B, 512, 1),
                         2 * (512 * 32 * 218103808 + 128256 * 4096))

    def test_bytes_of_a_matrix(self):
        of = {weights: roofline.weight_bytes(weights, 16, 64)
              for weights in ("bf16", "fp8", "int8", "int4")}
        # Packed blocks: tests/kernels/cuda/gemm_layout_test.cc. int4: 0.5625 a
        # weight.
        self.assertEqual(of, {"bf16": 2048, "fp8": 1024 + 64,
                              "int8": 1024 + 32, "int4": 512 + 64})

    def test_kv_of_a_position(self):
        self.assertEqual(OF_8B.kv_bytes(1), 131072)
        self.assertEqual(OF_70B.kv_bytes(1), 327680)

    def test_slices_as_the_kernels_have_them(self):
        # tests/kernels/cuda/gemm_order_test.cc, gemm_plan_test.cc.
        self.assertEqual(roofline.slices(4096, 14336), 4)
        self.assertEqual(roofline.slices(4096, 4096), 1)
        self.assertEqual(roofline.slices(28672, 4096), 1)
        self.assertEqual(roofline.slices(8192, 28672), 7)


class LimitsTest(unittest.TestCase):
    def test_one_row_waits_for_memory_and_a_prompt_for_products(self):
        for model in roofline.MODELS:
            memory = roofline.memory_limit(H200, model, "bf16", 512)
            self.assertGreater(memory,
                               50 * roofline.compute_limit(H200, model, 1, 1))
            self.assertLess(memory,
                            roofline.compute_limit(H200, model, 512, 1))

    def test_nothing_is_expected_below_its_limit(self):
        for model in roofline.MODELS:
            for form in (form for weights in roofline.WEIGHTS
                         for form in roofline.ends(weights)):
                for rows in ROWS:
                    limit = max(
                        roofline.memory_limit(H200, model, form.weights, 512),
                        roofline.compute_limit(H200, model, rows, rows))
                    step = roofline.expected_step(H200, model, form, rows)
                    self.assertGreater(step, limit, (model, form, rows))
                self.assertGreater(
                    roofline.expected_prompt(H200, model, form),
                    roofline.compute_limit(H200, model, 512, 1))

    def test_a_device_of_half_the_speed_has_twice_the_limit(self):
        half = roofline.Device(H200.read / 2, H200.multiply / 2)
        for limit, arguments in ((roofline.memory_limit, (OF_8B, "fp8", 512)),
                                 (roofline.compute_limit, (OF_8B, 64, 64))):
            self.assertAlmostEqual(limit(half, *arguments),
                                   2 * limit(H200, *arguments))

    def test_longer_contexts_take_longer(self):
        steps = [roofline.expected_step(H200, OF_8B, BF16, 1, context)
                 for context in (512, 8192, 131072)]
        self.assertEqual(steps, sorted(set(steps)))
        # Keys and values of 128k positions are more than the weights.
        self.assertGreater(OF_8B.kv_bytes(131072),
                           roofline.model_bytes(OF_8B, "bf16"))


class MeasuredTest(unittest.TestCase):
    def test_products_are_near_the_line_through_two_of_them(self):
        # Microseconds, docs/performance.md; those that the line does not go
        # through.
        for weights, matrix, times in (
                ("bf16", (6144, 4096), (13.3, 14.2, 17.2)),
                ("bf16", (4096, 14336), (30.9, 33.1, 37.7)),
                ("fp8", (6144, 4096), (8.9, 10.3, 21.4)),
                ("fp8", (4096, 14336), (18.8, 22.1, 40.1))):
            for rows, time in zip(ROWS, times):
                expected = roofline.product_time(
                    H200, roofline.Format(weights), matrix, rows)
                self.assertLess(abs(1e6 * expected / time - 1), 0.10,
                                (weights, matrix, rows))

    def test_steps_are_near_what_their_parts_say(self):
        for (name, weights), steps in roofline.MEASURED.items():
            model = next(m for m in roofline.MODELS if m.name == name)
            for rows in steps:
                measured, logits = roofline.measured_step(model, weights, rows)
                form = roofline.Format(weights)
                expected = (roofline.expected_prompt(H200, model, form)
                            if rows == "prompt" else
                            roofline.expected_step(H200, model, form, rows))
                # A prompt of 1B is not: its products are not timed alone.
                limit = 0.35 if (name, rows) == ("1B", "prompt") else 0.12
                self.assertLess(abs(measured / (expected + logits) - 1), limit,
                                (name, weights, rows))

    def test_parts_are_the_whole(self):
        for line in roofline.parts_table(H200, [OF_8B]).splitlines()[2:]:
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            expected = [roofline.expected_step(H200, OF_8B, form, 1)
                        for form in roofline.ends(cells[1])]
            self.assertEqual(cells[-1], roofline.show_ms(*expected))


class NotTimedTest(unittest.TestCase):
    def test_int4_at_best_reads_as_int8(self):
        best, worst = roofline.ends("int4")
        for rows in ROWS:
            share, start = roofline.PRODUCTS["int8"][rows]
            # Of 0.5625 bytes a weight, one slice.
            self.assertAlmostEqual(
                roofline.product_time(H200, best, (4096, 4096), rows),
                0.5625 * 4096 * 4096 / (H200.read * share) + start)
            int8, fp8 = (roofline.product_time(
                H200, roofline.Format(weights), (4096, 4096), rows)
                for weights in ("int8", "fp8"))
            self.assertAlmostEqual(
                roofline.product_time(H200, worst, (4096, 4096), rows),
                int8 + (int8 - fp8))
        self.assertLess(roofline.expected_step(H200, OF_8B, best, 1),
                        roofline.expected_step(H200, OF_8B, worst, 1))
        self.assertLess(roofline.expected_prompt(H200, OF_8B, best),
                        roofline.expected_prompt(H200, OF_8B, worst))

    def test_what_the_plan_assumed_is_near_what_it_named(self):
        for model, weights in ((model, weights) for model in roofline.MODELS
                               for weights in roofline.PLANNED_READ[model.name]):
            named, is_named = roofline.planned_step(H200, model, weights, 1)
            self.assertTrue(is_named)
            products = roofline.planned_products(H200, model, weights)
            self.assertLess(abs(products / named - 1), 0.07, (model, weights))

    def test_every_cell_of_a_model_says_something(self):
        for line in roofline.step_table(H200,
                                        roofline.MODELS).splitlines()[2:]:
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            self.assertNotIn("-", cells[:9], line)


class ProgramTest(unittest.TestCase):
    def run_program(self, *arguments):
        return subprocess.run([ROOT / "scripts/roofline.py", *arguments],
                              text=True, capture_output=True)

    def config(self, **fields):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name, "config.json")
        whole = {"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
                 "num_hidden_layers": 32, "num_attention_heads": 32,
                 "num_key_value_heads": 8, "vocab_size": 128256, **fields}
        path.write_text(json.dumps(
            {key: value for key, value in whole.items() if value is not None}))
        return str(path)

    def test_the_page_has_the_tables(self):
        page = (ROOT / "docs/roofline.md").read_text()
        for title, make in roofline.TABLES:
            self.assertIn(f"### {title}\n\n{make(H200, roofline.MODELS)}\n",
                          page, "run scripts/roofline.py")

    def test_reads_a_config(self):
        model = roofline.read_model(self.config())
        self.assertEqual(roofline.operations(model, 1, 1),
                         roofline.operations(OF_8B, 1, 1))
        # Without these, as transformers has it.
        model = roofline.read_model(self.config(num_key_value_heads=None))
        self.assertEqual((model.kv_heads, model.head_dim), (32, 128))
        model = roofline.read_model(self.config(
            architectures=["Qwen3ForCausalLM"], num_attention_heads=64,
            sliding_window=4096, use_sliding_window=False))
        self.assertEqual((model.kv_heads, model.head_dim), (8, 128))
        done = self.run_program("--config", self.config())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| bf16 | 1 | 15.01 |", done.stdout)

    def test_a_name_of_a_measured_model_measures_nothing(self):
        other = dataclasses.replace(OF_8B, layers=16)
        self.assertIsNone(roofline.measured_step(other, "bf16", 1))
        self.assertIsNone(roofline.planned_step(H200, other, "bf16", 1))

    def test_says_what_is_wrong_with_a_config(self):
        for path, word in ((self.config(hidden_size=None),
                            "hidden_size is None, expected an integer above 0"),
                           (self.config(num_hidden_layers=0),
                            "num_hidden_layers is 0"),
                           (self.config(vocab_size="many"),
                            "vocab_size is 'many'"),
                           (self.config(architectures=None),
                            "architectures is None, whose layers are not"),
                           (self.config(architectures=["MixtralForCausalLM"],
                                        num_local_experts=8),
                            "architectures is ['MixtralForCausalLM'], whose "
                            "layers are not modelled here (only Llama"),
                           (self.config(architectures=["Qwen3MoeForCausalLM"]),
                            "Qwen3MoeForCausalLM"),
                           (self.config(architectures=["Gemma2ForCausalLM"]),
                            "Gemma2ForCausalLM"),
                           (self.config(architectures=["MistralForCausalLM"]),
                            "sliding_window is 4096"),
                           (self.config(architectures=["Qwen2ForCausalLM"],
                                        use_sliding_window=True,
                                        sliding_window=512),
                            "sliding_window is 512"),
                           ("/nowhere/config.json", "No such file")):
            with self.assertRaises(SystemExit) as caught:
                roofline.read_model(path)
            self.assertIn(word, str(caught.exception))
            self.assertIn(path, str(caught.exception))

    def test_other_devices(self):
        done = self.run_program("--read", "2177", "--tflops", "825")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| 8B | bf16 | 1 | 15.01 | 0.015 | 6.93 |", done.stdout)
        for other in (roofline.Device(H200.read / 2), roofline.Device(
                multiprocessors=114)):
            for line in roofline.step_table(other,
                                            roofline.MODELS).splitlines()[2:]:
                self.assertTrue(line.endswith("| - | - | - |"), line)
        for flag, value in (("--read", "0"), ("--tflops", "inf"),
                            ("--multiprocessors", "0")):
            done = self.run_program(flag, value)
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"{value} is not above 0", done.stderr)


if __name__ == "__main__":
    unittest.main()
