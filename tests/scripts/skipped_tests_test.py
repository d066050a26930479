#!/usr/bin/env python3
"""scripts/skipped_tests.sh on a log as ctest writes it."""

import os
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LOG = """Start testing: Nov 28 01:38 UTC
----------------------------------------------------------
6/7 Testing: one_test
Output:
----------------------------------------------------------
[ RUN      ] A.B
tests/a.cc:12: Skipped
this process has one core

[  SKIPPED ] A.B (0 ms)
[ RUN      ] P/A.C/0
tests/a.cc:12: Skipped
this process has one core

[  SKIPPED ] P/A.C/0, where GetParam() = "a" (12 ms)
[ RUN      ] A.D
tests/a.cc:14: Skipped


[  SKIPPED ] A.D (0 ms)
[ RUN      ] A.E
tests/a.cc:20: Failure
[  FAILED  ] A.E (0 ms)
[  SKIPPED ] 3 tests, listed below:
[  SKIPPED ] A.B
<end of output>
7/7 Testing: of_python
Output:
OK (expected failures=1, skipped=2)
<end of output>
7/7 Testing: whole_test
Output:
[       OK ] A.B (0 ms)
OK
<end of output>
"""
EXPECTED = """skipped: one_test: A.B and 1 more: this process has one core
skipped: one_test: A.D: no reason given
skipped: of_python: cases (2): of Python
"""


def skipped(tree):
    return subprocess.run([os.path.join(ROOT, "scripts/skipped_tests.sh"), tree],
                          capture_output=True, text=True, check=False)


class SkippedTests(unittest.TestCase):

    def test_names_each_reason_of_each_program_once(self):
        with tempfile.TemporaryDirectory() as tree:
            os.makedirs(os.path.join(tree, "Testing/Temporary"))
            with open(os.path.join(tree, "Testing/Temporary/LastTest.log"), "w",
                      encoding="utf-8") as file:
                file.write(LOG)
            ended = skipped(tree)
        self.assertEqual(ended.stdout, EXPECTED)
        self.assertEqual(ended.returncode, 0, ended.stderr)

    def test_fails_without_a_log(self):
        with tempfile.TemporaryDirectory() as tree:
            ended = skipped(tree)
        self.assertIn(f"there is no {tree}", ended.stderr)
        self.assertNotEqual(ended.returncode, 0)


if __name__ == "__main__":
    unittest.main()
