"""Every component of the chart is updated, scaled and killed under streams of both
front doors. Each stream must end, with exactly the target's own text.

NACRE_PROGRAMS: the folder of the programs. NACRE_MODELS: the bundled models.
"""

import http.client
import json
import os
import pathlib
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import golden
import mini_kubelet
from golden import CHART, ROOT

sys.path.insert(0, str(ROOT / "clients/python"))

import nacre  # noqa: E402  (of clients)

PROMPT = ("Question: A baker makes 12 loaves and sells 7 of them. How many are left?\n"
          "Answer:")
SEEDS = range(1, 5)
TOKENS = 96
# Seconds before an HTTP client comes again: refusals are quick.
REFUSED_PAUSE = 0.05
# Nothing here gives up: what must not happen would last for ever, and ctest's
# time limit finds it.
PATIENT = nacre.Retry(attempts=1 << 20, resumes=1 << 20, initial=0.1, maximum=1.0,
                      patience=1 << 20)


class Streams:
    """Threads that ask for one stream after the other and compare each."""

    def __init__(self, cluster, want):
        self._cluster = cluster
        self._want = want
        self._stopping = threading.Event()
        self._threads = []
        self._done = {}  # streams that ended well, by thread
        self._begun = {}  # whether a thread is in the middle of one
        # While there is no coordinator, HTTP requests that have not begun may be
        # refused, as documents say; clients come again.
        self.may_refuse = False
        self.refused = 0

    def start(self, kind, target, count):
        for index in range(count):
            name = f"{kind}-{index}"
            self._done[name] = 0
            self._begun[name] = False
            thread = threading.Thread(target=self._loop, args=(name, target), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _loop(self, name, one_stream):
        turn = 0
        while not self._stopping.is_set():
            seed = SEEDS[turn % len(SEEDS)]
            turn += 1
            try:
                text = one_stream(seed, lambda: self._set(self._begun, name, True))
            except Exception as error:  # whatever it is, a stream was lost
                self._cluster.fault(f"{name}, seed {seed}: {type(error).__name__}: {error}")
                return
            self._set(self._begun, name, False)
            if text is None:
                continue
            if text != self._want[seed]:
                self._cluster.fault(f"{name}, seed {seed}: {text!r} is not {self._want[seed]!r}")
                return
            self._set(self._done, name, self._done[name] + 1)

    def _set(self, table, name, value):
        with self._cluster.changed:
            table[name] = value
            self._cluster.changed.notify_all()

    def await_running(self):
        """Until all are in the middle of an answer."""
        for name in self._begun:
            self._cluster.wait(lambda one=name: self._begun[one])

    def await_another(self):
        """Until each has ended one that began after this call, or nearly so."""
        before = dict(self._done)
        self._cluster.wait(
            lambda: all(self._done[name] >= before[name] + 2 for name in before))

    def stop(self):
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        return sum(self._done.values())

    def over_grpc(self, addresses):
        def one_stream(seed, begun):
            with client.stream(PROMPT, max_tokens=TOKENS, temperature=0.8, seed=seed,
                               ignore_eos=True) as stream:
                for _ in stream:
                    begun()
            return stream.completion.text

        client = nacre.Client(addresses, retry=PATIENT)
        return one_stream

    def over_http(self, address):
        def one_stream(seed, begun):
            connection = http.client.HTTPConnection(address)
            try:
                answer = self._post(connection, seed)
                return None if answer is None else self._read(answer, begun)
            finally:
                connection.close()

        return one_stream

    def _read(self, answer, begun):
        text = ""
        for line in answer:
            if not line.startswith(b"data: "):
                continue
            data = line[6:].strip()
            if data == b"[DONE]":
                return text
            event = json.loads(data)
            if "error" in event:
                raise AssertionError(event)
            begun()
            text += "".join(choice["text"] for choice in event["choices"])
        raise AssertionError(f"the stream ended within {text!r}")

    def _post(self, connection, seed):
        """The answer, None where it was refused and may be."""
        may_refuse = self.may_refuse
        try:
            connection.request("POST", "/v1/completions", json.dumps(
                {"prompt": PROMPT, "max_tokens": TOKENS, "temperature": 0.8, "seed": seed,
                 "ignore_eos": True, "stream": True}), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            if answer.status == 200:
                return answer
            told = f"{answer.status}: {answer.read()[:300]}"
        except (OSError, http.client.HTTPException) as error:
            told = f"{type(error).__name__}: {error}"
        if not may_refuse:
            raise AssertionError(told)
        self.refused += 1
        time.sleep(REFUSED_PAUSE)
        return None


class Rollouts(unittest.TestCase):
    """A release of `values` under streams."""

    def start(self, values, coordinators):
        """`coordinators`: the Services at which gRPC clients take them in turn."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cluster = mini_kubelet.Cluster(
            golden.golden_objects(CHART / f"ci/values-{values}.yaml"),
            os.environ["NACRE_PROGRAMS"], {"models": os.environ["NACRE_MODELS"]}, folder.name)
        self.addCleanup(self.cluster.close)
        self.cluster.start()
        addresses = [self.cluster.service(f"demo-nacre-{name}").address("grpc")
                     for name in coordinators]
        with nacre.Client(addresses, retry=PATIENT) as client:
            # What the target says by itself.
            want = {seed: client.generate(PROMPT, max_tokens=TOKENS, temperature=0.8, seed=seed,
                                          ignore_eos=True, method="ar").text
                    for seed in SEEDS}
        self.assertEqual(len(set(want.values())), len(SEEDS))
        self.streams = Streams(self.cluster, want)
        self.streams.start("grpc", self.streams.over_grpc(addresses), 3)
        http_address = self.cluster.service("demo-nacre-http").address("http")
        self.streams.start("http", self.streams.over_http(http_address), 2)

    def deployment(self, component):
        return self.cluster.deployments[f"demo-nacre-{component}"]

    def run_phase(self, name, action):
        self.streams.await_running()
        action()
        self.streams.await_another()
        print(f"{name}: done", flush=True)

    def replace_the_only_coordinator(self):
        self.streams.may_refuse = True
        self.deployment("coordinator").update()
        gateway = self.deployment("gateway")
        self.cluster.wait(lambda: len(gateway.ready()) == gateway.replicas)
        # A gateway may say so before it has noticed that a coordinator was gone.
        self.streams.await_another()
        self.streams.may_refuse = False

    def finish(self):
        ended = self.streams.stop()
        self.assertEqual(self.cluster.faults, [])
        print(f"{ended} streams, all exact; {self.streams.refused} HTTP requests refused "
              f"while a coordinator was replaced")


class OneCoordinatorTest(Rollouts):
    def test_no_stream_is_lost(self):
        self.start("rollout", ["coordinator"])
        target, draft = self.deployment("target"), self.deployment("draft")
        self.run_phase("update of the drafts", draft.update)
        self.run_phase("update of the targets", target.update)
        self.run_phase("update of the gateways", self.deployment("gateway").update)
        self.run_phase("update of the coordinator", self.replace_the_only_coordinator)
        self.run_phase("one target more", lambda: target.scale(3))
        self.run_phase("two targets fewer", lambda: target.scale(1))
        self.run_phase("two targets again", lambda: target.scale(2))
        self.run_phase("no draft", lambda: draft.scale(0))
        self.run_phase("drafts again", lambda: draft.scale(2))
        self.run_phase("a target crashes", lambda: target.ready()[0].crash())
        self.run_phase("a draft crashes", lambda: draft.ready()[0].crash())
        self.finish()


class SeveralCoordinatorsTest(Rollouts):
    def setUp(self):
        if not mini_kubelet.can_name_pods():
            self.skipTest("no process here may have a hosts file of its own (user namespaces)")
        self.start("several", ["coordinator-0", "coordinator-1"])

    def registrations(self):
        """How many workers each coordinator has, by the coordinators that are."""
        return [len(pod.metric("nacre_worker_heartbeat_age_seconds"))
                for pod in self.deployment("coordinator").ready()]

    def await_registrations(self):
        workers = sum(self.deployment(role).replicas for role in ("target", "draft"))
        self.cluster.wait_for_scrape(lambda: self.registrations() == [workers, workers])

    def crash(self, index):
        self.deployment("coordinator").ready()[index].crash()

    def lose_node(self):
        """One pod of each of these roles ends for good; later others replace them."""
        roles = [self.deployment(role) for role in ("coordinator", "target", "draft")]
        lost = [role.ready()[0] for role in roles]
        addresses = {pod.ip for pod in lost}
        self.cluster.lose(lost)
        self.streams.await_another()
        self.cluster.forget(lost)
        for role in roles:
            role.scale(role.replicas)
            self.assertEqual(addresses & {pod.ip for pod in role.ready()}, set())
        self.assertNotIn(None, [pod.process.poll() for pod in lost])
        self.await_registrations()

    def test_no_stream_is_lost(self):
        # One of the two coordinators is always there: no request may be refused.
        self.await_registrations()
        self.run_phase("update of the drafts", self.deployment("draft").update)
        self.run_phase("update of the targets", self.deployment("target").update)
        self.run_phase("update of the gateways", self.deployment("gateway").update)
        self.run_phase("update of the coordinators", self.deployment("coordinator").update)
        self.await_registrations()
        self.run_phase("one target more", lambda: self.deployment("target").scale(3))
        self.await_registrations()
        self.run_phase("a target fewer", lambda: self.deployment("target").scale(2))
        # Its answers are resumed at the other.
        self.run_phase("a coordinator crashes", lambda: self.crash(0))
        self.run_phase("the other crashes", lambda: self.crash(1))
        self.await_registrations()
        self.run_phase("a node is lost", self.lose_node)
        self.finish()
        self.assertEqual(self.streams.refused, 0)


class Secrets:
    """The Secrets of ci/values-tls.yaml, each a folder."""

    CLIENT, GATEWAY = "a-clients-token-0001", "the-gateways-token-2"

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folders = {}
        for name, host in (("nacre-tls", "nacre.internal"), ("llm-tls", "llm.example")):
            self._make_certificate(name, host)
        tokens = f"client:{self.CLIENT}\ngateway:{self.GATEWAY}\n"
        for name, key, text in (("client-tokens", "tokens", tokens),
                                ("operator-tokens", "tokens", "an-operators-token-3\n"),
                                ("gateway-token", "token", self.GATEWAY + "\n")):
            self._secret(name).joinpath(key).write_text(text, encoding="ascii")

    def file(self, secret, key):
        return str(self.folders[secret] / key)

    def _secret(self, name):
        self.folders[name] = self.folder / name
        self.folders[name].mkdir()
        return self.folders[name]

    def _make_certificate(self, name, host):
        """An authority of its own for each Secret, so that no other is believed."""
        at = self._secret(name)
        (at / "names").write_text(f"subjectAltName=DNS:{host}\n", encoding="ascii")
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        for arguments in (
                ["req", "-x509", *key, "-days", "2", "-subj", f"/CN={name} authority",
                 "-keyout", "ca.key", "-out", "ca.crt"],
                ["req", *key, "-subj", "/CN=nacre", "-keyout", "tls.key", "-out", "request"],
                ["x509", "-req", "-in", "request", "-CA", "ca.crt", "-CAkey", "ca.key",
                 "-CAcreateserial", "-days", "2", "-extfile", "names", "-out", "tls.crt"]):
            subprocess.run(["openssl", *arguments], cwd=at, check=True, capture_output=True)


class SecuredTest(unittest.TestCase):
    """The flags of TLS and tokens fit together: all pods are ready, and clients
    with a token are served, others not."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.secrets = Secrets(folder.name)
        self.cluster = mini_kubelet.Cluster(
            golden.golden_objects(CHART / "ci/values-tls.yaml"), os.environ["NACRE_PROGRAMS"],
            {"models": os.environ["NACRE_MODELS"], **self.secrets.folders}, folder.name)
        self.addCleanup(self.cluster.close)
        self.cluster.start()

    def test_grpc(self):
        address = self.cluster.service("demo-nacre-coordinator").address("grpc")
        authority = self.secrets.file("llm-tls", "ca.crt")
        tls = nacre.Tls(ca=authority, server_name="llm.example")
        with nacre.Client(address, tls=tls, token=Secrets.CLIENT, retry=PATIENT) as client:
            completion = client.generate(PROMPT, max_tokens=8, ignore_eos=True)
        self.assertEqual(completion.choices[0].usage.completion_tokens, 8)
        with nacre.Client(address, tls=tls, token="nobody-has-this-token") as client:
            with self.assertRaises(nacre.Unauthenticated):
                client.generate(PROMPT, max_tokens=8)

    def test_https(self):
        address = self.cluster.service("demo-nacre-http").address("http")
        # Not create_default_context: newer Pythons ask more of an authority.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False  # it is dialled at its address
        context.load_verify_locations(cafile=self.secrets.file("llm-tls", "ca.crt"))
        for token, status in ((Secrets.CLIENT, 200), ("nobody-has-this-token", 401)):
            connection = http.client.HTTPSConnection(address, context=context)
            connection.request("POST", "/v1/completions", json.dumps(
                {"prompt": PROMPT, "max_tokens": 8}),
                {"Content-Type": "application/json", "Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            told = answer.read()
            connection.close()
            self.assertEqual(answer.status, status, told[:300])


if __name__ == "__main__":
    unittest.main()
