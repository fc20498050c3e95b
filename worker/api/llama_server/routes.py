"""POST /infill, POST /completion, and llama-server's other routes that write."""

from __future__ import annotations

from typing import Any

from litestar import post
from litestar.types import ASGIApp

from worker.api.described import EVENTS, GENERATION, JSON, PROMPT, Api, Described
from worker.api.intake.body import HttpRequest
from worker.api.intake.bounds import check_alternatives, stops_of, tokens_of
from worker.api.intake.generation import Generation, run
from worker.api.intake.origins import Asker
from worker.api.intake.preparing import Preparing
from worker.api.intake.sampling import sampling_of
from worker.api.llama_server.exchange import WritingExchange
from worker.api.llama_server.prompts import PARAM, place_of, prompts_of
from worker.api.llama_server.schemas import (
    InfillRequest,
    WritingFields,
    WritingRequest,
    Written,
    WrittenPart,
)
from worker.api.llama_server.slots import ACTIONS, SlotReply, slot_action
from worker.engine.request import GenerationParams
from worker.errors import NotSupportedError, RequestError
from worker.http.replies import ErrorReply
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


_PLACE: dict[str, Any] = {
    "input_prefix": "Tim had a red ball. ",
    "prompt": "Once ",
    "input_suffix": " They were happy.",
    "n_predict": 12,
    "temperature": 0,
}
_STORY: dict[str, Any] = {"prompt": "Once upon a time", "n_predict": 12, "temperature": 0}

API = Api(
    name="llama-server",
    text="A text behind another or between two, as llama-server's own clients ask for it.",
    routes=(
        Described(
            handler=completion,
            asker=Asker.NAMED,
            takes=WritingRequest,
            needs=("prompt",),
            gives={JSON: (Written, list, dict), EVENTS: (WrittenPart, Written, ErrorReply)},
            refuses=(*PROMPT, *GENERATION),
            done=False,
            notes="Several prompts give a list. With `response_fields` answers have only these.",
            examples={
                "text": _STORY,
                "stream": {**_STORY, "stream": True},
                "several": {**_STORY, "prompt": ["Once upon a time", [1, 40, "One day"]]},
                "fields": {**_STORY, "response_fields": ["content", "timings/prompt_n"]},
            },
        ),
        Described(
            handler=infill,
            asker=Asker.NAMED,
            takes=InfillRequest,
            needs=("input_prefix", "input_suffix"),
            gives={JSON: (Written, dict), EVENTS: (WrittenPart, Written, ErrorReply)},
            refuses=(
                *PROMPT,
                NotSupportedError("The model has no infill tokens."),
                *GENERATION,
            ),
            done=False,
            notes="With `response_fields` the answer has only these.",
            examples={
                "place": _PLACE,
                "stream": {**_PLACE, "stream": True},
                "other files": {
                    **_PLACE,
                    "input_extra": [{"filename": "sue.txt", "text": "Sue had a blue ball."}],
                    "response_fields": ["content", "timings/prompt_n"],
                },
            },
        ),
        Described(
            handler=slot_action,
            asker=Asker.OWN,
            gives={JSON: SlotReply},
            params={"slot_id": "A number from 0."},
            queries={"action": ", ".join(ACTIONS)},
            refuses=(
                RequestError("There is no such slot, action or file."),
                NotSupportedError("--slot-save-path names no folder."),
            ),
            notes="All but `erase` read a body: `filename`, a name below --slot-save-path.",
        ),
    ),
)
