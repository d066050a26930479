#!/usr/bin/env python3
"""What each CUDA kernel takes of a multiprocessor: a table in Markdown.

  scripts/gpu_resources.py [--arch sm_90a] [FILE.cu...]     all of kernels/cuda
  scripts/gpu_resources.py --check FILE...      what ptxas -v said of sources

The second fails where a kernel spills that MAY_SPILL does not name. The first
compiles each file with the options of cmake/Cuda.cmake and reads what the
compiler says: no GPU is needed, only nvcc (in PATH or --nvcc) and c++filt.

Registers are a thread's. Spilled: bytes of a thread's stack that the compiler
stores registers to. Blocks: how many fit on a multiprocessor by registers,
threads and the shared memory that the source declares; then the number that
__launch_bounds__ promises, for which shared memory given at a launch is sized.
Occupancy: warps of the lesser number, of those that a multiprocessor holds.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FLAGS = ("-std=c++20", "-O3", "--fmad=false", "-I.")
# Only 90a has warpgroup products.
DEFINITIONS = {"sm_90a": ("-DNACRE_SM90A",)}

# Of a multiprocessor of compute capability 8.0 and 9.0: CUDA's programming
# guide, "Compute Capabilities".
WARPS = 64
BLOCKS = 32
REGISTERS = 65536
REGISTER_UNIT = 256  # a warp gets so many at a time
SCHEDULERS = 4       # each has its own registers and as many warps
RESERVED_SHARED = 1024  # bytes of a block's, taken by the system
SHARED = {"sm_80": 164 << 10, "sm_90a": 228 << 10}

# Kernels that spill, as the table has their names, each with the reason.
_HEADS = ("sums of 128 dimensions take 64 of 168 registers, and 168 are what the "
          "blocks that are meant leave a thread")
MAY_SPILL = {
    "StreamKernel<false, 1, 128>": _HEADS,
    "StreamKernel<false, 2, 128>": _HEADS,
    "StreamKernel<false, 4, 128>": _HEADS,
    "StreamKernel<true, 8, 128>": _HEADS,
    "WideKernel<Int8Weights, WideTile<1, 64, 3, 72>>":
        "sums of a block, a chain and all chains take 96 of 128 registers",
}

COMPILING = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, "
                   r"(\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
STATIC = re.compile(r"(\d+) bytes smem")
ENTRY = re.compile(r"\.entry (\w+)\(.*?\)\s*((?:\.\w+ [\d, ]+\s*)*)\{", re.S)
DIRECTIVE = re.compile(r"\.(maxntid|minnctapersm) (\d+)")


def read_ptx(text):
    """{kernel: {"maxntid": threads of a block, "minnctapersm": blocks}}."""
    return {name: {word: int(number)
                   for word, number in DIRECTIVE.findall(directives)}
            for name, directives in ENTRY.findall(text)}


def each_kernel(text):
    """(kernel, generation, what it takes) of each that ptxas -v speaks of."""
    for part in re.split(r"(?=ptxas info +: Compiling entry)", text):
        name = COMPILING.search(part)
        if not name:
            continue
        stack, used = STACK.search(part), USED.search(part)
        if not stack or not used:
            raise ValueError(f"ptxas says nothing of {name[1]}:\n{part}")
        static = STATIC.search(part)
        yield name[1], name[2], {
            "stack": int(stack[1]),
            "stores": int(stack[2]),
            "loads": int(stack[3]),
            "registers": int(used[1]),
            "shared": int(static[1]) if static else 0,
        }


def read_ptxas(text):
    """{kernel: {registers, stack, stores, loads, shared}} of one generation."""
    return {kernel: take for kernel, _, take in each_kernel(text)}


def fitting_blocks(threads, registers, shared, arch):
    """Blocks of so many threads that a multiprocessor holds at once."""
    warps = -(-threads // 32)
    of_a_warp = -(-registers * 32 // REGISTER_UNIT) * REGISTER_UNIT
    of_a_scheduler = REGISTERS // SCHEDULERS // of_a_warp
    held = min(WARPS, of_a_scheduler * SCHEDULERS)
    return min(BLOCKS, held // warps,
               SHARED[arch] // (shared + RESERVED_SHARED))


def short_name(demangled):
    """Without namespaces and parameters."""
    name = re.sub(r"nacre::kernels::cuda::|_GLOBAL__N__\w+::|"
                  r"\(anonymous namespace\)::", "", demangled)
    name = re.sub(r"^void ", "", name)
    depth = 0
    for at, character in enumerate(name):
        depth += {"<": 1, ">": -1}.get(character, 0)
        if character == "(" and depth == 0:
            name = name[:at]
            break
    name = re.sub(r"\((?:int|bool|[\w:]+)\)", "", name)
    return name.replace("> >", ">>").replace("unsigned short", "bf16")


def rows_of(source, ptx, ptxas, names, arch):
    """A row of the table for each kernel, in the order of their names."""
    bounds, used = read_ptx(ptx), read_ptxas(ptxas)
    if bounds.keys() != used.keys():
        raise ValueError("kernels of one compiler step only: "
                         f"{sorted(bounds.keys() ^ used.keys())}")
    rows = []
    for kernel in sorted(used, key=lambda kernel: names[kernel]):
        take = used[kernel]
        threads = bounds[kernel].get("maxntid")
        if threads is None:
            raise ValueError(f"{names[kernel]} has no __launch_bounds__")
        fit = fitting_blocks(threads, take["registers"], take["shared"], arch)
        meant = bounds[kernel].get("minnctapersm")
        blocks = min(fit, meant or fit)
        rows.append([source, f"`{names[kernel]}`", str(threads),
                     str(take["registers"]), str(take["stack"]),
                     f"{take['stores']} / {take['loads']}",
                     str(take["shared"]),
                     f"{fit} / {meant or '-'}",
                     f"{100 * blocks * -(-threads // 32) / WARPS:.0f} %"])
    return rows


def find_spills(text, may_spill=None):
    """What is wrong with the spills of what ptxas -v said, a line each."""
    may_spill = MAY_SPILL if may_spill is None else may_spill
    kernels = list(each_kernel(text))
    if not kernels:
        return ["ptxas says nothing of any kernel"]
    names = short_names([kernel for kernel, _, _ in kernels])
    wrong, spilled = [], set()
    for kernel, arch, take in kernels:
        if take["stores"] == take["loads"] == 0:
            continue
        spilled.add(names[kernel])
        if names[kernel] not in may_spill:
            wrong.append(f"{names[kernel]} spills for {arch}: it stores "
                         f"{take['stores']} bytes a thread, and loads "
                         f"{take['loads']}")
    return wrong + [f"{name} spills nowhere: MAY_SPILL need not name it"
                    for name in sorted(may_spill.keys() - spilled)]


HEAD = ["source", "kernel", "threads", "registers", "stack, bytes",
        "spilled, stored / loaded", "shared", "blocks, fit / meant",
        "occupancy"]


def table(rows):
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def run(command):
    try:
        done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True)
    except FileNotFoundError:
        sys.exit(f"gpu_resources: error: there is no {command[0]}")
    if done.returncode != 0:
        sys.exit(f"gpu_resources: error: {' '.join(command)}\n{done.stderr}")
    return done.stdout + done.stderr


def short_names(kernels):
    names = run(["c++filt", *kernels]).splitlines()
    return dict(zip(kernels, map(short_name, names)))


def compile_file(path, arch, nvcc, folder):
    """(PTX, what ptxas -v says) of a source."""
    ptx = folder / "kernels.ptx"
    flags = [*FLAGS, *DEFINITIONS.get(arch, ())]
    run([nvcc, *flags, f"-arch={arch}", "-ptx", str(path), "-o", str(ptx)])
    said = run([nvcc, f"-arch={arch}", "-cubin", "-Xptxas=-v", str(ptx),
                "-o", str(folder / "kernels.cubin")])
    return ptx.read_text(), said


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--arch", choices=sorted(SHARED), default="sm_90a")
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.check:
        wrong = find_spills("".join(
            path.read_text() for path in arguments.files))
        if wrong:
            sys.exit("\n".join(["gpu_resources: error:", *wrong]))
        return
    files = arguments.files or sorted((ROOT / "kernels/cuda").glob("*.cu"))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for path in files:
            ptx, said = compile_file(path.resolve(), arguments.arch,
                                     arguments.nvcc, pathlib.Path(folder))
            names = short_names(sorted(
                kernel for kernel, _ in COMPILING.findall(said)))
            try:
                rows += rows_of(path.name, ptx, said, names, arguments.arch)
            except ValueError as error:
                sys.exit(f"gpu_resources: error: {path}: {error}")
    print(table(rows))


if __name__ == "__main__":
    main()
