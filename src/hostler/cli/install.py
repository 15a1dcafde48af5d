"""`hostler install`: what an installation decides about ingress, and the files that carry it into the new cluster."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hostler.cli.printing import Output, OutputFlag, print_answer, print_names, print_note, print_table
from hostler.errors import Complaint, Exit

if TYPE_CHECKING:
    from hostler.ingress.install_config import Config

app = typer.Typer(no_args_is_help=True, help="Decide where ingress runs in a new cluster, and write it down.")
ConfigFile = Annotated[
    Path, typer.Argument(metavar="INSTALL-CONFIG", help="The install-config.yaml; - reads standard input.")
]
Folder = Annotated[Path, typer.Option("--dir", metavar="OUT", help="Where to write; created, or empty.")]
RootCa = Annotated[
    Path,
    typer.Option("--root-ca", metavar="FILE", help="Root CA of the machine config server (PEM), for worker.ign."),
]


@app.command()
def plan(config: ConfigFile, output: OutputFlag = Output.TABLE) -> None:
    """Say what is decided for a new cluster, and why. Nothing is written."""
    from hostler.ingress import install_config

    steps = install_config.decide_layout(_config(config)).steps
    data = [{"what": one.field, "value": one.value, "from": one.decided_by, "why": one.why} for one in steps]
    rows = [(one.field, one.value, one.decided_by, one.why) for one in steps]
    print_answer(
        data, output, lambda: print_table(("what", "value", "from", "why"), rows), names=[one.field for one in steps]
    )


@app.command()
def manifests(config: ConfigFile, folder: Folder, root_ca: RootCa, output: OutputFlag = Output.TABLE) -> None:
    """Write the Ingress, Infrastructure and Scheduler manifests and worker.ign: all of them, or nothing."""
    problems: list[str] = []
    read = _read(config, problems)
    certificates = _certificates(root_ca, problems)
    _refuse(problems, config)
    assert read is not None
    files = _files(read, certificates)
    written = _write(folder, files)
    places = [str(folder / name) for name in sorted(files)]
    print_answer(
        {"dir": str(folder), "written": written, "files": sorted(files)},
        output,
        lambda: print_names(places),
        names=places,
    )
    if output.is_data or output is Output.NAME:
        return
    if not written:
        print_note("All of this was there already, word for word; nothing was written.")


# -- reading


def _config(path: Path) -> Config:
    problems: list[str] = []
    read = _read(path, problems)
    _refuse(problems, path)
    assert read is not None
    return read


def _read(path: Path, problems: list[str]) -> Config | None:
    from hostler.documents import NotReadable, read_yaml
    from hostler.ingress import install_config

    try:
        text = typer.get_text_stream("stdin").read() if str(path) == "-" else path.read_text()
        read = install_config.read(read_yaml(text))
    except OSError as error:
        problems.append(f"{_called(path)} cannot be read: {error.strerror}.")
        return None
    except UnicodeDecodeError:
        problems.append(f"{_called(path)} is not text in UTF-8.")
        return None
    except NotReadable as error:
        problems.append(f"{_called(path)} {error}.")
        return None
    if isinstance(read, install_config.Config):
        return read
    problems.extend(read)
    return None


def _certificates(path: Path, problems: list[str]) -> bytes:
    """The PEM of the root CA as it is. Never made up: a wrong one would keep every new worker from joining."""
    from hostler.join import ignition

    try:
        pem = path.read_bytes()
    except OSError as error:
        problems.append(f"The root CA {path} cannot be read: {error.strerror}.")
        return b""
    problems.extend(f"The root CA {path} {flaw}." for flaw in ignition.unfit(pem))
    return pem


def _refuse(problems: list[str], path: Path) -> None:
    """All problems at once: whoever mends one at a time starts over as often as there are problems."""
    if not problems:
        return
    count = "is a problem" if len(problems) == 1 else f"are {len(problems)} problems"
    listed = "".join(f"\n  - {problem}" for problem in problems)
    raise Complaint(f"There {count} with {_called(path)}; nothing was written.{listed}", code=Exit.SETTING)


def _called(path: Path) -> str:
    return "standard input" if str(path) == "-" else str(path)


# -- writing


def _files(config: Config, root_ca: bytes) -> dict[str, bytes]:
    import yaml

    from hostler.ingress import install_config
    from hostler.join import ignition

    made = {
        manifest.file: yaml.safe_dump(dict(manifest.body), sort_keys=False).encode()
        for manifest in install_config.manifests(config)
    }
    server = ignition.server_of(config.domain, config.api_vips[0] if config.api_vips else "")
    made["worker.ign"] = ignition.written(ignition.pointer(server, root_ca))
    return made


def _write(folder: Path, files: dict[str, bytes]) -> bool:
    """All or nothing: made beside, then moved into place in one step. False: it was all there already."""
    there = _present(folder)
    if there == files:
        return False
    if there:
        raise Complaint(
            f"{folder} is not empty; nothing was written.",
            hint="Name another folder, or remove what is in it.",
            code=Exit.REFUSED,
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    except OSError as error:
        raise Complaint(
            f"{folder} cannot be made: {error.strerror}; nothing was written.", code=Exit.REFUSED
        ) from error
    try:
        for name, content in files.items():
            path = beside / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        # An ignition file lets whoever has it fetch the cluster's secrets.
        (beside / "worker.ign").chmod(0o600)
        os.replace(beside, folder)  # onto nothing, or onto an empty folder
    except OSError as error:
        raise Complaint(f"{folder} cannot be written: {error.strerror}; nothing was written.") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return True


def _present(folder: Path) -> dict[str, bytes]:
    if not folder.exists():
        return {}
    if not folder.is_dir():
        raise Complaint(f"{folder} is a file; nothing was written.", hint="Name a folder.", code=Exit.REFUSED)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
