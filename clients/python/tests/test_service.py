"""The clients against real services, two coordinators of the same models.

NACRE: the program. MODELS: the folder of the models `target` and `draft`.
"""

import asyncio
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import unittest

import nacre

PROGRAM = os.environ.get("NACRE")
MODELS = os.environ.get("MODELS", "models")
PROMPT = ("Question: A baker makes 12 loaves and sells 7 of them. How many are left?\n"
          "Answer:")
OPTIONS = dict(max_tokens=96, temperature=0.8, seed=7, n=2, ignore_eos=True, logprobs=1)


class Service:
    """`nacre up` on a free port. Its steps take as long as on a slow device, so
    that an answer can be cut in its middle."""

    def __init__(self, folder):
        self._log = open(pathlib.Path(folder, "up.log"), "w+", encoding="utf-8")
        self._process = subprocess.Popen(
            [PROGRAM, "up", "--port", "0", "--target-model", f"{MODELS}/target",
             "--draft-model", f"{MODELS}/draft", "--target-step-time", "1:20"],
            stdout=subprocess.PIPE, stderr=self._log, text=True)
        self.address = None
        for line in self._process.stdout:
            if line.startswith("coordinator "):
                self.address = line.split()[1]
            if line.startswith("ready"):
                return
        self._log.seek(0)
        raise AssertionError("it did not start: " + self._log.read()[-2000:])

    def kill_coordinator(self):
        tasks = pathlib.Path(f"/proc/{self._process.pid}/task")
        children = [file.read_text(encoding="ascii") for file in tasks.glob("*/children")]
        for pid in " ".join(children).split():
            name = pathlib.Path("/proc", pid, "cmdline").read_bytes().split(b"\0")[0]
            if name.endswith(b"nacre-coordinator"):
                os.kill(int(pid), signal.SIGKILL)
                return
        raise AssertionError("it has no coordinator")

    def stop(self):
        self._process.terminate()
        self._process.communicate()
        self._log.close()


def essence(completion):
    return [(c.text, c.token_ids, c.logprobs, c.finish_reason, c.seed, c.numerics_id,
             c.usage.prompt_tokens, c.usage.completion_tokens)
            for c in completion.choices]


@unittest.skipUnless(PROGRAM, "NACRE is not set")
class ServiceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.services = []
        for _ in range(2):
            folder = tempfile.TemporaryDirectory()
            cls.addClassCleanup(folder.cleanup)
            cls.services.append(Service(folder.name))
            cls.addClassCleanup(cls.services[-1].stop)
        cls.addresses = [service.address for service in cls.services]
        with nacre.Client(cls.addresses[1]) as client:
            cls.uncut = client.generate(PROMPT, **OPTIONS)

    def test_text_equals_the_command_line(self):
        told = subprocess.run(
            [PROGRAM, "generate", "--address", self.addresses[1], "--prompt", PROMPT,
             "--max-tokens", "24", "--temperature", "0.8", "--seed", "7", "--json"],
            check=True, capture_output=True, text=True)
        with nacre.Client(self.addresses[1]) as client:
            completion = client.generate(PROMPT, max_tokens=24, temperature=0.8, seed=7)
        self.assertEqual(json.loads(told.stdout)["text"], completion.text)

    def test_answers_are_those_of_the_target(self):
        with nacre.Client(self.addresses[1]) as client:
            alone = client.generate(PROMPT, method="ar", **OPTIONS)
        self.assertEqual(essence(alone), essence(self.uncut))

    def test_tokenize_and_model(self):
        with nacre.Client(self.addresses[1]) as client:
            ids = client.tokenize(PROMPT)
            self.assertEqual(client.generate(ids, **OPTIONS).text, self.uncut.text)
            model = client.model()
        self.assertEqual(model.numerics_id, self.uncut.choices[0].numerics_id)
        self.assertEqual(len(ids), self.uncut.choices[0].usage.prompt_tokens)

    def test_many_at_once(self):
        async def run():
            async with nacre.AsyncClient(self.addresses[1]) as client:
                return await asyncio.gather(
                    *(client.generate(PROMPT, max_tokens=8, temperature=1.0, seed=seed)
                      for seed in range(24)))

        completions = asyncio.run(run())
        with nacre.Client(self.addresses[1]) as client:
            for seed in (0, 23):
                alone = client.generate(PROMPT, max_tokens=8, temperature=1.0, seed=seed)
                self.assertEqual(essence(alone), essence(completions[seed]))

    def test_errors(self):
        with nacre.Client(self.addresses[1]) as client:
            with self.assertRaisesRegex(nacre.InvalidArgument, "temperature"):
                client.generate(PROMPT, temperature=-1)
            with self.assertRaises(nacre.ContextLengthExceeded):
                client.generate(PROMPT, max_tokens=10**6)
            with self.assertRaises(nacre.DeadlineExceeded) as caught:
                client.generate(PROMPT, timeout=1, method="ar", max_tokens=400,
                                ignore_eos=True)
        self.assertLess(caught.exception.partial.tokens, 400)

    def revive(self):
        """Waits until the first service answers again."""
        patient = nacre.Retry(attempts=300, initial=0.1, maximum=0.1)
        with nacre.Client(self.addresses[0], retry=patient) as client:
            client.generate("hi", max_tokens=1)

    def test_killed_coordinator(self):
        self.revive()
        with nacre.Client(self.addresses) as client:
            with client.stream(PROMPT, **OPTIONS) as stream:
                killed = False
                for chunk in stream:
                    if not killed and chunk.first_index >= 4:
                        self.services[0].kill_coordinator()
                        killed = True
            self.assertTrue(killed)
            self.assertEqual(essence(stream.completion), essence(self.uncut))

    def test_killed_coordinator_asynchronously(self):
        async def run():
            killed = False
            async with nacre.AsyncClient(self.addresses) as client:
                stream = client.stream(PROMPT, **OPTIONS)
                async for chunk in stream:
                    if not killed and chunk.first_index >= 4:
                        self.services[0].kill_coordinator()
                        killed = True
            self.assertTrue(killed)
            return stream.completion

        self.revive()
        self.assertEqual(essence(asyncio.run(run())), essence(self.uncut))


if __name__ == "__main__":
    unittest.main()
