#!/usr/bin/env python3
"""Makes tiny quantized checkpoints with their publishers' own code.

Run from the repository root, with torch, transformers, safetensors and
compressed-tensors (0.20) installed and two source packages of PyPI unpacked
(`pip download --no-deps --no-binary :all: NAME`; nothing of them is built):

    python3 tests/data/model/make_quantized_goldens.py \
        --autoawq autoawq-0.2.9 --gptqmodel gptqmodel-4.0.0 \
        --older compressed-tensors-0.15.0

The last is of `pip download --no-deps compressed-tensors==0.15.0`, unpacked. It
has what later ones dropped: groups of columns that are no neighbours.

Writes quantized/NAME/ next to itself: config.json, model.safetensors as it is
published, and dequantized.safetensors: the same model in floats, whose weights
the publisher's library made of the quantized ones.
"""

import argparse
import contextlib
import importlib
import json
import pathlib
import sys
import types
from unittest import mock

import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent
HIDDEN, INTER, HEADS, HEAD_DIM, VOCAB, LAYERS = 32, 64, 2, 16, 24, 1
GROUP = 16

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": HIDDEN,
    "intermediate_size": INTER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "head_dim": HEAD_DIM,
    "vocab_size": VOCAB,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "eos_token_id": 2,
}


class Llama:
    """What a family calls its tensors, and which of them are quantized."""

    config = CONFIG
    ignored = ["lm_head"]  # of compressed-tensors

    def attention(self):
        for name in ("q", "k", "v"):
            yield f"self_attn.{name}_proj", (HEADS * HEAD_DIM, HIDDEN)
        yield "self_attn.o_proj", (HIDDEN, HEADS * HEAD_DIM)

    def feed_forward(self):
        yield "mlp.gate_proj", (INTER, HIDDEN)
        yield "mlp.up_proj", (INTER, HIDDEN)
        yield "mlp.down_proj", (HIDDEN, INTER)

    def linear_shapes(self):
        for layer in range(LAYERS):
            for name, shape in (*self.attention(), *self.feed_forward()):
                yield f"model.layers.{layer}.{name}", shape

    def plain_tensors(self, dtype, generator):
        """What no publisher quantizes."""

        def random(*shape):
            return torch.randn(shape, generator=generator)

        tensors = {
            "model.embed_tokens.weight": random(VOCAB, HIDDEN),
            "model.norm.weight": 1 + 0.3 * random(HIDDEN),
            "lm_head.weight": random(VOCAB, HIDDEN) / HIDDEN**0.5,
        }
        for layer in range(LAYERS):
            for name, shape in self.layer_tensors():
                value = random(*shape)
                if name.endswith("norm"):
                    value = 1 + 0.3 * value
                tensors[f"model.layers.{layer}.{name}.weight"] = value
        return {name: value.to(dtype) for name, value in tensors.items()}

    def layer_tensors(self):
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield name, (HIDDEN,)


class Phi3(Llama):
    """Queries, keys and values are one tensor, gate and up another."""

    config = {**CONFIG, "architectures": ["Phi3ForCausalLM"]}

    def attention(self):
        yield "self_attn.qkv_proj", (3 * HEADS * HEAD_DIM, HIDDEN)
        yield "self_attn.o_proj", (HIDDEN, HEADS * HEAD_DIM)

    def feed_forward(self):
        yield "mlp.gate_up_proj", (2 * INTER, HIDDEN)
        yield "mlp.down_proj", (HIDDEN, INTER)


class Mixtral(Llama):
    """Experts are quantized, their router is not."""

    block = "block_sparse_moe"
    names = ("w1", "w3", "w2")  # gate, up, down
    ignored = ["lm_head", "re:.*block_sparse_moe.gate"]

    def __init__(self, experts=3, size=32, chosen=2):
        self.experts, self.size = experts, size
        self.config = {
            **CONFIG,
            "architectures": ["MixtralForCausalLM"],
            "intermediate_size": size,
            "num_local_experts": experts,
            "num_experts_per_tok": chosen,
        }

    def feed_forward(self):
        for i in range(self.experts):
            for name in self.names:
                shape = (self.size, HIDDEN)
                yield f"{self.block}.experts.{i}.{name}", (
                    shape[::-1] if name == self.names[2] else shape)

    def layer_tensors(self):
        yield from super().layer_tensors()
        yield f"{self.block}.gate", (self.experts, HIDDEN)


class Qwen3Moe(Mixtral):
    block = "mlp"
    names = ("gate_proj", "up_proj", "down_proj")
    ignored = ["lm_head", "re:.*mlp.gate$"]

    def __init__(self, experts=8, size=16, chosen=2):
        super().__init__(experts, size, chosen)
        self.config = {
            **CONFIG,
            "architectures": ["Qwen3MoeForCausalLM"],
            "moe_intermediate_size": size,
            "num_experts": experts,
            "num_experts_per_tok": chosen,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
            "norm_topk_prob": True,
        }

    def layer_tensors(self):
        yield from super().layer_tensors()
        for name in ("q_norm", "k_norm"):
            yield f"self_attn.{name}", (HEAD_DIM,)


class Qwen3MoeWithRouter(Qwen3Moe):
    """The router is quantized, too."""

    def feed_forward(self):
        yield f"{self.block}.gate", (self.experts, HIDDEN)
        yield from super().feed_forward()

    def layer_tensors(self):
        return (item for item in super().layer_tensors()
                if item[0] != f"{self.block}.gate")


@contextlib.contextmanager
def other_compressed_tensors(root):
    """Within it, imports are of the package in `root`."""

    def forget():
        return {name: sys.modules.pop(name) for name in list(sys.modules)
                if name.split(".")[0] == "compressed_tensors"}

    others = forget()
    sys.path.insert(0, str(root))
    yield
    sys.path.pop(0)
    forget()
    sys.modules.update(others)


def compressed_tensors(args, dtype, scale_dtype, activations=None,
                       ignored=Llama.ignored):
    """One group of compressed-tensors; returns its config and a packer."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.compressors.format import infer_module_format
    from compressed_tensors.quantization import (
        QuantizationArgs,
        QuantizationConfig,
        QuantizationScheme,
        QuantizationStatus,
    )
    from compressed_tensors.quantization.utils import calculate_qparams

    weights = QuantizationArgs(**args)
    scheme = QuantizationScheme(
        targets=["Linear"],
        weights=weights,
        input_activations=activations and QuantizationArgs(**activations),
    )
    scheme.format = infer_module_format(torch.nn.Linear, scheme)
    compressor = BaseCompressor.get_value_from_registry(scheme.format.value)

    def extremes(weight, reduce):
        if weights.strategy == "tensor":
            return reduce(weight).reshape(1)
        if weights.strategy == "channel":
            return getattr(reduce(weight, dim=1, keepdim=True), "values")
        if weights.strategy == "block":
            rows, cols = weights.block_structure
            below = -weight.shape[0] % rows
            padded = torch.nn.functional.pad(weight, (0, 0, 0, below))
            blocks = padded.unflatten(1, (-1, cols)).unflatten(0, (-1, rows))
            blocks = blocks.transpose(1, 2).flatten(2)
            return getattr(reduce(blocks, dim=2), "values")
        groups = weight.unflatten(1, (-1, weights.group_size))
        return getattr(reduce(groups, dim=2), "values")

    def pack(name, weight, generator):
        columns = torch.arange(weight.shape[1])
        state = {"weight": weight.to(dtype)}
        if weights.actorder == "group":
            g_idx = torch.randperm(weight.shape[1], generator=generator)
            g_idx = (g_idx // weights.group_size).int()
            state["weight_g_idx"] = g_idx
            columns = torch.argsort(g_idx)
        ordered = weight[:, columns]
        low, high = extremes(ordered, torch.min), extremes(ordered, torch.max)
        scale, zero = calculate_qparams(low, high, weights)
        state["weight_scale"] = scale.to(scale_dtype)
        state["weight_zero_point"] = zero
        if activations and not activations.get("dynamic"):
            state["input_scale"] = torch.rand(1, generator=generator)
        packed = compressor.compress(state, scheme)
        floats = compressor.decompress(dict(packed), scheme)["weight"]
        if "weight_shape" in packed:
            packed["weight_shape"] = packed["weight_shape"].to(torch.int64)
        return packed, floats

    config = QuantizationConfig(
        config_groups={"group_0": scheme},
        format=scheme.format.value,
        quantization_status=QuantizationStatus.COMPRESSED,
        ignore=ignored,
    )
    return json.loads(config.model_dump_json()), pack


def fp8_blocks(block, scale_dtype):
    """transformers' fine-grained FP8."""
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    dequantize = Fp8Dequantize(None)._dequantize_one

    def pack(name, weight, generator):
        rows, cols = weight.shape[0] // block[0], weight.shape[1] // block[1]
        blocks = weight.reshape(rows, block[0], cols, block[1])
        scale = (blocks.abs().amax(dim=(1, 3)) / 448).to(scale_dtype)
        divided = blocks / scale.float()[:, None, :, None]
        numbers = divided.reshape(weight.shape).to(torch.float8_e4m3fn)
        return (
            {"weight": numbers, "weight_scale_inv": scale},
            dequantize(numbers, scale),
        )

    config = {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "weight_block_size": list(block),
        "modules_to_not_convert": ["lm_head"],
    }
    return config, pack


def fp8_tensors(ignored):
    """AutoFP8's, of which there is no package: one float32 scale a tensor, and
    one of the activations, which weights do not need."""
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    dequantize = Fp8Dequantize(None)._dequantize_one

    def pack(name, weight, generator):
        scale = (weight.abs().amax() / 448).float()
        numbers = (weight / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
        return (
            {"weight": numbers, "weight_scale": scale,
             "input_scale": torch.rand((), generator=generator)},
            dequantize(numbers, scale),
        )

    config = {
        "quant_method": "fp8",
        "activation_scheme": "static",
        "ignored_layers": ignored,
    }
    return config, pack


def group_parameters(weight, bits, group, symmetric):
    """Scales and zero points [rows, groups] as the packers take them."""
    top = 2**bits - 1
    groups = weight.unflatten(1, (-1, group))
    low = groups.amin(dim=2).clamp(max=0)
    high = groups.amax(dim=2).clamp(min=0)
    if symmetric:
        high = torch.maximum(-low, high)
        low = -high
    scales = ((high - low) / top).half().float()
    zeros = torch.round(-low / scales).clamp(0, top)
    if symmetric:
        zeros = torch.full_like(scales, (top + 1) // 2)
    return scales, zeros


def awq(root, skipped=None):
    sys.path.insert(0, str(root))
    # The package's own __init__ imports every model that there is.
    package = types.ModuleType("awq")
    package.__path__ = [str(root / "awq")]
    sys.modules["awq"] = package
    gemm = importlib.import_module("awq.modules.linear.gemm")
    packing = importlib.import_module("awq.utils.packing_utils")

    def pack(name, weight, generator):
        scales, zeros = group_parameters(weight, 4, GROUP, False)
        linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
        linear.weight.data = weight.half()
        packed = gemm.WQLinear_GEMM.from_linear(
            linear, 4, GROUP, scales=scales.T.contiguous(),
            zeros=zeros.T.contiguous(),
        )
        floats = packing.dequantize_gemm(
            packed.qweight, packed.qzeros, packed.scales, 4, GROUP
        )
        return dict(packed.state_dict()), floats.T.contiguous()

    config = {
        "quant_method": "awq",
        "bits": 4,
        "group_size": GROUP,
        "version": "gemm",
        "zero_point": True,
        "modules_to_not_convert": skipped,
    }
    return config, pack


def gptq(root, bits, symmetric, act_order, version, group=GROUP):
    for name in ("adapter.adapter", "models._const", "utils.backend",
                 "utils.logger"):
        sys.modules[f"gptqmodel.{name}"] = mock.MagicMock()
    for name in ("", ".adapter", ".models", ".utils", ".nn_modules"):
        module = types.ModuleType(f"gptqmodel{name}")
        module.__path__ = [
            str(root / "gptqmodel" / name.lstrip(".").replace(".", "/"))
        ]
        sys.modules[f"gptqmodel{name}"] = module
    qlinear = importlib.import_module("gptqmodel.nn_modules.qlinear")

    def pack(name, weight, generator):
        rows, cols = weight.shape
        size = cols if group == -1 else group
        g_idx = torch.arange(cols, dtype=torch.int32) // size
        if act_order:
            g_idx = g_idx[torch.randperm(cols, generator=generator)]
        # Columns of a group side by side, for its scales.
        order = torch.argsort(g_idx, stable=True)
        scales, zeros = group_parameters(
            weight[:, order], bits, size, symmetric
        )
        linear = torch.nn.Linear(cols, rows, bias=False)
        linear.weight.data = weight.clone()
        layer = qlinear.PackableQuantLinear.__new__(qlinear.PackableQuantLinear)
        torch.nn.Module.__init__(layer)
        layer.bits, layer.maxq = bits, 2**bits - 1
        layer.pack_dtype, layer.pack_dtype_bits = torch.int32, 32
        layer.pack_factor = 32 // bits
        layer.pack_np_dtype = "int32"
        layer.pack_np_math_dtype = "uint32"
        layer.dequant_dtype = torch.int8 if bits < 8 else torch.int16
        layer.pack(linear, scales, zeros, g_idx)
        shifts = torch.arange(0, 32, bits, dtype=torch.int32)
        layer.wf_unsqueeze_zero = shifts.reshape(1, 1, -1)
        layer.wf_unsqueeze_neg_one = shifts.reshape(1, -1, 1)
        floats = layer.dequantize_weight().T.contiguous()
        packed = {
            "qweight": layer.qweight,
            "qzeros": layer.qzeros,
            "scales": layer.scales,
            "g_idx": layer.g_idx,
        }
        if version == "gptq":
            # convert_gptq_v2_to_v1_format_module; loading adds it again, and
            # what overflowed comes back.
            one = 0x11111111 if bits == 4 else 0x01010101
            packed["qzeros"] = packed["qzeros"] - one
        return packed, floats

    config = {
        "quant_method": "gptq",
        "bits": bits,
        "group_size": group,
        "desc_act": act_order,
        "sym": symmetric,
        "lm_head": False,
        "checkpoint_format": version,
        "pack_dtype": "int32",
    }
    return config, pack


def llama_cases(options):
    f16, bf16, f32 = torch.float16, torch.bfloat16, torch.float32
    fp8 = {"num_bits": 8, "type": "float", "symmetric": True}
    token = {**fp8, "strategy": "token", "dynamic": True}
    yield "fp8_tensor", bf16, compressed_tensors(
        {**fp8, "strategy": "tensor"}, bf16, bf16,
        {**fp8, "strategy": "tensor", "dynamic": False},
    )
    yield "fp8_channel", bf16, compressed_tensors(
        {**fp8, "strategy": "channel"}, bf16, f32, token
    )
    yield "fp8_channel_f16", f16, compressed_tensors(
        {**fp8, "strategy": "channel"}, f16, f16, token
    )
    yield "fp8_block", bf16, fp8_blocks((16, 32), bf16)
    integer = {"num_bits": 8, "type": "int", "symmetric": True}
    token = {**integer, "strategy": "token", "dynamic": True}
    yield "int8_channel", bf16, compressed_tensors(
        {**integer, "strategy": "channel"}, bf16, bf16, token
    )
    yield "packed8_channel", bf16, compressed_tensors(
        {**integer, "strategy": "channel"}, bf16, bf16
    )
    grouped = {"num_bits": 4, "type": "int", "strategy": "group",
               "group_size": GROUP}
    yield "packed4_group", f16, compressed_tensors(
        {**grouped, "symmetric": True}, f16, f16
    )
    yield "packed4_zeros", bf16, compressed_tensors(
        {**grouped, "symmetric": False}, bf16, bf16
    )
    yield "awq", f16, awq(options.autoawq)
    root = options.gptqmodel
    yield "gptq", f16, gptq(root, 4, True, False, "gptq")
    yield "gptq_act_order", f16, gptq(root, 4, False, True, "gptq")
    yield "gptq_v2", f16, gptq(root, 4, False, False, "gptq_v2")
    yield "gptq8", f16, gptq(root, 8, False, True, "gptq_v2")
    yield "gptq_one_group", f16, gptq(root, 4, True, False, "gptq", -1)
    yield "int8_zeros", bf16, compressed_tensors(
        {**integer, "symmetric": False, "strategy": "channel"}, bf16, bf16,
        token,
    )
    yield "int8_tensor_zeros", f16, compressed_tensors(
        {**integer, "symmetric": False, "strategy": "tensor"}, f16, f16, token
    )
    yield "fp8_group", bf16, compressed_tensors(
        {**fp8, "strategy": "group", "group_size": GROUP}, bf16, bf16,
        {**fp8, "strategy": "token", "dynamic": True},
    )
    yield "fp8_block_ct", bf16, compressed_tensors(
        {**fp8, "strategy": "block", "block_structure": [24, 16]}, bf16, bf16,
        {**fp8, "strategy": "token", "dynamic": True},
    )


def family_cases(options):
    f16, bf16, f32 = torch.float16, torch.bfloat16, torch.float32
    fp8 = {"num_bits": 8, "type": "float", "symmetric": True}
    token = {**fp8, "strategy": "token", "dynamic": True}
    static = {**fp8, "strategy": "tensor", "dynamic": False}
    grouped = {"num_bits": 4, "type": "int", "strategy": "group",
               "group_size": GROUP}
    root = options.gptqmodel

    phi3 = Phi3()
    yield phi3, "phi3_fp8_channel", bf16, compressed_tensors(
        {**fp8, "strategy": "channel"}, bf16, bf16, token
    )
    yield phi3, "phi3_fp8", bf16, fp8_tensors(phi3.ignored)
    yield phi3, "phi3_packed4", bf16, compressed_tensors(
        {**grouped, "symmetric": True}, bf16, bf16
    )
    yield phi3, "phi3_awq", f16, awq(options.autoawq)
    yield phi3, "phi3_gptq", f16, gptq(root, 4, True, True, "gptq")

    mixtral = Mixtral()
    yield mixtral, "mixtral_fp8_tensor", bf16, compressed_tensors(
        {**fp8, "strategy": "tensor"}, bf16, f32, static, mixtral.ignored
    )
    yield mixtral, "mixtral_fp8", bf16, fp8_tensors(
        ["lm_head", "model.layers.0.block_sparse_moe.gate"]
    )
    yield mixtral, "mixtral_packed4", bf16, compressed_tensors(
        {**grouped, "symmetric": False}, bf16, bf16, None, mixtral.ignored
    )
    yield mixtral, "mixtral_awq", f16, awq(options.autoawq, ["gate"])
    yield mixtral, "mixtral_gptq", f16, gptq(root, 4, True, True, "gptq")

    qwen3 = Qwen3Moe()
    yield qwen3, "qwen3_moe_fp8_block", bf16, fp8_blocks((16, 16), bf16)
    yield qwen3, "qwen3_moe_fp8_channel", bf16, compressed_tensors(
        {**fp8, "strategy": "channel"}, bf16, bf16, token, qwen3.ignored
    )
    # Both pack 32 rows or more.
    wide = Qwen3Moe(2, 32, 1)
    yield wide, "qwen3_moe_awq", f16, awq(options.autoawq, ["mlp.gate"])
    yield wide, "qwen3_moe_gptq", f16, gptq(root, 4, True, False, "gptq")
    yield Qwen3MoeWithRouter(), "qwen3_moe_packed4_router", bf16, (
        compressed_tensors({**grouped, "symmetric": True}, bf16, bf16)
    )


def ordered_cases():
    f16, bf16 = torch.float16, torch.bfloat16
    grouped = {"type": "int", "strategy": "group", "group_size": GROUP,
               "actorder": "group"}
    yield "packed4_ordered", f16, compressed_tensors(
        {**grouped, "num_bits": 4, "symmetric": True}, f16, f16
    )
    yield "packed4_zeros_ordered", bf16, compressed_tensors(
        {**grouped, "num_bits": 4, "symmetric": False}, bf16, bf16
    )
    yield "packed8_ordered", bf16, compressed_tensors(
        {**grouped, "num_bits": 8, "symmetric": True}, bf16, bf16
    )


def cases(options):
    llama = Llama()
    for case in llama_cases(options):
        yield llama, *case
    yield from family_cases(options)
    with other_compressed_tensors(options.older):
        for case in ordered_cases():
            yield llama, *case


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--autoawq", type=pathlib.Path, required=True)
    parser.add_argument("--gptqmodel", type=pathlib.Path, required=True)
    parser.add_argument("--older", type=pathlib.Path, required=True)
    options = parser.parse_args()
    generator = torch.Generator().manual_seed(20)
    for family, name, dtype, (quantization, pack) in cases(options):
        folder = HERE / "quantized" / name
        folder.mkdir(parents=True, exist_ok=True)
        published = family.plain_tensors(dtype, generator)
        floats = dict(published)
        for layer, shape in family.linear_shapes():
            weight = torch.randn(shape, generator=generator) / shape[1] ** 0.5
            packed, dequantized = pack(layer, weight, generator)
            floats[f"{layer}.weight"] = dequantized.contiguous()
            for key, value in packed.items():
                published[f"{layer}.{key}"] = value.contiguous()
        save_file(published, folder / "model.safetensors")
        save_file(floats, folder / "dequantized.safetensors")
        config = {**family.config, "quantization_config": quantization}
        (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
        print(name, {k: (v.dtype, tuple(v.shape)) for k, v in packed.items()},
              dequantized.dtype)


if __name__ == "__main__":
    main()
