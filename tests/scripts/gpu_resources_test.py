#!/usr/bin/env python3
"""scripts/gpu_resources.py reads what the compiler says, and counts blocks."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import gpu_resources  # noqa: E402

# As nvcc 13.0 writes it, shortened.
PTX = """
.visible .entry _Z5SmallPf(
\t.param .u64 .ptr .align 1 _Z5SmallPf_param_0
)
.maxntid 256, 1, 1
{
\tret;
}
.entry _Z5LargeILi2EEvPf(
\t.param .u64 .ptr .align 1 _Z5LargeILi2EEvPf_param_0,
\t.param .u32 _Z5LargeILi2EEvPf_param_1
)
.maxntid 192, 1, 1
.minnctapersm 2
{
\tret;
}
"""
PTXAS = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z5LargeILi2EEvPf' for 'sm_90a'
ptxas info    : Function properties for _Z5LargeILi2EEvPf
    16 bytes stack frame, 40 bytes spill stores, 36 bytes spill loads
ptxas info    : Used 168 registers, used 3 barriers, 16 bytes cumulative stack size
ptxas info    : Compiling entry function '_Z5SmallPf' for 'sm_90a'
ptxas info    : Function properties for _Z5SmallPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 2048 bytes smem
"""
OF_SMALL = PTXAS[PTXAS.index(
    "ptxas info    : Compiling entry function '_Z5SmallPf'"):]
NAMES = {"_Z5SmallPf": "Small", "_Z5LargeILi2EEvPf": "Large<2>"}


class ReadsTest(unittest.TestCase):
    def test_bounds(self):
        self.assertEqual(gpu_resources.read_ptx(PTX), {
            "_Z5SmallPf": {"maxntid": 256},
            "_Z5LargeILi2EEvPf": {"maxntid": 192, "minnctapersm": 2}})

    def test_resources(self):
        self.assertEqual(gpu_resources.read_ptxas(PTXAS, "sm_90a"), {
            "_Z5SmallPf": {"stack": 0, "stores": 0, "loads": 0,
                           "registers": 32, "shared": 2048},
            "_Z5LargeILi2EEvPf": {"stack": 16, "stores": 40, "loads": 36,
                                  "registers": 168, "shared": 0}})
        self.assertEqual(gpu_resources.read_ptxas(PTXAS, "sm_90"), {})

    def test_functions_that_a_kernel_calls_are_its_own(self):
        called = ("ptxas info    : Function properties for _Z4Mineii\n"
                  "    8 bytes stack frame, 4 bytes spill stores, "
                  "12 bytes spill loads\n")
        self.assertEqual(gpu_resources.read_ptxas(OF_SMALL + called, "sm_90a"),
                         {"_Z5SmallPf": {"stack": 8, "stores": 4, "loads": 12,
                                         "registers": 32, "shared": 2048}})
        self.assertEqual(gpu_resources.find_spills(OF_SMALL + called),
                         ["Small spills for sm_90a: it stores 4 bytes "
                          "a thread, and loads 12"])

    def test_what_is_missing_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "says nothing of _Z5Small"):
            gpu_resources.read_ptxas(PTXAS.replace("Used 32 registers", "?"),
                                     "sm_90a")
        with self.assertRaisesRegex(ValueError, "_Z5SmallPf"):
            gpu_resources.rows_of("a.cu", PTX.replace("_Z5SmallPf", "_Z5Other"),
                                  PTXAS, NAMES, "sm_90a")
        with self.assertRaisesRegex(ValueError, "Small has no __launch_bounds"):
            gpu_resources.rows_of("a.cu", PTX.replace(".maxntid 256, 1, 1", ""),
                                  PTXAS, NAMES, "sm_90a")

    def test_names(self):
        for demangled, name in (
                ("void nacre::kernels::cuda::_GLOBAL__N__96f85939_7_norm_cu_d6"
                 "::NormalizeKernel<unsigned short, 1>(float const*, int)",
                 "NormalizeKernel<bf16, 1>"),
                ("void nacre::kernels::cuda::(anonymous namespace)::"
                 "TiledKernel<nacre::kernels::cuda::(anonymous namespace)::"
                 "Fp8Weights, nacre::kernels::cuda::GemmTile<4, 2> >"
                 "(nacre::kernels::cuda::Product)",
                 "TiledKernel<Fp8Weights, GemmTile<4, 2>>"),
                ("nacre::kernels::cuda::AddKernel(float*)", "AddKernel")):
            self.assertEqual(gpu_resources.short_name(demangled), name)


class OccupancyTest(unittest.TestCase):
    def fit(self, threads, registers, shared=0, arch="sm_90a"):
        return gpu_resources.fitting_blocks(threads, registers, shared, arch)

    def test_registers(self):
        # 80 x 32 registers a warp: 6 warps for each of 4 schedulers.
        self.assertEqual(self.fit(256, 80), 3)
        # They are given by 256: 41 are as many as 48.
        self.assertEqual(self.fit(256, 41), self.fit(256, 48))
        self.assertEqual(self.fit(128, 255), 2)

    def test_threads_and_blocks(self):
        self.assertEqual(self.fit(1024, 16), 2)
        self.assertEqual(self.fit(32, 16), 32)
        # A part of a warp is a warp.
        self.assertEqual(self.fit(65, 32), self.fit(96, 32))

    def test_shared_memory(self):
        self.assertEqual(self.fit(128, 32, 48 << 10), 4)
        self.assertEqual(self.fit(128, 32, 48 << 10, "sm_80"), 3)
        # A kilobyte of each block is the system's.
        self.assertEqual(self.fit(128, 32, 57 << 10), 3)
        self.assertEqual(self.fit(128, 32, 56 << 10), 4)

    def test_table(self):
        rows = gpu_resources.rows_of("a.cu", PTX, PTXAS, NAMES, "sm_90a")
        self.assertEqual(gpu_resources.table(rows).splitlines()[2:], [
            "| a.cu | `Large<2>` | 192 | 168 | 16 | 40 / 36 | 0 | 2 / 2 "
            "| 19 % |",
            "| a.cu | `Small` | 256 | 32 | 0 | 0 / 0 | 2048 | 8 / - "
            "| 100 % |"])


LARGE_SPILLS = ("Large<2> spills for sm_90a: it stores 40 bytes a thread, and "
                "loads 36")


class SpillsTest(unittest.TestCase):
    def test_a_spill_is_found(self):
        self.assertEqual(gpu_resources.find_spills(PTXAS), [LARGE_SPILLS])
        self.assertEqual(gpu_resources.find_spills(OF_SMALL), [])

    def test_every_generation_counts(self):
        older = PTXAS.replace("sm_90a", "sm_80")
        newer = PTXAS.replace("40 bytes spill stores, 36",
                              "0 bytes spill stores, 0")
        self.assertEqual(gpu_resources.find_spills(older + newer),
                         [LARGE_SPILLS.replace("sm_90a", "sm_80")])

    def test_nothing_is_no_proof(self):
        self.assertEqual(gpu_resources.find_spills("ptxas info : 0 bytes gmem"),
                         ["ptxas says nothing of any kernel"])


class BarriersTest(unittest.TestCase):
    def test_aligned_ones_are_for_whole_blocks(self):
        for line in ("bar.sync \t0;", "barrier.sync 1, 192;",
                     "barrier.cta.sync %r1, %r2;", "ld.param.u32 %r1, [bar];"):
            self.assertEqual(gpu_resources.find_aligned(f"\t{line}\n"), [])
        for line in ("bar.sync 1, 192;", "bar.sync \t%r1, 192;",
                     "bar.cta.arrive 2, 64;",
                     "@%p1 barrier.cta.sync.aligned 1, 192;"):
            self.assertEqual(gpu_resources.find_aligned(f"\t{line}\n"),
                             [f"not all warps may come here: {line}"])


class PageTest(unittest.TestCase):
    LINES = ["| a.cu | `A` | 8 |", "| b.cu | `B` | 9 |"]

    def stale(self, *there):
        page = "\n".join(["# A page", "| source | kernel |", *there, ""])
        return gpu_resources.find_stale(page, self.LINES)

    def test_the_same_lines(self):
        self.assertEqual(self.stale(*self.LINES), [])

    def test_other_lines(self):
        first, second = self.LINES
        self.assertEqual(self.stale(first), [f"roofline.md lacks: {second}"])
        self.assertEqual(self.stale(*self.LINES, "| c.cu | `C` | 7 |"),
                         ["roofline.md has: | c.cu | `C` | 7 |"])
        self.assertEqual(self.stale("| a.cu | `A` | 7 |", second),
                         [f"roofline.md lacks: {first}",
                          "roofline.md has: | a.cu | `A` | 7 |"])
        self.assertEqual(self.stale(second, first),
                         ["roofline.md has the lines in another order"])

    def test_the_page_names_its_compiler(self):
        self.assertRegex(gpu_resources.PAGE.read_text(),
                         gpu_resources.PAGE_NVCC)


class ProgramTest(unittest.TestCase):
    def check(self, said, version, ptx=PTX):
        """Of kernels/cuda/gemm.cu, by a compiler of that version."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            nvcc = folder / "nvcc"
            nvcc.write_text(f"#!/bin/sh\necho Cuda release, {version}\n")
            nvcc.chmod(0o755)
            source = folder / "kept/gemm.cu"
            source.mkdir(parents=True)
            (source / "said").write_text(said)
            (source / "gemm.compute_80.ptx").write_text("")
            (source / "gemm.compute_90a.ptx").write_text(ptx)
            return subprocess.run(
                [ROOT / "scripts/gpu_resources.py", "--nvcc", nvcc, "--check",
                 folder / "kept"], text=True, capture_output=True)

    def test_spills_are_an_error(self):
        done = self.check(PTXAS, "V1.0.0")
        self.assertEqual(done.returncode, 1)
        self.assertIn(LARGE_SPILLS, done.stderr)
        self.assertNotIn("roofline.md", done.stderr)
        done = self.check(OF_SMALL, "V1.0.0")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("not compared", done.stdout)

    def test_aligned_barriers_are_an_error(self):
        done = self.check(OF_SMALL, "V1.0.0",
                          PTX.replace("\tret;", "\tbar.sync 1, 64;"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("gemm.cu: not all warps may come here: bar.sync 1, 64;",
                      done.stderr)

    def test_another_table_is_an_error(self):
        made_by = gpu_resources.PAGE_NVCC.search(
            gpu_resources.PAGE.read_text())[1]
        done = self.check(PTXAS, f"V{made_by}")
        self.assertEqual(done.returncode, 1)
        self.assertIn("roofline.md lacks: | gemm.cu | `Large<2>` | 192 | 168 |",
                      done.stderr)
        self.assertIn("roofline.md has: | gemm.cu | `ReduceKernel<1>` |",
                      done.stderr)
        self.assertIn("run scripts/gpu_resources.py", done.stderr)

    def test_a_compiler_that_fails_is_an_error(self):
        done = subprocess.run(
            [ROOT / "scripts/gpu_resources.py", "--nvcc", "false", "a.cu"],
            text=True, capture_output=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("gpu_resources: error: false", done.stderr)
        done = subprocess.run(
            [ROOT / "scripts/gpu_resources.py", "--nvcc", "no-nvcc", "a.cu"],
            text=True, capture_output=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no no-nvcc", done.stderr)
        done = subprocess.run(
            [ROOT / "scripts/gpu_resources.py", "--arch", "sm_20"],
            text=True, capture_output=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("'sm_20'", done.stderr)


if __name__ == "__main__":
    unittest.main()
