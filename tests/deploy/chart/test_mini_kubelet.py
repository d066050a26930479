"""What the rollout tests run on."""

import os
import pathlib
import signal
import subprocess
import sys
import unittest

# Starts a process as a pod's, tells that it runs, and waits to be killed.
PROGRAM = """
import subprocess, sys, threading, mini_kubelet
end = int(sys.argv[1])
mini_kubelet.STARTER.submit(
    subprocess.Popen,
    [*mini_kubelet.DIES_WITH_STARTER, "sh", "-c", f"echo up >&{end}; exec sleep inf"],
    pass_fds=[end]).result()
threading.Event().wait()
"""


class StarterTest(unittest.TestCase):
    def check_end(self, number):
        ours, theirs = os.pipe()
        program = subprocess.Popen([sys.executable, "-c", PROGRAM, str(theirs)],
                                   cwd=pathlib.Path(__file__).parent, pass_fds=[theirs])
        os.close(theirs)
        with open(ours, "rb") as pipe:
            self.assertEqual(pipe.readline(), b"up\n")
            program.send_signal(number)
            program.wait()
            # Ends when no process has its other end any more.
            self.assertEqual(pipe.read(), b"")

    def test_no_pod_outlives_a_killed_test(self):
        self.check_end(signal.SIGTERM)
        self.check_end(signal.SIGKILL)


if __name__ == "__main__":
    unittest.main()
