"""From a body to a `Generation`: what a request asks for, checked and in one form for all APIs.

In goes an API's own struct; out comes a `Generation`, which `generation.run` hands to the engine.

    origins                who may ask for a route without a key
    body, bounds           read, bounded, decoded; what fields may hold
    preparing              a place in the queue, the pool of threads, the client that leaves
    adapters               which adapters count
    prompts, media_inputs, media_formats   texts, token ids, images and audio to one prompt
    sampling, constraints, thinking        how tokens are drawn, what they must match
    chat/                  messages of any chat API, by the file's template, to a prompt
    texts                  what embeddings, reranking and scoring compute
    generation             the `Generation`, and the way to the engine
"""
