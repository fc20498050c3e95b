"""Offloading to devices that are RPC servers, processes on loopback that compute on the CPU.

What is said of layers, cells and memory holds for every device that is not the host; these are
the ones that each machine has. `make check SUITE=offload` builds with them and runs this.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.models import drafters, ggufs, heads
from tests.support.placements import assert_asked, assert_planned, by_device
from tests.support.programs.offloaded import (
    LAYERS,
    TOKENS,
    FailedLoadError,
    Loaded,
    load,
    settings,
)
from tests.support.programs.rpc_server import RpcServer, rpc_server
from worker.demo import MODEL_PATH
from worker.llama.quantize.target import quantize
from worker.memory.offload import Placement

on_rpc = pytest.mark.rpc


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model in Q4_K_M."""
    path = tmp_path_factory.mktemp("models") / "demo-q4_k_m.gguf"
    quantize(MODEL_PATH, path, "Q4_K_M", threads=1)
    return path


# ------------------------------------------------------------------------------- placement


@on_rpc
@pytest.mark.parametrize("layers", [0, 1, 3, 6, 7, -1])
def test_layers_land_where_they_were_asked_to(
    device: RpcServer, on_cpu: Loaded, layers: int
) -> None:
    """So many of the last layers, with their cells, are on the device and no other is; the tokens
    are the CPU's and so are the logits, to the bit: the device has the same kernels for F16."""
    loaded = load(MODEL_PATH, settings(device, layers=layers))
    there = LAYERS if layers < 0 else layers
    assert loaded.layers == ("CPU",) * (LAYERS - there) + ("RPC0",) * there
    assert loaded.kv == tuple(enumerate(loaded.layers[:-1]))
    assert set(by_device(loaded.allocated)) == ({"CPU", "RPC0"} if there else {"CPU"})
    assert len(loaded.tokens) == TOKENS
    assert loaded.tokens == on_cpu.tokens
    assert loaded.logits == on_cpu.logits


@on_rpc
def test_quantised_layers_give_the_same_up_to_rounding(device: RpcServer, quantized: Path) -> None:
    """The CPU computes with some encodings in an order of their own, which rounds differently:
    logits differ by little. Without that order they are the same to the bit."""
    everything = settings(device, layers=-1)
    there = load(quantized, everything)
    assert set(there.layers) == {"RPC0"}
    here = load(quantized, settings())
    assert np.argmax(there.logits) == np.argmax(here.logits)
    assert np.abs(np.array(there.logits) - np.array(here.logits)).max() < 0.25
    plain = load(quantized, settings(), plain=True)
    assert (there.logits, there.tokens) == (plain.logits, plain.tokens)


@on_rpc
@pytest.mark.parametrize(
    ("layers", "split", "expected"),
    [
        (-1, (), (0, 4, 3)),
        (-1, (1, 1), (0, 4, 3)),
        (-1, (3, 1), (0, 6, 1)),
        (-1, (0, 1), (0, 0, 7)),
        (4, (1, 1), (3, 2, 2)),
    ],
)
def test_two_devices(
    device: RpcServer,
    second: RpcServer,
    on_cpu: Loaded,
    layers: int,
    split: tuple[float, ...],
    expected: tuple[int, int, int],
) -> None:
    """--tensor-split gives each device its share of layers, in the order of --rpc; the plan knows,
    and the tokens stay the same."""
    loaded = load(MODEL_PATH, settings(device, second, layers=layers, tensor_split=split))
    names = ("CPU", "RPC0", "RPC1")
    assert loaded.layers == sum(
        ((name,) * count for name, count in zip(names, expected, strict=True)), ()
    )
    assert loaded.kv == tuple(enumerate(loaded.layers[:-1]))
    assert_asked(loaded.planned, loaded.allocated)
    assert (loaded.tokens, loaded.logits) == (on_cpu.tokens, on_cpu.logits)


@on_rpc
def test_one_device_of_two(device: RpcServer, second: RpcServer) -> None:
    """--device and --split-mode none use one device and not the other."""
    named = load(MODEL_PATH, settings(device, second, layers=-1, device=("RPC1",)))
    assert set(named.layers) == {"RPC1"}
    alone = settings(device, second, layers=-1, split_mode="none", main_gpu=1)
    loaded = load(MODEL_PATH, alone)
    assert set(loaded.layers) == {"RPC1"}
    assert_planned(loaded.planned, loaded.allocated)


# ------------------------------------------------------------------------------- memory


@on_rpc
@pytest.mark.parametrize(
    ("layers", "given"),
    [
        (0, {}),
        (1, {}),
        (2, {}),
        (3, {"ctx_size": 4096}),
        (-1, {"ctx_size": 4096}),
        (-1, {"ctx_size": 2048, "cache_type_k": "q8_0", "cache_type_v": "q8_0"}),
        (-1, {"ctx_size": 8192, "ubatch_size": 256}),
        (-1, {"ctx_size": 4096, "mmap": True}),
    ],
)
@pytest.mark.parametrize("name", ["demo", "Q4_K"])
def test_memory_of_each_device(
    device: RpcServer, tmp_path: Path, name: str, layers: int, given: dict[str, Any]
) -> None:
    """What `worker plan` says of a device is what llama.cpp allocates there, which it was asked."""
    path = MODEL_PATH
    if name != "demo":
        shape = {"layers": 6, "embedding": 512, "heads": 8, "kv_heads": 2, "feed_forward": 1536}
        path = ggufs.write_llama(tmp_path / "m.gguf", encoding=name, context=8192, **shape)
    loaded = load(path, settings(device, layers=layers, **given))
    assert loaded.estimated == ()
    assert_asked(loaded.planned, loaded.allocated)


def _pair(kind: str, folder: Path) -> tuple[Path, dict[str, Any]]:
    """A model and the options of what guesses for it."""
    target = folder / "target.gguf"
    if kind == "heads":
        return heads.write_glm4moe(target), {"draft": "mtp"}
    if kind == "hybrid":
        return heads.write_qwen35(target), {"draft": "mtp"}
    write: Callable[[Path], Path] = {
        "eagle3": drafters.write_eagle, "dflash": drafters.write_dflash,
        "assistant": drafters.write_assistant,
    }[kind]  # fmt: skip
    write_target = drafters.write_gemma4 if kind == "assistant" else drafters.write_target
    drafter = write(folder / "drafter.gguf")
    return write_target(target), {"draft": "model", "draft_model": str(drafter)}


def _assert_guesser(loaded: Loaded) -> None:
    """What is planned beside it, and that logits and vocabulary, which llama.cpp does not tell,
    are in the host's memory."""
    assert loaded.estimated == ()
    plan, real = by_device(loaded.planned), by_device(loaded.allocated)
    for name in ("CPU", "RPC0")[: len(real)]:
        for part in ("weights", "kv", "compute", "draft"):
            more = 4 << 20 if (name, part) == ("CPU", "draft") else 0
            there, told = real[name].get(part, 0), plan[name].get(part, 0)
            if part == "kv":  # as llama.cpp counts them
                told += plan[name].get("recurrent", 0)
            assert there - 50_000 <= told <= there + 50_000 + more, (name, part)


@on_rpc
@pytest.mark.parametrize("layers", [0, 3, -1])
def test_memory_of_a_draft_model(device: RpcServer, quantized: Path, layers: int) -> None:
    """It is on the device as a whole where any layer is, with its cells and steps."""
    given = {"draft": "model", "draft_model": str(quantized), "ctx_size": 4096}
    _assert_guesser(load(MODEL_PATH, settings(device, layers=layers, **given)))


@on_rpc
@pytest.mark.parametrize("layers", [2, -1])
@pytest.mark.parametrize("kind", ["heads", "hybrid", "eagle3", "dflash", "assistant"])
def test_memory_of_what_guesses(device: RpcServer, tmp_path: Path, kind: str, layers: int) -> None:
    """Drafters as a whole, heads where their layer is."""
    path, given = _pair(kind, tmp_path)
    _assert_guesser(load(path, settings(device, layers=layers, **given)))


@on_rpc
@pytest.mark.parametrize("layers", [3, -1])
def test_memory_for_vectors(device: RpcServer, layers: int) -> None:
    """The context for vectors beside one for text: cells and steps are where the layers are, what
    it gives is in the host's memory."""
    loaded = load(MODEL_PATH, settings(device, layers=layers, pooling="mean"))
    assert loaded.estimated == ()
    plan, real = by_device(loaded.planned), by_device(loaded.allocated)
    for part in ("weights", "kv", "compute", "embedding"):
        assert plan["RPC0"][part] == pytest.approx(real["RPC0"][part], abs=30_000), part
    assert plan["CPU"]["embedding"] > real["CPU"]["embedding"]


@on_rpc
def test_steps_in_which_all_look_at_one_cache(device: RpcServer) -> None:
    """They are planned too: their masks are as wide as all slots' cells, those at the start are
    as wide as one slot's."""
    slots, cells, rows = 16, 8192, 256
    given = {"ctx_size": cells, "parallel": slots, "ubatch_size": rows}
    loaded = load(MODEL_PATH, settings(device, layers=-1, **given))
    plan, real = by_device(loaded.planned), by_device(loaded.allocated)
    for name, parts in real.items():
        more = 2 * cells * rows * (slots - 1) // slots
        total = sum(parts.values()) + more
        assert sum(plan[name].values()) == pytest.approx(total, rel=0.05), name


@on_rpc
def test_plan_on_the_command_line(device: RpcServer) -> None:
    """`worker plan --rpc -ngl` prints the plan that loading follows."""
    loaded = load(MODEL_PATH, settings(device, layers=3))
    command = [sys.executable, "-m", "worker", "plan", "--json", "-c", "1024", "-np", "1"]
    done = subprocess.run(
        [*command, "-ngl", "3", "--rpc", device.address],
        capture_output=True,
        check=True,
        timeout=60,
    )
    plan = json.loads(done.stdout)
    assert plan["gpu_layers"] == 3
    printed = [Placement(**place) for place in plan["devices"]]
    assert by_device(printed) == by_device(loaded.planned)
    assert_planned(printed, loaded.allocated)


@on_rpc
def test_a_device_that_is_too_small() -> None:
    """Weights that the device has no room for are an error of one sentence, not a slow worker."""
    with rpc_server(megabytes=60) as small, pytest.raises(FailedLoadError) as failed:
        load(MODEL_PATH, settings(small, layers=-1, ctx_size=65_536))
    assert failed.value.code in (1, 4)
    assert re.match(r"error: (MODEL_LOAD_FAILED|DOES_NOT_FIT): .*RPC0.*\.", failed.value.line), (
        failed.value.line
    )


# ------------------------------------------------------------------------------- no fall-back


@on_rpc
@pytest.mark.parametrize(
    ("layers", "tensors"),
    [(-1, r"blk\.4\."), (3, r"blk\.4\."), (-1, r"ffn_(up|down)")],
)
def test_layers_that_stay_on_the_cpu(device: RpcServer, layers: int, tensors: str) -> None:
    """llama.cpp calls a layer offloaded when its tensors were left on the host; we do not."""
    with pytest.raises(FailedLoadError) as failed:
        load(MODEL_PATH, settings(device, layers=layers), keep_on_cpu=tensors)
    assert failed.value.code == 1
    assert re.match(
        r"error: NOT_RESIDENT: \d\.\d MiB of the layers that were to be offloaded stayed on the "
        r"CPU\.",
        failed.value.line,
    ), failed.value.line


@on_rpc
def test_a_tensor_that_stays_on_the_cpu(device: RpcServer, on_cpu: Loaded) -> None:
    """Less than a layer is no reason to stop: it is logged, and the report tells how much."""
    loaded = load(MODEL_PATH, settings(device, layers=-1), keep_on_cpu=r"blk\.2\.ffn_up\.weight")
    everything = load(MODEL_PATH, settings(device, layers=-1))
    more = (by_device(made.allocated)["CPU"]["weights"] for made in (loaded, everything))
    assert next(more) - next(more) == pytest.approx(256 * 768 * 2, abs=11_000)
    assert "tensors of offloaded layers are on the CPU" in loaded.log
    assert "tensors of offloaded layers" not in everything.log
    assert loaded.tokens == on_cpu.tokens


@on_rpc
def test_asserting_the_backend(device: RpcServer) -> None:
    """--backend rpc runs on RPC devices, and without one it does not run at all."""
    assert set(load(MODEL_PATH, settings(device, layers=-1, backend="rpc")).layers) == {"RPC0"}
    with pytest.raises(FailedLoadError) as failed:
        load(MODEL_PATH, settings(layers=-1, backend="rpc"))
    assert failed.value.line.startswith("error: NOT_RESIDENT: This machine has no rpc device.")
    with pytest.raises(FailedLoadError) as failed:
        load(MODEL_PATH, settings(device, layers=-1, backend="cpu"))
    assert failed.value.line.startswith("error: USAGE: --n-gpu-layers needs a GPU")


# ------------------------------------------------------------------------------- experts


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mixture of experts: four layers and the output."""
    path = tmp_path_factory.mktemp("models") / "moe.gguf"
    shape = {"layers": 4, "embedding": 256, "feed_forward": 512, "context": 2048}
    return ggufs.write_llama(path, experts=4, encoding="F16", **shape)


@on_rpc
@pytest.mark.parametrize(
    ("layers", "given", "moved"),
    [
        (-1, {"cpu_moe": 10_000}, 4),
        (-1, {"cpu_moe": 2}, 2),
        (2, {"cpu_moe": 3}, 0),
        (3, {"cpu_moe": 3}, 1),
        (-1, {"override_tensor": ((r"blk\.(1|2)\.ffn_.*_exps", "CPU"),)}, 2),
        (-1, {"override_tensor": ((r"\.3\.ffn_.*exps", "RPC0"), ("exps", "CPU"))}, 3),
        (0, {"override_tensor": (("exps", "RPC0"),)}, -4),
    ],
)
def test_experts_lie_where_they_were_asked_to(
    device: RpcServer, mixed: Path, layers: int, given: dict[str, Any], moved: int
) -> None:
    """The layers are the device's, so many of their experts are not; the plan knows, and the model
    says the same."""
    loaded = load(mixed, settings(device, layers=layers, **given))
    whole = load(mixed, settings(device, layers=layers))
    assert loaded.layers == whole.layers
    assert loaded.tokens == whole.tokens == load(mixed, settings()).tokens
    sizes = [by_device(each.allocated)["CPU"]["weights"] for each in (loaded, whole)]
    experts = 3 * 4 * 256 * 512 * 2  # of a layer: gate, up and down of four, F16
    assert sizes[0] - sizes[1] == pytest.approx(moved * experts, abs=22_000)
    if layers:  # else a device computes that has no layer
        assert_planned(loaded.planned, loaded.allocated)
    assert "tensors of offloaded layers are on the CPU" not in loaded.log


def test_a_place_that_is_not_there() -> None:
    """It is named with those that are, before a byte is read."""
    with pytest.raises(FailedLoadError) as failed:
        load(MODEL_PATH, settings(override_tensor=((".*", "CUDA7"),)))
    assert failed.value.line == (
        "error: USAGE: --override-tensor names 'CUDA7', where nothing is placed. Name one of "
        "these: CPU."
    )


def test_all_on_the_cpu(on_cpu: Loaded) -> None:
    """Where there is no device it changes nothing."""
    loaded = load(MODEL_PATH, settings(override_tensor=((".*", "CPU"),)))
    assert (loaded.tokens, loaded.logits) == (on_cpu.tokens, on_cpu.logits)
    assert_planned(loaded.planned, loaded.allocated)
