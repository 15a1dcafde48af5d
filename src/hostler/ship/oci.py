"""Writes, joins and unpacks OCI image layouts: the same files give the same bytes, whoever packs them and when.

    python -m hostler.ship.oci dist/image dist/image-amd64 dist/image-arm64

makes one image for several machines of layouts that were each made on such a machine.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import platform
import sys
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

EPOCH = "1970-01-01T00:00:00Z"
_TYPE = "application/vnd.oci.image"
_NAME = "org.opencontainers.image.ref.name"
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
Json = dict[str, Any]


def write_layout(
    target: Path,
    layers: Iterable[Path],
    *,
    entrypoint: Sequence[str],
    environment: Mapping[str, str],
    user: str,
    labels: Mapping[str, str],
) -> str:
    """One image of these directories as layers, the first below. Returns its digest."""
    blobs = target / "blobs/sha256"
    blobs.mkdir(parents=True)
    packed = [_layer(blobs, folder) for folder in layers]
    config = {
        "created": EPOCH,
        "architecture": MACHINES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {
            "User": user,
            "Env": [f"{name}={value}" for name, value in environment.items()],
            "Entrypoint": list(entrypoint),
            "Cmd": ["run"],
            "WorkingDir": "/",
            "Labels": dict(labels),
        },
        "rootfs": {"type": "layers", "diff_ids": [bare for _, bare in packed]},
        "history": [{"created": EPOCH, "created_by": "hostler.ship.image"} for _ in packed],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_TYPE}.manifest.v1+json",
        "config": _blob(blobs, _json(config), f"{_TYPE}.config.v1+json"),
        "layers": [described for described, _ in packed],
        "annotations": dict(labels),
    }
    described = _blob(blobs, _json(manifest), f"{_TYPE}.manifest.v1+json")
    described["platform"] = {"architecture": config["architecture"], "os": "linux"}
    return _entry(target, described, labels["org.opencontainers.image.version"])


def join(layouts: Sequence[Path], target: Path) -> str:
    """One image of several, each for another machine. Returns its digest; theirs stay what they were."""
    found = [_described(layout) for layout in layouts]
    machines = [manifest["platform"]["architecture"] for manifest in found]
    versions = {manifest["annotations"].pop(_NAME) for manifest in found}
    if len(set(machines)) != len(machines) or len(versions) != 1:
        raise ValueError(f"these are not one version for different machines: {machines}, {sorted(versions)}")
    blobs = target / "blobs/sha256"
    blobs.mkdir(parents=True)
    for layout in layouts:
        for blob in (layout / "blobs/sha256").iterdir():
            (blobs / blob.name).write_bytes(read(layout, f"sha256:{blob.name}"))
    for manifest in found:
        del manifest["annotations"]
    media = f"{_TYPE}.index.v1+json"
    index = {"schemaVersion": 2, "mediaType": media, "manifests": found}
    return _entry(target, _blob(blobs, _json(index), media), versions.pop())


def _entry(target: Path, described: Json, version: str) -> str:
    """What a reader of the layout begins with: the one thing in it, by the name of its version."""
    named = {**described, "annotations": {_NAME: version}}
    index = {"schemaVersion": 2, "mediaType": f"{_TYPE}.index.v1+json", "manifests": [named]}
    (target / "index.json").write_bytes(_json(index))
    (target / "oci-layout").write_bytes(_json({"imageLayoutVersion": "1.0.0"}))
    return str(described["digest"])


def _described(layout: Path) -> Json:
    found: Json = msgspec.json.decode((layout / "index.json").read_bytes())["manifests"][0]
    return found


def _json(value: Json) -> bytes:
    return msgspec.json.encode(value, order="deterministic")


def _blob(blobs: Path, data: bytes, media: str) -> Json:
    name = hashlib.sha256(data).hexdigest()
    (blobs / name).write_bytes(data)
    return {"mediaType": media, "digest": f"sha256:{name}", "size": len(data)}


def _layer(blobs: Path, folder: Path) -> tuple[Json, str]:
    """The directory as a compressed archive, and the digest of the archive uncompressed."""
    bare = io.BytesIO()
    with tarfile.open(fileobj=bare, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).as_posix()):
            entry = archive.gettarinfo(path, path.relative_to(folder).as_posix())
            entry.uid = entry.gid = entry.mtime = 0
            entry.uname = entry.gname = ""
            special = entry.mode & 0o1000
            entry.mode = special | (0o777 if special else 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644)
            if entry.isfile():
                with path.open("rb") as file:
                    archive.addfile(entry, file)
            else:
                archive.addfile(entry)
    data = bare.getvalue()
    packed = gzip.compress(data, compresslevel=3, mtime=0)
    return _blob(blobs, packed, f"{_TYPE}.layer.v1.tar+gzip"), f"sha256:{hashlib.sha256(data).hexdigest()}"


def read(layout: Path, digest: str) -> bytes:
    """A blob, checked against its digest."""
    data = (layout / "blobs" / digest.replace(":", "/")).read_bytes()
    if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
        raise ValueError(f"{digest} in {layout} is not what its name says")
    return data


def unpack(layout: Path, root: Path, machine: str = "") -> Json:
    """The layers of the image for this machine, laid over each other in `root`; returns its configuration."""
    manifest = msgspec.json.decode(read(layout, _described(layout)["digest"]))
    if "manifests" in manifest:
        wanted = MACHINES.get(machine or platform.machine(), machine)
        (described,) = [
            described for described in manifest["manifests"] if described["platform"]["architecture"] == wanted
        ]
        manifest = msgspec.json.decode(read(layout, described["digest"]))
    root.mkdir(parents=True)
    for layer in manifest["layers"]:
        data = io.BytesIO(gzip.decompress(read(layout, layer["digest"])))
        with tarfile.open(fileobj=data, mode="r|") as archive:
            archive.extractall(root, filter="tar")  # nosec B202 # our own image; the filter keeps it inside
    config: Json = msgspec.json.decode(read(layout, manifest["config"]["digest"]))
    return config


def main() -> None:
    if len(sys.argv) < 3:
        sys.exit("usage: python -m hostler.ship.oci TARGET LAYOUT...")
    target, *layouts = (Path(word) for word in sys.argv[1:])
    print(f"{target} {join(layouts, target)}")


if __name__ == "__main__":
    main()
