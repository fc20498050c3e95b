"""Packages that make vectors, and one that ranks: each gives those of the same texts."""

from __future__ import annotations

import os
from typing import Any

import cohere
import ollama
import openai
import scene
from langchain_openai import OpenAIEmbeddings
from llama_index.embeddings.openai_like import OpenAILikeEmbedding

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
from haystack.components.embedders import OpenAITextEmbedder
from haystack.utils import Secret

TEXTS = ["the rain in spain", "stays in the plain"]


def _openai(url: str, **fields: Any) -> Any:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)
    answer = client.embeddings.create(model="m", input=TEXTS, **fields)
    return [each.embedding for each in answer.data]


def base64(url: str) -> Any:
    """What the package asks for by itself."""
    return _openai(url)


def floats(url: str) -> Any:
    return _openai(url, encoding_format="float")


def langchain(url: str) -> Any:
    made = OpenAIEmbeddings(
        model="m", base_url=f"{url}/v1", api_key="unused", check_embedding_ctx_length=False
    )
    return made.embed_documents(TEXTS)


def llama_index(url: str) -> Any:
    made = OpenAILikeEmbedding(model_name="m", api_base=f"{url}/v1", api_key="unused")
    return made.get_text_embedding_batch(TEXTS)


def haystack(url: str) -> Any:
    made = OpenAITextEmbedder(
        api_base_url=f"{url}/v1", api_key=Secret.from_token("unused"), model="m"
    )
    return [made.run(text)["embedding"] for text in TEXTS]


def ollama_embed(url: str) -> Any:
    return [list(each) for each in ollama.Client(url).embed("m", TEXTS).embeddings]


def ranked(url: str) -> Any:
    """The places of the documents, the best one first."""
    client = cohere.ClientV2("unused", base_url=url)
    answer = client.rerank(model="m", query=TEXTS[0], documents=[TEXTS[1], TEXTS[0]])
    return [each.index for each in answer.results]


scene.tell(
    base64=base64,
    floats=floats,
    langchain=langchain,
    llama_index=llama_index,
    haystack=haystack,
    ollama=ollama_embed,
    ranked=ranked,
)
