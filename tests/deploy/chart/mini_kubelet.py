"""Runs rendered Deployments, StatefulSets and Services as processes of this machine,
as a cluster would: a pod has an address of its own (of 127.0.0.0/8), a Service too,
which hands each connection on to a pod that is ready. The name of a headless Service
stands for its pods: each process sees a hosts file that has them.

What of Kubernetes is here: probes over HTTP, endpoints, preStop sleeps, SIGTERM,
the grace and SIGKILL, restarts of containers that end, rolling updates with
maxSurge and maxUnavailable, or one by one with minReadySeconds, Recreate, scaling,
pods that are lost with their node.
What is not: images, schedulers, network policies, users and limits of containers. The
connections of a lost node end at once here; those of a real one may fall silent.

No process of a pod outlives this one, however it ends.

A probe that gets no answer is asked again: how fast this machine is, is no fault
of what runs on it.
"""

import concurrent.futures
import http.client
import os
import pathlib
import signal
import socket
import struct
import subprocess
import threading
import time
import urllib.error
import urllib.request

PROBE_PERIOD = 0.2  # seconds, shorter than the chart's: a test has no time
PROBE_TIMEOUT = 60
# A proxy of the environment knows no loopback addresses.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def own_addresses():
    """Loopback addresses that other tests do not use: 127.A.B.10 and on."""
    number = os.getpid()
    prefix = f"127.{64 + number % 128}.{number // 128 % 256}."
    return (f"{prefix}{last}" for last in range(10, 250))


# Of all clusters of this process: none waits for the other's ports.
ADDRESSES = own_addresses()

# A process is killed when the thread that started it ends, and this one lives as
# long as this program.
STARTER = concurrent.futures.ThreadPoolExecutor(max_workers=1)
DIES_WITH_STARTER = ["setpriv", "--pdeathsig", "KILL"]
# Runs what follows the hosts file.
WITH_HOSTS = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
              'mount --bind "$1" /etc/hosts && shift && exec "$@"', "sh"]
HOSTS_BYTES = 1 << 14


def can_name_pods():
    """Whether processes may see a hosts file of ours."""
    return subprocess.run([*WITH_HOSTS, "/etc/hosts", "true"], check=False,
                          capture_output=True).returncode == 0


class Pod:
    """One container with its address. Used under the cluster's lock, but for its
    thread, which takes the lock itself."""

    def __init__(self, cluster, deployment, serial, labels=()):
        self.cluster = cluster
        self.deployment = deployment
        self.name = f"{deployment.name}-{serial}"
        self.generation = deployment.generation
        self.spec = deployment.spec["template"]["spec"]
        self.container = self.spec["containers"][0]
        self.labels = {**deployment.spec["template"]["metadata"]["labels"], **dict(labels)}
        self.ip = next(cluster.addresses)
        self.ready = False
        self.leaving = False  # deleted
        self.lost = False  # with its node, which no one has noticed
        self.listed = True  # balancers may send it something
        self.gone = False
        self.process = None
        self.log = cluster.folder / f"{self.name}.log"

    @property
    def alive(self):
        return not self.leaving and not self.gone

    def port(self, name):
        for port in self.container["ports"]:
            if port["name"] == name:
                return port["containerPort"]
        raise KeyError(f"{self.name} has no port {name}")

    def start(self):
        command = [self.cluster.programs / self.container["command"][0],
                   *(self._argument(text) for text in self.container["args"])]
        if self.cluster.names:
            command = [*WITH_HOSTS, self.cluster.hosts, *DIES_WITH_STARTER, *command]
        else:
            command = [*DIES_WITH_STARTER, *command]
        with open(self.log, "ab") as log:
            self.process = STARTER.submit(
                subprocess.Popen, command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={"PATH": os.environ["PATH"]}, cwd=self.cluster.folder).result()
        threading.Thread(target=self._watch, args=(self.process,), daemon=True).start()

    def _argument(self, text):
        # A pod's loopback is its own, too.
        for address in ("$(POD_IP)", "0.0.0.0", "127.0.0.1"):
            text = text.replace(address, self.ip)
        for service in self.cluster.services:
            if not service.headless:
                text = text.replace(service.host, service.ip)
        for mount in self.container.get("volumeMounts", []):
            folder = self._volume(mount["name"]) / mount.get("subPath", "")
            text = text.replace(mount["mountPath"], str(folder))
        return text

    def _volume(self, name):
        """The folder of a volume: that of its claim or Secret."""
        (volume,) = [one for one in self.spec["volumes"] if one["name"] == name]
        if "secret" in volume:
            return self.cluster.volumes[volume["secret"]["secretName"]]
        return self.cluster.volumes[volume["persistentVolumeClaim"]["claimName"]]

    def probe(self, kind):
        """Whether the answer is 200; None: there was none."""
        asked = self.container[f"{kind}Probe"]["httpGet"]
        url = f"http://{self.ip}:{self.port(asked['port'])}{asked['path']}"
        try:
            with OPENER.open(url, timeout=PROBE_TIMEOUT) as answer:
                return answer.status == 200
        except urllib.error.HTTPError:
            return False
        except (OSError, http.client.HTTPException):
            return None

    def metric(self, name):
        """The values of its series, as strings; none where it does not answer."""
        try:
            with OPENER.open(f"http://{self.ip}:{self.port('metrics')}/metrics",
                             timeout=PROBE_TIMEOUT) as answer:
                lines = answer.read().decode().splitlines()
        except (OSError, http.client.HTTPException):
            return []
        return [line.rpartition(" ")[2] for line in lines if line.startswith(name + "{")]

    def _watch(self, process):
        """Probes a container until it ends."""
        started = False
        while process.poll() is None:
            if not started:
                started = self.probe("startup") is True
            elif not self.leaving:
                if self.probe("liveness") is False:
                    self.cluster.fault(f"{self.name} is not live")
                ready = self.probe("readiness")
                if ready is not None:
                    self.cluster.set_ready(self, ready)
            time.sleep(PROBE_PERIOD)
        if not self.lost:  # a lost node reports nothing
            self.cluster.set_ready(self, False)
        with self.cluster.changed:
            restart = self.alive and not self.lost and not self.cluster.closing
            expected = self.cluster.killed.pop(process.pid, False) or not restart
        if not expected:
            self.cluster.fault(f"{self.name} ended with {process.returncode}: {self.tail()}")
        elif restart:
            self.start()

    def stop(self):
        """Deletes the pod, as a kubelet does. Returns when it is gone."""
        hook = self.container.get("lifecycle", {}).get("preStop", {})
        pause = hook.get("sleep", {}).get("seconds", 0)
        grace = self.spec["terminationGracePeriodSeconds"] - pause
        with self.cluster.changed:
            self.leaving = True
            self.cluster.changed.notify_all()
        # Balancers hear of it later than the pod.
        time.sleep(pause / 2)
        self.listed = False
        time.sleep(pause / 2)
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout=grace)
            if code != 0:
                self.cluster.fault(f"{self.name} stopped with {code}: {self.tail()}")
        except subprocess.TimeoutExpired:
            self.cluster.fault(f"{self.name} had to be killed after {grace} s: {self.tail()}")
            self.process.kill()
            self.process.wait()
        with self.cluster.changed:
            self.gone = True
            self.cluster.name_pods()
            self.cluster.changed.notify_all()

    def crash(self):
        """The container ends as by a fault; the kubelet starts it again."""
        with self.cluster.changed:
            self.cluster.killed[self.process.pid] = True
            old = self.process
        old.kill()
        self.cluster.wait(lambda: self.process is not old and self.ready)

    def tail(self):
        return self.log.read_bytes()[-1500:].decode(errors="replace")


class Deployment:
    """Keeps its pods at what `spec` says. Calls of several threads at once are of
    several Deployments."""

    def __init__(self, cluster, item):
        self.cluster = cluster
        self.name = item["metadata"]["name"]
        self.spec = item["spec"]
        self.generation = 0
        self.replicas = self.spec["replicas"]
        self.pods = []
        self._serial = 0
        self._stopping = []

    def _start(self):
        self._add(Pod(self.cluster, self, self._serial))

    def _add(self, pod):
        self._serial += 1
        with self.cluster.changed:
            self.pods.append(pod)
            self.cluster.name_pods()
        pod.start()

    def _stop(self, pod):
        pod.leaving = True  # counts at once, the thread may come later
        thread = threading.Thread(target=pod.stop)
        thread.start()
        self._stopping.append(thread)

    def alive(self):
        return [pod for pod in self.pods if pod.alive]

    def ready(self):
        return [pod for pod in self.pods if pod.alive and pod.ready]

    def scale(self, replicas):
        """Returns when as many are ready, and the rest is gone."""
        self.replicas = replicas
        while len(self.alive()) < replicas:
            self._start()
        for pod in self.alive()[replicas:]:
            self._stop(pod)
        self.cluster.wait(lambda: len(self.ready()) >= replicas)
        self._await_stopped()

    def update(self):
        """A rolling update: every pod is replaced."""
        self.generation += 1
        if self.spec["strategy"]["type"] == "Recreate":
            for pod in self.alive():
                self._stop(pod)
            self._await_stopped()
            self.scale(self.replicas)
            return
        limits = self.spec["strategy"]["rollingUpdate"]
        surge, missing = limits["maxSurge"], limits["maxUnavailable"]
        while True:
            new = [pod for pod in self.alive() if pod.generation == self.generation]
            old = [pod for pod in self.alive() if pod.generation != self.generation]
            if not old and len(self.ready()) == self.replicas:
                break
            if len(new) < self.replicas and len(new) + len(old) < self.replicas + surge:
                self._start()
            elif old and len(self.ready()) > self.replicas - missing:
                self._stop(old[0])
            else:
                count = len(self.ready())
                self.cluster.wait(lambda: len(self.ready()) != count)
        self._await_stopped()

    def _await_stopped(self):
        for thread in self._stopping:
            thread.join()
        self._stopping.clear()


class StatefulSet(Deployment):
    """Its pods have numbers. Each keeps its own when it is replaced, and has another
    address."""

    POD_NAME = "statefulset.kubernetes.io/pod-name"

    def _start(self):
        taken = {pod.labels[self.POD_NAME] for pod in self.pods if not pod.gone}
        name = next(name for index in range(len(taken) + 1)
                    if (name := f"{self.name}-{index}") not in taken)
        self._add(Pod(self.cluster, self, self._serial, {self.POD_NAME: name}))

    def update(self):
        """One by one, the one with the highest number first."""
        self.generation += 1
        pause = self.spec.get("minReadySeconds", 0)
        old = sorted(self.alive(), key=lambda pod: pod.labels[self.POD_NAME], reverse=True)
        for pod in old:
            self._stop(pod)
            self._await_stopped()
            self.scale(self.replicas)
            time.sleep(pause)


class Service:
    """An address of its own in front of the pods that it selects."""

    def __init__(self, cluster, item):
        self.cluster = cluster
        metadata = item["metadata"]
        self.host = f"{metadata['name']}.{metadata['namespace']}.svc.cluster.local"
        self.name = metadata["name"]
        self.spec = item["spec"]
        self.headless = self.spec.get("clusterIP") == "None"
        self.ip = None if self.headless else next(cluster.addresses)
        self._turn = 0
        self._listeners = []

    def open(self):
        if self.headless:
            return
        for port in self.spec["ports"]:
            # Those below 1024 are not everybody's.
            number = port["port"] if port["port"] > 1023 else port["port"] + 8000
            listener = socket.create_server((self.ip, number), backlog=256)
            self._listeners.append(listener)
            threading.Thread(target=self._accept, args=(listener, port["targetPort"]),
                             daemon=True).start()

    def address(self, port):
        """host:port of a named port."""
        (index,) = [i for i, entry in enumerate(self.spec["ports"]) if entry["name"] == port]
        return "{}:{}".format(*self._listeners[index].getsockname())

    def close(self):
        for listener in self._listeners:
            listener.shutdown(socket.SHUT_RDWR)  # ends what waits in accept()
            listener.close()

    def pods(self):
        """Those that it stands for. Under the cluster's lock."""
        early = self.spec.get("publishNotReadyAddresses", False)
        return [pod for deployment in self.cluster.deployments.values()
                for pod in deployment.pods
                if all(pod.labels.get(key) == value
                       for key, value in self.spec["selector"].items())
                and not pod.gone and (early or (pod.ready and pod.listed))]

    def _endpoint(self, port):
        with self.cluster.changed:
            pods = self.pods()
            if not pods:
                return None
            self._turn += 1
            pod = pods[self._turn % len(pods)]
            return pod.ip, pod.port(port)

    def _accept(self, listener, port):
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(client, port), daemon=True).start()

    def _serve(self, client, port):
        endpoint = self._endpoint(port)
        try:
            if endpoint is None:
                raise ConnectionRefusedError
            server = socket.create_connection(endpoint)
        except OSError:
            # As a rejected connection: a reset.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            return
        back = threading.Thread(target=pump, args=(server, client), daemon=True)
        back.start()
        pump(client, server)
        back.join()
        server.close()
        client.close()


def pump(source, sink):
    """Hands on what comes until the source ends."""
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Cluster:
    """The Deployments, StatefulSets and Services of a render. `volumes`: the folder of
    each claim and Secret."""

    def __init__(self, objects, programs, volumes, folder):
        self.changed = threading.Condition(threading.RLock())
        self.addresses = ADDRESSES
        self.programs = pathlib.Path(programs).resolve()
        self.volumes = {name: pathlib.Path(path).resolve() for name, path in volumes.items()}
        self.folder = pathlib.Path(folder)
        self.closing = False
        self.killed = {}  # pids that were killed on purpose
        self.faults = []
        self.services = [Service(self, item) for item in objects if item["kind"] == "Service"]
        kinds = {"Deployment": Deployment, "StatefulSet": StatefulSet}
        self.deployments = {item["metadata"]["name"]: kinds[item["kind"]](self, item)
                            for item in objects if item["kind"] in kinds}
        self.names = any(service.headless for service in self.services)
        self.hosts = self.folder / "hosts"
        self.name_pods()

    def start(self):
        for service in self.services:
            service.open()
        for deployment in self.deployments.values():
            while len(deployment.alive()) < deployment.replicas:
                deployment._start()
        for deployment in self.deployments.values():
            self.wait(lambda one=deployment: len(one.ready()) >= one.replicas)

    def name_pods(self):
        """Writes the hosts file. In place, and by one write: processes have it open
        by where it is on the disk."""
        with self.changed:
            lines = ["127.0.0.1 localhost"]
            lines += [f"{pod.ip} {service.host}" for service in self.services
                      if service.headless for pod in service.pods()]
            text = "".join(line + "\n" for line in lines).encode().ljust(HOSTS_BYTES, b"\n")
            with open(os.open(self.hosts, os.O_WRONLY | os.O_CREAT, 0o644), "wb", 0) as file:
                file.write(text)

    def lose(self, pods):
        """Their node ends without a word. Services send connections there until
        `forget`."""
        with self.changed:
            for pod in pods:
                pod.lost = True
                pod.process.kill()
        for pod in pods:
            pod.process.wait()

    def forget(self, pods):
        """The node is known to be gone for good. `scale` replaces its pods."""
        with self.changed:
            for pod in pods:
                pod.gone = True
            self.name_pods()
            self.changed.notify_all()

    def service(self, name):
        (found,) = [service for service in self.services if service.name == name]
        return found

    def wait(self, condition):
        """Until it holds, or something went wrong."""
        with self.changed:
            self.changed.wait_for(lambda: self.faults or condition())
            if self.faults:
                raise AssertionError("; ".join(self.faults))

    def wait_for_scrape(self, condition):
        """As wait, for what metrics say: nothing tells when they change."""
        while not condition():
            with self.changed:
                if self.faults:
                    raise AssertionError("; ".join(self.faults))
            time.sleep(PROBE_PERIOD)

    def fault(self, text):
        with self.changed:
            self.faults.append(text)
            self.changed.notify_all()

    def set_ready(self, pod, ready):
        with self.changed:
            if pod.ready != ready:
                pod.ready = ready
                self.changed.notify_all()

    def close(self):
        with self.changed:
            self.closing = True
        for deployment in self.deployments.values():
            for pod in deployment.pods:
                if pod.process is not None and pod.process.poll() is None:
                    pod.process.kill()
                    pod.process.wait()
        for service in self.services:
            service.close()
