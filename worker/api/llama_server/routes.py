"""llama-server's routes: texts, embeddings, tokens, slots, adapters and properties."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from litestar import Response, get, post
from litestar.types import ASGIApp

from worker.api.answer.errors import json_response
from worker.api.answer.usage import TemplateReply
from worker.api.answer.vectors import VectorExchange
from worker.api.described import EVENTS, JSON, Api, Described
from worker.api.intake.adapters import AdapterScale, scales_of
from worker.api.intake.body import HttpRequest, read_json
from worker.api.intake.chat.asking import ask
from worker.api.intake.chat.chat_request import ChatRequest, chat_input_of
from worker.api.intake.embeddings import finish, vectors_request
from worker.api.intake.facts import ModelFacts
from worker.api.intake.origins import Asker
from worker.api.intake.preparing import Preparing
from worker.api.intake.texts import shows
from worker.api.llama_server.exchange import WritingExchange
from worker.api.llama_server.prompts import completion_of, infill_of
from worker.api.llama_server.props import Props, SlotInfo, props_of, slots_of
from worker.api.llama_server.schemas import (
    AdapterEntry,
    InfillRequest,
    LlamaEmbedding,
    LlamaEmbeddingRequest,
    SlotFileName,
    SlotReply,
    Success,
    WritingRequest,
    Written,
    WrittenPart,
)
from worker.api.llama_server.tokens import (
    DetokenizeReply,
    DetokenizeRequest,
    TokenizeReply,
    TokenizeRequest,
    TokenizerInfo,
    detokenize,
    info_of,
    tokenize,
)
from worker.budget import UNBOUNDED
from worker.chat.format import ChatFormat
from worker.errors import RequestError, UnavailableError
from worker.http.replies import ErrorReply
from worker.lifecycle.loaded import Loaded
from worker.lifecycle.worker import Worker


@post("/infill", status_code=200, summary="Write between two texts (llama-server)")
async def infill(request: HttpRequest, facts: ModelFacts, preparing: Preparing) -> ASGIApp:
    """The whole text at once, or its events."""
    body = await preparing.body(request, InfillRequest)
    generation, stream = await preparing.run(
        request, body, facts, lambda budget: infill_of(body, facts, budget)
    )
    return WritingExchange(generation, stream, body, facts)


@post(["/completion", "/completions"], status_code=200, summary="Continue a text (llama-server)")
async def completion(request: HttpRequest, facts: ModelFacts, preparing: Preparing) -> ASGIApp:
    """The whole text at once, or its events; a list of whole texts for several prompts."""
    body = await preparing.body(request, WritingRequest)
    generation, stream = await preparing.run(
        request, body, facts, lambda budget: completion_of(body, facts, budget)
    )
    return WritingExchange(generation, stream, body, facts)


@post("/apply-template", status_code=200, summary="Messages to the prompt's text")
async def apply_template(
    request: HttpRequest, facts: ModelFacts, chat: ChatFormat, preparing: Preparing
) -> Response[bytes]:
    """What the model would read, also where its context does not hold it."""
    body = await read_json(request, ChatRequest)
    generation = await preparing.aside(
        request,
        body,
        lambda budget: ask(chat_input_of(body, facts, budget), chat, facts, must_fit=False),
    )
    return json_response(TemplateReply(generation.prompts[0].text))


@post(["/embedding", "/embeddings"], status_code=200, summary="Embeddings (llama-server)")
async def llama_embeddings(
    request: HttpRequest, facts: ModelFacts, preparing: Preparing
) -> ASGIApp:
    """A list for each text: of its one vector, or with --pooling none of those of its tokens."""
    body = await preparing.body(request, LlamaEmbeddingRequest)
    param = "content" if body.input is None else "input"
    wanted = await preparing.texts(
        request,
        body,
        facts,
        lambda budget: vectors_request(body, facts, budget, param=param),
        blocks=shows(getattr(body, param)),
    )
    usual = -1 if wanted.per_token else 2

    def reply(vectors: Sequence[np.ndarray]) -> list[LlamaEmbedding]:
        made = (np.atleast_2d(finish(vector, body, facts, usual)) for vector in vectors)
        return [LlamaEmbedding(place, rows.tolist()) for place, rows in enumerate(made)]

    return VectorExchange(wanted, preparing, request.url.path, reply)


@get("/lora-adapters", summary="The adapters (llama-server)")
async def lora_adapters(loaded: Loaded) -> Response[bytes]:
    """All of them, by number."""
    adapters = loaded.adapters
    return json_response(
        [
            AdapterEntry(
                each.id,
                each.name,
                Path(each.config.files[0].path).name,
                adapters.scales.get(each.id, 0.0),
                each.config.rank,
                each.config.invocation,
            )
            for each in adapters.all
        ]
    )


@post("/lora-adapters", status_code=200, summary="Adapters that apply by default")
async def scale_adapters(request: HttpRequest, loaded: Loaded) -> Response[bytes]:
    """For requests from now on. Adapters that are not named count no more."""
    scales = scales_of(await read_json(request, list[AdapterScale])) or {}
    loaded.adapters.check(scales)
    loaded.adapters.scales = scales
    return json_response(Success())


@get("/props", summary="Properties of the worker")
async def props(worker: Worker, loaded: Loaded) -> Response[bytes]:
    """llama-server's shape."""
    return json_response(props_of(worker, loaded))


@get("/slots", summary="State of each slot")
async def slots(
    worker: Worker, loaded: Loaded, fail_on_no_slot: str | None = None
) -> Response[bytes]:
    """llama-server's shape; 503 where one was asked for and none is idle."""
    found = slots_of(worker, loaded)
    if fail_on_no_slot and all(slot.is_processing for slot in found):
        raise UnavailableError("no slot available", code="no_slot")
    return json_response(found)


ACTIONS = ("save", "restore", "erase")
_DIGITS = 9


@post("/slots/{slot_id:str}", status_code=200, summary="Save, restore or erase (llama-server)")
async def slot_action(
    request: HttpRequest, slot_id: str, loaded: Loaded, action: str = ""
) -> Response[bytes]:
    """A file holds one sequence, and is restored by workers with the same model and settings."""
    number = int(slot_id) if slot_id.isdecimal() and len(slot_id) < _DIGITS else -1
    loaded.slots.check(number, "id", asked=slot_id)
    if action not in ACTIONS:
        raise RequestError(f"action must be one of {', '.join(ACTIONS)}.", param="action")
    if action == "erase":
        return json_response(SlotReply(id_slot=number, n_erased=await loaded.slots.erase(number)))
    name = (await read_json(request, SlotFileName)).filename
    done: dict[str, Any] = {"id_slot": number, "filename": name}
    if action == "save":
        moved = await loaded.slots.save(number, name)
        done |= {"n_saved": moved.num_tokens, "n_written": moved.num_bytes}
    else:
        moved = await loaded.slots.restore(number, name)
        done |= {"n_restored": moved.num_tokens, "n_read": moved.num_bytes}
    return json_response(SlotReply(**done, timings={f"{action}_ms": moved.ms}))


# What takes longer than handing it to a thread and back.
_INLINE = 4096


@post("/tokenize", status_code=200, summary="Text to token ids")
async def tokenize_text(
    request: HttpRequest, preparing: Preparing, facts: ModelFacts
) -> Response[bytes]:
    """With their texts where those are asked for."""
    body = await read_json(request, TokenizeRequest)
    if len(body.content or body.prompt or "") <= _INLINE:
        return json_response(tokenize(body, facts, UNBOUNDED))
    found = await preparing.aside(request, body, lambda budget: tokenize(body, facts, budget))
    return json_response(found)


@post("/detokenize", status_code=200, summary="Token ids to text")
async def detokenize_tokens(
    request: HttpRequest, preparing: Preparing, facts: ModelFacts
) -> Response[bytes]:
    """Under both names."""
    body = await read_json(request, DetokenizeRequest)
    if len(body.tokens or ()) <= _INLINE:
        return json_response(detokenize(body, facts.vocab.spelled))
    found = await preparing.aside(request, body, lambda _: detokenize(body, facts.vocab.spelled))
    return json_response(found)


@get("/tokenizer_info", summary="The tokenizer's special tokens and rules")
async def tokenizer_info(facts: ModelFacts) -> Response[bytes]:
    """What evaluation harnesses ask for."""
    return json_response(info_of(facts))


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
    text="Texts, embeddings, tokens, slots, adapters and properties, for llama-server's own "
    "clients.",
    routes=(
        Described(
            handler=completion,
            asker=Asker.NAMED,
            takes=WritingRequest,
            needs=("prompt",),
            gives={JSON: (Written, list, dict), EVENTS: (WrittenPart, Written, ErrorReply)},
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
            handler=apply_template,
            asker=Asker.NAMED,
            takes=ChatRequest,
            needs=("messages",),
            gives={JSON: TemplateReply},
            examples={"question": {"messages": [{"role": "user", "content": "What is 3 plus 4?"}]}},
        ),
        Described(
            handler=llama_embeddings,
            asker=Asker.NAMED,
            takes=LlamaEmbeddingRequest,
            gives={JSON: list[LlamaEmbedding]},
            notes="Of embedding models, and of others with `--pooling`.",
            examples={
                "text": {"content": "Once it rains."},
                "as it is": {
                    "input": ["Once it rains.", "The sky is clear."],
                    "embd_normalize": -1,
                },
            },
        ),
        Described(
            handler=slot_action,
            asker=Asker.OWN,
            wakes=True,
            gives={JSON: SlotReply},
            params={"slot_id": "A number from 0."},
            queries={"action": ", ".join(ACTIONS)},
            notes="All but `erase` read a body: `filename`, a name below --slot-save-path.",
        ),
        Described(
            handler=tokenize_text,
            asker=Asker.NAMED,
            takes=TokenizeRequest,
            gives={JSON: TokenizeReply},
            examples={
                "with pieces": {"content": "Once upon a time", "with_pieces": True},
                "as a prompt": {"prompt": "Once upon a time", "return_token_strs": True},
            },
        ),
        Described(
            handler=detokenize_tokens,
            asker=Asker.NAMED,
            takes=DetokenizeRequest,
            needs=("tokens",),
            gives={JSON: DetokenizeReply},
            examples={"two tokens": {"tokens": [1, 400]}},
        ),
        Described(handler=tokenizer_info, gives={JSON: TokenizerInfo}),
        Described(handler=props, gives={JSON: Props}),
        Described(handler=lora_adapters, gives={JSON: list[AdapterEntry]}),
        Described(
            handler=scale_adapters,
            asker=Asker.OWN,
            wakes=False,
            takes=list[AdapterScale],
            gives={JSON: Success},
            examples={"none": []},
            notes="404 for a number that /lora-adapters does not have.",
        ),
        Described(
            handler=slots,
            gives={JSON: list[SlotInfo]},
            queries={"fail_on_no_slot": "Anything: 503 where no slot is idle."},
        ),
    ),
)
