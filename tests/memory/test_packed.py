"""Weights in an order that the CPU chooses: what a CPU with AMX keeps, planned on any machine."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from benchmarks.models import write_model
from benchmarks.shapes import ModelShape as Shape
from tests.support.models import ggufs
from worker.machine import Memory, PackedEncoding
from worker.memory.plan import estimate
from worker.memory.weights import weights_bytes
from worker.model.config import load_config
from worker.settings import Settings

GiB = 2**30
# What `packed_encodings()` told with the libraries of llama-cpp-python 0.3.36, compiled by GCC
# with AVX-512, VNNI and AMX. Its tiles keep sums beside each block of Q8_0, and more scales beside
# those of Q4_K, Q5_K and IQ4_XS. (The CPU had no AMX: only the system's leave to use it was taken
# for given. Packing takes no AMX instruction.)
AMX = (
    PackedEncoding("F16", 1.0, 32),
    PackedEncoding("Q4_0", 1.0, 8),
    PackedEncoding("Q4_1", 1.0, 32),
    PackedEncoding("Q8_0", 38 / 34, 32),
    PackedEncoding("Q2_K", 1.0, 8),
    PackedEncoding("Q4_K", 148 / 144, 8),
    PackedEncoding("Q5_K", 180 / 176, 32),
    PackedEncoding("Q6_K", 1.0, 32),
    PackedEncoding("IQ4_NL", 1.0, 8),
    PackedEncoding("IQ4_XS", 138 / 136, 32),
    PackedEncoding("MXFP4", 1.0, 8),
)
# Bytes of all buffers that those libraries reported for these models: AMX, CPU_REPACK and CPU.
DEEP = {"layers": 24, "embedding": 256, "heads": 4, "kv_heads": 2, "feed_forward": 768}
REPORTED = {
    ("F16", True): 38_126_223,
    ("Q4_0", True): 10_758_388,
    ("Q4_1", True): 11_953_765,
    ("Q8_0", False): 22_649_240,
    ("Q8_0", True): 22_649_240,
    ("Q4_K", True): 11_051_990,
    ("Q5_K", True): 13_432_257,
    ("Q6_K", True): 15_665_725,
}
LARGE_VOCABULARY = Shape(layers=3, embedding=256, heads=4, kv_heads=1, head_dim=128,
                         feed_forward=1024, vocab=48_000, context=4096, tied=True)  # fmt: skip
EXPERTS = Shape(
    architecture="qwen3moe", layers=4, embedding=512, heads=8, kv_heads=2, head_dim=64,
    feed_forward=1536, vocab=8000, context=8192, experts=8, experts_used=4,
    expert_feed_forward=512,
)  # fmt: skip
REPORTED_OF_SHAPES = [
    (LARGE_VOCABULARY, "Q4_K_M", 22_166_896),
    (LARGE_VOCABULARY, "Q8_0", 31_625_051),
    (EXPERTS, "Q4_K_M", 22_533_897),
    (EXPERTS, "Q8_0", 39_153_827),
]


@pytest.mark.parametrize(("encoding", "tied"), REPORTED)
def test_tiles_are_counted(tmp_path: Path, encoding: str, tied: bool) -> None:
    """Each encoding takes what AMX's tiles of it do, and a tied embedding is there twice."""
    path = ggufs.write_llama(tmp_path / "m.gguf", encoding=encoding, tied=tied, **DEEP)
    found = weights_bytes(load_config(path), AMX)
    assert found == pytest.approx(REPORTED[encoding, tied], rel=0.001)


@pytest.mark.parametrize(("shape", "quant", "reported"), REPORTED_OF_SHAPES)
def test_mixes_are_counted(tmp_path: Path, shape: Shape, quant: str, reported: int) -> None:
    """Of a mix each part counts as itself; experts are no matrices of AMX's."""
    path = write_model(tmp_path / "m.gguf", shape, quant, hollow=True)
    assert weights_bytes(load_config(path), AMX) == pytest.approx(reported, rel=0.001)


def test_rows_that_fill_no_tile_stay_as_they_are(tmp_path: Path) -> None:
    """An embedding of a vocabulary that is no multiple of a kernel's rows is kept once."""
    path = write_model(tmp_path / "m.gguf", LARGE_VOCABULARY, "Q8_0", hollow=True)
    config = load_config(path)
    odd = msgspec.structs.replace(config, vocab_size=config.vocab_size + 1)
    assert weights_bytes(config, AMX) - weights_bytes(odd, AMX) > 12 << 20


def test_a_model_that_guesses_is_kept_so_too(tmp_path: Path) -> None:
    """The plan counts the order of both models, and without one the file's own sizes."""
    path = ggufs.write_llama(tmp_path / "m.gguf", encoding="Q8_0", **DEEP)
    config, settings = load_config(path), Settings(ctx_size=512, parallel=1)
    plain = Memory(total=GiB, available=GiB)
    tiles = msgspec.structs.replace(plain, packed=AMX)
    more = weights_bytes(config, AMX) - config.size_bytes
    without = estimate(config, settings, plain, config)
    found = estimate(config, settings, tiles, config)
    assert without.weights_bytes == config.size_bytes
    assert found.weights_bytes - without.weights_bytes == more > 2 << 20
    assert found.draft_bytes - without.draft_bytes == more
