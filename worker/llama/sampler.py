"""Sampler chains: llama.cpp's own samplers, one chain for each sequence."""

from __future__ import annotations

import ctypes
import math
import secrets
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from worker.engine.request import Request
from worker.engine.sampling import SEED_RANGE, SamplingParams
from worker.errors import RequestError
from worker.grammar.check import check_gbnf
from worker.llama.library import native
from worker.llama.vocab import Vocab

# At a lower temperature a logit divided by it no longer fits a float32; sampling is greedy then.
COLDEST = 1e-6
# Layout of struct llama_token_data.
_TOKEN_DATA = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
# Layout of struct llama_logit_bias.
_LOGIT_BIAS = np.dtype([("token", np.int32), ("bias", np.float32)])

# Seconds for one token under a grammar. Ordinary grammars take milliseconds.
_STRICT_BUDGET_S = 1.0


class Sampler:
    """One native chain. End tokens are banned until `min_tokens` tokens have been sampled."""

    def __init__(self, request: Request, vocab: Vocab) -> None:
        params = request.sampling
        self._chain: Any = native.llama_sampler_chain_init(
            native.llama_sampler_chain_default_params()
        )
        self._min_tokens = 0
        self._sampled = 0
        self._size = vocab.size
        self._strict = params.grammar is not None
        self._param = params.grammar_param
        # Where sampling is greedy and nothing but bans changes logits: the banned tokens. Then
        # `_peak` can choose. None: the chain must.
        self._banned: frozenset[int] | None = None
        try:
            self._build(params, vocab, request.prompt[-vocab.max_history :])
        except BaseException:
            self.free()
            raise

    def _build(self, params: SamplingParams, vocab: Vocab, history: tuple[int, ...]) -> None:
        ends = sorted(vocab.end_tokens)
        banned = [(token, -math.inf) for token in ends]
        if params.min_tokens and not params.ignore_eos and ends:
            # At index 0, where `sample` takes it out once there are enough tokens.
            self._add(_bias(vocab.size, banned), "min_tokens")
            self._min_tokens = params.min_tokens
        bias = list(params.logit_bias) + [(token, -math.inf) for token in vocab.suppressed]
        if params.ignore_eos:
            bias += banned
        if bias:
            self._add(_bias(vocab.size, bias), "logit_bias")
        if params.grammar is not None:
            self._add(_grammar(vocab, params.grammar, params.grammar_param), "grammar")
        if has_penalties(params):
            last_n = _last_n(params.repeat_last_n, vocab)
            self._add(
                native.llama_sampler_init_penalties(
                    vocab.size,
                    last_n,
                    params.repeat_penalty,
                    params.frequency_penalty,
                    params.presence_penalty,
                ),
                "repeat_penalty",
                history[-last_n:],
            )
        if params.dry_multiplier > 0:
            self._add(_dry(vocab, params), "dry_multiplier", history)
        if params.temperature < COLDEST:
            if native.llama_sampler_chain_n(self._chain) == bool(bias) and not params.logit_bias:
                self._banned = frozenset(token for token, _ in bias)
            self._add(native.llama_sampler_init_greedy(), "temperature")
            return
        seed = secrets.randbelow(SEED_RANGE - 1) if params.seed is None else params.seed
        # To llama.cpp 2**32 - 1 means a random seed. Who asks for a seed wants the text to repeat.
        seed = seed if seed != SEED_RANGE - 1 else SEED_RANGE - 2
        if params.mirostat:
            self._add(native.llama_sampler_init_temp(params.temperature), "temperature")
            tau, eta = params.mirostat_tau, params.mirostat_eta
            if params.mirostat == 1:
                chain = native.llama_sampler_init_mirostat(vocab.size, seed, tau, eta, 100)
            else:
                chain = native.llama_sampler_init_mirostat_v2(seed, tau, eta)
            self._add(chain, "mirostat")
            return
        # top_k comes first: on 32k flat logits top_p takes 1,981 µs, behind top_k 40 it takes 25.
        if params.top_k > 0:
            self._add(native.llama_sampler_init_top_k(params.top_k), "top_k")
        if params.typical_p < 1:
            # It sums p ln p, which is NaN for a banned token. So banned tokens are taken out first.
            self._add(native.llama_sampler_init_min_p(1e-35, 1), "typical_p")
            self._add(native.llama_sampler_init_typical(params.typical_p, 1), "typical_p")
        if params.top_p < 1:
            self._add(native.llama_sampler_init_top_p(params.top_p, 1), "top_p")
        if params.min_p > 0:
            self._add(native.llama_sampler_init_min_p(params.min_p, 1), "min_p")
        if params.xtc_probability > 0:
            self._add(
                native.llama_sampler_init_xtc(
                    params.xtc_probability, params.xtc_threshold, 1, seed
                ),
                "xtc_probability",
            )
        if params.temperature != 1:
            self._add(native.llama_sampler_init_temp(params.temperature), "temperature")
        self._add(native.llama_sampler_init_dist(seed), "seed")

    def _add(self, sampler: Any, field: str, history: tuple[int, ...] = ()) -> None:
        """Append a sampler that has seen `history`: as in llama-server, the prompt counts too.

        Only this sampler sees it. A grammar would abort on a prompt that it forbids.
        """
        # A handle is a POINTER: NULL is falsy and not None. Adding NULL would be a segfault.
        if not sampler:
            raise RequestError(f"{field} was refused by llama.cpp.", param=field)
        for token in history:
            native.llama_sampler_accept(sampler, token)
        native.llama_sampler_chain_add(self._chain, sampler)

    def sample(self, context: Any, row: int) -> int:
        """Choose from the context's logits of batch row `row` and accept the choice."""
        if self._min_tokens and self._sampled >= self._min_tokens:
            native.llama_sampler_free(native.llama_sampler_chain_remove(self._chain, 0))
            self._min_tokens = 0
        self._sampled += 1
        if self._strict:
            return self._sample_strictly(context, row)
        if self._banned is not None:
            token = self._peak(context, row)
            if token not in self._banned:
                return token
        return native.llama_sampler_sample(self._chain, context, row)

    def _peak(self, context: Any, row: int) -> int:
        """The token with the largest logit, the first of equal ones, as llama.cpp's greedy sampler.

        With a vocabulary of 32k that sampler takes 130 µs, because it copies all logits first; this
        takes 20 µs.
        """
        logits = native.llama_get_logits_ith(context, row)
        return int(np.ctypeslib.as_array(logits, (self._size,)).argmax())

    def _sample_strictly(self, context: Any, row: int) -> int:
        """As `sample`, but raises where bans and grammar together leave no token to choose.

        Then the best token is one that the grammar forbids, and accepting it would abort.
        """
        logits = native.llama_get_logits_ith(context, row)
        data = _candidates(np.ctypeslib.as_array(logits, (self._size,)))
        began = time.perf_counter()
        array = self._apply(data)
        chosen = array.data[array.selected]
        if not math.isfinite(chosen.logit):
            raise RequestError("The grammar leaves no token to choose.", param=self._param)
        native.llama_sampler_accept(self._chain, chosen.id)
        # The time of an ambiguous grammar grows by a factor with each token. It ends here, before
        # other sequences have to wait.
        if time.perf_counter() - began > _STRICT_BUDGET_S:
            raise RequestError("The grammar is too ambiguous to follow in time.", param=self._param)
        return chosen.id

    def _apply(self, data: np.ndarray) -> Any:
        """Let the chain judge `data`, a _TOKEN_DATA array. The chain changes the array."""
        pointer = data.ctypes.data_as(ctypes.POINTER(native.llama_token_data))
        array = native.llama_token_data_array(pointer, len(data), -1, False)
        native.llama_sampler_apply(self._chain, ctypes.pointer(array))  # pyright: ignore[reportArgumentType]
        return array

    def survivors(self, logits: Sequence[float]) -> dict[int, float]:
        """Token id -> probability after the chain has judged `logits`. Tests check filters so."""
        data = _candidates(logits)
        array = self._apply(data)
        kept = [array.data[i] for i in range(array.size)]
        top = max(item.logit for item in kept)
        weights = {item.id: math.exp(item.logit - top) for item in kept}
        total = sum(weights.values())
        return {token: weight / total for token, weight in weights.items() if weight > 0}

    def free(self) -> None:
        """Release the chain and everything in it; safe to call again."""
        if self._chain:
            native.llama_sampler_free(self._chain)
            self._chain = None


def has_penalties(params: SamplingParams) -> bool:
    """Whether the penalties change anything."""
    return params.repeat_last_n != 0 and (
        params.repeat_penalty != 1 or params.frequency_penalty != 0 or params.presence_penalty != 0
    )


def _candidates(logits: Sequence[float] | np.ndarray) -> np.ndarray:
    """All tokens with their logits, as the native samplers take them; [len(logits)]."""
    data = np.zeros(len(logits), _TOKEN_DATA)
    data["id"], data["logit"] = np.arange(len(logits)), logits
    return data


def _last_n(value: int, vocab: Vocab) -> int:
    return vocab.max_history if value < 0 else min(value, vocab.max_history)


def _bias(vocab_size: int, pairs: list[tuple[int, float]]) -> object:
    data = np.array(pairs, _LOGIT_BIAS).tobytes()
    array = (native.llama_logit_bias * len(pairs)).from_buffer_copy(data)
    return native.llama_sampler_init_logit_bias(vocab_size, len(pairs), array)


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


def _grammar(vocab: Vocab, text: str, param: str) -> object:
    check_gbnf(text, param)
    sampler = native.llama_sampler_init_grammar(vocab.handle, text.encode(), b"root")
    if not sampler:
        raise RequestError(
            f"{param} does not parse or has no rule named root.",
            param=param,
            hint="Send GBNF, with a first rule `root ::= ...`.",
        )
    return sampler
