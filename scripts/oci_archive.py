#!/usr/bin/env python3
"""Puts a root file system, a tar file, into an image of one layer: an OCI layout
and what `docker load` reads, in one tar file."""

import argparse
import gzip
import hashlib
import io
import json
import os
import pathlib
import shutil
import tarfile
import tempfile

# deploy/docker/Dockerfile says the same.
USER = "65532:65532"
COMMAND = ["nacre", "--help"]
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


class Archive:
    """The tar file that is made; the same contents make the same bytes."""

    def __init__(self, path):
        self._tar = tarfile.open(path, "w", format=tarfile.PAX_FORMAT)

    def add(self, name, file, size):
        entry = tarfile.TarInfo(name)
        entry.size = size
        entry.mode = 0o644
        self._tar.addfile(entry, file)

    def add_json(self, name, value):
        data = json.dumps(value, sort_keys=True).encode()
        self.add(name, io.BytesIO(data), len(data))

    def add_blob(self, value):
        """Returns the descriptor but for its media type."""
        data = json.dumps(value, sort_keys=True).encode()
        digest = hashlib.sha256(data).hexdigest()
        self.add(f"blobs/sha256/{digest}", io.BytesIO(data), len(data))
        return {"digest": f"sha256:{digest}", "size": len(data)}

    def close(self):
        self._tar.close()


def compressed(rootfs, folder):
    path = pathlib.Path(folder, "layer.tar.gz")
    with open(rootfs, "rb") as source, open(path, "wb") as file:
        with gzip.GzipFile("", "wb", 6, file, mtime=0) as layer:
            shutil.copyfileobj(source, layer, 1 << 20)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rootfs")
    parser.add_argument("archive")
    parser.add_argument("--name", required=True, help="NAME:TAG")
    parser.add_argument("--architecture", required=True, help="amd64, arm64")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        layer = compressed(options.rootfs, folder)
        layer_digest = sha256(layer)
        archive = Archive(options.archive)
        with open(layer, "rb") as file:
            archive.add(f"blobs/sha256/{layer_digest}", file, os.path.getsize(layer))
        config = archive.add_blob({
            "architecture": options.architecture,
            "os": "linux",
            "config": {"User": USER, "Env": [PATH], "Cmd": COMMAND, "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(options.rootfs)}"]},
        })
        oci = "application/vnd.oci.image"
        manifest = archive.add_blob({
            "schemaVersion": 2,
            "mediaType": f"{oci}.manifest.v1+json",
            "config": {"mediaType": f"{oci}.config.v1+json", **config},
            "layers": [{"mediaType": f"{oci}.layer.v1.tar+gzip",
                        "digest": f"sha256:{layer_digest}", "size": os.path.getsize(layer)}],
        })
        archive.add_json("oci-layout", {"imageLayoutVersion": "1.0.0"})
        tag = options.name.rpartition(":")[2]
        archive.add_json("index.json", {"schemaVersion": 2, "manifests": [
            {"mediaType": f"{oci}.manifest.v1+json", **manifest,
             "annotations": {"org.opencontainers.image.ref.name": tag}}]})
        # What docker had before it read OCI layouts.
        archive.add_json("manifest.json", [{
            "Config": "blobs/sha256/" + config["digest"].removeprefix("sha256:"),
            "RepoTags": [options.name], "Layers": [f"blobs/sha256/{layer_digest}"]}])
        archive.close()


if __name__ == "__main__":
    main()
