"""What was asked: one prompt, how to sample from it, when to stop."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from worker.engine.sampling import SamplingParams, check_sampling
from worker.errors import ContextLengthError, RequestError
from worker.limits import LOGPROBS, STOP, STOPS


class SpanLimit(msgspec.Struct, frozen=True):
    """How long a part of an answer may be, such as a thought.

    count      tokens of it at most, of all such parts together
    opens      texts with which it begins
    ends       texts with which it ends
    forced     tokens that are written where it is too long; they end it
    is_open    whether the answer begins inside it
    """

    count: int
    opens: tuple[str, ...]
    ends: tuple[str, ...]
    forced: tuple[int, ...]
    is_open: bool


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One sequence to continue.

    prompt      token ids, at least one, exactly as computed (BOS included where it is wanted)
    max_tokens  tokens to sample at most; 0 only scores the prompt
    stop        the text ends before the first of these
    logprobs    how many likeliest alternatives to report for each sampled token; None: no logprobs
    prompt_logprobs  the same for each prompt token
    prompt_param     the client's field that the prompt was made from, to name in errors
    tells_progress   whether each step that reads the prompt says how far it is
    checkpoints      lengths of the prompt after which another prompt may go on differently: there
                     the state of a model is kept that cannot be cut later
    spelled          control tokens that are shown, each as these bytes; others stay hidden
    limit            of a part of the answer; None: there is none
    """

    id: str
    prompt: tuple[int, ...]
    max_tokens: int
    sampling: SamplingParams = SamplingParams()
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    prompt_param: str = "prompt"
    tells_progress: bool = False
    checkpoints: tuple[int, ...] = ()
    spelled: Mapping[int, bytes] = {}
    limit: SpanLimit | None = None


def check_length(count: int, max_length: int, param: str, *, output: int = 0) -> None:
    """Raise RequestError where a prompt of `count` tokens leaves no room for `output` more.

    max_length: longest sequence, prompt and output together, that the context holds
    param: the client's field that the prompt was made from
    """
    if count + output > max_length:
        raise ContextLengthError(count, max_length, param=param, most=max_length - output)


def check_request(request: Request, vocab_size: int, max_length: int) -> None:
    """Raise RequestError for what must not reach native code; `max_length` as above."""
    param = request.prompt_param
    if not request.prompt:
        raise RequestError("The prompt is empty.", param=param, hint="Send at least one token.")
    check_length(len(request.prompt), max_length, param, output=1 if request.max_tokens else 0)
    if min(request.prompt) < 0 or max(request.prompt) >= vocab_size:
        raise RequestError(
            f"The prompt holds token ids outside 0 to {vocab_size - 1}.", param=param
        )
    if request.max_tokens < 0:
        raise RequestError("max_tokens must not be negative.", param="max_tokens")
    if len(request.stop) > STOPS.most or any(
        not 0 < len(text) <= STOP.most for text in request.stop
    ):
        raise RequestError(
            f"stop must be at most {STOPS.most} texts of 1 to {STOP.most} characters.",
            param="stop",
        )
    for field in ("logprobs", "prompt_logprobs"):
        value = getattr(request, field)
        if value is not None and not 0 <= value <= LOGPROBS.most:
            raise RequestError(f"logprobs must be from 0 to {LOGPROBS.most}.", param="logprobs")
    check_sampling(request.sampling, vocab_size)
