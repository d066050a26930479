#!/usr/bin/env python3
"""Renders the Helm chart with each of its ci/values-*.yaml.

  scripts/render_chart.py            writes tests/deploy/chart/golden/*.yaml
  scripts/render_chart.py --flags BIN  writes the chart's list of flags, of the
                                     programs in that folder, and gives those that
                                     the schema lacks a place in it
  scripts/render_chart.py --check    compares with them, checks what is rendered
                                     against the schemas of Kubernetes, and that
                                     wrong values are refused

Needs `helm-python-sdk` (Helm's own library) and `kubernetes-validate` of PyPI:

  python3 -m venv VENV && VENV/bin/pip install -r tests/deploy/chart/requirements.txt
  VENV/bin/python scripts/render_chart.py
"""

import difflib
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import textwrap

import yaml

from chart_values import NOTED, REFUSED, TAKEN

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHART = ROOT / "deploy/helm/nacre"
GOLDEN = ROOT / "tests/deploy/chart/golden"
FLAGS = CHART / "templates/_flags.tpl"
SCHEMA = CHART / "values.schema.json"
PROGRAMS = {"coordinator": "nacre-coordinator", "gateway": "nacre-gateway",
            "target": "nacre-target-worker", "draft": "nacre-draft-worker"}
# Flags that the chart sets, or that mean nothing in it: addresses, files in the
# pod, recordings.
OWN = {
    "coordinator": {"tokenizer", "listen", "registry-listen", "admin-listen",
                    "drain-timeout", "auth-tokens-file", "admin-tokens-file",
                    "otlp-headers-file", "public-tls-cert", "public-tls-key"},
    "gateway": {"tokenizer", "coordinator", "listen", "served-model-name",
                "chat-template", "tokenizer-config", "auth-tokens-file", "token-file",
                "public-tls-cert", "public-tls-key", "tls", "drain-timeout",
                "no-ui", "admin", "admin-tokens-file"},
    "target": {"model", "coordinator", "listen", "advertise", "drain-timeout",
               "nodes", "node-rank", "leader-address", "policy-file", "record-features",
               "record-hidden"},
}
OWN["draft"] = OWN["target"]
EVERYWHERE = {"metrics-listen", "address-file", "metrics-address-file",
              "registry-address-file", "admin-address-file", "log-format", "log-level",
              "tls-cert", "tls-key", "tls-ca", "tls-client-auth", "tls-server-name",
              "help", "version"}
SWITCH = '{"enum": [true, false, "true", "false"]}'
VERSIONS = [f"1.{minor}" for minor in range(29, 38)]
# Kubernetes before it knows no image volumes, and other claims of resources.
IMAGE_VOLUMES_SINCE = "1.31"
# Kinds that Kubernetes has no schemas of: other projects define them.
FOREIGN = {"PodMonitor", "PrometheusRule", "ScaledObject", "HTTPRoute", "GRPCRoute",
           "LeaderWorkerSet"}
# What stands for the dashboard in a golden file.
DASHBOARD = "(deploy/grafana/nacre.json)\n"


def value_files():
    return sorted((CHART / "ci").glob("values-*.yaml"))


def golden_file(values):
    return GOLDEN / (values.stem.removeprefix("values-") + ".yaml")


def source_hash(values):
    """Of what a golden file is made of, but for `files`, which others own."""
    sources = [path for path in sorted(CHART.rglob("*"))
               if path.is_file() and path.parent.name not in ("ci", "files")]
    digest = hashlib.sha256()
    for path in [*sources, values]:
        digest.update(str(path.relative_to(CHART)).encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def files_hash():
    """Of `files`: rules and dashboard."""
    digest = hashlib.sha256()
    for path in sorted((CHART / "files").iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def laid(base, over):
    """`over` laid over `base`; null stays, for Helm to take the chart's own value away."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    return {**base, **{key: laid(base.get(key), value) for key, value in over.items()}}


def merged(base, over):
    """`over` laid over `base`, as Helm lays values: null takes a key away."""
    def without_null(values):
        if not isinstance(values, dict):
            return values
        return {key: without_null(value) for key, value in values.items() if value is not None}
    return without_null(laid(base, over))


def render(chart, values):
    """All objects, in the order of the templates."""
    # Helm's flags say yes and no where YAML 1.1 does: --set is no way to write them.
    files = chart.render(values, name="demo", namespace="serving")
    objects = []
    for name in sorted(files):
        if name.endswith("NOTES.txt"):
            continue
        objects += [item for item in yaml.safe_load_all(files[name]) if item]
    return objects


def golden_text(objects, values):
    dashboard = (CHART / "files/dashboard.json").read_text(encoding="utf-8")
    for item in objects:
        data = item.get("data", {})
        if "nacre.json" in data:
            if data["nacre.json"].rstrip() != dashboard.rstrip():
                raise SystemExit("the dashboard's ConfigMap is not its file")
            data["nacre.json"] = DASHBOARD
    head = (f"# scripts/render_chart.py made it of {values.name} and the chart.\n"
            f"# sources: {source_hash(values)}\n")
    if any(item["kind"] == "PrometheusRule" for item in objects):
        head += f"# files: {files_hash()}\n"
    return head + yaml.safe_dump_all(objects, sort_keys=False, width=100)


def flags_of_help(program):
    """The flags that the program at this path has: whether each takes a value."""
    text = subprocess.run([program, "--help"], check=True, capture_output=True, text=True).stdout
    found = {name: bool(value)
             for name, value in re.findall(r"^ +--([a-z0-9-]+)( \S)?", text, re.MULTILINE)}
    if len(found) < 10:
        raise AssertionError(f"{program} --help has flags {sorted(found)} only")
    return found


def flags_text(flags):
    """The chart's list of flags. `flags`: of each component, as flags_of_help."""
    lines = ["{{/* scripts/render_chart.py --flags made it: the flags of each program. */}}",
             '{{- define "nacre.programFlags" -}}']
    for component in PROGRAMS:
        lines.append(f"{component}:")
        for kind, takes_value in (("values", True), ("switches", False)):
            names = sorted(name for name, takes in flags[component].items()
                           if takes == takes_value)
            lines += textwrap.wrap(f"{kind}: [{', '.join(names)}]", 90, break_on_hyphens=False,
                                   initial_indent="  ", subsequent_indent="    ")
    return "\n".join([*lines, "{{- end -}}", ""])


def schema_with_flags(text, flags):
    """The schema's text with a place for each flag that values may set. What is new takes
    any value (a switch true or false) until someone says its kind."""
    schema = json.loads(text)
    for component in PROGRAMS:
        node, at = schema["properties"][component]["properties"]["flags"], f'"{component}": {{'
        if "$ref" in node:
            name = node["$ref"].rpartition("/")[2]
            node, at = schema["definitions"][name], f'"{name}": {{'
        known = node["allOf"][1]["properties"]
        new = sorted(set(flags[component]) - set(known) - OWN[component] - EVERYWHERE)
        start = text.index('"properties": {', text.index('"allOf": [', text.index(f"\n    {at}")))
        start += len('"properties": {')
        indent = re.match(r"\s*", text[start:])[0]
        lines = [f'{indent}"{name}": ' + ("true," if flags[component][name] else SWITCH + ",")
                 for name in new]
        text = text[:start] + "".join(lines) + text[start:]
        schema = json.loads(text)
    return text


def has_newer_parts(item):
    pod = item.get("spec", {}).get("template", {}).get("spec", {})
    return "resourceClaims" in pod or any("image" in one for one in pod.get("volumes", []))


def pods_of_groups(objects):
    """The pods that LeaderWorkerSets, which Kubernetes knows nothing of, would make."""
    for item in objects:
        if item["kind"] != "LeaderWorkerSet":
            continue
        for node in ("leader", "worker"):
            pod = item["spec"]["leaderWorkerTemplate"][f"{node}Template"]
            name = f"{item['metadata']['name']}-{node}"
            yield {"apiVersion": "v1", "kind": "Pod", **pod,
                   "metadata": {**pod["metadata"], "name": name}}


def invalid(objects):
    """What Kubernetes would refuse, one line each."""
    import kubernetes_validate

    found, checked = [], 0
    for version in VERSIONS:
        for item in [*objects, *pods_of_groups(objects)]:
            if item["kind"] in FOREIGN:
                continue
            if version < IMAGE_VOLUMES_SINCE and has_newer_parts(item):
                continue
            checked += 1
            try:
                kubernetes_validate.validate(item, version, strict=True)
            except Exception as error:  # its kinds of errors have no common base
                found.append(f"{version} {item['kind']} {item['metadata']['name']}: "
                             f"{str(error).splitlines()[0]}")
    return found, checked


def accepted(chart, good):
    """Wrong values that were not refused, or not by their name."""
    wrong = []
    for change, names in REFUSED:
        try:
            render(chart, laid(good, change))
            wrong.append(f"{change} was not refused")
        except Exception as error:
            missing = [name for name in names if name not in str(error)]
            if missing:
                wrong.append(f"{change}: {error} does not name {missing}")
    return wrong


def refused(chart, good):
    """Right values that were refused, or whose pod or policy is another."""
    wrong = []
    for change, part, want, *where in TAKEN:
        component, kind = where + ["target", "Deployment"][len(where):]
        try:
            objects = render(chart, laid(good, change))
        except Exception as error:
            wrong.append(f"{change}: {error}")
            continue
        (spec,) = [item["spec"] for item in objects
                   if item["metadata"]["name"] == f"demo-nacre-{component}"
                   and item["kind"] == kind]
        made = part(spec["template"]["spec"] if kind == "Deployment" else spec)
        if made != want:
            wrong.append(f"{change} makes {made}")
        wrong += [f"{change}: {line}" for line in invalid(objects)[0]]
    return wrong


def misnoted(chart, good):
    """Values with which the notes do not warn, or warn of what is no fault."""
    wrong = []
    for change, warning, want in NOTED:
        files = chart.render(laid(good, change), name="demo", namespace="serving")
        (notes,) = [text for name, text in files.items() if name.endswith("NOTES.txt")]
        if (warning in notes) != want:
            wrong.append(f"{change}: the notes {'lack' if want else 'have'} {warning}:\n{notes}")
    return wrong


def check(chart, helm):
    wrong = [f"lint: {line}" for line in helm.lint(str(CHART)) if "[ERROR]" in str(line)]
    checked = 0
    for values in value_files():
        # Helm reads "off" as false (YAML 1.1), and so does this.
        objects = render(chart, yaml.safe_load(values.read_text(encoding="utf-8")))
        bad, count = invalid(objects)
        wrong += [f"{values.name}: {line}" for line in bad]
        checked += count
        text = golden_text(objects, values)
        path = golden_file(values)
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        if text != old:
            diff = difflib.unified_diff(old.splitlines(), text.splitlines(), str(path),
                                        "rendered now", lineterm="", n=2)
            wrong += [*list(diff)[:60], f"{path.name} differs: run scripts/render_chart.py"]
    good = yaml.safe_load((CHART / "ci/values-minimal.yaml").read_text(encoding="utf-8"))
    wrong += accepted(chart, good) + refused(chart, good) + misnoted(chart, good)
    print(*wrong, sep="\n")
    print(f"{len(value_files())} renders, {checked} objects checked against Kubernetes "
          f"{VERSIONS[0]} to {VERSIONS[-1]}, {len(REFUSED)} wrong values, {len(wrong)} faults")
    return 1 if wrong else 0


def main():
    if sys.argv[1:2] == ["--flags"] and len(sys.argv) == 3:
        programs = pathlib.Path(sys.argv[2])
        flags = {component: flags_of_help(programs / program)
                 for component, program in PROGRAMS.items()}
        FLAGS.write_text(flags_text(flags), encoding="utf-8")
        SCHEMA.write_text(schema_with_flags(SCHEMA.read_text(encoding="utf-8"), flags),
                          encoding="utf-8")
        print(FLAGS.relative_to(ROOT), SCHEMA.relative_to(ROOT), sep="\n")
        return 0
    if sys.argv[1:] not in ([], ["--check"]):
        print(__doc__)
        return 2
    import helm_python as helm

    with helm.Chart.load(str(CHART)) as chart:
        if sys.argv[1:]:
            return check(chart, helm)
        GOLDEN.mkdir(parents=True, exist_ok=True)
        for values in value_files():
            objects = render(chart, yaml.safe_load(values.read_text(encoding="utf-8")))
            golden_file(values).write_text(golden_text(objects, values), encoding="utf-8")
            print(golden_file(values).relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
