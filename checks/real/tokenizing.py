"""Tokenizers that others wrote, with what a GGUF file says: for `reference.py` alone.

transformers' own conversion of SmolLM2's tokenizer is not faithful: it never reads
`tokenizer.ggml.pre`, so digits are not split from what stands before them (10 of the 500 texts come
out otherwise). Gemma's it makes of merges that it guesses from the scores; for these texts the
result is the same. Both are taken from where the models have them from instead:

- SmolLM2's is Hugging Face's `tokenizers`, put together as the model's published `tokenizer.json`
  is: each digit by itself, then GPT-2's words, then merges;
- Gemma's is Google's `sentencepiece`, on a model of the file's pieces, scores and types.
"""

from __future__ import annotations

from collections.abc import Callable

from gguf import GGUFReader
from sentencepiece import SentencePieceProcessor, sentencepiece_model_pb2
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

Tokenize = Callable[[str], list[int]]

CONTROL, USER_DEFINED = 3, 4  # token types of GGUF; they are SentencePiece's


def byte_level(file: GGUFReader) -> Tokenize:
    """A `gpt2` vocabulary whose pre-tokenizer is `smollm`. Control tokens are read in texts."""
    assert file.fields["tokenizer.ggml.pre"].contents() == "smollm"
    tokens = file.fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(m.split(" ")) for m in file.fields["tokenizer.ggml.merges"].contents()]
    types = file.fields["tokenizer.ggml.token_type"].contents()
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, kind in zip(tokens, types, strict=True)
            if kind == CONTROL
        ]
    )
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def sentence_piece(file: GGUFReader) -> Tokenize:
    """A `llama` vocabulary without a space in front. No BOS is added; `<bos>` in a text is text."""
    assert file.fields["tokenizer.ggml.add_space_prefix"].contents() is False
    model = sentencepiece_model_pb2.ModelProto()
    for piece, score, kind in zip(
        file.fields["tokenizer.ggml.tokens"].contents(),
        file.fields["tokenizer.ggml.scores"].contents(),
        file.fields["tokenizer.ggml.token_type"].contents(),
        strict=True,
    ):
        # Converters to GGUF write the blanks of what the user defined as blanks.
        own = piece.replace(" ", "\u2581") if kind == USER_DEFINED else piece
        model.pieces.add(piece=own, score=score, type=kind)
    model.trainer_spec.model_type = sentencepiece_model_pb2.TrainerSpec.BPE
    model.trainer_spec.byte_fallback = True
    for name in ("unk", "bos", "eos", "pad"):
        key = {"unk": "unknown", "pad": "padding"}.get(name, name)
        number = file.fields[f"tokenizer.ggml.{key}_token_id"].contents()
        setattr(model.trainer_spec, f"{name}_id", number)
        setattr(model.trainer_spec, f"{name}_piece", model.pieces[number].piece)
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.add_dummy_prefix = False
    model.normalizer_spec.remove_extra_whitespaces = False
    model.normalizer_spec.escape_whitespaces = True
    processor = SentencePieceProcessor(model_proto=model.SerializeToString())
    return lambda text: processor.encode(text)
