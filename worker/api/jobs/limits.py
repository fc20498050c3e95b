"""The original worker's limits: a job outside them is refused, not cut."""

from __future__ import annotations

from worker.api.common.bounds import tokens_of
from worker.api.common.generation import Generation
from worker.api.common.prompts import text_prompt
from worker.api.common.sampling import sampling_of
from worker.api.jobs.schemas import JOB_LIMITS, JobRequest
from worker.engine.request import GenerationParams
from worker.errors import RequestError
from worker.lifecycle.loaded import Loaded
from worker.limits import JOB_PROMPT, JOB_STOP, JOB_STOPS


def generation_of(body: JobRequest, max_tokens: int, loaded: Loaded) -> Generation:
    """What the job asks for. Raises RequestError that names the field; tokenises, so it blocks.

    max_tokens: of a job, at most, and where it does not say
    """
    check_limits(body, max_tokens)
    if body.prompt is None:
        raise RequestError("prompt is missing.", param="prompt", hint="Send a text.")
    return Generation(
        prompts=(text_prompt(body.prompt, loaded, "prompt"),),
        params=GenerationParams(
            sampling=sampling_of(body, loaded),
            max_tokens=body.max_tokens or _default(max_tokens, body, loaded),
            stop=tuple(_stops(body)),
        ),
    )


def _default(most: int, body: JobRequest, loaded: Loaded) -> int:
    """Tokens of a job without max_tokens."""
    default = tokens_of(n_predict=body.n_predict, default=loaded.settings.n_predict)
    return min(most, default or most)


def check_limits(body: JobRequest, max_tokens: int) -> None:
    """Raise RequestError that names the first field outside the original's limits."""
    if body.operation is not None and body.operation.lower() != "infer":
        raise RequestError("operation must be infer.", param="operation")
    if body.prompt is not None and not 0 < len(body.prompt) <= JOB_PROMPT.most:
        raise RequestError(
            f"prompt must have 1 to {JOB_PROMPT.most} characters.",
            param="prompt",
            hint="/v1/completions takes longer ones.",
        )
    for name, (low, high) in {"max_tokens": (1, max_tokens), **JOB_LIMITS}.items():
        value = getattr(body, name)
        if value is not None and not low <= value <= high:
            raise RequestError(f"{name} must be from {low} to {high}.", param=name)
    stops = _stops(body)
    if len(stops) > JOB_STOPS.most or any(not 0 < len(text) <= JOB_STOP.most for text in stops):
        raise RequestError(
            f"stop must be at most {JOB_STOPS.most} texts of 1 to {JOB_STOP.most} characters.",
            param="stop",
        )


def _stops(body: JobRequest) -> list[str]:
    given = [body.stop] if isinstance(body.stop, str) else body.stop or []
    return [text for text in given if text is not None]
