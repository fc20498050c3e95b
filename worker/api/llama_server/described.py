"""llama-server's own routes that write, for the description of the API."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from worker.api.common.described import EVENTS, JSON, Api, Described
from worker.api.common.refusals import BODY, GENERATION, PROMPT
from worker.api.llama_server.routes import completion, infill
from worker.api.llama_server.schemas import InfillRequest, WritingRequest, Written, WrittenPart
from worker.api.llama_server.slots import ACTIONS, SlotReply, slot_action
from worker.errors import ForbiddenError, NotSupportedError, RequestError
from worker.http.replies import ErrorReply

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
            takes=WritingRequest,
            needs=("prompt",),
            gives={JSON: (Written, list, dict), EVENTS: (WrittenPart, Written, ErrorReply)},
            refuses=(*BODY, *PROMPT, *GENERATION),
            done=False,
            notes="Several prompts give a list. With `stream` events come as they are made; with "
            "`response_fields` answers have only these.",
            examples={
                "text": _STORY,
                "stream": {**_STORY, "stream": True},
                "several": {**_STORY, "prompt": ["Once upon a time", [1, 40, "One day"]]},
                "fields": {**_STORY, "response_fields": ["content", "timings/prompt_n"]},
            },
        ),
        Described(
            handler=infill,
            takes=InfillRequest,
            needs=("input_prefix", "input_suffix"),
            gives={JSON: (Written, dict), EVENTS: (WrittenPart, Written, ErrorReply)},
            refuses=(
                *BODY,
                *PROMPT,
                NotSupportedError("The model has no infill tokens."),
                *GENERATION,
            ),
            done=False,
            notes="With `stream` events come as they are made; with `response_fields` the answer "
            "has only these.",
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
            gives={JSON: SlotReply},
            params={"slot_id": Annotated[str, Meta(description="A number from 0.")]},
            queries={"action": Annotated[str, Meta(description=", ".join(ACTIONS))]},
            refuses=(
                RequestError("There is no such slot, action or file."),
                ForbiddenError("Without a key only pages of this machine may ask."),
                NotSupportedError("--slot-save-path names no folder."),
            ),
            notes="All but `erase` read a body: `filename`, a name below --slot-save-path.",
        ),
    ),
)
