"""The schema of the values, and the flags that it and the renders name."""

import json
import re
import unittest

import golden
import jsonschema
import yaml
from golden import CHART, ROOT, render_chart

SCHEMA = golden.load(CHART / "values.schema.json")
VALUES = golden.load(CHART / "values.yaml")
MINIMAL = golden.load(CHART / "ci/values-minimal.yaml")
PROGRAMS = render_chart.PROGRAMS


def errors(values):
    validator = jsonschema.Draft7Validator(SCHEMA)
    found = []
    for error in validator.iter_errors(render_chart.merged(VALUES, values)):
        for inner in [error, *(error.context or [])]:
            path = "/" + "/".join(str(part) for part in inner.absolute_path)
            found.append(f"at '{path}': {inner.message}")
    return "\n".join(found)


def resolve(node):
    while "$ref" in node:
        node = SCHEMA["definitions"][node["$ref"].rpartition("/")[2]]
    return node


def schema_flags(component):
    node = resolve(SCHEMA["properties"][component]["properties"]["flags"])
    return set(node["allOf"][1]["properties"])


# Kubernetes' own objects, whose fields need no default here.
OBJECTS = {"affinity", "behavior", "fallback", "initContainer", "limits",
           "podSecurityContext", "requests", "securityContext"}
# Those that are mostly left out.
OPTIONAL = {"claims"}


class SchemaTest(unittest.TestCase):
    def test_values_fit(self):
        self.assertEqual(errors({}), "")
        for file in render_chart.value_files():
            self.assertEqual(errors(golden.load(file)), "", file.name)

    def test_what_kubernetes_and_the_programs_take_fits(self):
        pod = {"extraArgs": ["--max-queue", "8", "--tls-ca=", "--max-running=2"],
               "resourceClaims": [{"name": "a", "resourceClaimName": "b"}]}
        container = {"name": "a", "image": "b", "restartPolicy": "Always", "tty": True,
                     "ports": [{"containerPort": 1}], "startupProbe": {}, "lifecycle": {},
                     "resizePolicy": [], "restartPolicyRules": [], "stdin": True}
        change = {"coordinator": {"pod": pod,
                                  "resources": {"claims": [{"name": "a", "request": "b"}]}},
                  "model": {"target": {"initContainer": container}}}
        self.assertEqual(errors(render_chart.merged(MINIMAL, change)), "")

    def test_wrong_values_are_named(self):
        # The other cases are refused by templates.
        by_schema = [case for case in render_chart.REFUSED if case[1][0].startswith("/")]
        self.assertGreater(len(by_schema), 5)
        for change, names in by_schema:
            told = errors(render_chart.laid(MINIMAL, change))
            for name in names:
                self.assertIn(name, told, change)

    def test_examples_of_the_documentation_fit(self):
        text = (ROOT / "docs/kubernetes.md").read_text(encoding="utf-8")
        examples = []
        for block in re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            try:
                values = yaml.safe_load(block)
            except yaml.YAMLError:
                continue  # commands
            if isinstance(values, dict) and set(values) <= set(SCHEMA["properties"]):
                examples.append(values)
                self.assertEqual(errors(render_chart.merged(MINIMAL, values)), "", block)
        self.assertGreaterEqual(len(examples), 4)
        scraped = [one for one in examples if one.get("monitoring", {}).get("podMonitor")]
        self.assertEqual(len(scraped), 1)
        # NetworkPolicies are on unless values say otherwise.
        self.assertTrue(scraped[0].get("networkPolicy", {}).get("monitoring"), scraped)

    def test_quantities_are_those_of_kubernetes(self):
        for text in ("2", 2, 0.5, ".5", "1.5", "500m", "4Gi", "4G", "4k", "64Ki", "1e9", "12E6",
                     "1E", "+1"):
            change = {"target": {"resources": {"limits": {"memory": text}}}}
            self.assertEqual(errors(render_chart.merged(MINIMAL, change)), "", text)
        for text in ("", "4Gb", "4GB", "4gi", "4K", "4 Gi", "1e", "1.2.3", "Gi", "one"):
            change = {"target": {"resources": {"limits": {"memory": text}}}}
            self.assertIn("/target/resources/limits/memory",
                          errors(render_chart.merged(MINIMAL, change)), repr(text))

    def test_nothing_is_open_but_what_kubernetes_checks(self):
        def check_items(node, path):
            self.assertIsInstance(node.get("items"), dict, path)
            items = resolve(node["items"])
            self.assertTrue("type" in items or "enum" in items, f"{path}: open items")
            if items.get("type") == "object":
                self.assertIn("properties", items, f"{path}: open items")

        def walk(node, path):
            if isinstance(node, dict):
                if "properties" in node:
                    self.assertIs(node.get("additionalProperties"), False, path)
                if "array" in node.get("type", ()):
                    check_items(node, path)
                for key, value in node.items():
                    walk(value, f"{path}/{key}")
            elif isinstance(node, list):
                for index, value in enumerate(node):
                    walk(value, f"{path}/{index}")

        walk(SCHEMA, "")

    def test_every_value_has_a_schema_and_a_default(self):
        def walk(node, values, path):
            # A strategy's keys follow from its type; flags have no default here.
            for key, inner in resolve(node).get("properties", {}).items():
                where = f"{path}.{key}"
                if key in ("flags", "global", "strategy") or key in OPTIONAL:
                    continue
                self.assertIn(key, values, where)
                if isinstance(values[key], dict) and key not in OBJECTS:
                    walk(inner, values[key], where)

        walk(SCHEMA, VALUES, "")


class FlagsTest(unittest.TestCase):
    def test_the_schema_leaves_no_flag_out(self):
        for component, program in PROGRAMS.items():
            left_out = (set(golden.flags_of_help(program)) - schema_flags(component)
                        - render_chart.OWN[component] - render_chart.EVERYWHERE)
            self.assertEqual(left_out, set(),
                             f"{component}.flags: {program} has them, "
                             "run scripts/render_chart.py --flags build/bin")

    def test_the_schema_names_flags_of_the_programs(self):
        for component, program in PROGRAMS.items():
            unknown = schema_flags(component) - set(golden.flags_of_help(program))
            self.assertEqual(unknown, set(), f"{component}.flags: no flags of {program}")

    def test_a_new_flag_gets_its_place_in_the_schema(self):
        text = render_chart.SCHEMA.read_text(encoding="utf-8")
        flags = {component: golden.flags_of_help(program)
                 for component, program in PROGRAMS.items()}
        self.assertEqual(render_chart.schema_with_flags(text, flags), text)
        for component in ("target", "draft"):
            flags[component] = {**flags[component], "new-one": True, "listen": True}
        flags["gateway"] = {**flags["gateway"], "another": False}
        flags["coordinator"] = {**flags["coordinator"], "third": True}
        schema = json.loads(render_chart.schema_with_flags(text, flags))
        definitions, parts = schema["definitions"], schema["properties"]
        worker = definitions["workerFlags"]["allOf"][1]["properties"]
        self.assertIs(worker.pop("new-one"), True)
        gateway = parts["gateway"]["properties"]["flags"]["allOf"][1]["properties"]
        self.assertIn(False, gateway.pop("another")["enum"])
        coordinator = parts["coordinator"]["properties"]["flags"]["allOf"][1]["properties"]
        self.assertIs(coordinator.pop("third"), True)
        self.assertEqual(schema, json.loads(text))

    def test_the_list_of_flags_is_the_programs(self):
        # What extraArgs and extraEnv may name.
        flags = {component: golden.flags_of_help(program)
                 for component, program in PROGRAMS.items()}
        self.assertEqual(render_chart.FLAGS.read_text(encoding="utf-8"),
                         render_chart.flags_text(flags),
                         "run scripts/render_chart.py --flags, then without it")

    def test_renders_use_flags_of_the_programs(self):
        seen = {}
        for file in render_chart.value_files():
            for item in golden.workloads(golden.golden_objects(file)):
                for container in golden.containers(item):
                    seen.setdefault(container["command"][0], set()).update(
                        golden.flags_of(container))
        self.assertEqual(sorted(seen), sorted(PROGRAMS.values()))
        for program, flags in seen.items():
            self.assertEqual(flags - set(golden.flags_of_help(program)), set(), program)

    def test_no_flag_is_given_twice(self):
        # What the chart sets by itself is in no `flags` of the schema.
        for file in render_chart.value_files():
            for item in golden.workloads(golden.golden_objects(file)):
                (container,) = golden.containers(item)
                component = container["name"]
                once = [flag for flag in golden.flags_of(container)
                        if flag not in ("served-model-name", "policy-file")]
                self.assertEqual(len(once), len(set(once)), f"{file.name} {component}")
                values = render_chart.merged(VALUES, golden.load(file))[component]["flags"]
                own = set(once) - set(values)
                self.assertEqual(own & schema_flags(component), set(), f"{file.name} {component}")

    def test_an_unknown_flag_is_noticed(self):
        self.assertNotIn("max-queu", golden.flags_of_help("nacre-coordinator"))


if __name__ == "__main__":
    unittest.main()
