"""From a body to a `Generation`: what a request asks for, checked and in one form for all APIs.

In goes an API's own struct; out comes a `Generation`, which `Preparing.run` hands to the engine.

    origins                who may ask for a route without a key
    body, packed_body, multipart, bounds   read, unpacked, decoded; what fields may hold
    preparing              a place in the queue, the pool of threads, the client that leaves
    adapters, priority     which adapters apply, and who comes first
    facts                  what is known of the model here
    prompts, media_inputs, media_formats   texts, token ids, images and audio to one prompt
    sampling, constraints, thinking        how tokens are drawn, what they must match
    chat/                  messages of any chat API, by the file's template, to a prompt
    texts, embeddings      what embeddings, reranking and scoring compute, without a `Generation`
    delivery               whether the client may come back to its stream
    generation             the `Generation`, and its engine Requests
"""
