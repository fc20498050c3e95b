"""llama.cpp's own samplers, one behind the other."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

from worker.engine.sampling import SamplingParams
from worker.errors import RequestError
from worker.llama.library import native
from worker.llama.vocab import Vocab

_INFILLED = 128  # likeliest tokens that the sampler infill looks at, at most


class Chain:
    """A native chain. It is freed with this object at the latest."""

    def __init__(self) -> None:
        self._handle: Any = native.llama_sampler_chain_init(
            native.llama_sampler_chain_default_params()
        )
        self._free = weakref.finalize(self, native.llama_sampler_free, self._handle)
        self._free.atexit = False  # the process ends anyway
        self._last: Any = None

    def add(self, sampler: Any, field: str, history: tuple[int, ...] = ()) -> None:
        """Append a sampler that has seen `history`: as in llama-server, the prompt counts too.

        Only this sampler sees it.
        Raises RequestError.
        """
        # A handle is a POINTER: NULL is falsy and not None. Adding NULL would be a segfault.
        if not sampler:
            raise RequestError(f"{field} was refused by llama.cpp.", param=field)
        for token in history:
            native.llama_sampler_accept(sampler, token)
        native.llama_sampler_chain_add(self._handle, sampler)
        self._last = sampler

    def draw(self, array: Any) -> None:
        """Let the last sampler alone choose among candidates."""
        native.llama_sampler_apply(self._last, ctypes.byref(array))  # pyright: ignore[reportArgumentType]

    def apply(self, array: Any) -> None:
        """Let the samplers judge, change, order, drop and choose candidates."""
        native.llama_sampler_apply(self._handle, ctypes.byref(array))  # pyright: ignore[reportArgumentType]

    def choose(self, around: Chain, context: Any, row: int) -> int:
        """The id chosen from a context's output row, with all tokens as candidates.

        around: an empty chain, whose memory for the candidates is used: 12 bytes for each token
        """
        native.llama_sampler_chain_add(around._handle, self._handle)
        try:
            return native.llama_sampler_sample(around._handle, context, row)
        finally:
            native.llama_sampler_chain_remove(around._handle, 0)

    def accept(self, token: int) -> None:
        """Tell the samplers what was chosen."""
        native.llama_sampler_accept(self._handle, token)

    def free(self) -> None:
        """Release everything in it; safe to call again."""
        self._free()
        self._handle = self._last = None


def add_choice(chain: Chain, params: SamplingParams, vocab: Vocab, seed: int) -> None:
    """The filters in their order, and what chooses from what they leave."""
    if params.is_greedy:
        chain.add(native.llama_sampler_init_greedy(), "temperature")
        return
    # To llama.cpp 2**32 - 1 means a random seed. Who asks for a seed wants the text to repeat.
    seed = min(seed, 2**32 - 2)
    if params.mirostat:
        chain.add(native.llama_sampler_init_temp(params.temperature), "temperature")
        tau, eta = params.mirostat_tau, params.mirostat_eta
        if params.mirostat == 1:
            sampler = native.llama_sampler_init_mirostat(vocab.size, seed, tau, eta, 100)
        else:
            sampler = native.llama_sampler_init_mirostat_v2(seed, tau, eta)
        chain.add(sampler, "mirostat")
        return
    for name in params.filters:
        _add_filter(chain, name, params, vocab, seed)
    if params.adaptive_target >= 0:
        target, decay = params.adaptive_target, params.adaptive_decay
        chain.add(native.llama_sampler_init_adaptive_p(target, decay, seed), "adaptive_target")
        return
    chain.add(native.llama_sampler_init_dist(seed), "seed")


def _add_filter(chain: Chain, name: str, params: SamplingParams, vocab: Vocab, seed: int) -> None:
    """One of the filters, unless it would change nothing."""
    keep = max(1, params.min_keep)
    match name:
        case "top_n_sigma" if params.top_n_sigma > 0:
            chain.add(native.llama_sampler_init_top_n_sigma(params.top_n_sigma), name)
        case "top_k" if params.top_k > 0:
            chain.add(native.llama_sampler_init_top_k(params.top_k), "top_k")
        case "typ_p" if params.typical_p < 1:
            # It sums p ln p, which is NaN for a banned token. So these are taken out first.
            chain.add(native.llama_sampler_init_min_p(1e-35, 1), "typical_p")
            chain.add(native.llama_sampler_init_typical(params.typical_p, keep), "typical_p")
        case "top_p" if params.top_p < 1:
            chain.add(native.llama_sampler_init_top_p(params.top_p, keep), "top_p")
        case "min_p" if params.min_p > 0:
            chain.add(native.llama_sampler_init_min_p(params.min_p, keep), "min_p")
        case "xtc" if params.xtc_probability > 0:
            chance, threshold = params.xtc_probability, params.xtc_threshold
            xtc = native.llama_sampler_init_xtc(chance, threshold, keep, seed)
            chain.add(xtc, "xtc_probability")
        case "temperature" if params.dynatemp_range > 0:
            spread, exponent = params.dynatemp_range, params.dynatemp_exponent
            sampler = native.llama_sampler_init_temp_ext(params.temperature, spread, exponent)
            chain.add(sampler, "dynatemp_range")
        case "temperature" if params.temperature != 1:
            chain.add(native.llama_sampler_init_temp(params.temperature), "temperature")
        case "infill":
            # It compares the texts of each two tokens.
            chain.add(native.llama_sampler_init_top_k(_INFILLED), "samplers")
            chain.add(native.llama_sampler_init_infill(vocab.handle), "samplers")
        case _:
            pass


def add_penalties(
    chain: Chain, params: SamplingParams, vocab: Vocab, history: tuple[int, ...]
) -> int:
    """What lowers tokens of the text so far; returns of how many last tokens, 0: there is none.

    What the answer has is weighed beside that: it is not told of the prompt.
    """
    window = 0
    if params.weighs_recent:
        window = _last_n(params.repeat_last_n, vocab)
        sampler = native.llama_sampler_init_penalties(
            vocab.size, window, params.repeat_penalty, 0.0, 0.0
        )
        chain.add(sampler, "repeat_penalty", history[-window:])
    if params.weighs_written:
        sampler = native.llama_sampler_init_penalties(
            vocab.size, vocab.max_history, 1.0, params.frequency_penalty, params.presence_penalty
        )
        chain.add(sampler, "frequency_penalty")
    if params.dry_multiplier > 0:
        chain.add(_dry(vocab, params), "dry_multiplier", history)
        window = max(window, _last_n(params.dry_penalty_last_n, vocab))
    return window


def _last_n(value: int, vocab: Vocab) -> int:
    return vocab.max_history if value < 0 else min(value, vocab.max_history)


def _dry(vocab: Vocab, params: SamplingParams) -> object:
    breakers = [text.encode() for text in params.dry_sequence_breakers]
    array = (ctypes.c_char_p * len(breakers))(*breakers)
    return native.llama_sampler_init_dry(  # pyright: ignore[reportUnknownMemberType]
        vocab.handle,
        params.dry_multiplier,
        params.dry_base,
        params.dry_allowed_length,
        _last_n(params.dry_penalty_last_n, vocab),
        array,
        len(breakers),
    )
