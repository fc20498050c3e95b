"""The defaults of requests: what the operator says, and what no model can hold."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cases import for_each
from worker.demo import MODEL_PATH
from worker.errors import UsageError
from worker.lifecycle.default_sampling import (
    changed_sampling,
    check_defaults,
    default_constraint,
    default_sampling,
)
from worker.model.config import load_config
from worker.settings import Settings

CONFIG = load_config(MODEL_PATH)


@for_each(
    ("fields", "why"),
    [
        ({"grammar": "root ::= ("}, "The grammar of --grammar ends too early"),
        ({"json_schema": {"type": "nonsense"}}, "--json-schema has a type that is none of"),
        ({"json_schema": {"$ref": "#/nowhere"}}, "--json-schema refers to a place"),
        ({"json_schema": {"type": "array", "minItems": 10**9}}, "--json-schema has a minItems"),
        ({"logit_bias": ((2048, 1.0),)}, "--logit-bias names token 2048, .* from 0 to 2047"),
    ],
)
def test_what_the_model_cannot_hold_is_refused_before_it_loads(
    fields: dict[str, Any], why: str
) -> None:
    """Each names its option and the next step, instead of failing each request."""
    with pytest.raises(UsageError, match=why) as error:
        check_defaults(CONFIG, Settings(**fields))
    assert error.value.hint


@for_each(
    "fields",
    [
        {},
        {"grammar": 'root ::= "a"'},
        {"grammar": 'start: "a"'},
        {"json_schema": {"type": "object"}},
        {"json_schema": {}},
        {"logit_bias": ((2047, 1.0),)},
    ],
)
def test_what_it_can_hold_is_a_default_of_all_requests(fields: dict[str, Any]) -> None:
    """It stands in the sampling that requests change, and no constraint in what is reported."""
    settings = Settings(**fields)
    check_defaults(CONFIG, settings)
    found = default_sampling(CONFIG, settings)
    assert (found.constraint is not None) == bool(fields.keys() & {"grammar", "json_schema"})
    assert found.constraint == default_constraint(settings)
    assert "constraint" not in changed_sampling(found)
