"""What an answer must be, where an API has another field for it than response_format."""

from __future__ import annotations

from typing import Any

import msgspec

from worker.api.common.sampling import SamplingFields, sampling_of
from worker.engine.sampling import SamplingParams
from worker.errors import RequestError
from worker.lifecycle.loaded import Loaded

_FIELD = "response_format"


def json_of(schema: dict[str, Any] | None) -> dict[str, Any]:
    """The form of JSON that a schema describes; None: of any object."""
    if schema is None:
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": {"schema": schema}}


def sampling_in_form(
    fields: SamplingFields, form: dict[str, Any] | None, param: str, loaded: Loaded
) -> SamplingParams:
    """As `sampling_of`, with a form. Raises RequestError that names the client's field `param`."""
    if form is None:
        return sampling_of(fields, loaded)
    try:
        return sampling_of(msgspec.structs.replace(fields, response_format=form), loaded)
    except RequestError as error:
        if error.param != _FIELD:
            raise
        message = error.message.replace(_FIELD, param)
        hint = None if _FIELD in (error.hint or "") else error.hint  # it names a place in there
        raise RequestError(message, param=param, hint=hint, code=error.code) from None
