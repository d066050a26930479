#!/usr/bin/env python3
"""Makes tensor_core_mmasim.u32: what the model MMA-Sim says that Hopper's
mma.sync.m16n8k16.f32.bf16.bf16.f32 gives for random products.

Needs the packages mmasim (2.1.1) and torch. Each number in the file is the bits
of an f32, little-endian. Without arguments: 24 tiles of 128 sums, four of each
class, from tile 4800 on. To compare a million of them:

    make_tensor_core_goldens.py --tiles 8000 --write FILE
    NACRE_MMASIM_SUMS=FILE build/tests/kernels_cuda_tensor_core_test
"""

import argparse
import pathlib

import numpy
import torch
from mmasim import nv_ptx

HERE = pathlib.Path(__file__).resolve().parent
U64 = numpy.uint64


def mix(z):
    with numpy.errstate(over="ignore"):
        z = z + U64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> U64(30))) * U64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> U64(27))) * U64(0x94D049BB133111EB)
    return z ^ (z >> U64(31))


def bf16(kind, unit, operand, i):
    """TensorCoreTile::Bf16 of an array of numbers i."""
    r = mix(mix(U64(unit * 2 + operand)) + i.astype(U64))
    sign = (r >> U64(63)).astype(numpy.int64) << 15
    fraction = (r & U64(0x7F)).astype(numpy.int64)
    pick = (r >> U64(8) & U64(0xFFFF)).astype(numpy.int64)
    if kind == 0:
        value = (127 - pick % 9) << 7 | fraction
    elif kind == 1:
        value = (107 + pick % 41) << 7 | fraction
    elif kind == 2:
        value = pick % 255 << 7 | fraction
    elif kind == 3:
        k, rare = pick % 16, (pick >> 8) % 64 == 0
        value = (1 + (pick >> 4) % 100) << 7 | fraction
        value = numpy.where((k == 8) & rare, 0x7F81 | fraction, value)
        value = numpy.where((k == 7) & rare, 0x7F80, value)
        value = numpy.where(k < 7, 0, value)
        value = numpy.where(k < 4, fraction, value)
    elif kind == 4:
        value = (126 + pick % 3) << 7 | fraction
    else:
        value = numpy.where(
            pick % 3 == 0, 0, (64 + (pick >> 2) % 160) << 7 | fraction
        )
    return (sign | value).astype(numpy.uint16)


def f32(kind, unit, i):
    """TensorCoreTile::F32."""
    r = mix(mix(U64(unit * 2 + 77)) + U64(1000) + i.astype(U64))
    sign = (r >> U64(63)).astype(numpy.int64) << 31
    fraction = (r & U64(0x7FFFFF)).astype(numpy.int64)
    pick = (r >> U64(24) & U64(0xFFFF)).astype(numpy.int64)
    if kind == 0:
        value = (124 + pick % 8) << 23 | fraction
        value = numpy.where(pick % 4 == 0, 0, sign | value)
    elif kind == 1:
        value = (100 + pick % 61) << 23 | fraction
    elif kind == 2:
        value = pick % 255 << 23 | fraction
    elif kind == 3:
        k = pick % 16
        value = (1 + (pick >> 4) % 250) << 23 | fraction
        rare = (k == 6) & ((pick >> 8) % 16 == 0)
        value = numpy.where(rare, 0x7F800000, value)
        value = numpy.where(k < 6, 0, value)
        value = numpy.where(k < 3, fraction, value)
    elif kind == 4:
        value = (128 + pick % 4) << 23 | fraction
    else:
        value = numpy.where(
            pick % 2 != 0, 0, (1 + (pick >> 1) % 254) << 23 | fraction
        )
    if kind != 0:
        value = sign | value
    return value.astype(numpy.uint32)


def tile(number):
    """TensorCoreTile: rows [16, 16], columns [8, 16], starts [16, 8]."""
    kind = number // 4 % 6
    right = 24 * (number // 4) + kind
    left = right + 6 * (number % 4)
    return (
        bf16(kind, left, 0, numpy.arange(256)).reshape(16, 16),
        bf16(kind, right, 1, numpy.arange(128)).reshape(8, 16),
        f32(kind, left, numpy.arange(128)).reshape(16, 8),
    )


def sums(first, tiles):
    model = nv_ptx.MMA("Hopper", "m16n8k16.f32.bf16.bf16.f32")
    rows, columns, starts = zip(*(tile(first + i) for i in range(tiles)))

    def tensor(arrays, kind, as_type):
        return torch.from_numpy(numpy.stack(arrays).view(kind)).view(as_type)

    a = tensor(rows, numpy.int16, torch.bfloat16)[:, :, None, :]
    b = tensor(columns, numpy.int16, torch.bfloat16)[:, None, :, :]
    c = tensor(starts, numpy.int32, torch.float32)
    shape = (tiles, 16, 8, 16)
    d = model.dpa(a.expand(shape).clone(), b.expand(shape).clone(), c)
    return d.view(torch.int32).numpy().astype("<i4").tobytes()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=4800)
    parser.add_argument("--tiles", type=int, default=24)
    parser.add_argument("--write", default=HERE / "tensor_core_mmasim.u32")
    arguments = parser.parse_args()
    with open(arguments.write, "wb") as file:
        for at in range(0, arguments.tiles, 400):
            count = min(400, arguments.tiles - at)
            file.write(sums(arguments.first + at, count))


if __name__ == "__main__":
    main()
