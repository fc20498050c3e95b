"""/v1/responses: an answer in items, which is stored for a while."""

from __future__ import annotations

from typing import Any, cast

import msgspec
from litestar import Response, delete, get, post
from litestar.types import ASGIApp

from worker.account import NOBODY
from worker.api.answer.errors import json_response
from worker.api.answer.kept_stream import KeptStreams, StreamReading, number_after
from worker.api.answer.usage import InputTokens
from worker.api.described import (
    EVENTS,
    JSON,
    Api,
    Described,
)
from worker.api.intake.body import HttpRequest, read_json
from worker.api.intake.chat.asking import ask
from worker.api.intake.facts import ModelFacts
from worker.api.intake.origins import Asker
from worker.api.intake.preparing import Preparing
from worker.api.responses.chat_input import InputItem, chat_input_of
from worker.api.responses.exchange import ResponseExchange
from worker.api.responses.items import RESPONSE_EVENTS, ResponseReply
from worker.api.responses.recorder import Recorder
from worker.api.responses.schemas import ResponseRequest
from worker.api.responses.store import ResponseStore
from worker.chat.format import ChatFormat
from worker.errors import NotFoundError, NotSupportedError, RequestError
from worker.requests.record import current, current_owner

_PAGE = 100


class ListedInput(msgspec.Struct):
    """A page of items, the last one first, unless another order is asked for."""

    data: list[InputItem]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: str = "list"


class ResponseDeleted(msgspec.Struct):
    """It is not stored any more."""

    id: str
    object: str = "response"
    deleted: bool = True


@post("/v1/responses", status_code=200, summary="Answer in items (OpenAI Responses)")
async def responses(
    request: HttpRequest,
    facts: ModelFacts,
    chat: ChatFormat,
    preparing: Preparing,
    stored: ResponseStore,
    streams: KeptStreams,
    recorder: Recorder | None,
) -> ASGIApp:
    """The whole response at once, or its events."""
    body = await preparing.body(request, ResponseRequest)
    whole, own = stored.whole(body, current_owner())
    generation, stream = await preparing.run(
        request, whole, facts, lambda budget: ask(chat_input_of(whole, facts, budget), chat, facts)
    )
    exchange = ResponseExchange(generation, stream, body, facts, stored, own)
    if not body.background:
        return exchange
    if recorder is None:
        kept = exchange.keep(streams, outlives=True)
    else:
        record = current()
        account = NOBODY if record is None else record.account
        kept = await recorder.keep(exchange, streams, whole, own, account)
    if body.stream:
        return StreamReading(streams, kept, kept.first)
    return _application(json_response(exchange.reply))


@post("/v1/responses/input_tokens", status_code=200, summary="Tokens of a prompt (Responses)")
async def input_tokens(
    request: HttpRequest,
    facts: ModelFacts,
    chat: ChatFormat,
    preparing: Preparing,
    stored: ResponseStore,
) -> Response[bytes]:
    """As the same body has them as a prompt, also where the context does not hold them."""
    body, _ = stored.whole(await read_json(request, ResponseRequest), current_owner())
    generation = await preparing.aside(
        request,
        body,
        lambda budget: ask(chat_input_of(body, facts, budget), chat, facts, must_fit=False),
    )
    return json_response(InputTokens(generation.num_prompt_tokens))


@get("/v1/responses/{response_id:str}", summary="A stored response")
async def stored_response(
    response_id: str,
    stored: ResponseStore,
    streams: KeptStreams,
    stream: str = "",
    starting_after: str = "",
) -> ASGIApp:
    """As it is by now, or its events."""
    owner = current_owner()
    if stream.lower() in ("1", "true"):
        try:
            kept = streams.get(response_id.removeprefix("resp_"), owner)
        except NotFoundError:
            stored.get(response_id, owner)
            raise NotFoundError(
                f"The events of {response_id[:100]!r} are not kept, or not any more.",
                hint="Leave out `stream` to get the response.",
                code="stream_not_found",
            ) from None
        return StreamReading(streams, kept, number_after(starting_after, "starting_after"))
    reply = stored.get(response_id, owner).reply
    return _application(Response(reply, media_type="application/json"))


def _application(response: Response[bytes]) -> ASGIApp:
    # Litestar takes a Response where a handler may return an application.
    return cast("ASGIApp", response)


@get("/v1/responses/{response_id:str}/input_items", summary="Input of a stored response")
async def listed_input(
    response_id: str, stored: ResponseStore, after: str = "", limit: str = "20", order: str = "desc"
) -> Response[bytes]:
    """Its own input, without that of the responses before it."""
    if not limit.isdecimal() or not 1 <= int(limit[:9]) <= _PAGE:
        raise RequestError(f"limit must be from 1 to {_PAGE}.", param="limit")
    if order not in ("asc", "desc"):
        raise RequestError("order must be asc or desc.", param="order")
    items = stored.inputs(response_id, current_owner())
    if order == "desc":
        items.reverse()
    ids = [item["id"] for item in items]
    if after and after not in ids:
        raise RequestError("after names no item of this input.", param="after")
    start = ids.index(after) + 1 if after else 0
    page = items[start : start + int(limit)]
    first, last = (page[0]["id"], page[-1]["id"]) if page else (None, None)
    has_more = len(items) > start + len(page)
    return json_response(ListedInput(page, first, last, has_more))


@delete("/v1/responses/{response_id:str}", status_code=200, summary="Delete a stored response")
async def delete_response(
    response_id: str, stored: ResponseStore, recorder: Recorder | None
) -> Response[bytes]:
    """One that runs goes on."""
    stored.drop(response_id, current_owner())
    if recorder is not None:
        await recorder.drop(response_id.removeprefix("resp_"))
    return json_response(ResponseDeleted(response_id))


@post("/v1/responses/{response_id:str}/cancel", status_code=200, summary="Cancel a response")
async def cancel_response(response_id: str, stored: ResponseStore) -> Response[bytes]:
    """One that has ended stays as it is."""
    return Response(stored.cancel(response_id, current_owner()), media_type="application/json")


@post("/v1/conversations", summary="Not here (OpenAI Conversations)")
async def conversations() -> Response[bytes]:
    """Responses are stored, conversations are not."""
    raise NotSupportedError(
        "This worker stores no conversations.", hint="Send previous_response_id to /v1/responses."
    )


_SUM: dict[str, Any] = {"input": "What is 3 plus 4?", "temperature": 0, "max_output_tokens": 20}
_ID = {"response_id": "Of a stored response."}

API = Api(
    name="Responses",
    text="OpenAI's Responses API. A request holds its conversation, or goes on from a stored one.",
    routes=(
        Described(
            handler=responses,
            asker=Asker.NAMED,
            takes=ResponseRequest,
            needs=("input",),
            gives={JSON: ResponseReply, EVENTS: RESPONSE_EVENTS},
            named=True,
            examples={
                "question": _SUM,
                "stream": {**_SUM, "stream": True},
                "items": {
                    "instructions": "You answer in one sentence.",
                    "input": [
                        {"role": "user", "content": "What is 3 plus 4?"},
                        {"role": "assistant", "content": "3 plus 4 is 7."},
                        {"role": "user", "content": [{"type": "input_text", "text": "And 5?"}]},
                    ],
                    "max_output_tokens": 20,
                },
            },
        ),
        Described(
            handler=input_tokens,
            asker=Asker.NAMED,
            takes=ResponseRequest,
            needs=("input",),
            gives={JSON: InputTokens},
            examples={"question": {"input": "What is 3 plus 4?"}},
        ),
        Described(
            handler=stored_response,
            gives={JSON: ResponseReply, EVENTS: RESPONSE_EVENTS},
            named=True,
            params=_ID,
            queries={
                "stream": "`true`: its events, if it was asked for with `background` or "
                "`X-Resume: on`.",
                "starting_after": "The `sequence_number` of an event: those behind it.",
            },
        ),
        Described(
            handler=listed_input,
            gives={JSON: ListedInput},
            params=_ID,
            queries={
                "after": "The id of an item: those behind it.",
                "limit": "Items at most, from 1 to 100.",
                "order": "`asc`, or the last one first.",
            },
        ),
        Described(
            handler=delete_response,
            asker=Asker.NAMED,
            gives={JSON: ResponseDeleted},
            params=_ID,
        ),
        Described(
            handler=cancel_response,
            asker=Asker.NAMED,
            gives={JSON: ResponseReply},
            params=_ID,
        ),
        Described(
            handler=conversations,
            asker=Asker.NAMED,
            gives={},
        ),
    ),
)
