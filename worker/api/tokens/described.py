"""Tokens, for the description of the API."""

from __future__ import annotations

from worker.api.common.described import JSON, Api, Described
from worker.api.common.refusals import BODY, TOKENIZED
from worker.api.tokens.routes import (
    DetokenizeReply,
    DetokenizeRequest,
    TokenizeReply,
    TokenizeRequest,
    TokenizerInfo,
    detokenize_tokens,
    tokenize_text,
    tokenizer_info,
)

API = Api(
    name="Tokens",
    text="Text to tokens and back, as llama-server and vLLM name it.",
    routes=(
        Described(
            handler=tokenize_text,
            takes=TokenizeRequest,
            gives={JSON: TokenizeReply},
            refuses=(*BODY, *TOKENIZED),
            examples={
                "with pieces": {"content": "Once upon a time", "with_pieces": True},
                "as a prompt": {"prompt": "Once upon a time", "return_token_strs": True},
            },
        ),
        Described(
            handler=detokenize_tokens,
            takes=DetokenizeRequest,
            needs=("tokens",),
            gives={JSON: DetokenizeReply},
            refuses=BODY,
            examples={"two tokens": {"tokens": [1, 400]}},
        ),
        Described(handler=tokenizer_info, gives={JSON: TokenizerInfo}),
    ),
)
