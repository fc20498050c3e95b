"""The worker's command line: what its options mean, what a model needs, which devices it sees."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from gguf_fleet.errors import FleetError, SaidError

Command = tuple[str, ...]
# Of this Python, to start a worker.
WORKER: Command = ("-m", "worker")
_PATIENCE_S = 120.0
_ERROR = re.compile(r"error: (\w+): (.*)")

T = TypeVar("T")


class MachineDevice(msgspec.Struct, frozen=True):
    """A GPU that a model is planned for. unified: it uses the memory of its machine"""

    name: str
    available: int
    unified: bool = False


class MachineRoom(msgspec.Struct, frozen=True):
    """A machine that a model is planned for, in bytes."""

    total: int
    available: int
    devices: tuple[MachineDevice, ...] = ()


class PlacedPart(msgspec.Struct, frozen=True):
    """Bytes of one part of a worker on one device; CPU is the host."""

    device: str
    nbytes: int


class ModelPlan(msgspec.Struct, frozen=True):
    """Of what `worker plan` says: what a worker would be, and the bytes of it."""

    fits: bool
    num_cells: int
    num_slots: int
    cache_bytes: int
    gpu_layers: int
    devices: tuple[PlacedPart, ...]
    cpu_experts: int = 0


class WorkerOptions(msgspec.Struct, frozen=True):
    """Of what options of `worker serve` say, defaults included."""

    threads: int | None
    queue_size: int
    drain_timeout: float
    n_gpu_layers: int | None
    tensor_split: tuple[float, ...]
    device: tuple[str, ...]
    rpc: tuple[str, ...]
    fair_by: str = "none"


class PlanReply(msgspec.Struct, frozen=True):
    """Of the answer of `worker plan --request`.

    given   fields of the options that were given -> the name of the option
    here    this machine's memory; `cpus`: that may be used here
    layers  of the model, the output layer included
    plans   one for each machine that was asked about
    """

    given: dict[str, str]
    options: WorkerOptions
    here: MachineRoom
    cpus: int
    layers: int
    plans: tuple[ModelPlan, ...]


class Build(msgspec.Struct, frozen=True):
    """rpc: it can use RPC servers, and be one"""

    rpc: bool


class SeenDevice(msgspec.Struct, frozen=True):
    """A device as a worker's build sees it."""

    name: str
    description: str
    backend: str
    kind: str
    memory_free: int
    memory_total: int


class Version(msgspec.Struct, frozen=True):
    """Of what `worker version --json` says."""

    devices: tuple[SeenDevice, ...]
    build: Build = Build(rpc=False)


def ask_plan(options: Sequence[str], rooms: tuple[MachineRoom, ...] = ()) -> PlanReply:
    """What the options of a worker say, and its plan for each of these machines.

    The model is read where there is a machine. Raises SaidError: the worker's own words.
    """
    request = msgspec.json.encode({"options": options, "places": rooms})
    return _ask((*WORKER, "plan", "--request"), PlanReply, request)


def version(command: Command = WORKER) -> Version:
    """What the worker's build sees on this machine. Raises SaidError, FleetError."""
    return _ask((*command, "version", "--json"), Version)


def _ask(words: Command, shape: type[T], request: bytes = b"") -> T:
    name = f"worker {words[-2]}"
    try:
        done: Any = subprocess.run(  # noqa: S603
            [sys.executable, *words], input=request, capture_output=True, timeout=_PATIENCE_S
        )
    except subprocess.TimeoutExpired:
        raise FleetError(f"`{name}` says nothing for {_PATIENCE_S:.0f} s.") from None
    last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    if done.returncode and (found := _ERROR.fullmatch(last)):
        raise SaidError(found[2], found[1], done.returncode)
    try:
        return msgspec.json.decode(done.stdout, type=shape)
    except msgspec.DecodeError:
        code = done.returncode
        raise FleetError(f"`{name}` left with code {code}: {last or 'it said nothing'}") from None
