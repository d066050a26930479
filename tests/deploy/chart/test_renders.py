"""Rules that the golden renders keep, whatever the values."""

import unittest

import golden
from golden import CHART, ROOT, render_chart

CLOSING_SECONDS = 15  # what a program takes to close after its drain


def each_render():
    for file in render_chart.value_files():
        yield file.stem, golden.golden_objects(file)


def each_workload():
    for name, objects in each_render():
        for item in golden.workloads(objects):
            yield f"{name} {item['metadata']['name']}", item, objects


def fits(selector, labels):
    return all(labels.get(key) == value for key, value in selector.items())


def pod_labels(workload):
    return workload["spec"]["template"]["metadata"]["labels"]


def pods_of(objects):
    """The labels of each pod that a name tells from others, and what makes it."""
    for item in golden.workloads(objects):
        yield pod_labels(item), item
        if item["kind"] == "StatefulSet":
            for index in range(item["spec"]["replicas"]):
                name = f"{item['metadata']['name']}-{index}"
                yield {**pod_labels(item), "statefulset.kubernetes.io/pod-name": name}, item


def quantity(text):
    """The number of "500m", "2", "1Gi"."""
    units = {"m": 1e-3, "Mi": 2**20, "Gi": 2**30}
    for unit, factor in units.items():
        if str(text).endswith(unit):
            return float(text.removesuffix(unit)) * factor
    return float(text)


def seconds(container, flag):
    for argument in container["args"]:
        if argument.startswith(f"--{flag}="):
            return int(argument.partition("=")[2].removesuffix("s"))
    raise AssertionError(f"no --{flag}")


class SourcesTest(unittest.TestCase):
    def test_goldens_are_of_these_sources(self):
        for file in render_chart.value_files():
            text = render_chart.golden_file(file).read_text(encoding="utf-8")
            self.assertIn(render_chart.source_hash(file), text,
                          f"{file.name}: run scripts/render_chart.py")
        names = {render_chart.golden_file(file).name for file in render_chart.value_files()}
        self.assertEqual(names, {path.name for path in render_chart.GOLDEN.glob("*.yaml")})

    def test_files_are_those_of_deploy(self):
        files = {path.name: path.resolve() for path in (CHART / "files").iterdir()}
        self.assertEqual(files, {
            "alerts.yaml": ROOT / "deploy/prometheus/alerts.yaml",
            "autoscaling.yaml": ROOT / "deploy/prometheus/autoscaling.yaml",
            "dashboard.json": ROOT / "deploy/grafana/nacre.json"})

    def test_versions_are_the_projects(self):
        chart = golden.load(CHART / "Chart.yaml")
        lists = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
        self.assertIn(f"project(nacre VERSION {chart['version']} ", lists)
        self.assertEqual(chart["version"], chart["appVersion"])


class ObjectsTest(unittest.TestCase):
    def test_names_are_unique(self):
        for name, objects in each_render():
            keys = [(item["kind"], item["metadata"]["name"]) for item in objects]
            self.assertEqual(len(keys), len(set(keys)), name)

    def test_everything_selects_a_pod(self):
        for name, objects in each_render():
            pods = [labels for labels, _ in pods_of(objects)]
            for item in objects:
                spec = item.get("spec", {})
                if item["kind"] == "Service":
                    selector = spec["selector"]
                elif item["kind"] == "NetworkPolicy":
                    selector = spec["podSelector"]["matchLabels"]
                elif item["kind"] in ("Deployment", "StatefulSet", "PodDisruptionBudget",
                                      "PodMonitor"):
                    selector = spec["selector"]["matchLabels"]
                else:
                    continue
                self.assertTrue(any(fits(selector, pod) for pod in pods),
                                f"{name} {item['kind']} {item['metadata']['name']}")

    def test_services_and_policies_name_ports_of_their_pods(self):
        for name, objects in each_render():
            pods = [(labels, {port["name"] for port in golden.containers(item)[0]["ports"]})
                    for labels, item in pods_of(objects)]
            for item in golden.of_kind(objects, "Service"):
                for labels, ports in pods:
                    if fits(item["spec"]["selector"], labels):
                        used = {port["targetPort"] for port in item["spec"]["ports"]}
                        self.assertLessEqual(used, ports, f"{name} {item['metadata']['name']}")
            for item in golden.of_kind(objects, "NetworkPolicy"):
                for labels, ports in pods:
                    if fits(item["spec"]["podSelector"]["matchLabels"], labels):
                        used = {port["port"] for rule in item["spec"]["ingress"]
                                for port in rule["ports"]}
                        self.assertLessEqual(used, ports, f"{name} {item['metadata']['name']}")

    def test_policies_close_every_pod(self):
        for name, objects in each_render():
            policies = golden.of_kind(objects, "NetworkPolicy")
            if not policies:
                self.assertEqual(name, "values-no-draft")
                continue
            for item in golden.workloads(objects):
                mine = [policy for policy in policies
                        if fits(policy["spec"]["podSelector"]["matchLabels"], pod_labels(item))]
                self.assertEqual(len(mine), 1, f"{name} {item['metadata']['name']}")
                self.assertEqual(mine[0]["spec"]["policyTypes"], ["Ingress", "Egress"])
                for rule in mine[0]["spec"]["ingress"]:
                    ports = {port["port"] for port in rule["ports"]}
                    # Only what clients call may be open to all.
                    if "from" not in rule:
                        self.assertIn((item["metadata"]["labels"]["app.kubernetes.io/component"],
                                       ports), [("coordinator", {"grpc"}), ("gateway", {"http"})])

    def test_what_is_scraped_is_open(self):
        seen = 0
        for name, objects in each_render():
            if not golden.of_kind(objects, "PodMonitor"):
                continue
            for policy in golden.of_kind(objects, "NetworkPolicy"):
                seen += 1
                ports = [port["port"] for rule in policy["spec"]["ingress"]
                         for port in rule["ports"]]
                self.assertIn("metrics", ports, f"{name} {policy['metadata']['name']}")
        self.assertGreater(seen, 4)

    def test_what_is_dialled_is_a_service(self):
        for name, objects in each_render():
            hosts = {item["metadata"]["name"]: item["spec"]
                     for item in golden.of_kind(objects, "Service")}
            for item in golden.workloads(objects):
                for argument in golden.containers(item)[0]["args"]:
                    flag, _, value = argument.partition("=")
                    if flag not in ("--coordinator", "--admin"):
                        continue
                    for address in value.split(","):
                        host, _, port = address.removeprefix("dns:").rpartition(":")
                        spec = hosts[host.partition(".")[0]]
                        self.assertIn(int(port), {one["port"] for one in spec["ports"]}, name)
                        # DNS gives the addresses of pods: for a headless Service only.
                        self.assertEqual(address.startswith("dns:"),
                                         spec.get("clusterIP") == "None", f"{name} {address}")

    def test_every_coordinator_is_known(self):
        seen = set()
        for name, objects in each_render():
            (coordinator,) = [item for item in golden.workloads(objects)
                              if item["metadata"]["name"].endswith("-coordinator")]
            count = coordinator["spec"]["replicas"]
            seen.add(count > 1)
            for item in golden.workloads(objects):
                (container,) = golden.containers(item)
                addresses = [argument.partition("=")[2].split(",")
                             for argument in container["args"]
                             if argument.startswith(("--coordinator=", "--admin="))]
                for listed in addresses:
                    # Workers have one name for all.
                    want = count if container["name"] == "gateway" else 1
                    self.assertEqual(len(set(listed)), want, name)
        self.assertEqual(seen, {False, True})

    def test_autoscalers_own_the_replicas(self):
        seen = 0
        for name, objects in each_render():
            scaled = {item["spec"]["scaleTargetRef"]["name"]
                      for item in golden.of_kind(objects, "HorizontalPodAutoscaler",
                                                 "ScaledObject")}
            seen += len(scaled)
            for item in golden.workloads(objects):
                self.assertEqual("replicas" not in item["spec"],
                                 item["metadata"]["name"] in scaled, name)
        self.assertGreaterEqual(seen, 5)

    def test_external_metrics_have_one_server(self):
        seen = set()
        for name, objects in each_render():
            kinds = {item["kind"] for item in golden.of_kind(objects, "ScaledObject")}
            kinds |= {item["kind"]
                      for item in golden.of_kind(objects, "HorizontalPodAutoscaler")
                      for metric in item["spec"]["metrics"] if metric["type"] == "External"}
            self.assertLessEqual(len(kinds), 1, name)
            seen |= kinds
        self.assertEqual(seen, {"HorizontalPodAutoscaler", "ScaledObject"})

    def test_proxies_of_the_routes_may_call(self):
        seen = set()
        for name, objects in each_render():
            policies = {item["metadata"]["name"]: item["spec"]
                        for item in golden.of_kind(objects, "NetworkPolicy")}
            for item in golden.of_kind(objects, "HTTPRoute", "GRPCRoute", "Ingress"):
                seen.add(item["kind"])
                component, port = (("coordinator", "grpc") if item["kind"] == "GRPCRoute"
                                   else ("gateway", "http"))
                (rule,) = [rule for rule in policies[f"demo-nacre-{component}"]["ingress"]
                           if {"port": port} in rule["ports"]]
                if "from" not in rule:
                    continue
                # Kubernetes labels a namespace with its name. Of an Ingress nothing says
                # where its proxy is: this is where its project's manifests put it.
                spaces = (["ingress-nginx"] if item["kind"] == "Ingress" else
                          [ref["namespace"] for ref in item["spec"]["parentRefs"]])
                for space in spaces:
                    self.assertIn({"namespaceSelector": {"matchLabels": {
                        "kubernetes.io/metadata.name": space}}}, rule["from"], name)
        self.assertEqual(seen, {"HTTPRoute", "GRPCRoute", "Ingress"})


class PodTest(unittest.TestCase):
    def test_a_drain_ends_before_the_kill(self):
        for name, item, _ in each_workload():
            (container,) = golden.containers(item)
            stop = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {})
            want = seconds(container, "drain-timeout") + stop.get("seconds", 0) + CLOSING_SECONDS
            grace = item["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
            self.assertEqual(grace, want, name)

    def test_limits_are_not_below_requests(self):
        for name, item, _ in each_workload():
            (container,) = golden.containers(item)
            resources = container["resources"]
            for what in set(resources["requests"]) & set(resources["limits"]):
                asked, most = (quantity(resources[kind][what]) for kind in ("requests", "limits"))
                self.assertLessEqual(asked, most, f"{name} {what}")

    def test_probes_ask_the_metrics_port(self):
        for name, item, _ in each_workload():
            (container,) = golden.containers(item)
            ports = {port["name"]: port["containerPort"] for port in container["ports"]}
            listens = [argument.rpartition(":")[2] for argument in container["args"]
                       if argument.startswith("--metrics-listen=")]
            self.assertEqual(listens, [str(ports["metrics"])], name)
            for probe in ("startup", "liveness", "readiness"):
                asked = container[f"{probe}Probe"]["httpGet"]
                self.assertEqual(asked, {"path": f"/{probe}", "port": "metrics"}, name)

    def test_listens_on_the_ports_that_it_names(self):
        for name, item, _ in each_workload():
            (container,) = golden.containers(item)
            listens = {int(argument.rpartition(":")[2]) for argument in container["args"]
                       if ("listen=" in argument or argument.startswith("--leader-address="))
                       and "127.0.0.1" not in argument}
            named = {port["containerPort"] for port in container["ports"]}
            self.assertEqual(listens, named, name)

    def test_pods_are_restricted(self):
        # The profile "restricted" of the Pod Security Standards, and a read-only root.
        for name, item, _ in each_workload():
            pod = item["spec"]["template"]["spec"]
            self.assertIs(pod["securityContext"]["runAsNonRoot"], True, name)
            self.assertEqual(pod["securityContext"]["seccompProfile"],
                             {"type": "RuntimeDefault"}, name)
            self.assertIs(pod["automountServiceAccountToken"], False, name)
            self.assertIs(pod["enableServiceLinks"], False, name)
            for key in ("hostNetwork", "hostPID", "hostIPC"):
                self.assertNotIn(key, pod, name)
            for container in pod["containers"] + pod.get("initContainers", []):
                self.assertEqual(container["securityContext"],
                                 {"allowPrivilegeEscalation": False,
                                  "readOnlyRootFilesystem": True,
                                  "capabilities": {"drop": ["ALL"]}}, name)

    def test_mounts_are_volumes_and_are_used(self):
        for name, item, _ in each_workload():
            pod = item["spec"]["template"]["spec"]
            volumes = {volume["name"] for volume in pod.get("volumes", [])}
            mounts = {mount["name"] for container in pod["containers"]
                      for mount in container.get("volumeMounts", [])}
            self.assertEqual(volumes, mounts, name)
            for container in pod["containers"]:
                paths = [mount["mountPath"] for mount in container.get("volumeMounts", [])]
                for argument in container["args"]:
                    value = argument.partition("=")[2]
                    if value.startswith("/") and not value.startswith("/usr/share/nacre"):
                        self.assertTrue(any(value.startswith(path) for path in paths),
                                        f"{name} {argument}")

    def test_coordinators_replace_each_other(self):
        for name, item, objects in each_workload():
            if item["metadata"]["labels"]["app.kubernetes.io/component"] != "coordinator":
                continue
            spec = item["spec"]
            budgets = [budget for budget in golden.of_kind(objects, "PodDisruptionBudget")
                       if fits(budget["spec"]["selector"]["matchLabels"], pod_labels(item))]
            if spec["replicas"] == 1:
                # Two at once would be a rollout that never ends.
                self.assertEqual((item["kind"], spec["strategy"]),
                                 ("Deployment", {"type": "Recreate"}), name)
                self.assertEqual(budgets, [], name)
                continue
            self.assertEqual(item["kind"], "StatefulSet", name)
            self.assertEqual(spec["updateStrategy"], {"type": "RollingUpdate"}, name)
            self.assertGreater(spec["minReadySeconds"], 0, name)
            self.assertEqual([budget["spec"]["maxUnavailable"] for budget in budgets], [1], name)
            spread = {rule["topologyKey"]
                      for rule in spec["template"]["spec"]["topologySpreadConstraints"]}
            self.assertEqual(spread, {"kubernetes.io/hostname", "topology.kubernetes.io/zone"})
            (service,) = [one for one in golden.of_kind(objects, "Service")
                          if one["metadata"]["name"] == spec["serviceName"]]
            self.assertEqual(service["spec"]["clusterIP"], "None", name)


class NodesTest(unittest.TestCase):
    """Workers of several pods."""

    def groups(self):
        found = [(name, item["spec"]["leaderWorkerTemplate"], objects)
                 for name, objects in each_render()
                 for item in golden.of_kind(objects, "LeaderWorkerSet")]
        self.assertGreater(len(found), 0)
        return found

    def test_a_follower_is_its_leader_without_what_serves(self):
        for name, group, _ in self.groups():
            leader, follower = group["leaderTemplate"], group["workerTemplate"]
            self.assertEqual(follower["metadata"], leader["metadata"], name)
            pods = [{key: value for key, value in pod["spec"].items() if key != "containers"}
                    for pod in (leader, follower)]
            self.assertEqual(*pods, name)
            (leads,), (follows,) = leader["spec"]["containers"], follower["spec"]["containers"]
            serves = {"ports", "startupProbe", "livenessProbe", "readinessProbe"}
            self.assertLessEqual(serves, set(leads), name)
            self.assertEqual(set(leads) - serves, set(follows), name)
            for key in set(follows) - {"args"}:
                self.assertEqual(leads[key], follows[key], name)
            own = set(golden.flags_of(leads)) - set(golden.flags_of(follows))
            self.assertEqual(own, {"coordinator", "listen", "advertise", "metrics-listen",
                                   "drain-timeout"}, name)

    def test_followers_find_their_leader(self):
        for name, group, objects in self.groups():
            leads, follows = ({flag: value for flag, _, value in
                               (argument.partition("=") for argument in
                                group[f"{node}Template"]["spec"]["containers"][0]["args"])}
                              for node in ("leader", "worker"))
            self.assertEqual(leads["--nodes"], str(group["size"]), name)
            self.assertEqual(follows["--nodes"], str(group["size"]), name)
            self.assertEqual(leads["--node-rank"], "0", name)
            self.assertEqual(follows["--node-rank"], "$(LWS_WORKER_INDEX)", name)
            self.assertEqual(leads["--leader-address"], "$(POD_IP):9001", name)
            self.assertEqual(follows["--leader-address"], "$(LWS_LEADER_ADDRESS):9001", name)
            self.assertEqual(group["restartPolicy"], "RecreateGroupOnPodRestart", name)
            component = group["leaderTemplate"]["metadata"]["labels"]["app.kubernetes.io/component"]
            (policy,) = [item["spec"] for item in golden.of_kind(objects, "NetworkPolicy")
                         if item["metadata"]["name"] == f"demo-nacre-{component}"]
            own = [{"podSelector": policy["podSelector"]}]
            self.assertIn({"ports": [{"port": "ranks"}], "from": own}, policy["ingress"], name)
            self.assertIn({"ports": [{"port": 9001}], "to": own}, policy["egress"], name)


if __name__ == "__main__":
    unittest.main()
