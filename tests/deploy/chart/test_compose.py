"""docker-compose.yml and the image: programs, flags, ports and versions."""

import re
import unittest

import golden
from golden import ROOT

COMPOSE = golden.load(ROOT / "docker-compose.yml")
DOCKERFILE = (ROOT / "deploy/docker/Dockerfile").read_text(encoding="utf-8")


def command(service):
    return " ".join(COMPOSE["services"][service]["command"]).replace("exec ", "")


class ComposeTest(unittest.TestCase):
    def test_flags_are_the_programs(self):
        for service in COMPOSE["services"]:
            words = command(service).removeprefix("bash -c ").replace("(hostname -i)", "").split()
            flags = {word[2:].partition("=")[0] for word in words[1:]}
            self.assertGreaterEqual(len(flags), 4, service)
            self.assertEqual(flags - set(golden.flags_of_help(words[0])), set(), service)

    def test_every_service_is_checked_and_restricted(self):
        self.assertEqual(sorted(COMPOSE["services"]),
                         ["coordinator", "draft", "gateway", "target"])
        for name, service in COMPOSE["services"].items():
            self.assertIn("--metrics-listen=0.0.0.0:9464", command(name))
            self.assertIn("/dev/tcp/127.0.0.1/9464", service["healthcheck"]["test"][-1])
            self.assertIs(service["read_only"], True, name)
            self.assertEqual(service["cap_drop"], ["ALL"], name)
            # What --drain-timeout is without a flag, and what closing takes.
            self.assertEqual(service["stop_grace_period"], "45s", name)

    def test_dialled_ports_are_listened_on(self):
        for service in COMPOSE["services"]:
            for host, port in re.findall(r"--coordinator=(\w+):(\d+)", command(service)):
                self.assertIn(f"listen=0.0.0.0:{port}", command(host), service)
            for published in COMPOSE["services"][service].get("ports", []):
                self.assertIn(f"--listen=0.0.0.0:{published.rpartition(':')[2]}",
                              command(service))

    def test_versions_and_user_are_said_alike(self):
        version = golden.load(golden.CHART / "Chart.yaml")["version"]
        self.assertEqual({service["image"] for service in COMPOSE["services"].values()},
                         {f"nacre:{version}"})
        self.assertIn(f"nacre:{version}", DOCKERFILE)
        archive = (ROOT / "scripts/oci_archive.py").read_text(encoding="utf-8")
        (user,) = re.findall(r"^USER (.*)$", DOCKERFILE, re.MULTILINE)
        self.assertIn(f'USER = "{user}"', archive)


if __name__ == "__main__":
    unittest.main()
