"""The rules of a release do among other releases what those of deploy/prometheus
do alone: the cases of tests/deploy, each series once for this release and once,
with other values, for another."""

import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import golden
import yaml
from golden import CHART, ROOT, render_chart

FILE = CHART / "ci/values-production.yaml"
OWN = 'namespace="serving",app_kubernetes_io_instance="demo"'
OTHERS = ['namespace="serving",app_kubernetes_io_instance="other"',
          'namespace="elsewhere",app_kubernetes_io_instance="demo"']
LABELS = {"namespace": "serving", "app_kubernetes_io_instance": "demo"}


def labelled(series, labels):
    name, _, rest = series.partition("{")
    return f"{name}{{{labels},{rest}" if rest else f"{name}{{{labels}}}"


def of_release(case):
    """A case of promtool, moved into a release that is not alone."""
    moved = dict(case, input_series=[])
    for series in case["input_series"]:
        moved["input_series"].append(
            dict(series, series=labelled(series["series"], OWN)))
        for other in OTHERS:
            moved["input_series"].append(
                {"series": labelled(series["series"], other), "values": "7x400"})
    for test in moved.get("promql_expr_test", []):
        for sample in test.get("exp_samples") or []:
            sample["labels"] = labelled(sample["labels"], OWN)
    for test in moved.get("alert_rule_test", []):
        for alert in test.get("exp_alerts") or []:
            alert["exp_labels"] = {**(alert.get("exp_labels") or {}), **LABELS}
    return moved


@unittest.skipUnless(shutil.which("promtool"), "there is no promtool")
class RulesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        text = render_chart.golden_file(FILE).read_text(encoding="utf-8")
        if render_chart.files_hash() not in text:
            raise unittest.SkipTest("the rules have changed since: run scripts/render_chart.py")
        (cls.rule,) = golden.of_kind(golden.golden_objects(FILE), "PrometheusRule")

    def run_cases(self, name):
        cases = golden.load(ROOT / "tests/deploy" / name)
        with tempfile.TemporaryDirectory() as folder:
            rules = pathlib.Path(folder, "rules.yaml")
            rules.write_text(yaml.safe_dump(self.rule["spec"]), encoding="utf-8")
            moved = dict(cases, rule_files=[str(rules)],
                         tests=[of_release(case) for case in cases["tests"]])
            file = pathlib.Path(folder, "cases.yaml")
            file.write_text(yaml.safe_dump(moved), encoding="utf-8")
            ran = subprocess.run(["promtool", "test", "rules", str(file)],
                                 capture_output=True, text=True, check=False)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)

    def test_alerts(self):
        self.run_cases("alerts_test.yaml")

    def test_autoscaling(self):
        self.run_cases("autoscaling_test.yaml")

    def test_every_series_is_of_the_release(self):
        for group in self.rule["spec"]["groups"]:
            for rule in group["rules"]:
                for found in re.finditer(r"nacre[_:][a-z_:]+", rule["expr"]):
                    after = rule["expr"][found.end():]
                    self.assertTrue(after.startswith("{" + OWN), f"{found[0]}{after[:60]}")


if __name__ == "__main__":
    unittest.main()
