"""OpenAI's Responses, for the description of the API."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from worker.api.common.described import EVENTS, JSON, Api, Described
from worker.api.common.refusals import BODY, CHAT, FORMED, GENERATION, PROMPT, TOKENIZED
from worker.api.common.usage import InputTokens
from worker.api.responses import events
from worker.api.responses.items import ResponseReply
from worker.api.responses.routes import (
    ListedInput,
    ResponseDeleted,
    cancel_response,
    conversations,
    delete_response,
    input_tokens,
    listed_input,
    responses,
    stored_response,
)
from worker.api.responses.schemas import ResponseRequest
from worker.api.responses.store import UNKNOWN
from worker.errors import NotFoundError, NotSupportedError, RequestError

_SUM: dict[str, Any] = {"input": "What is 3 plus 4?", "temperature": 0, "max_output_tokens": 20}
_ID = {"response_id": Annotated[str, Meta(description="Of a stored response.")]}
_NOT_STORED = NotFoundError("It is not stored, or not any more.")
_UNKNOWN = NotFoundError("What is referred to is not stored, or not any more.", code=UNKNOWN)
_EVENTS = (
    events.ResponseCreated, events.ResponseInProgress, events.ItemAdded, events.PartAdded,
    events.OutputTextDelta, events.OutputTextDone, events.ReasoningTextDelta,
    events.ReasoningTextDone, events.SummaryPartAdded, events.SummaryTextDelta,
    events.SummaryTextDone, events.SummaryPartDone, events.ArgumentsDelta, events.ArgumentsDone,
    events.PartDone, events.ItemDone, events.ResponseCompleted, events.ResponseIncomplete,
    events.ErrorEvent, events.ResponseFailed,
)  # fmt: skip

API = Api(
    name="Responses",
    text="OpenAI's Responses API. A request holds its conversation, or goes on from a stored one.",
    routes=(
        Described(
            handler=responses,
            takes=ResponseRequest,
            needs=("input",),
            gives={JSON: ResponseReply, EVENTS: _EVENTS},
            refuses=(*BODY, *PROMPT, *CHAT, *GENERATION, _UNKNOWN),
            named=True,
            notes="With `stream` events come as they are made.",
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
            takes=ResponseRequest,
            needs=("input",),
            gives={JSON: InputTokens},
            refuses=(*BODY, *TOKENIZED, *CHAT, *FORMED, _UNKNOWN),
            examples={"question": {"input": "What is 3 plus 4?"}},
        ),
        Described(
            handler=stored_response,
            gives={JSON: ResponseReply},
            params=_ID,
            queries={"stream": Annotated[str, Meta(description="`true` is refused.")]},
            refuses=(_NOT_STORED, RequestError("Its events are asked for.")),
        ),
        Described(
            handler=listed_input,
            gives={JSON: ListedInput},
            params=_ID,
            queries={
                "after": Annotated[str, Meta(description="The id of an item: those behind it.")],
                "limit": Annotated[str, Meta(description="Items at most, from 1 to 100.")],
                "order": Annotated[str, Meta(description="`asc`, or the last one first.")],
            },
            refuses=(_NOT_STORED, RequestError("limit is out of its range.")),
        ),
        Described(
            handler=delete_response,
            gives={JSON: ResponseDeleted},
            params=_ID,
            refuses=(_NOT_STORED,),
        ),
        Described(
            handler=cancel_response, gives={JSON: ResponseReply}, params=_ID, refuses=(_NOT_STORED,)
        ),
        Described(
            handler=conversations,
            gives={},
            refuses=(NotSupportedError("Conversations are not stored."),),
        ),
    ),
)
