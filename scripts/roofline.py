#!/usr/bin/env python3
"""What a step of a Llama takes on one GPU: at the limit, expected, measured.

  scripts/roofline.py                       the tables of docs/roofline.md
  scripts/roofline.py --config config.json  of a model of yours
  scripts/roofline.py --read 3350 --tflops 700 ...    on another GPU, of which
                                                      nothing is measured

Nothing is measured here. MEASURED has what docs/performance.md says; the other
numbers follow from shapes, and from what products and attention took alone.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import sys

MS, US = 1e-3, 1e-6


@dataclasses.dataclass(frozen=True)
class Device:
    """As bench_gpu measured one H200."""
    read: float = 4354e9       # bytes a second
    multiply: float = 825e12   # of cuBLAS in bf16, operations a second
    multiprocessors: int = 132


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int

    def layer_matrices(self):
        """(outputs, inputs): qkv, attention's output, gate and up, down."""
        queries = self.heads * self.head_dim
        kv = 2 * self.kv_heads * self.head_dim
        return ((queries + kv, self.hidden), (self.hidden, queries),
                (2 * self.intermediate, self.hidden),
                (self.hidden, self.intermediate))

    def head_matrix(self):
        return (self.vocab, self.hidden)

    def all_matrices(self):
        return [*self.layer_matrices() * self.layers, self.head_matrix()]

    def kv_bytes(self, context):
        """Of all layers, in bf16."""
        return context * self.layers * 2 * self.kv_heads * self.head_dim * 2


MODELS = (Model("1B", 2048, 8192, 16, 32, 8, 64, 128256),
          Model("8B", 4096, 14336, 32, 32, 8, 128, 128256),
          Model("70B", 8192, 28672, 80, 64, 8, 128, 128256))

# --- Assumptions -------------------------------------------------------------
# Of a product: the share of read bandwidth at which it reads, and what it takes
# beside that. A line through bench_cuda_gemm's 4096 x 4096 and 28672 x 4096
# (int8: 6144 x 4096, the smallest in docs/performance.md).
PRODUCTS = {
    "bf16": {1: (1.00, 1.7 * US), 16: (0.94, 1.5 * US), 64: (0.90, 5.9 * US)},
    "fp8": {1: (0.89, 2.3 * US), 16: (0.77, 2.6 * US), 64: (0.53, 9.2 * US)},
    "int8": {1: (0.91, 3.0 * US), 16: (0.81, 3.8 * US), 64: (0.51, 10.6 * US)},
}
# int4, which no device has timed: at best it reads as int8 does. At worst as many
# weights take what int8's take, and once more what int8's take beyond fp8's: it
# has a scale each 32 inputs, int8 each 64, fp8 none.
FASTEST_AS, BEYOND = {"int4": "int8"}, {"int4": ("int8", "fp8")}
# Adding slices, a kernel of its own: the down product of 8B less the line.
ADD_SLICES = 2.0 * US
# Norm, rotation and KV write, rounding, norm, gate: what is left of a step of
# 8B in bf16.
SMALL_KERNELS = 5
SMALL_KERNEL = 2.0 * US
# Attention of a layer of 8B: what it takes beside reading, and the share of
# read bandwidth at which a row, or more of one session, read the KV cache.
ATTENTION = 8.4 * US
ATTENTION_READ = {1: 0.76, 16: 0.41, 64: 0.41}
ATTENTION_QUERIES = 64  # of a block, which reads the cache once
# What a step that is not queued ahead waits for the host, a layer: the draft
# loops of 8B and 1B.
HOST = 5.5 * US
# Logits to the host, bytes a second: 8B with them and without.
TO_HOST = 59e9
# Prompts: the share of cuBLAS with all multiprocessors busy; attention; the
# share of read bandwidth at which small kernels pass activations on.
PROMPT_ROWS = 512
PROMPT_PRODUCTS = {"bf16": 0.74, "fp8": 0.66, "int8": 0.475}
PROMPT_ATTENTION = 128e12
PROMPT_SMALL_READ = 0.30

# What was planned before any device had run this backend: the share of read
# bandwidth at 1 row, steps of more rows to that, and the share of cuBLAS that a
# prompt has with weights in bf16. Where it named no share, its assumptions of
# products do: the share at which they read, of what balance leaves, their start,
# and the share of cuBLAS of a prompt's products. The plan had no int4: as int8.
PLANNED_READ = {"1B": {"bf16": 0.81},
                "8B": {"bf16": 0.90, "fp8": 0.86, "int8": 0.87},
                "70B": {"bf16": 0.92, "fp8": 0.91, "int8": 0.91}}
PLANNED_TO_ONE_ROW = {1: 1.0, 16: 1.03, 64: 1.15}
PLANNED_PROMPT = 0.65
PLANNED_PRODUCTS = {"bf16": 0.95, "fp8": 0.92, "int8": 0.90, "int4": 0.90}
PLANNED_BALANCE = 0.97
PLANNED_START = 0.6 * US
PLANNED_PROMPT_PRODUCTS = {"bf16": 0.755, "fp8": 0.615, "int8": 0.615,
                           "int4": 0.615}
# -----------------------------------------------------------------------------

WEIGHTS = ("bf16", "fp8", "int8", "int4")
DECODE_CONTEXT = 512
ROWS = (1, 16, 64)
CONTEXTS = (1024, 8192, 131072)

# Milliseconds, and whether logits went to the host (docs/performance.md).
MEASURED = {
    ("1B", "bf16"): {1: (1.10, True), 16: (1.39, True), 64: (2.27, True),
                     "prompt": (3.9, False)},
    ("8B", "bf16"): {1: (4.58, False), 16: (5.06, False), 64: (6.21, False),
                     "prompt": (16.5, False)},
    ("8B", "fp8"): {1: (3.14, True), 16: (3.88, True), 64: (6.53, True),
                    "prompt": (17.5, False)},
    ("8B", "int8"): {1: (3.18, True), 16: (3.87, True), 64: (6.83, True),
                     "prompt": (23.6, False)},
}


def weight_bytes(weights, outputs, inputs):
    count = outputs * inputs
    return {"bf16": 2 * count,
            "fp8": count + 4 * outputs,           # a scale an output
            "int8": count + count / 64 * 2,       # a scale each 64 inputs
            "int4": count / 2 + count / 32 * 2}[weights]


def model_bytes(model, weights):
    """That a step reads: all matrices, without the table of embeddings."""
    return sum(weight_bytes(weights, *matrix) for matrix in
               model.all_matrices())


def operations(model, rows, logits):
    """In matrices, the head's for so many rows."""
    layers = sum(outputs * inputs for outputs, inputs in model.layer_matrices())
    head = model.vocab * model.hidden
    return 2 * (rows * layers * model.layers + logits * head)


def slices(outputs, inputs):
    """Of kernels/cuda/gemm_order.h."""
    blocks = -(-inputs // 64)
    tiles = -(-outputs // 16)
    count = -(-blocks // 64)
    while tiles * count < 256 and blocks >= 2 * count * 16:
        count *= 2
    return -(-blocks // -(-blocks // count))


def memory_limit(device, model, weights, context):
    return (model_bytes(model, weights) + model.kv_bytes(context)) / device.read


def compute_limit(device, model, rows, logits):
    return operations(model, rows, logits) / device.multiply


@dataclasses.dataclass(frozen=True)
class Format:
    """Weights, and of those that no device has timed which end they take."""
    weights: str
    at_worst: bool = False


def ends(weights):
    """One, or the best and the worst that is expected."""
    if weights in FASTEST_AS:
        return Format(weights), Format(weights, at_worst=True)
    return (Format(weights),)


def at_worst(form, time):
    """time: of a format that was timed."""
    more, less = BEYOND[form.weights]
    return 2 * time(more) - time(less)


def product_time(device, form, matrix, rows):
    def timed(weights, read_as):
        share, start = PRODUCTS[read_as][rows]
        return weight_bytes(weights, *matrix) / (device.read * share) + start

    if form.at_worst:
        time = at_worst(form, lambda weights: timed(weights, weights))
    else:
        time = timed(form.weights, FASTEST_AS.get(form.weights, form.weights))
    return time + (ADD_SLICES if slices(*matrix) > 1 else 0)


def attention_time(device, model, rows, context):
    queries = rows * model.heads // model.kv_heads
    reads = -(-queries // ATTENTION_QUERIES)
    layer = model.kv_bytes(context) / model.layers
    return ATTENTION + reads * layer / (device.read * ATTENTION_READ[rows])


def expected_step(device, model, form, rows, context=DECODE_CONTEXT):
    """Seconds: of rows of one session, each row's token drawn on the device."""
    layer = sum(product_time(device, form, matrix, rows)
                for matrix in model.layer_matrices())
    layer += SMALL_KERNELS * SMALL_KERNEL + HOST
    layer += attention_time(device, model, rows, context)
    return (model.layers * layer
            + product_time(device, form, model.head_matrix(), rows))


def prompt_product_time(device, form, matrix, rows):
    """Tiles of 128 outputs and 128 rows, or 64 where these would be few."""
    outputs, inputs = matrix
    tile_rows = 128
    blocks = -(-outputs // 128) * -(-rows // tile_rows)
    if 3 * blocks < 2 * device.multiprocessors:
        tile_rows = 64
        blocks = -(-outputs // 128) * -(-rows // tile_rows)
    rounds = -(-blocks // device.multiprocessors)
    ideal = (rounds * 2 * 128 * tile_rows * inputs
             / (device.multiply / device.multiprocessors))
    if form.at_worst:
        return at_worst(form, lambda weights: ideal / PROMPT_PRODUCTS[weights])
    return ideal / PROMPT_PRODUCTS[FASTEST_AS.get(form.weights, form.weights)]


def passed_bytes(model, rows):
    """That the small kernels of a layer read and write."""
    queries = model.heads * model.head_dim
    kv = 2 * model.kv_heads * model.head_dim
    norms = 2 * model.hidden * (4 + 2)
    rotation = (queries + kv) * 4 + queries * 4 + kv * 2
    rounding = queries * (4 + 4 + 2)  # attention writes what it reads
    gate = model.intermediate * (2 * 4 + 2)
    return rows * (norms + rotation + rounding + gate)


def expected_prompt(device, model, form, rows=PROMPT_ROWS):
    layer = sum(prompt_product_time(device, form, matrix, rows)
                for matrix in model.layer_matrices())
    layer += passed_bytes(model, rows) / (device.read * PROMPT_SMALL_READ)
    # Half of all pairs of rows; scores and values.
    layer += (2 * rows * rows * model.heads * model.head_dim
              / PROMPT_ATTENTION)
    return (model.layers * layer
            + product_time(device, form, model.head_matrix(), 1))


def planned_products(device, model, weights):
    """Of 1 row."""
    share = PLANNED_PRODUCTS[weights] * PLANNED_BALANCE
    return (model_bytes(model, weights) / device.read / share
            + len(model.all_matrices()) * PLANNED_START)


def planned_step(device, model, weights, rows):
    """(seconds, whether the plan named them); None: it knew no such model."""
    named = PLANNED_READ.get(model.name) if model in MODELS else None
    if named is None:
        return None
    if rows == "prompt":
        share = (PLANNED_PROMPT * PLANNED_PROMPT_PRODUCTS[weights]
                 / PLANNED_PROMPT_PRODUCTS["bf16"])
        return (compute_limit(device, model, PROMPT_ROWS, 1) / share,
                weights == "bf16")
    if weights in named:
        one = model_bytes(model, weights) / device.read / named[weights]
    else:
        # What is not products takes what it takes in bf16.
        rest = (planned_step(device, model, "bf16", 1)[0]
                - planned_products(device, model, "bf16"))
        one = planned_products(device, model, weights) + max(rest, 0)
    return one * PLANNED_TO_ONE_ROW[rows], weights in named


def measured_step(model, weights, rows):
    """(seconds, seconds of these for logits), or None."""
    found = MEASURED.get((model.name, weights), {}).get(rows)
    if found is None or model not in MODELS:
        return None
    ms, logits = found
    return ms * MS, rows * model.vocab * 4 / TO_HOST if logits else 0


# --- Tables ------------------------------------------------------------------


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def show_ms(*seconds):
    """One, or the best and the worst."""
    return " to ".join("-" if each is None else f"{each / MS:.2f}"
                       for each in seconds)


def show_planned(planned):
    if planned is None:
        return "-"
    return ("" if planned[1] else "~") + show_ms(planned[0])


def step_row(device, model, weights, rows):
    prompt = rows == "prompt"
    count, logits = (PROMPT_ROWS, 1) if prompt else (rows, rows)
    context = PROMPT_ROWS if prompt else DECODE_CONTEXT
    memory = memory_limit(device, model, weights, context)
    compute = compute_limit(device, model, count, logits)
    expected = [expected_prompt(device, model, form) if prompt
                else expected_step(device, model, form, rows)
                for form in ends(weights)]
    measured = None
    if device == Device():
        measured = measured_step(model, weights, rows)
    to_expected = of_limit = "-"
    if measured is not None:
        to_expected = f"{measured[0] / (expected[0] + measured[1]):.2f}"
        of_limit = f"{100 * max(memory, compute) / measured[0]:.0f} %"
    return [model.name, weights, f"prompt of {PROMPT_ROWS}" if prompt
            else str(rows), f"{model_bytes(model, weights) / 1e9:.2f}",
            f"{operations(model, count, logits) / 1e12:.3f}",
            show_ms(memory), show_ms(compute),
            show_planned(planned_step(device, model, weights, rows)),
            show_ms(*expected), show_ms(measured and measured[0]), to_expected,
            of_limit]


def step_table(device, models):
    return table(["model", "weights", "rows", "GB read", "TFLOP",
                  "memory, ms", "multiplying, ms", "planned", "expected",
                  "measured", "to expected", "limit of measured"],
                 [step_row(device, model, weights, rows)
                  for model in models
                  for weights in WEIGHTS
                  for rows in (*ROWS, "prompt")])


def context_table(device, models):
    rows = []
    for model in models:
        for weights in ("bf16", "fp8", "int4"):
            matrices = model_bytes(model, weights)
            for context in CONTEXTS:
                kv = model.kv_bytes(context)
                steps = [expected_step(device, model, form, 1, context)
                         for form in ends(weights)]
                layers = model.layers * attention_time(device, model, 1, context)
                attention = " to ".join(f"{100 * layers / step:.0f}"
                                        for step in steps) + " %"
                rows.append([model.name, weights, str(context),
                             f"{kv / 1e9:.2f}",
                             f"{100 * kv / (kv + matrices):.0f} %",
                             show_ms(memory_limit(device, model, weights,
                                                  context)),
                             show_ms(*steps), attention])
    return table(["model", "weights", "context", "GB of KV", "of what is read",
                  "memory, ms", "expected", "attention of expected"], rows)


def parts_table(device, models):
    """Where a step of 1 row goes beyond what it reads."""
    rows = []
    for model in models:
        for weights in WEIGHTS:
            matrices = model.all_matrices()
            sliced = sum(slices(*matrix) > 1 for matrix in matrices)
            adding = sliced * ADD_SLICES
            products = [sum(product_time(device, form, matrix, 1)
                            for matrix in matrices) - adding
                        for form in ends(weights)]
            reading = model_bytes(model, weights) / device.read
            kv = model.kv_bytes(DECODE_CONTEXT) / device.read
            attention = model.layers * attention_time(device, model, 1,
                                                      DECODE_CONTEXT)
            small = model.layers * SMALL_KERNELS * SMALL_KERNEL
            parts = ([reading + kv], [each - reading for each in products],
                     [adding], [small], [attention - kv], [model.layers * HOST])
            rows.append([model.name, weights,
                         *(show_ms(*part) for part in parts),
                         show_ms(*(sum(part[min(end, len(part) - 1)]
                                       for part in parts)
                                   for end in range(len(products))))])
    return table(["model", "weights", "reading", "products beyond",
                  "adding slices", "small kernels", "attention beyond", "host",
                  "expected"], rows)


TABLES = (("Steps", step_table), ("Where a step of 1 row goes, ms", parts_table),
          ("Contexts, 1 row", context_table))


# Whose layers are those of Model, and what model/families.cc has for what a
# config leaves out. (Not counted: norms of Qwen3's heads, biases of Qwen2.)
FAMILIES = {"LlamaForCausalLM": {},
            "MistralForCausalLM": {"num_key_value_heads": 8,
                                   "sliding_window": 4096},
            "Qwen2ForCausalLM": {"num_key_value_heads": 32,
                                 "sliding_window": 4096},
            "Qwen3ForCausalLM": {"num_key_value_heads": 32, "head_dim": 128,
                                 "sliding_window": 4096}}


def defaults_of(text):
    """Of the family; an error where the numbers would be another model's."""
    names = text.get("architectures")
    if names not in [[name] for name in FAMILIES]:
        raise ValueError(f"architectures is {names!r}, whose layers are not "
                         f"modelled here (only {', '.join(FAMILIES)})")
    defaults = FAMILIES[names[0]]
    window = text.get("sliding_window", defaults.get("sliding_window"))
    if names[0].startswith("Qwen") and not text.get("use_sliding_window"):
        window = None
    if names[0] != "LlamaForCausalLM" and window is not None:
        raise ValueError(f"sliding_window is {window!r}: attention over a part "
                         "of the context is not modelled here")
    return defaults


def integer_of(field, default, text):
    """A field of config.json, where null is as good as none."""
    value = text.get(field)
    if value is None:
        value = default
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{field} is {value!r}, expected an integer above 0")
    return value


def read_model(path):
    try:
        text = json.loads(pathlib.Path(path).read_text())
        if not isinstance(text, dict):
            raise ValueError("not a JSON object")
        defaults = defaults_of(text)
        hidden = integer_of("hidden_size", None, text)
        heads = integer_of("num_attention_heads", None, text)
        return Model(pathlib.Path(path).resolve().parent.name, hidden,
                     integer_of("intermediate_size", None, text),
                     integer_of("num_hidden_layers", None, text), heads,
                     integer_of("num_key_value_heads",
                                defaults.get("num_key_value_heads", heads),
                                text),
                     integer_of("head_dim",
                                defaults.get("head_dim", hidden // heads),
                                text),
                     integer_of("vocab_size", None, text))
    except (OSError, ValueError) as error:
        sys.exit(f"roofline: error: {path}: {error}")


def above_zero(text):
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def count(text):
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return int(text)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--config", action="append", default=[],
                        help="of another model, instead of 1B, 8B and 70B")
    parser.add_argument("--read", type=above_zero, default=4354, help="GB/s")
    parser.add_argument("--tflops", type=above_zero, default=825,
                        help="what cuBLAS multiplies in bf16")
    parser.add_argument("--multiprocessors", type=count, default=132)
    arguments = parser.parse_args()
    device = Device(arguments.read * 1e9, arguments.tflops * 1e12,
                    arguments.multiprocessors)
    models = [read_model(path) for path in arguments.config] or MODELS
    for title, make in TABLES:
        print(f"### {title}\n\n{make(device, models)}\n")


if __name__ == "__main__":
    main()
