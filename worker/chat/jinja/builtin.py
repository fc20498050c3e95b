"""Templates by name, for files that have none or a wrong one: `--chat-template chatml`.

The names are llama-server's; the others of its list stand for one family's file each, and such a
file brings its template.
"""

from __future__ import annotations

_HEADED = (
    "{{ bos_token }}{% for m in messages %}"
    "<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>"
    "{% endfor %}{% if add_generation_prompt %}"
    "<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
_TAGGED = (
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}END\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
TEMPLATES = {
    "chatml": (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    ),
    "llama3": _HEADED,
    "phi3": _TAGGED.replace("END", "<|end|>"),
    "zephyr": _TAGGED.replace("END", "{{ eos_token }}"),
    "gemma": (
        "{{ bos_token }}{% for m in messages %}{% if m.role != 'system' %}"
        "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
        "{{ m.content | trim }}<end_of_turn>\n{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
    ),
}
