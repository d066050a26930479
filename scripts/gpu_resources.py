#!/usr/bin/env python3
"""What each CUDA kernel takes of a multiprocessor: a table in Markdown.

  scripts/gpu_resources.py [--arch sm_90a] [FILE.cu...]     all of kernels/cuda
  scripts/gpu_resources.py --check FOLDER                   of a build's

The first compiles each file with the options of cmake/Cuda.cmake and reads what
the compiler says: no GPU is needed, only nvcc (in PATH or --nvcc) and c++filt.
The second fails where a kernel spills, where its warps might come to an aligned
barrier in different places, or where the table is not that of docs/roofline.md.
(That is compared if it was made by the same nvcc.) FOLDER has a folder for each
source, of its name. In it are what nvcc kept (--keep), and "said", what ptxas
-v said.

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

PAGE = ROOT / "docs/roofline.md"
PAGE_ARCH = "sm_90a"
PAGE_NVCC = re.compile(r"by nvcc (\d+\.\d+\.\d+)")

COMPILING = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, "
                   r"(\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
STATIC = re.compile(r"(\d+) bytes smem")
ENTRY = re.compile(r"\.entry (\w+)\(.*?\)\s*((?:\.\w+ [\d, ]+\s*)*)\{", re.S)
# Aligned barriers but that of __syncthreads.
ALIGNED = re.compile(r"\b(?:bar(?:\.cta)?\.(?:sync|arrive)|"
                     r"barrier(?:\.cta)?\.(?:sync|arrive)\.aligned)"
                     r"\s+[^\s0]")
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
        # The kernel's, then those of functions that it calls.
        stacks, used = STACK.findall(part), USED.search(part)
        if not stacks or not used:
            raise ValueError(f"ptxas says nothing of {name[1]}:\n{part}")
        static = STATIC.search(part)
        yield name[1], name[2], {
            "stack": sum(int(stack) for stack, _, _ in stacks),
            "stores": sum(int(stores) for _, stores, _ in stacks),
            "loads": sum(int(loads) for _, _, loads in stacks),
            "registers": int(used[1]),
            "shared": int(static[1]) if static else 0,
        }


def read_ptxas(text, arch):
    """{kernel: {registers, stack, stores, loads, shared}} of one generation."""
    return {kernel: take for kernel, of, take in each_kernel(text)
            if of == arch}


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
    bounds, used = read_ptx(ptx), read_ptxas(ptxas, arch)
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


def find_spills(text):
    """What is wrong with the spills of what ptxas -v said, a line each."""
    kernels = list(each_kernel(text))
    if not kernels:
        return ["ptxas says nothing of any kernel"]
    names = short_names([kernel for kernel, _, _ in kernels])
    return [f"{names[kernel]} spills for {arch}: it stores {take['stores']} "
            f"bytes a thread, and loads {take['loads']}"
            for kernel, arch, take in kernels
            if take["stores"] > 0 or take["loads"] > 0]


def find_aligned(ptx):
    """What is wrong with the barriers of a source, a line each.

    All threads of a block must come to an aligned one in one place. Those with
    numbers are for warps that do not: these need barrier.sync.
    """
    return [f"not all warps may come here: {line.strip()}"
            for line in ptx.splitlines() if ALIGNED.search(line)]


def find_stale(page, lines):
    """Where the page has not these lines of the table, and no others."""
    there = [line for line in page.splitlines() if line.startswith("| ")
             and ".cu | `" in line]
    wrong = [f"{PAGE.name} lacks: {line}" for line in lines
             if line not in there]
    wrong += [f"{PAGE.name} has: {line}" for line in there
              if line not in lines]
    if not wrong and there != lines:
        wrong = [f"{PAGE.name} has the lines in another order"]
    return wrong


HEAD = ["source", "kernel", "threads", "registers", "stack, bytes",
        "spilled, stored / loaded", "shared", "blocks, fit / meant",
        "occupancy"]


def line_of(row):
    return "| " + " | ".join(row) + " |"


def table(rows):
    lines = [line_of(HEAD), "|" + "---|" * len(HEAD)]
    return "\n".join(lines + [line_of(row) for row in rows])


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


def rows_of_file(path, ptx, said, arch):
    names = short_names(sorted({name for name, _ in COMPILING.findall(said)}))
    try:
        return rows_of(path.name, ptx, said, names, arch)
    except ValueError as error:
        sys.exit(f"gpu_resources: error: {path}: {error}")


def check(folder, nvcc):
    """What is wrong with a build whose sources have left this, a line each."""
    said = {path: (path / "said").read_text()
            for path in sorted(folder.iterdir())}
    kept = f"*.{PAGE_ARCH.replace('sm', 'compute')}.ptx"
    ptx = {path: next(path.glob(kept)).read_text() for path in said}
    wrong = find_spills("".join(said.values()))
    for path, text in ptx.items():
        wrong += [f"{path.name}: {line}" for line in find_aligned(text)]
    page = PAGE.read_text()
    made_by = PAGE_NVCC.search(page)[1]
    if f"V{made_by}" not in run([nvcc, "--version"]):
        print(f"{PAGE.name} has what nvcc {made_by} makes: not compared")
        return wrong
    lines = []
    for path, text in said.items():
        if not (ROOT / "kernels/cuda" / path.name).exists():
            continue  # a test's
        lines += [line_of(row)
                  for row in rows_of_file(path, ptx[path], text, PAGE_ARCH)]
    stale = find_stale(page, lines)
    if stale:
        stale.append("run scripts/gpu_resources.py, and put its table there")
    return wrong + stale


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--arch", choices=sorted(SHARED), default=PAGE_ARCH)
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--check", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.check:
        wrong = check(arguments.check, arguments.nvcc)
        if wrong:
            sys.exit("\n".join(["gpu_resources: error:", *wrong]))
        return
    files = arguments.files or sorted((ROOT / "kernels/cuda").glob("*.cu"))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for path in files:
            ptx, said = compile_file(path.resolve(), arguments.arch,
                                     arguments.nvcc, pathlib.Path(folder))
            rows += rows_of_file(path, ptx, said, arguments.arch)
    print(table(rows))


if __name__ == "__main__":
    main()
