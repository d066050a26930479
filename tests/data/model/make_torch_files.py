#!/usr/bin/env python3
"""Makes small files with torch.save, for the reader of pickles.

Run from the repository root, with torch and safetensors installed:

    python3 tests/data/model/make_torch_files.py

or with --float8 for the files of types without a storage of their own alone,
which need torch 2.3 or newer.

Writes torch_files/ next to itself: single files, and bin/ and shards/, the
model of quantized/gptq in floats as pytorch_model.bin and in two shards; and
the heads of medusa/medusa_v1 as FasterDecoding publishes them.
"""

import json
import os
import pathlib
import pickle
import sys

import torch
from safetensors.torch import load_file

HERE = pathlib.Path(__file__).resolve().parent


class Command:
    """What a hostile pickle does: it calls a function of its choice."""

    def __reduce__(self):
        return (os.system, ("exit 3",))


def write_types_of_bytes(folder):
    """Types whose storage is bytes: torch._utils._rebuild_tensor_v3."""
    codes = torch.arange(256).to(torch.uint8).reshape(16, 16)
    e4m3 = codes.view(torch.float8_e4m3fn)
    types = {
        "e4m3": e4m3,
        "part": e4m3[3:5],
        "e5m2": torch.tensor([1.5, -2.0]).to(torch.float8_e5m2),
        "parameter": torch.nn.Parameter(e4m3[0].clone(), requires_grad=False),
        "u16": torch.tensor([1, 65535], dtype=torch.uint16),
        "u32": torch.tensor([[7], [4294967295]], dtype=torch.uint32),
        "u64": torch.tensor([2**40], dtype=torch.uint64),
        "f32": torch.tensor([0.5]),
    }
    torch.save(types, folder / "float8.bin")
    torch.save(types, folder / "float8_protocol_4.bin", pickle_protocol=4)
    torch.save(
        {"f": torch.ones(1), "w": torch.ones(2).to(torch.float8_e4m3fnuz)},
        folder / "float8_other.bin",
    )
    torch.save({"w": e4m3.T}, folder / "float8_transposed.bin")


def main():
    folder = HERE / "torch_files"
    write_types_of_bytes(folder)
    if "--float8" in sys.argv[1:]:
        return
    for name in ("bin", "shards"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    torch.manual_seed(7)

    shared = torch.arange(12, dtype=torch.float32)
    types = {
        "f32": torch.tensor([[1.5, -2.0, 3.25]]),
        "f16": torch.tensor([0.5, -65504.0], dtype=torch.float16),
        "bf16": torch.tensor([[1.0], [-0.0078125]], dtype=torch.bfloat16),
        "f64": torch.tensor([1e300], dtype=torch.float64),
        "i64": torch.tensor([-(2**40), 7]),
        "i32": torch.tensor([-5, 6], dtype=torch.int32),
        "i16": torch.tensor([-5], dtype=torch.int16),
        "i8": torch.tensor([-5], dtype=torch.int8),
        "u8": torch.tensor([250], dtype=torch.uint8),
        "bool": torch.tensor([True, False, True]),
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 3),
        "parameter": torch.nn.Parameter(torch.tensor([4.0])),
        "all": shared,
        "part": shared.reshape(3, 4)[1:],
    }
    torch.save(types, folder / "types.pt")
    torch.save(types, folder / "protocol_4.pt", pickle_protocol=4)
    # An OrderedDict with attributes.
    torch.save(torch.nn.Linear(3, 2).state_dict(), folder / "module.pt")

    torch.save(load_file(HERE / "medusa/medusa_v1/medusa_lm_head.safetensors"),
               folder / "medusa_lm_head.pt")

    torch.save({"t": torch.ones(2, 3).T}, folder / "transposed.pt")
    large = torch.zeros(1024)
    torch.save({str(i): large for i in range(20)}, folder / "shared.pt")
    torch.save({"n": 3}, folder / "number.pt")
    torch.save([torch.ones(1)], folder / "list.pt")
    torch.save({"c": Command()}, folder / "command.pt")
    torch.save(torch.nn.Linear(3, 2), folder / "whole_module.pt")
    torch.save({"c": torch.ones(1, dtype=torch.complex64)}, folder / "complex.pt")
    torch.save(
        {"o": torch.ones(1)},
        folder / "old.pt",
        _use_new_zipfile_serialization=False,
    )
    (folder / "plain.pt").write_bytes(pickle.dumps({"a": 1}))

    model = load_file(HERE / "quantized" / "gptq" / "dequantized.safetensors")
    torch.save(model, folder / "bin" / "pytorch_model.bin")
    names = sorted(model)
    shards = [names[::2], names[1::2]]
    weight_map = {}
    for i, part in enumerate(shards):
        name = f"pytorch_model-0000{i + 1}-of-00002.bin"
        torch.save({key: model[key] for key in part}, folder / "shards" / name)
        weight_map.update({key: name for key in part})
    (folder / "shards" / "pytorch_model.bin.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": weight_map}, indent=1) + "\n"
    )
    config = json.loads(
        (HERE / "quantized" / "gptq" / "config.json").read_text()
    )
    del config["quantization_config"]
    for name in ("bin", "shards"):
        (folder / name / "config.json").write_text(
            json.dumps(config, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
