"""Packages that make vectors: each gives those of the same texts."""

from __future__ import annotations

import os
from typing import Any

import cohere
import ollama
import openai
import scene
import voyageai
from huggingface_hub import InferenceClient
from langchain_ollama import OllamaEmbeddings
from langchain_openai import OpenAIEmbeddings
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference

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


def langchain_ollama(url: str) -> Any:
    return OllamaEmbeddings(model="m", base_url=url).embed_documents(TEXTS)


def cohere_v1(url: str) -> Any:
    client = cohere.Client("unused", base_url=url)
    return client.embed(texts=TEXTS, model="m", input_type="search_document").embeddings


def cohere_v2(url: str) -> Any:
    client = cohere.ClientV2("unused", base_url=url)
    kinds = ["float", "int8", "ubinary"]
    found = client.embed(
        texts=TEXTS, model="m", input_type="search_query", embedding_types=kinds
    ).embeddings
    assert found.int8 is not None
    assert found.ubinary is not None
    assert max(found.int8[0], key=abs) in (-127, 127)
    return found.float_


def voyage(url: str) -> Any:
    """It asks for base64, and says that texts are to be cut."""
    client = voyageai.Client("unused", base_url=f"{url}/v1")
    whole = client.embed(TEXTS, model="m", input_type="document").embeddings
    small = client.embed(TEXTS, model="m", output_dtype="int8").embeddings
    assert [[round(127 * each / max(map(abs, row))) for each in row] for row in whole] == small
    assert len(client.embed(["rain " * 999], model="m").embeddings) == 1
    return whole


def voyage_refused(url: str) -> Any:
    """An error of the kind that the package has for it, with the text's place."""
    client = voyageai.Client("unused", base_url=f"{url}/v1")
    try:
        client.embed([TEXTS[0], "rain " * 999], model="m", truncation=False)
    except voyageai.error.InvalidRequestError as error:
        said = str(error)
    return voyage(url) if "input[1] is too long" in said else said


def llama_index_tei(url: str) -> Any:
    return TextEmbeddingsInference(model_name="m", base_url=url).get_text_embedding_batch(TEXTS)


def hugging_face(url: str) -> Any:
    client = InferenceClient(model=f"{url}/embed")
    return client.feature_extraction(TEXTS, truncate=True, truncation_direction="left").tolist()


scene.tell(
    base64=base64,
    floats=floats,
    langchain=langchain,
    llama_index=llama_index,
    haystack=haystack,
    ollama=ollama_embed,
    langchain_ollama=langchain_ollama,
    cohere_v1=cohere_v1,
    cohere_v2=cohere_v2,
    voyage=voyage,
    voyage_refused=voyage_refused,
    llama_index_tei=llama_index_tei,
    hugging_face=hugging_face,
)
