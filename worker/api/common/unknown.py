"""Fields of a body that this worker does not know: those that would change the answer are told."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from types import NoneType
from typing import Any, get_args

import msgspec

from worker import log
from worker.errors import RequestError

_MOST = 16  # names that are told
_LENGTH = 64
_NESTED = "options"
_log = log.get("service")
_logged: set[str] = set()
_MOST_LOGGED = 256

# Change no answer here.
_HARMLESS = frozenset({
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
    "prompt_cache_retention", "prediction", "cache_control", "betas", "anthropic_version",
    "anthropic_beta", "context_management", "provider", "usage", "models", "route", "id_slot",
    "slot_id", "cache_prompt", "n_keep", "n_discard", "n_cache_reuse", "sse_ping_interval",
    "api_key", "backend_sampling", "t_max_prompt_ms",
    "speculative.n_max", "speculative.n_min", "speculative.p_min", "speculative.type",
    "keep_alive", "truncate", "shift", "request_id", "priority", "cache_salt",
    "kv_transfer_params", "num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "num_keep",
    "use_mmap", "use_mlock", "numa", "low_vram", "f16_kv",
})  # fmt: skip
# Say what happens anyway, beside null, false, 0 and what is empty.
_NEUTRAL: dict[str, Any] = {
    "skip_special_tokens": True, "spaces_between_special_tokens": True, "detokenize": True,
    "length_penalty": 1, "tfs": 1, "tfs_z": 1, "n": 1, "best_of": 1, "modalities": ["text"],
    "use_default_system_prompt": True,
}  # fmt: skip
# Refused: vLLM's fields -> the next step.
_REFUSED = {
    "use_beam_search": "Send n and best_of to /v1/completions.",
    "prompt_logprobs": "Send echo and logprobs to /v1/completions.",
    "truncate_prompt_tokens": "Send a shorter prompt; chats have truncation.",
    "return_token_ids": "/v1/completions and /v1/chat/completions have it.",
    "return_tokens_as_token_ids": "/v1/completions and /v1/chat/completions have it.",
}


def unknown_fields(data: bytearray | msgspec.Raw, shape: Any) -> tuple[str, ...]:
    """Names at the top of a body that is read as `shape`, and in its `options`, as Ollama has them.
    A shape that is no struct has no names.

    Raises RequestError for one that cannot be left out.
    """
    if not (isinstance(shape, type) and issubclass(shape, msgspec.Struct)):
        return ()
    try:
        given = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # it was mended
        return ()
    found: list[str] = []
    if _NESTED in given and (inner := _options(shape)) is not None:
        found += [f"{_NESTED}.{name}" for name in unknown_fields(given[_NESTED], inner)]
    for name in given.keys() - set(shape.__struct_encode_fields__) - _HARMLESS:
        value = _value(given[name])
        if name in _REFUSED and value is not None and value is not False:
            raise RequestError(f"{name} is not offered here.", param=name, hint=_REFUSED[name])
        if value is not None and (value != _NEUTRAL[name] if name in _NEUTRAL else value):
            found.append(name[:_LENGTH])
    return tuple(sorted(found)[:_MOST])


@functools.cache
def _options(shape: type[msgspec.Struct]) -> Any:
    """What the field is read as; None: there is no such field."""
    kinds = (get_args(each.type) for each in msgspec.structs.fields(shape) if each.name == _NESTED)
    return next((kind for each in kinds for kind in each if kind is not NoneType), None)


def told(names: Iterable[str], path: str) -> tuple[str, ...]:
    """A sentence for each name; the log has each once."""
    names = tuple(names)
    for name in names:
        if name not in _logged and len(_logged) < _MOST_LOGGED:
            _logged.add(name)
            _log.warning("a field is not known", field=name, path=path)
    return tuple(f"{name} is not known here and was left out." for name in names)


def _value(raw: msgspec.Raw) -> Any:
    """A small value; a large one is something."""
    if len(bytes(raw)) > _LENGTH:
        return True
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return True
