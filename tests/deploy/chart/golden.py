"""What the tests of the chart share: its values, renders and the programs."""

import functools
import os
import pathlib
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

import render_chart  # noqa: E402  (of scripts)

CHART = render_chart.CHART


# The C library where there is one: ten times as fast.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load(path):
    return yaml.load(path.read_text(encoding="utf-8"), Loader=LOADER)


@functools.lru_cache(maxsize=None)
def golden_objects(values_file):
    text = render_chart.golden_file(values_file).read_text(encoding="utf-8")
    return list(yaml.load_all(text, Loader=LOADER))


def of_kind(objects, *kinds):
    return [item for item in objects if item["kind"] in kinds]


def workloads(objects):
    """What makes pods; of groups of pods, their leaders."""
    groups = [{**item, "spec": {**item["spec"],
                                "template": item["spec"]["leaderWorkerTemplate"]["leaderTemplate"]}}
              for item in of_kind(objects, "LeaderWorkerSet")]
    return of_kind(objects, "Deployment", "StatefulSet") + groups


def containers(workload):
    return workload["spec"]["template"]["spec"]["containers"]


@functools.lru_cache(maxsize=None)
def flags_of_help(program):
    """The flags that a built program has: whether each takes a value."""
    return render_chart.flags_of_help(pathlib.Path(os.environ["NACRE_PROGRAMS"], program))


def flags_of(container):
    return [argument[2:].partition("=")[0] for argument in container["args"]]
