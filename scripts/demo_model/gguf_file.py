"""The GGUF file of the demo model: weights, tokenizer, chat template and card."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from scripts.demo_model.model import DemoModel
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

    out.add_vocab_size(s.vocab)
    out.add_context_length(s.context)
    out.add_embedding_length(s.embedding)
    out.add_block_count(s.blocks)
    out.add_feed_forward_length(s.feed_forward)
    out.add_head_count(s.heads)
    out.add_head_count_kv(s.kv_heads)
    out.add_layer_norm_rms_eps(s.norm_epsilon)
    out.add_rope_dimension_count(s.head)
    out.add_rope_freq_base(s.rope_base)

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
    out.add_chat_template(CHAT_TEMPLATE)

    for key, value in card.items():
        if isinstance(value, str):
            out.add_string(CARD_PREFIX + key, value)
        elif isinstance(value, int):
            out.add_uint64(CARD_PREFIX + key, value)
        else:
            out.add_float32(CARD_PREFIX + key, value)

    for name, tensor in model.state_dict().items():
        array = tensor.detach().float().numpy()
        kind = np.float16 if array.ndim == 2 else np.float32
        suffix = "" if name.endswith(".weight") else ".weight"
        out.add_tensor(name + suffix, np.ascontiguousarray(array.astype(kind)))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
