"""Responses that are kept: gone on from, asked for, cancelled, dropped."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from typing import Any, cast

import msgspec
import openai
import pytest
from openai.types.responses import Response

from tests.api.responses import oracle
from tests.api.responses.test_exchange import exchange
from tests.support import http
from tests.support.programs.processes import serving
from worker.api.responses.items import ResponseReply
from worker.api.responses.schemas import ResponseRequest
from worker.api.responses.store import ResponseStore, StoredResponse
from worker.engine.stream import Stream
from worker.errors import NotFoundError, RequestError, TooLargeError
from worker.limits import PARTS

ASKED: dict[str, Any] = {"model": "any", "temperature": 0, "max_output_tokens": 20}
FIRST, SECOND = "What is 3 plus 4?", "And 5?"


@pytest.fixture(scope="module")
def client() -> Generator[openai.OpenAI]:
    """Of a worker with the demo model."""
    with (
        serving() as server,
        openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0) as client,
    ):
        yield client


def answer(client: openai.OpenAI, given: Any, **fields: Any) -> Response:
    send: Any = client.responses.create
    return send(**ASKED, input=given, **fields)


def made(name: str, **fields: Any) -> ResponseReply:
    served = cast("Any", exchange((), store=False))
    return msgspec.structs.replace(served._reply, id=name, store=True, **fields)


def said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_a_conversation_goes_on(client: openai.OpenAI) -> None:
    """By the id of a response, or of items of it, it is what the whole of it is."""
    first = answer(client, FIRST)
    assert (first.previous_response_id, first.status) == (None, "completed")
    assert first.completed_at is not None
    told = [item.model_dump(exclude_none=True) for item in first.output]
    whole = answer(client, [said(FIRST), *told, said(SECOND)])
    second = answer(client, SECOND, previous_response_id=first.id)
    assert second.previous_response_id == first.id
    references = [{"type": "item_reference", "id": item.id} for item in first.output]
    third = answer(client, [said(FIRST), *references, said(SECOND)])
    assert whole.output_text == second.output_text == third.output_text
    texts = {r.usage.input_tokens for r in (whole, second, third) if r.usage is not None}
    assert len(texts) == 1
    counted = client.responses.input_tokens.count(input=SECOND, previous_response_id=first.id)
    assert {counted.input_tokens} == texts
    longer = answer(client, "Thanks.", previous_response_id=third.id)
    client.responses.delete(first.id)
    assert answer(client, "Bye.", previous_response_id=longer.id).status == "completed"


def test_get_and_delete(client: openai.OpenAI) -> None:
    """A stored one is what was answered; one that is not is a 404 in a sentence."""
    first = answer(client, FIRST)
    assert client.responses.retrieve(first.id).model_dump() == first.model_dump()
    assert client.responses.cancel(first.id).status == "completed"
    client.responses.delete(first.id)
    quiet = answer(client, FIRST, store=False)
    for name in (first.id, quiet.id, "resp_x"):
        with pytest.raises(openai.NotFoundError, match="is not stored"):
            client.responses.retrieve(name)
    with pytest.raises(openai.NotFoundError) as caught:
        answer(client, SECOND, previous_response_id=quiet.id)
    assert caught.value.param == "previous_response_id"
    with pytest.raises(openai.NotFoundError, match="refers to an item"):
        answer(client, [{"id": quiet.output[0].id, "type": "item_reference"}])
    with pytest.raises(openai.NotFoundError, match="is not stored"):
        list(client.responses.retrieve(first.id, stream=True))
    with pytest.raises(openai.InternalServerError, match="stores no conversations"):
        client.conversations.create()


def test_progress(client: openai.OpenAI) -> None:
    """What the cache gave is told first, then what is read."""
    body = {**ASKED, "input": "Tell me more of it. " * 20, "stream": True, "return_progress": True}
    told = http.post(f"{client.base_url}responses", json=body)
    events = [each for each in oracle.events(told.text) if each.type == "response.in_progress"]
    steps = [each.prompt_progress for each in events if each.model_extra]
    assert steps[0]["processed"] == steps[0]["cache"]
    assert steps[-1]["processed"] == steps[-1]["total"]
    timed = http.post(f"{client.base_url}responses", json=body | {"timings_per_token": True})
    lines = [line[6:] for line in timed.text.splitlines() if line.startswith("data: ")]
    counts = [json.loads(line)["timings"]["predicted_n"] for line in lines]
    assert counts == sorted(counts)
    usage = json.loads(lines[-1])["response"]["usage"]
    assert 0 == counts[0] < counts[-1] == usage["output_tokens"]


def test_one_that_runs_is_cancelled(client: openai.OpenAI) -> None:
    """Its stream ends with an error, and it is kept as cancelled."""
    send: Any = client.responses.create
    asked = ASKED | {"max_output_tokens": 1500, "extra_body": {"ignore_eos": True}}
    events = send(**asked, input="Tell me a story.", stream=True)
    last: Any = None
    name = ""
    for event in events:
        if event.type == "response.created":
            assert client.responses.retrieve(event.response.id).status == "in_progress"
            name = event.response.id
        if event.type == "response.output_text.delta" and last.type == event.type:
            assert client.responses.cancel(name).status == "cancelled"
        last = event
    assert (last.type, last.response.status) == ("response.failed", "cancelled")
    kept = client.responses.retrieve(name)
    assert (kept.status, cast("Any", kept.output[0]).status) == ("cancelled", "incomplete")
    assert kept.output_text


def test_its_input_is_listed(client: openai.OpenAI) -> None:
    """Page by page, the last item first, in OpenAI's form; paths need no version."""
    items = [said(FIRST), {"role": "assistant", "content": "7."}, said(SECOND)]
    first = answer(client, items)
    listed: Any = client.responses.input_items.list(first.id, order="asc", limit=2)
    assert [item.content[0].text for item in listed] == [FIRST, "7.", SECOND]
    newest: Any = client.responses.input_items.list(first.id, limit=1)
    assert (newest.data[0].content[0].text, newest.has_more) == (SECOND, True)
    behind = client.responses.input_items.list(first.id, after=newest.data[0].id, limit=9)
    assert len(behind.data) == 2
    wrong: dict[str, Any]
    for wrong in ({"limit": 0}, {"order": "up"}, {"after": "msg_nowhere"}):
        with pytest.raises(openai.BadRequestError, match=f"{next(iter(wrong))} "):
            client.responses.input_items.list(first.id, **wrong)
    short = str(client.base_url).removesuffix("v1/")
    assert http.request("GET", f"{short}responses/{first.id}").json()["id"] == first.id


def test_the_oldest_goes() -> None:
    """Not one that was asked for since, nor what it goes on from."""
    size = len(msgspec.json.encode(made("resp_0"))) + len(b"[]")
    for store in (ResponseStore(most=3), ResponseStore(most_bytes=3 * size + 20)):
        for place in range(4):
            before = "resp_0" if place == 2 else None
            reply = made(f"resp_{place}", previous_response_id=before)
            store.begin(reply, [], "", Stream(["x-0"], lambda _: None))
            store.end(reply)
            if place == 2:
                store.whole(ResponseRequest(input="a", previous_response_id="resp_2"), "")
        with pytest.raises(NotFoundError):
            store.get("resp_1", "")
        assert all(store.get(f"resp_{place}", "") for place in (0, 2, 3))


def test_one_that_has_not_ended() -> None:
    """Nothing goes on from it; it is dropped where its client leaves."""
    store = ResponseStore()
    stream = Stream(["x-0"], lambda _: None)
    store.begin(made("resp_0"), [], "", stream)
    with pytest.raises(RequestError, match="not ended"):
        store.whole(ResponseRequest(input="a", previous_response_id="resp_0"), "")
    store.leave("resp_0")
    with pytest.raises(NotFoundError):
        store.get("resp_0", "")


def test_what_one_names_often_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many items of a request refer to one reply: decoding holds up the event loop."""
    item: dict[str, Any] = {
        "type": "message",
        "id": f"msg_{'0' * 32}00",
        "role": "assistant",
        "content": [],
    }
    store = ResponseStore()
    name = f"resp_{'0' * 32}"
    reply = made(name, output=[item], metadata={"a": "x" * 1000})
    store.begin(reply, [], "", Stream(["x-0"], lambda _: None))
    store.end(reply)
    asked: list[str] = []
    output = StoredResponse.output.fget
    assert output is not None

    def counted(stored: StoredResponse) -> Any:
        asked.append("")
        return output(stored)

    monkeypatch.setattr(StoredResponse, "output", property(counted))
    reference: dict[str, Any] = {"type": "item_reference", "id": item["id"]}
    assert store.resolve(ResponseRequest(input=[reference] * 9), "") == [item] * 9
    assert len(asked) == 1


def test_a_conversation_of_too_many_parts() -> None:
    """Together they may hold what one body may, because decoding holds up the event loop."""
    store = ResponseStore()
    before = None
    for place in range(3):
        reply = made(f"resp_{place}", previous_response_id=before)
        own: list[dict[str, Any]] = [{**said("a"), "more": [[]] * (PARTS.most // 2 - 10)}]
        store.begin(reply, own, "", Stream(["x-0"], lambda _: None))
        store.end(reply)
        before = reply.id
    store.whole(ResponseRequest(input="a", previous_response_id="resp_0"), "")
    with pytest.raises(TooLargeError, match="conversation holds more than"):
        store.whole(ResponseRequest(input="a", previous_response_id="resp_2"), "")


def test_another_key_finds_nothing() -> None:
    """A response is not there for keys of another owner: to read, to go on from, or to end."""
    store = ResponseStore()
    item: dict[str, Any] = {"type": "message", "id": f"msg_{'0' * 32}00", "content": []}
    name = f"resp_{'0' * 32}"
    reply = made(name, output=[item])
    store.begin(reply, [], "anna", Stream(["x-0"], lambda _: None))
    store.end(reply)
    reference: dict[str, Any] = {"type": "item_reference", "id": item["id"]}
    asks: tuple[Callable[[str], object], ...] = (
        lambda owner: store.get(name, owner),
        lambda owner: store.inputs(name, owner),
        lambda owner: store.whole(ResponseRequest(input="a", previous_response_id=name), owner),
        lambda owner: store.resolve(ResponseRequest(input=[reference]), owner),
        lambda owner: store.cancel(name, owner),
        lambda owner: store.drop(name, owner),
    )
    for ask in asks:
        with pytest.raises(NotFoundError):
            ask("bots")
        ask("anna")
