"""What the checks of this folder share: the files that git has, and a command
line of one flag, --self-test."""

import argparse
import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def tracked_files():
    """Paths, from the root, of files that git has and that are still there."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout
    return [path for path in listed.split("\0")
            if path and os.path.exists(os.path.join(ROOT, path))]


def texts(paths):
    """Path to text."""
    found = {}
    for path in paths:
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            found[path] = file.read()
    return found


def run(does, self_test, check):
    """The exit code of what was asked for: each of the two returns how many
    problems it found."""
    parser = argparse.ArgumentParser(description=does)
    parser.add_argument("--self-test", action="store_true",
                        help="check this script on planted problems")
    arguments = parser.parse_args()
    return 1 if (self_test if arguments.self_test else check)() else 0
