"""scripts/oci_archive.py: every digest and size is that of what it names."""

import gzip
import hashlib
import io
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest

from golden import ROOT


def archive_of(folder, name):
    rootfs = pathlib.Path(folder, "rootfs.tar")
    with tarfile.open(rootfs, "w") as tar:
        data = b"a program" * 1000
        entry = tarfile.TarInfo("usr/bin/nacre")
        entry.size = len(data)
        tar.addfile(entry, io.BytesIO(data))
    path = pathlib.Path(folder, name)
    subprocess.run([sys.executable, ROOT / "scripts/oci_archive.py", rootfs, path,
                    "--name", "nacre:1.2", "--architecture", "arm64"], check=True)
    return rootfs.read_bytes(), path


class ImageTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.rootfs, self.path = archive_of(self.folder, "image.tar")
        with tarfile.open(self.path) as tar:
            self.files = {entry.name: tar.extractfile(entry).read() for entry in tar}

    def blob(self, descriptor):
        data = self.files["blobs/sha256/" + descriptor["digest"].removeprefix("sha256:")]
        self.assertEqual("sha256:" + hashlib.sha256(data).hexdigest(), descriptor["digest"])
        self.assertEqual(len(data), descriptor["size"])
        return data

    def test_the_layout_leads_to_the_root_file_system(self):
        self.assertEqual(json.loads(self.files["oci-layout"])["imageLayoutVersion"], "1.0.0")
        (entry,) = json.loads(self.files["index.json"])["manifests"]
        self.assertEqual(entry["annotations"]["org.opencontainers.image.ref.name"], "1.2")
        manifest = json.loads(self.blob(entry))
        config = json.loads(self.blob(manifest["config"]))
        (layer,) = manifest["layers"]
        self.assertEqual(gzip.decompress(self.blob(layer)), self.rootfs)
        self.assertEqual(config["rootfs"]["diff_ids"],
                         ["sha256:" + hashlib.sha256(self.rootfs).hexdigest()])
        self.assertEqual((config["os"], config["architecture"]), ("linux", "arm64"))

    def test_docker_reads_the_same(self):
        (entry,) = json.loads(self.files["manifest.json"])
        self.assertEqual(entry["RepoTags"], ["nacre:1.2"])
        self.assertIn(entry["Config"], self.files)
        self.assertEqual(gzip.decompress(self.files[entry["Layers"][0]]), self.rootfs)

    def test_the_same_contents_make_the_same_bytes(self):
        _, again = archive_of(self.folder, "again.tar")
        self.assertEqual(again.read_bytes(), self.path.read_bytes())


if __name__ == "__main__":
    unittest.main()
