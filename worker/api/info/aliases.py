"""Our metrics under the names that routers and dashboards of other servers scrape."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from worker.api.info.readings import Ratio, Reading
from worker.engine.stats import EngineSnapshot


class Alias(msgspec.Struct, frozen=True):
    """Another name of a metric of ours, with the same meaning there.

    labels  what its labels are called there; none: one value, the sum of all
    words   what values of labels are called there, where it is not as here
    """

    name: str
    labels: tuple[str, ...] = ()
    words: Mapping[str, str] = {}


def _of(*names: str) -> tuple[Alias, ...]:
    return tuple(Alias(name) for name in names)


# Our name -> what llama-server and vLLM call it; of counters without `_total`.
ALIASES: dict[str, tuple[Alias, ...]] = {
    "worker_requests_running": _of("llamacpp:requests_processing", "vllm:num_requests_running"),
    "worker_requests_waiting": _of("llamacpp:requests_deferred", "vllm:num_requests_waiting"),
    "worker_requests": (
        Alias("vllm:request_success", ("finished_reason",), {"aborted": "abort"}),
    ),
    "worker_prompt_tokens": _of("vllm:prompt_tokens"),
    "worker_prompt_tokens_computed": _of("llamacpp:prompt_tokens"),
    "worker_tokens_generated": _of("llamacpp:tokens_predicted", "vllm:generation_tokens"),
    "worker_kv_cells_live_ratio": _of(
        "llamacpp:kv_cache_usage_ratio", "vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc"
    ),
    "worker_prefix_queries": _of("vllm:gpu_prefix_cache_queries", "vllm:prefix_cache_queries"),
    "worker_prefix_hits": _of(
        "llamacpp:prompt_tokens_cached", "vllm:gpu_prefix_cache_hits", "vllm:prefix_cache_hits",
        "vllm:prompt_tokens_cached",
    ),
    "worker_preemptions": _of("vllm:num_preemptions"),
    "worker_drafts": _of("llamacpp:spec_decode_num_drafts", "vllm:spec_decode_num_drafts"),
    "worker_draft_tokens": _of(
        "llamacpp:spec_decode_num_draft_tokens", "vllm:spec_decode_num_draft_tokens"
    ),
    "worker_draft_tokens_accepted": _of(
        "llamacpp:spec_decode_num_accepted_tokens", "vllm:spec_decode_num_accepted_tokens"
    ),
    "worker_steps": _of("llamacpp:n_decode"),
    "worker_longest_sequence_tokens": _of("llamacpp:n_tokens_max"),
    "worker_queue_seconds": _of("vllm:request_queue_time_seconds"),
    "worker_first_token_seconds": _of("vllm:time_to_first_token_seconds"),
    # The second one is what vLLM called it first.
    "worker_inter_token_seconds": _of(
        "vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"
    ),
    "worker_read_seconds": _of("vllm:request_prefill_time_seconds"),
    "worker_write_seconds": _of("vllm:request_decode_time_seconds"),
    "worker_request_seconds": _of("vllm:e2e_request_latency_seconds"),
    "worker_request_prompt_tokens": _of("vllm:request_prompt_tokens"),
    "worker_request_generated_tokens": _of("vllm:request_generation_tokens"),
}  # fmt: skip


def _prompt_seconds(engine: EngineSnapshot) -> Reading:
    text = "Seconds of steps that read prompts"
    return Reading("counter", "llamacpp:prompt_seconds", text, engine.stats.prompt_s)


def _predicted_seconds(engine: EngineSnapshot) -> Reading:
    text, spent = "Seconds in which requests wrote, added up", engine.stats.write_time.total
    return Reading("counter", "llamacpp:tokens_predicted_seconds", text, spent)


def _tokens_by_source(engine: EngineSnapshot) -> Reading:
    stats = engine.stats
    sources = {
        ("local_compute",): stats.computed_tokens,
        ("local_cache_hit",): stats.shared_tokens,
        ("external_kv_transfer",): stats.memory_tokens + stats.disk_tokens,
    }
    name, text = "vllm:prompt_tokens_by_source", "Prompt tokens computed, found, brought back"
    return Reading("counter", name, text, sources, ("source",))


# What others divide otherwise.
SUMS = (_prompt_seconds, _predicted_seconds, _tokens_by_source)
RATIOS = (
    Ratio(
        "llamacpp:n_busy_slots_per_decode",
        "Sequences that run, mean over all steps",
        lambda engine: (engine.stats.num_busy, engine.num_steps),
    ),
    Ratio(
        "llamacpp:prompt_tokens_seconds",
        "Prompt tokens read a second since the last scrape",
        lambda engine: (engine.stats.computed_tokens, engine.stats.prompt_s),
        fresh=True,
    ),
    Ratio(
        "llamacpp:predicted_tokens_seconds",
        "Tokens a second that a sequence gets, mean since the last scrape",
        lambda engine: (sum(engine.stats.inter_token.counts), engine.stats.inter_token.total),
        fresh=True,
    ),
)
