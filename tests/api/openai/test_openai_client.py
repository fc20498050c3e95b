"""The official client against the real process, with the embedded demo model."""

from __future__ import annotations

from collections.abc import Generator

import openai
import pytest

from tests.support.metrics import count_ended
from tests.support.programs.processes import Server, serving, until
from worker.demo import MODEL_PATH

PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def demo() -> Generator[Server]:
    """The server that `make serve` starts, but on a free port."""
    with serving() as server:
        yield server


@pytest.fixture(scope="module")
def client(demo: Server) -> Generator[openai.OpenAI]:
    with openai.OpenAI(base_url=demo.url + "/v1", api_key="unused", max_retries=0) as client:
        yield client


def test_models(client: openai.OpenAI) -> None:
    """The client finds the one model, in the list and by id."""
    (model,) = client.models.list()
    assert model.id == MODEL_PATH.stem
    assert client.models.retrieve(model.id).owned_by == "gguf-worker"


def test_completion(client: openai.OpenAI) -> None:
    """A completion comes back typed, with usage."""
    answer = client.completions.create(
        model=MODEL_PATH.stem, prompt=PROMPT, max_tokens=30, temperature=0
    )
    assert answer.object == "text_completion"
    assert len(answer.choices[0].text) > 30
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.prompt_tokens_details is not None


def test_stream(client: openai.OpenAI) -> None:
    """A stream adds up to the whole answer and ends with the usage."""
    whole = client.completions.create(
        model=MODEL_PATH.stem, prompt=PROMPT, max_tokens=30, temperature=0
    )
    stream = client.completions.create(
        model=MODEL_PATH.stem,
        prompt=PROMPT,
        max_tokens=30,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert "".join(c.choices[0].text for c in chunks if c.choices) == whole.choices[0].text
    assert chunks[-1].usage == whole.usage
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason


def test_token_prompt_and_logprobs(client: openai.OpenAI) -> None:
    """Token ids as prompt, several choices, logprobs: typed as the API's."""
    answer = client.completions.create(
        model=MODEL_PATH.stem, prompt=[[5, 6, 7], [8, 9]], max_tokens=4, n=2, logprobs=2, echo=True
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens is not None
    assert logprobs.token_logprobs is not None
    assert logprobs.token_logprobs[0] is None
    assert len(logprobs.tokens) >= 4


def test_leaving_a_stream(slow_server: Server) -> None:
    """To close a stream early frees its slot."""
    before = count_ended(slow_server.url, "aborted")
    with (
        openai.OpenAI(base_url=slow_server.url + "/v1", api_key="unused") as client,
        client.completions.create(
            model="any",
            prompt=PROMPT,
            max_tokens=1_800,
            stream=True,
            extra_body={"ignore_eos": True},
        ) as stream,
    ):
        next(iter(stream))
    until(lambda: count_ended(slow_server.url, "aborted") > before)
    slow_server.wait_until(slots_processing=0, queue_depth=0)


def test_errors_are_typed(client: openai.OpenAI) -> None:
    """A bad request is BadRequestError with param and a request id; a wrong id NotFoundError."""
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=MODEL_PATH.stem, prompt=PROMPT, temperature=101)
    assert caught.value.param == "temperature"
    assert caught.value.type == "invalid_request_error"
    assert caught.value.request_id
    with pytest.raises(openai.NotFoundError) as missing:
        client.models.retrieve("nobody/nothing")
    assert missing.value.code == "model_not_found"
