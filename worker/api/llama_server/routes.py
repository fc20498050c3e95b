"""POST /infill, POST /completion."""

from __future__ import annotations

from litestar import post
from litestar.types import ASGIApp

from worker.api.common.body import HttpRequest
from worker.api.common.bounds import check_alternatives, stops_of, tokens_of
from worker.api.common.generation import Generation, run
from worker.api.common.preparing import Preparing
from worker.api.common.sampling import sampling_of
from worker.api.llama_server.exchange import WritingExchange
from worker.api.llama_server.prompts import PARAM, place_of, prompts_of
from worker.api.llama_server.schemas import InfillRequest, WritingFields, WritingRequest
from worker.engine.request import GenerationParams
from worker.errors import RequestError
from worker.lifecycle.loaded import Loaded
from worker.limits import SEQUENCES


def _params(body: WritingFields, loaded: Loaded, param: str, n: int = 1) -> GenerationParams:
    """Raises RequestError that names the field."""
    if body.id_slot is not None and body.id_slot >= 0:
        loaded.slots.check(body.id_slot)
    check_alternatives(n_probs=body.n_probs)
    sampling = sampling_of(body, loaded)
    if body.post_sampling_probs and sampling.constraint is not None:
        raise RequestError(
            "post_sampling_probs goes with no grammar and no schema.", param="post_sampling_probs"
        )
    return GenerationParams(
        prompt_param=param,
        sampling=sampling,
        max_tokens=tokens_of(
            n_predict=body.n_predict, max_tokens=body.max_tokens, default=loaded.settings.n_predict
        ),
        stop=stops_of(body.stop),
        n=n,
        logprobs=body.n_probs or None,
        as_drawn=bool(body.post_sampling_probs),
        tells_progress=bool(body.stream and body.return_progress),
    )


def _between(body: InfillRequest, loaded: Loaded) -> Generation:
    params = _params(body, loaded, "input_prefix")
    prompt, truncated = place_of(body, params.max_tokens, loaded)
    return Generation(prompts=(prompt,), params=params, truncated=truncated)


def _behind(body: WritingRequest, loaded: Loaded) -> Generation:
    copies = 1 if body.n_cmpl is None else body.n_cmpl
    if not 1 <= copies <= SEQUENCES.most:
        raise RequestError(f"n_cmpl must be from 1 to {SEQUENCES.most}.", param="n_cmpl")
    params = _params(body, loaded, PARAM, copies)
    return Generation(prompts=prompts_of(body, loaded), params=params)


@post("/infill", status_code=200, summary="Write between two texts (llama-server)")
async def infill(request: HttpRequest, loaded: Loaded, preparing: Preparing) -> ASGIApp:
    """The whole text at once, or its events."""
    body = await preparing.body(request, InfillRequest, loaded)
    generation = await preparing.make(request, body, loaded, _between, body, loaded)
    return WritingExchange(generation, run(generation, loaded), body, loaded)


@post(["/completion", "/completions"], status_code=200, summary="Continue a text (llama-server)")
async def completion(request: HttpRequest, loaded: Loaded, preparing: Preparing) -> ASGIApp:
    """The whole text at once, or its events; a list of whole texts for several prompts."""
    body = await preparing.body(request, WritingRequest, loaded)
    generation = await preparing.make(request, body, loaded, _behind, body, loaded)
    return WritingExchange(generation, run(generation, loaded), body, loaded)
