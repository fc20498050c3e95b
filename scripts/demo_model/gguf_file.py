"""The GGUF file of the demo model: weights, tokenizer, chat template and card."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
from torch import nn

from scripts.demo_model.drafter import DemoDrafter
from scripts.demo_model.model import DemoModel, Shape
from scripts.demo_model.tokenizer import PRE, SPECIALS, Tokenizer

# A message is written as <|role|>\n text <|end|>\n, after one BOS. llama.cpp has the same template
# built in as "phi3", so readers without Jinja write the same chat.
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('unknown role: ' + message['role']) }}{% endif %}"
    "{{ '<|' + message['role'] + '|>\\n' + message['content'] + '<|end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)
CARD_PREFIX = "worker.card."


def write(
    path: Path,
    model: DemoModel,
    tokenizer: Tokenizer,
    card: dict[str, str | int | float],
    texts: dict[str, str],
) -> None:
    """Write everything; ``texts`` holds name, description, license and size_label."""
    s = model.shape
    out = gguf.GGUFWriter(path, "llama")
    out.add_name(texts["name"])
    out.add_description(texts["description"])
    out.add_license(texts["license"])
    out.add_size_label(texts["size_label"])
    out.add_languages(["en"])
    out.add_tags(["text-generation", "demo"])
    out.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    out.add_quantization_version(gguf.GGML_QUANT_VERSION)
    out.add_sampling_temp(0.7)
    out.add_sampling_top_k(40)
    out.add_sampling_top_p(0.95)

    _add_shape(out, s)
    out.add_block_count(s.blocks)
    add_vocabulary(out, tokenizer)
    out.add_chat_template(CHAT_TEMPLATE)

    for key, value in card.items():
        if isinstance(value, str):
            out.add_string(CARD_PREFIX + key, value)
        elif isinstance(value, int):
            out.add_uint64(CARD_PREFIX + key, value)
        else:
            out.add_float32(CARD_PREFIX + key, value)
    _write_tensors(out, model)


def write_drafter(
    path: Path, drafter: DemoDrafter, name: str, add_vocabulary: Callable[[gguf.GGUFWriter], None]
) -> None:
    """Write an EAGLE-3 drafter; embeddings and output are the model's."""
    out = gguf.GGUFWriter(path, "eagle3")
    out.add_name(name)
    out.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    out.add_quantization_version(gguf.GGML_QUANT_VERSION)
    _add_shape(out, drafter.shape)
    out.add_block_count(1)
    out.add_array("eagle3.target_layers", list(drafter.layers))
    out.add_uint32("eagle3.target_hidden_size", drafter.shape.embedding)
    add_vocabulary(out)
    _write_tensors(out, drafter)


def tensor_name(name: str) -> str:
    """Return what GGUF calls a parameter."""
    return name if name.endswith(".weight") else f"{name}.weight"


def _add_shape(out: gguf.GGUFWriter, s: Shape) -> None:
    out.add_vocab_size(s.vocab)
    out.add_context_length(s.context)
    out.add_embedding_length(s.embedding)
    out.add_feed_forward_length(s.feed_forward)
    out.add_head_count(s.heads)
    out.add_head_count_kv(s.kv_heads)
    out.add_layer_norm_rms_eps(s.norm_epsilon)
    out.add_rope_dimension_count(s.head)
    out.add_rope_freq_base(s.rope_base)


def add_vocabulary(out: gguf.GGUFWriter, tokenizer: Tokenizer) -> None:
    """Add the tokens, and what is said of them."""
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre(PRE)
    out.add_token_list(tokenizer.tokens)
    out.add_token_types(
        [
            gguf.TokenType.CONTROL if i < len(SPECIALS) else gguf.TokenType.NORMAL
            for i in range(len(tokenizer.tokens))
        ]
    )
    out.add_token_merges([f"{a} {b}" for a, b in tokenizer.merges])
    out.add_bos_token_id(tokenizer.bos)
    out.add_eos_token_id(tokenizer.eos)
    out.add_eot_token_id(tokenizer.ids["<|end|>"])
    out.add_pad_token_id(tokenizer.ids["<|pad|>"])
    out.add_add_bos_token(True)
    out.add_add_eos_token(False)


def _write_tensors(out: gguf.GGUFWriter, model: nn.Module) -> None:
    for name, tensor in model.state_dict().items():
        array = tensor.detach().float().numpy()
        kind = np.float16 if array.ndim == 2 else np.float32
        out.add_tensor(tensor_name(name), np.ascontiguousarray(array.astype(kind)))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
