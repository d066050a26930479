"""Coordinators, workers and a gateway as processes, each with a loopback address of
its own, each started again after its death. Envoy in front of them where asked for.
"""

import dataclasses
import itertools
import json
import os
import pathlib
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[3]
RESTART_SECONDS = 0.5  # as `nacre up` after a first death
POLL_SECONDS = 0.1
PORTS = {"clients": 50050, "registry": 50051, "admin": 50052, "worker": 50060, "http": 8000}
# What deploy/envoy/nacre.yaml names.
ENVOY_HOSTS = {"coordinator-a": 0, "coordinator-b": 1}
# A proxy of the environment knows no loopback addresses.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Process:
    """A program that runs until stop(), whatever kills it. One that ends by itself is
    a fault."""

    def __init__(self, name, command, log, on_fault):
        self.name = name
        self._command = [str(part) for part in command]
        self._log = log
        self._on_fault = on_fault
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._process = None
        self._killed = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def pid(self):
        with self._lock:
            return self._process.pid

    def kill(self):
        """SIGKILL. False where it was dead already."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                return False
            self._killed = True
            self._process.kill()
            return True

    def stop(self):
        self._stopping.set()
        with self._lock:
            if self._process is not None:
                self._process.send_signal(signal.SIGKILL)
        self._thread.join()

    def _run(self):
        while not self._stopping.is_set():
            with self._lock, open(self._log, "ab") as log:
                self._killed = False
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            status = self._process.wait()
            if not self._killed and not self._stopping.is_set():
                self._on_fault(f"{self.name} ended by itself with {status}: {self._last_line()}")
            self._stopping.wait(RESTART_SECONDS)

    def _last_line(self):
        lines = pathlib.Path(self._log).read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


@dataclasses.dataclass(frozen=True)
class Coordinator:
    host: str

    def at(self, port):
        return f"{self.host}:{PORTS[port]}"


class Fleet:
    """`count` of coordinators, of targets and of drafts each. `envoy`: the program,
    None: no proxy."""

    def __init__(self, programs, models, folder, on_fault, *, count=2, envoy=None,
                 flags=None):
        self._count = count
        self._flags = flags or {}  # by program: coordinator, gateway
        self._programs = pathlib.Path(programs).resolve()
        self._models = pathlib.Path(models).resolve()
        self._folder = pathlib.Path(folder)
        self._on_fault = on_fault
        self._hosts = _own_hosts()
        self.processes = {}
        self.coordinators = [Coordinator(next(self._hosts)) for _ in range(count)]
        for index, coordinator in enumerate(self.coordinators):
            self._start_coordinator(f"coordinator-{index}", coordinator)
        for role in ("target", "draft"):
            for index in range(count):
                self._start_worker(f"{role}-{index}", role)
        self._gateway = next(self._hosts)
        self._start_gateway()
        # Where clients call.
        self.grpc = [coordinator.at("clients") for coordinator in self.coordinators]
        self.http = f"{self._gateway}:{PORTS['http']}"
        if envoy is not None:
            self._start_envoy(envoy)

    def kill(self, name):
        return self.processes[name].kill()

    def view(self):
        """The gateway's /nacre/fleet; None while it does not answer."""
        url = f"http://{self._gateway}:{PORTS['http']}/nacre/fleet"
        try:
            with OPENER.open(url, timeout=60) as answer:
                return json.load(answer)["coordinators"]
        except (OSError, urllib.error.URLError, ValueError):
            return None

    def await_whole(self):
        """Until each coordinator has all workers."""
        def is_whole(coordinator):
            ready = [one for one in coordinator.get("workers", []) if one["ready"]]
            return len(ready) == 2 * self._count

        self._await(is_whole)

    def await_empty(self):
        """Until no session is left and all KV is free."""
        def is_empty(coordinator):
            return (not coordinator.get("sessions", [None]) and
                    coordinator["running_requests"] + coordinator["queued_requests"] == 0 and
                    all(worker["sessions"] == 0 and
                        worker["kv_free_tokens"] == worker["kv_capacity_tokens"]
                        for worker in coordinator["workers"]))

        self._await(is_empty)

    def stop(self):
        for process in self.processes.values():
            process.stop()

    def _await(self, holds):
        while True:
            view = self.view()
            if view is not None and all(map(holds, view)):
                return
            time.sleep(POLL_SECONDS)

    def _start(self, name, command):
        self.processes[name] = Process(
            name, command, self._folder / f"{name}.log", self._on_fault)

    def _all(self, port):
        return ",".join(coordinator.at(port) for coordinator in self.coordinators)

    def _start_coordinator(self, name, coordinator):
        self._start(name, [
            self._programs / "nacre-coordinator", "--tokenizer", self._models / "target",
            "--listen", coordinator.at("clients"),
            "--registry-listen", coordinator.at("registry"),
            "--admin-listen", coordinator.at("admin"),
            *self._flags.get("coordinator", [])])

    def _start_worker(self, name, role):
        self._start(name, [
            self._programs / f"nacre-{role}-worker", "--model", self._models / role,
            "--coordinator", self._all("registry"), "--max-memory", "500M",
            "--listen", f"{next(self._hosts)}:{PORTS['worker']}"])

    def _start_gateway(self):
        self._start("gateway", [
            self._programs / "nacre-gateway", "--tokenizer", self._models / "target",
            "--coordinator", self._all("clients"), "--admin", self._all("admin"),
            "--listen", f"{self._gateway}:{PORTS['http']}", *self._flags.get("gateway", [])])

    def _start_envoy(self, program):
        text = (ROOT / "deploy/envoy/nacre.yaml").read_text(encoding="utf-8")
        host = next(self._hosts)
        addresses = {name: self.coordinators[index].host for name, index in ENVOY_HOSTS.items()}
        for name, address in {**addresses, "gateway": self._gateway, "0.0.0.0": host}.items():
            if f"address: {name}," not in text:
                raise AssertionError(f"deploy/envoy/nacre.yaml has no address {name}")
            text = text.replace(f"address: {name},", f"address: {address},")
        config = self._folder / "envoy.yaml"
        config.write_text(text, encoding="utf-8")
        # Without hot restarts several run on one machine.
        self._start("envoy", [program, "--config-path", config, "--disable-hot-restart",
                              "--concurrency", "1", "--log-level", "warning"])
        self.grpc = [f"{host}:{PORTS['clients']}"]
        self.http = f"{host}:{PORTS['http']}"


def _own_hosts():
    """Loopback addresses that other runs do not use: 127.A.B.10 and on."""
    number = os.getpid()
    return (f"127.{64 + number % 128}.{number // 128 % 256}.{last}"
            for last in itertools.count(10))
