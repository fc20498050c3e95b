"""What is said of a model as it is opened."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from worker import log
from worker.demo import MODEL_PATH
from worker.lifecycle.loading import load_backend
from worker.lifecycle.prepared import prepare
from worker.settings import Settings


@pytest.mark.parametrize(
    ("keys", "values", "said"), [("f16", "f16", 0), ("q8_0", "f16", 1), ("f16", "q8_0", 1)]
)
def test_a_quantised_cache_on_a_cpu_is_told(keys: str, values: str, said: int) -> None:
    """One line with the factor and the next step, and none where the cache is not quantised."""
    settings = Settings(
        ctx_size=256, parallel=1, threads=1, threads_batch=1, n_gpu_layers=0,
        cache_type_k=keys, cache_type_v=values,
    )  # fmt: skip
    log.configure("console")
    try:
        with capture_logs() as lines:
            load_backend(MODEL_PATH, settings, prepare(MODEL_PATH, settings)).close()
    finally:
        log.configure("console", quiet=True)
    told = [line for line in lines if "quantised KV cache" in str(line["event"])]
    assert len(told) == said
    assert all("3 to 4 times" in line["event"] and "bench" in line["hint"] for line in told)
