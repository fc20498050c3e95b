"""From a request's deltas to what its client reads: one JSON body or server-sent events.

In goes a `Stream` of deltas; out come frames, in the form of the API that was asked.

    exchange      the ASGI application of one answer: pulse, frames, a client that leaves
    kept_stream   events of a stream that its client may leave and come back to
    marks         marks in a stream for the relay in front of the worker
    answer_state  what a chat's answer says: text, thoughts, calls
    logprobs      token scores in OpenAI's forms
    usage         tokens, timings and progress
    vectors       the one reply of embeddings, reranking and scoring
    errors        what a route raised, as Litestar's response
    shapes        an error's body as clients of each API read it
"""
