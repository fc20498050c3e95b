"""What a serving worker needs of the system, as its settings say: files, folders, ports.

Each entry has its reason here; `sandbox.py` lets nothing else be reached.
"""

from __future__ import annotations

import contextlib
import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from worker.errors import UsageError
from worker.files import cache_folder
from worker.gguf.split_name import all_files
from worker.model.calibration import calibration_path
from worker.settings import Settings

# Shared libraries: of the C library, of Python's modules that are imported when they are needed.
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")
# Memory, CPUs and the limits of containers, which plans and metrics are made of.
_KERNEL = tuple(
    "/proc/self /proc/meminfo /proc/stat /proc/cpuinfo /proc/sys/vm /sys/devices/system "
    "/sys/fs/cgroup /sys/kernel/mm/transparent_hugepage".split()
)
# Where names of hosts are looked up, and the local time.
_NAMES = tuple(
    "/etc/hosts /etc/host.conf /etc/resolv.conf /etc/nsswitch.conf /etc/gai.conf "
    "/etc/services /etc/localtime".split()
)
_DEVICES = ("/dev/null", "/dev/urandom", "/dev/random", "/dev/zero")
_CERTIFICATES = ("/etc/ssl", "/etc/pki", "/usr/share/ca-certificates")
_COLLECTOR = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_COLLECTOR_PORT = 4318
_PORTS = {"http": 80, "https": 443}


class SandboxReach(msgspec.Struct, frozen=True):
    """reads     files and folders, read-only, with all that is below
    devices   files that are read and written
    folders   those that are written to, with all that is below
    sockets   those in which sockets are made, and files listed and removed
    listens   TCP port; 0: any free one; None: none
    connects  TCP ports, of whatever host
    """

    reads: tuple[str, ...]
    devices: tuple[str, ...]
    folders: tuple[str, ...]
    sockets: tuple[str, ...]
    listens: int | None
    connects: tuple[int, ...]


def reach_of(
    settings: Settings, model: Path, environ: Mapping[str, str] = os.environ
) -> SandboxReach:
    """What a worker with these settings needs once it has started; what does not exist is left
    out."""
    reads = [*_code(environ), *_LIBRARIES, *_KERNEL, *_NAMES, *_files(settings, model)]
    reads += settings.lora_dir
    addresses = _addresses(settings, environ)
    sockets = settings.socket_paths
    if settings.fetch_images or any(address.startswith("https:") for address in addresses):
        reads += _CERTIFICATES
    with contextlib.suppress(UsageError):  # where the user has no home folder, nothing is kept
        reads.append(str(cache_folder("attention")))
    if settings.media_dir is not None:
        reads.append(settings.media_dir)
    connects = {_port(address) for address in addresses}
    for _, port in settings.fetch_images:
        connects |= {port} if port else set(_PORTS.values())
    connects |= {int(server.rpartition(":")[2]) for server in settings.rpc}
    return SandboxReach(
        reads=_there(reads),
        devices=_there(_DEVICES),
        folders=tuple(
            filter(None, (settings.cache_dir, settings.slot_save_path, settings.state_dir))
        ),
        sockets=_there(str(Path(path).parent) for path in sockets),
        listens=settings.port if len(sockets) < len(settings.host.split(",")) else None,
        connects=tuple(sorted(connects)),
    )


def narrow_reach(files: Iterable[str], environ: Mapping[str, str] = os.environ) -> SandboxReach:
    """What a process of ours needs that computes with these files, and nothing else."""
    reads = [*_code(environ), *_LIBRARIES, *_KERNEL, *files]
    return SandboxReach(_there(reads), _there(_DEVICES), (), (), None, ())


def _code(environ: Mapping[str, str]) -> list[str]:
    """Python's own modules, those that are installed, and ours; never the working directory."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    found = [sysconfig.get_path(name) for name in names] + site.getsitepackages()
    if site.ENABLE_USER_SITE:
        found.append(site.getusersitepackages())
    found += [part for part in environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    found += filter(None, [environ.get("MTMD_CPP_LIB")])
    if sys.pycache_prefix:
        found.append(sys.pycache_prefix)
    return [*found, f"{sys.base_prefix}/lib", str(Path(__file__).parents[1])]


def _files(settings: Settings, model: Path) -> list[str]:
    """The files of the model and its calibration, of the one that guesses, of adapters, control
    vectors and the projector; of keys and of the certificate."""
    models = [model, *([] if settings.draft_model is None else [Path(settings.draft_model)])]
    files = [str(first.with_name(name)) for first in models for name in all_files(first.name)]
    files.append(str(calibration_path(model)))
    files += [adapter.file for adapter in (*settings.lora, *settings.control_vector)]
    files += [] if settings.mmproj is None else [settings.mmproj]
    if settings.api_key_file is not None:
        files.append(settings.api_key_file.path)
    files += filter(None, [settings.ssl_cert_file, settings.ssl_key_file])
    return [file for file in files if Path(file).is_file()]  # never a folder with all that is in it


def _addresses(settings: Settings, environ: Mapping[str, str]) -> list[str]:
    """The manager's, and that of the collector of spans."""
    found = [url for url in (settings.callback, settings.heartbeat_url) if url]
    if settings.otel:
        named = next((environ[name] for name in _COLLECTOR if environ.get(name)), None)
        found.append(named or f"http://localhost:{_COLLECTOR_PORT}")
    return found


def _port(address: str) -> int:
    parts = urlsplit(address)
    return parts.port or _PORTS.get(parts.scheme, _COLLECTOR_PORT)


def _there(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(path for path in dict.fromkeys(paths) if Path(path).exists())
