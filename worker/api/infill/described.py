"""Infill, for the description of the API."""

from __future__ import annotations

from typing import Any

from worker.api.common.described import EVENTS, JSON, Api, Described
from worker.api.common.refusals import BODY, GENERATION, PROMPT
from worker.api.infill.routes import infill
from worker.api.infill.schemas import Infilled, InfillPart, InfillRequest
from worker.errors import NotSupportedError
from worker.http.replies import ErrorReply

_PLACE: dict[str, Any] = {
    "input_prefix": "Tim had a red ball. ",
    "prompt": "Once ",
    "input_suffix": " They were happy.",
    "n_predict": 12,
    "temperature": 0,
}

API = Api(
    name="Infill",
    text="A text between two others, as editors ask llama-server for it.",
    routes=(
        Described(
            handler=infill,
            takes=InfillRequest,
            needs=("input_prefix", "input_suffix"),
            gives={JSON: (Infilled, dict), EVENTS: (InfillPart, Infilled, ErrorReply)},
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
    ),
)
