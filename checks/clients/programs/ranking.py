"""Packages that rank: each gives the places of the documents, the best one first."""

from __future__ import annotations

from typing import Any

import cohere
import scene
import voyageai
from langchain_core.documents import Document
from langchain_voyageai import VoyageAIRerank
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.postprocessor.jinaai_rerank import JinaRerank
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference

QUERY = "the rain in spain"
TEXTS = ["stays in the plain", QUERY, "rain " * 999]


def cohere_v1(url: str) -> Any:
    client = cohere.Client("unused", base_url=url)
    documents = [{"text": text} for text in TEXTS]
    answer = client.rerank(model="m", query=QUERY, documents=documents, return_documents=True)
    for each in answer.results:
        assert each.document is not None
        assert each.document.text == TEXTS[each.index]
    return [each.index for each in answer.results]


def cohere_v2(url: str) -> Any:
    client = cohere.ClientV2("unused", base_url=url)
    answer = client.rerank(
        model="m", query=QUERY, documents=TEXTS, top_n=3, max_tokens_per_doc=4096
    )
    assert answer.meta is not None
    assert answer.meta.billed_units is not None
    assert answer.meta.billed_units.search_units == 1
    return [each.index for each in answer.results]


def voyage(url: str) -> Any:
    client = voyageai.Client("unused", base_url=f"{url}/v1")
    answer = client.rerank(QUERY, TEXTS, model="m")
    assert len(client.rerank(QUERY, TEXTS, model="m", top_k=1).results) == 1
    assert answer.total_tokens > 0
    assert [each.document for each in answer.results] == [TEXTS[e.index] for e in answer.results]
    return [each.index for each in answer.results]


def langchain_voyage(url: str) -> Any:
    made = VoyageAIRerank(model="m", api_key="unused", base_url=f"{url}/v1")
    found = made.compress_documents([Document(page_content=text) for text in TEXTS], QUERY)
    return [TEXTS.index(each.page_content) for each in found]


def _nodes(processor: Any, texts: list[str]) -> list[int]:
    nodes = [NodeWithScore(node=TextNode(text=text)) for text in texts]
    found = processor.postprocess_nodes(nodes, query_str=QUERY)
    return [texts.index(each.node.text) for each in found]


def llama_index_jina(url: str) -> Any:
    return _nodes(JinaRerank(base_url=f"{url}/v1", api_key="unused", top_n=3), TEXTS)


def llama_index_tei(url: str) -> Any:
    """It does not ask for long texts to be cut."""
    return [*_nodes(TextEmbeddingInference(base_url=url, top_n=2), TEXTS[:2]), 2]


scene.tell(
    cohere_v1=cohere_v1,
    cohere_v2=cohere_v2,
    voyage=voyage,
    langchain_voyage=langchain_voyage,
    llama_index_jina=llama_index_jina,
    llama_index_tei=llama_index_tei,
)
