"""Each limit of the table is met: what is beyond is refused as it says, and the next is served."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support import http
from tests.support.cases import for_each
from tests.support.programs.processes import Server, serving
from worker.demo import MODEL_PATH
from worker.errors import RequestError
from worker.grammar.constraint import Constraint
from worker.limits import LARK, REQUEST_ID, Limit, table
from worker.settings import OPTIONS

DOCS = Path(__file__).parent.parent.parent / "docs" / "size-limits.md"
TABLE = table()

Body = dict[str, Any]


def asked(**fields: Any) -> Body:
    """A completion with these fields."""
    return {"prompt": "a", "max_tokens": 1, **fields}


def schema(value: Any) -> Body:
    return asked(json_schema=value)


def nested(depth: int) -> Any:
    """Lists in each other."""
    found: Any = {"type": "array"}
    for _ in range(depth):
        found = {"type": "array", "items": found}
    return found


def chained(count: int) -> Any:
    """Definitions that refer to the next one."""
    found: Any = {
        f"d{i}": {"type": "array", "items": {"$ref": f"#/$defs/d{i + 1}"}} for i in range(count)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**found, f"d{count}": {"type": "null"}}}


def rules(count: int) -> str:
    """A grammar in Lark of so many rules."""
    return "\n".join(["start: r1", *(f'r{i}: "a"' for i in range(1, count))])


def inside(depth: int) -> str:
    """A grammar of so many rules in each other, the last of which leads to the first."""
    rules = (f'r{i} ::= "(" r{i + 1} ")" | "x"' for i in range(depth))
    return "\n".join(["root ::= r0", *rules, f'r{depth} ::= "(" root ")" | "y"'])


def branches(count: int) -> str:
    """A rule in Lark of so many alternatives."""
    return "start: " + " | ".join(["x x"] * count) + '\nx: "a"'


def chat(*messages: str, **fields: Any) -> Body:
    said = [{"role": "user", "content": text} for text in messages]
    return {"messages": said, "max_tokens": 1, **fields}


def tool(number: int) -> Body:
    return {"type": "function", "function": {"name": f"t{number}", "parameters": {}}}


def job(**fields: Any) -> Body:
    return {"prompt": "a", "max_tokens": 1, **fields}


DECIDE = "/v1/decisions"
TRUE: Body = {"type": "predicate", "instructions": "It rains."}
WHICH: Body = {"type": "choice", "instructions": "Which?"}
SCALE: Body = {"type": "score", "instructions": "How?"}


def decision(*questions: Body, data: Any = None) -> Body:
    """Questions about a text, or one about JSON."""
    part = [{"type": "input_json", "data": data}]
    given = "a" if data is None else [{"role": "user", "content": part}]
    return {"input": given, "questions": list(questions or [TRUE])}


def inner(value: Any, depth: int) -> Any:
    """The value in so many objects."""
    for _ in range(depth):
        value = {"a": value}
    return value


# Limit -> (path, the body of a request of so much)
MET: dict[str, tuple[str, Callable[[int], Body]]] = {
    "TEXT": ("/tokenize", lambda n: {"content": "a" * n}),
    "TOKENS": ("/detokenize", lambda n: {"tokens": [1] * n}),
    "MESSAGES": ("/v1/chat/completions", lambda n: chat(*["a"] * n)),
    "TOOLS": ("/v1/chat/completions", lambda n: chat("a", tools=[tool(i) for i in range(n)])),
    "SEQUENCES": ("/v1/completions", lambda n: asked(n=n)),
    "STOPS": ("/v1/completions", lambda n: asked(stop=[f"{i}." for i in range(n)])),
    "STOP": ("/v1/completions", lambda n: asked(stop=["a" * n])),
    "LOGPROBS": ("/v1/completions", lambda n: asked(logprobs=n)),
    "PRIORITY": ("/v1/completions", lambda n: asked(priority=n)),
    "BIAS": ("/v1/completions", lambda n: asked(logit_bias={"5": -n})),
    "BREAKERS": ("/v1/completions", lambda n: asked(dry_sequence_breakers=["a"] * n)),
    "BREAKER": ("/v1/completions", lambda n: asked(dry_sequence_breakers=["a" * n])),
    "BANNED": ("/v1/completions", lambda n: asked(banned_strings=[f"{i:03}" for i in range(n)])),
    "BANNED_LENGTH": ("/v1/completions", lambda n: asked(banned_strings="#" * n)),
    "SCHEMA": ("/v1/completions", lambda n: schema({"enum": ["a" * n]})),
    "REGEX": ("/v1/completions", lambda n: asked(guided_regex="a" * n)),
    "OPTIONAL": ("/v1/completions", lambda n: asked(guided_regex="(a?b)" * n)),
    "GRAMMAR": ("/v1/completions", lambda n: asked(grammar='root ::= "a"' + " " * (n - 12))),
    "CHOICES": ("/v1/completions", lambda n: asked(guided_choice=[str(i) for i in range(n)])),
    "ELEMENTS": ("/v1/completions", lambda n: asked(grammar=f'root ::= ("a"{{{n // 20}}}){{21}}')),
    "NESTED": ("/v1/completions", lambda n: asked(grammar=inside(n))),
    "REPEATS": ("/v1/completions", lambda n: asked(grammar=f'root ::= "a"{{{n}}}')),
    "SCHEMA_DEPTH": ("/v1/completions", lambda n: schema(nested(n))),
    "REFERRED_DEPTH": ("/v1/completions", lambda n: schema(chained(n))),
    "SUBSCHEMAS": ("/v1/completions", lambda n: schema({"anyOf": [{"const": 1}] * n})),
    "PATTERNED": (
        "/v1/completions",
        lambda n: schema({"patternProperties": {f"^a{i}$": {} for i in range(n)}}),
    ),
    "PATTERNS": (
        "/v1/completions",
        lambda n: schema({"type": "string", "allOf": [{"pattern": f"a{i}"} for i in range(n)]}),
    ),
    "COUNT": ("/v1/completions", lambda n: schema({"type": "array", "minItems": n})),
    "EXACT": ("/v1/completions", lambda n: schema({"type": "number", "minimum": n})),
    "INTEGER": ("/v1/completions", lambda n: schema({"const": n})),
    "BRANCHES": ("/v1/completions", lambda n: asked(grammar=branches(n))),
    "LARK_PARTS": ("/v1/completions", lambda n: asked(grammar=rules(n))),
    "MULTIPLES": ("/v1/completions", lambda n: schema({"type": "integer", "multipleOf": n})),
    "EMBEDDED": ("/v1/embeddings", lambda n: {"input": ["a"] * n}),
    "TOKEN_VECTORS": ("/pooling", lambda n: {"input": [[5] * 1024] * 15 + [[5] * (n - 15 * 1024)]}),
    "QUESTIONS": (DECIDE, lambda n: decision(*[TRUE] * n)),
    "OPTIONS": (
        DECIDE,
        lambda n: decision({**WHICH, "choices": [{"value": str(i)} for i in range(n)]}),
    ),
    "LEVELS": (
        DECIDE,
        lambda n: decision({**SCALE, "levels": [{"label": str(i)} for i in range(n)]}),
    ),
    "JSON_DEPTH": (DECIDE, lambda n: decision(data=inner({}, n - 1))),
    "JSON_VALUES": (DECIDE, lambda n: decision(data={"a": [1] * (n - 2)})),
    "JSON_BYTES": (DECIDE, lambda n: decision(data={"a": "b" * (n - len('{"a":""}'))})),
    "JOB_PROMPT": ("/execute", lambda n: job(prompt="a" * n)),
    "JOB_STOPS": ("/execute", lambda n: job(stop=[str(i) for i in range(n)])),
    "JOB_STOP": ("/execute", lambda n: job(stop=["a" * n])),
}
# Where so much is still served. Others meet a second bound there: the context, the places of the
# queue, what can be compiled.
SERVED = {
    "TOKENS", "STOPS", "STOP", "LOGPROBS", "PRIORITY", "BIAS", "BREAKERS", "BREAKER", "OPTIONAL",
    "BANNED", "BANNED_LENGTH",
    "GRAMMAR", "CHOICES",
    "REPEATS", "EXACT", "BRANCHES",
    "INTEGER", "LARK_PARTS", "EMBEDDED",
    "JOB_STOPS", "JOB_STOP", "QUESTIONS", "OPTIONS", "LEVELS", "JSON_DEPTH",
}  # fmt: skip
# Limit -> where else it is met
ELSEWHERE = {
    "ADAPTERS": "lifecycle/test_adapters.py::test_so_many_count_at_once",
    "CONNECTIONS": "http/test_connections.py::test_health_gets_in_where_all_are_being_answered",
    "COUNTED": "http/test_wire.py::test_what_no_context_holds_is_reckoned",
    "PIPELINED": "http/test_connections.py::test_requests_before_an_answer_are_few",
    "PATH": "http/test_protocol.py::test_refused",
    "HEADERS": "http/test_protocol.py::test_refused",
    "HOST": "service/test_bad_requests.py::test_the_host_header",
    "RECEIVE": "http/test_connections.py::test_a_body_must_arrive",
    "SEND": "http/test_protocol.py::test_a_connection_that_nobody_reads_is_let_go",
    "DROPPED": "http/test_refusals.py::test_so_much_is_dropped",
    "REQUEST_ID": "service/test_limits.py::test_a_long_id_is_not_taken",
    "BODY": "service/test_bad_requests.py::test_large_body",
    "MEDIA_BODY": "api/media/test_large.py::test_many_large_pictures",
    "BODIES": "http/test_connections.py::test_bodies_are_bounded_together",
    "PARTS": "service/test_bad_requests.py::test_a_body_of_countless_parts",
    "TOKENIZING": "llama/test_text_parts.py::test_a_long_text_is_stopped",
    "TEMPLATE": "api/openai/test_chat.py::test_a_template_that_loops",
    "MADE": "chat/test_template.py::test_no_template_makes_too_much",
    "RANGE": "chat/test_template.py::test_a_range_is_bounded",
    "MEDIA": "api/media/test_refused.py::test_too_many",
    "PIXELS": "api/media/test_refused.py::test_in_the_question",
    "SOUND": "llama/media/test_encoder.py::test_its_length",
    "MEDIUM_TIME": "llama/media/test_encoder.py::test_its_time",
    "MEDIUM_MEMORY": "llama/media/test_encoder.py::test_its_memory",
    "FETCHED": "lifecycle/test_addresses.py::test_as_much_is_read_as_may_be",
    "FETCH_TIME": "lifecycle/test_addresses.py::test_as_much_is_read_as_may_be",
    "MEDIA_KEPT": "cache/test_media.py::test_who_was_not_asked_for_leaves",
    "MEDIA_LENT": "lifecycle/test_media.py::test_vectors_are_bounded_together",
    "LARK": "service/test_limits.py::test_the_grammar_of_all_tools_is_bounded",
    "FUEL": "llama/guides/test_compiling.py::test_what_is_too_large",
    "SYMBOLS": "llama/guides/test_compiling.py::test_what_is_too_large",
    "LEXER_STATES": "llama/guides/test_answers.py::test_a_text_of_too_many_states",
    "WAYS": "llama/guides/test_recursive.py::test_a_text_of_too_many_ways",
    "LOOSENING": "llama/guides/test_compiling.py::test_loosening_has_a_budget",
    "LONG": "api/intake/test_preparing.py::test_what_takes_long_makes_only_its_like_wait",
    "STORED": "api/responses/test_store.py::test_the_oldest_goes",
    "STORED_BYTES": "api/responses/test_store.py::test_the_oldest_goes",
    "RESUMED": "api/answer/test_kept_stream.py::test_the_oldest_go",
    "BATCH_LINES": "api/batches/test_runner.py::test_a_wrong_input",
    "BATCH_FILE": "service/test_batches.py::test_wrong_uploads",
    "BATCH_FILES": "service/test_batches.py::test_files_of_a_key_are_bounded",
    "KEPT_DAYS": "api/batches/test_runner.py::test_old_ones_are_forgotten",
    "UNREAD": "api/jobs/test_lifetime.py::test_unread_jobs_are_bounded",
}


@pytest.fixture(scope="module")
def limited() -> Generator[Server]:
    """The demo model."""
    options = ("-t", "1", "--ctx-size", "8192", "--pooling", "mean")
    with serving("--model", MODEL_PATH, *options) as server:
        yield server


@for_each("name", MET)
def test_beyond_it(limited: Server, name: str) -> None:
    """The status and the code of the table; then a good request is answered."""
    path, body = MET[name]
    limit = TABLE[name]
    if name in SERVED:
        answer = limited.post(body(limit.most), path)
        assert answer.status_code == 200, answer.text[:300]
    answer = limited.post(body(limit.most + 1), path)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == limit.answer, error
    assert limited.post(asked()).status_code == 200


def test_each_is_met() -> None:
    """No limit is without a test."""
    assert set(MET) | set(ELSEWHERE) == set(TABLE)
    assert not set(MET) & set(ELSEWHERE)
    tests = Path(__file__).parent.parent
    for place in ELSEWHERE.values():
        module, _, test = place.partition("::")
        assert f"def {test}(" in (tests / module).read_text(), place


def test_a_long_id_is_not_taken(limited: Server) -> None:
    """One of so many characters is; of a longer one the worker makes its own."""
    for more, is_taken in ((0, True), (1, False)):
        name = "a" * (REQUEST_ID.most + more)
        answer = http.get(limited.url + "/health", headers={"x-request-id": name})
        assert (answer.headers["x-request-id"] == name) is is_taken


def test_the_grammar_of_all_tools_is_bounded() -> None:
    """A 400 as for the others."""
    Constraint(kind="lark", text="x" * LARK.most)
    with pytest.raises(RequestError) as caught:
        Constraint(kind="lark", text="x" * (LARK.most + 1))
    assert (caught.value.http_status, caught.value.code) == LARK.answer


def shown(limit: Limit) -> str:
    """The row of a limit in the docs."""
    beyond = [] if limit.answer is None else ["{} `{}`".format(*limit.answer)]
    beyond += [] if limit.beyond is None else [limit.beyond]
    if beyond == ["400 `invalid_request`"]:
        beyond = []  # said above the table
    option = f"`{limit.flag}`" if limit.flag else ""
    return f"| {limit.most:,} | {limit.of} | {'; '.join(beyond)} | {option} |"


def test_the_docs_have_the_table() -> None:
    """Each limit has its row, in order, and there are no others."""
    rows = [shown(limit) for limit in TABLE.values()]
    found = re.findall(r"^\| [\d,]+ \|.*$", DOCS.read_text(), re.MULTILINE)
    assert found == rows, "\n".join(rows)


def test_options_have_the_defaults_of_the_table() -> None:
    """The flags are options, and their help tells the default."""
    helps = {flag: option.help for option in OPTIONS for flag in option.flags}
    for limit in TABLE.values():
        if limit.flag:
            assert str(limit.most) in helps[limit.flag]
