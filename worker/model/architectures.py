"""Architectures that llama.cpp knows, and what is true for some of them.

A rule that holds for every architecture needs no list. Files of an architecture that a list does
not name are left to llama.cpp, which checks them itself.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path


def doubt(name: str) -> str | None:
    """What this worker cannot know of a model of that architecture; None: it knows it."""
    if name in KNOWN:
        return None
    return (
        f"The architecture {name} is newer than this worker: metadata, vocabulary and weights are "
        "checked, but only llama.cpp knows which tensors it needs. The memory plan is an estimate."
    )


@cache
def newer() -> frozenset[str]:
    """Architectures that the installed llama.cpp knows, and this module does not.

    `make install LLAMA_CPP=` lists those of a newer llama.cpp beside the bindings.
    """
    spec = find_spec("llama_cpp")
    place = spec and spec.origin and Path(spec.origin).with_name("architectures.txt")
    if not place or not place.exists():
        return frozenset()
    return _names(place.read_text()) - KNOWN - {"gptj"}


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# All architectures that the pinned one has a loader for. `gptj` has a name there, but no loader.
KNOWN = _names("""
    afmoe apertus arcee arctic arwkv7 baichuan bailingmoe bailingmoe2 bailingmoe3 bert bitnet
    bloom chameleon chatglm clip codeshell cogvlm cohere2 cohere2moe command-r dbrx deci deepseek
    deepseek2 deepseek2-ocr deepseek32 deepseek4 dflash dots1 dots3note dream eagle3 ernie4_5
    ernie4_5-moe eurobert exaone exaone-moe exaone4 falcon falcon-h1 gemma gemma-embedding gemma2
    gemma3 gemma3n gemma4 gemma4-assistant glm-dsa glm4 glm4moe glm5-next gpt-oss gpt2
    gptneox granite granite_swa granitehybrid granitemoe graniteswitch grok grovemoe hrm_text
    hunyuan-dense hunyuan-moe hunyuan_vl hy_v3 hy_v4 internlm2 jais jais2 jamba jina-bert-v2
    jina-bert-v3 kimi-k3 kimi-linear laguna lfm2 lfm2moe llada llada-moe llama llama-embed llama4
    maincoder mamba mamba2 maple mellum mimo2 minicpm minicpm3 minimax-01 minimax-m2 minimax-m3
    mistral3 mistral4 modern-bert mpt muse-glimmer nanbeige nemotron nemotron_h nemotron_h_moe
    neo-bert nomic-bert nomic-bert-moe olmo olmo2 olmoe openelm orion paddleocr pangu-embedded
    phi2 phi3 phimoe plamo plamo2 plamo3 plm pockettts qwen qwen2 qwen2moe qwen2vl qwen3 qwen35
    qwen35moe qwen3moe qwen3next qwen3tts qwen3vl qwen3vlmoe qwen4exp refact rnd1 rwkv6 rwkv6qwen2
    rwkv7 seed_oss smallthinker smollm3 spark2_5 stablelm starcoder starcoder2 step35 t5 t5encoder
    talkie wavtokenizer-dec xverse
""")

# Every layer has attention with the same number of heads, and key/value heads that divide them.
RMS_NORM = _names("""
    arcee baichuan bitnet dream ernie4_5 exaone exaone4 gemma gemma2 gemma3 glm4 gpt-oss granite
    granitemoe hunyuan-moe internlm2 llada llada-moe llama minicpm mistral3 nanbeige
    olmo2 olmoe phi3 phimoe qwen qwen2 qwen2moe qwen3 qwen3moe qwen3vl refact seed_oss smollm3
    xverse
""")
LAYER_NORM = _names("""
    bloom codeshell cohere2 command-r dbrx falcon gpt2 gptneox mpt nemotron olmo orion phi2
    stablelm starcoder starcoder2
""")
UNIFORM = RMS_NORM | LAYER_NORM

# A head must be rotated as a whole.
FULL_ROPE = _names("""
    apertus arcee arctic baichuan chameleon codeshell cogvlm dbrx deci deepseek dots1 dream
    ernie4_5 ernie4_5-moe exaone falcon granite graniteswitch grok grovemoe hunyuan-moe
    hunyuan_vl hy_v3 internlm2 jais2 llada llada-moe llama llama-embed maincoder mistral3
    olmo olmoe orion paddleocr pangu-embedded plamo qwen2 qwen2moe qwen2vl qwen3 qwen3moe
    qwen3vl qwen3vlmoe rnd1 seed_oss smollm3 starcoder2 talkie xverse
""")
# Keys and values of a head are equally long.
EQUAL_HEADS = _names("""
    afmoe apertus arcee arctic baichuan bailingmoe2 bitnet bloom chameleon chatglm codeshell
    cogvlm cohere2 cohere2moe command-r dbrx deci deepseek dots1 dream ernie4_5 ernie4_5-moe
    exaone exaone-moe exaone4 falcon glm4 glm4moe gpt2 gptneox granite granite_swa
    granitehybrid graniteswitch grok grovemoe hunyuan-moe hunyuan_vl hy_v3 internlm2 jais
    jais2 laguna llada llada-moe llama llama4 maincoder maple mellum minimax-01 minimax-m2
    minimax-m3 mistral3 mpt muse-glimmer nanbeige nemotron nemotron_h nemotron_h_moe olmo
    olmo2 olmoe openelm orion paddleocr pangu-embedded phi2 phi3 plamo qwen qwen2 qwen2moe
    qwen2vl qwen3 qwen35 qwen35moe qwen3moe qwen3next qwen3vl qwen3vlmoe qwen4exp refact
    rnd1 seed_oss smallthinker smollm3 spark2_5 stablelm starcoder starcoder2 talkie xverse
""")

# Nothing is rotated, whatever the keys say (`llama_model_rope_type`).
NO_ROPE = _names("""
    arwkv7 bloom glm5-next gpt2 jais jamba jina-bert-v2 kimi-k3 kimi-linear mamba mamba2 mpt
    nemotron_h nemotron_h_moe refact rwkv6 rwkv6qwen2 rwkv7 t5 t5encoder wavtokenizer-dec
""")
# Nor in these: they add a vector for each position to that of the token.
LEARNED_POSITIONS = _names("bert starcoder")

# They compute vectors or sound from a text and never continue it.
ENCODERS = _names("""
    bert eurobert gemma-embedding jina-bert-v2 jina-bert-v3 llama-embed modern-bert neo-bert
    nomic-bert nomic-bert-moe t5encoder wavtokenizer-dec
""")
# Those of them that make sound are not served.
EMBEDDERS = ENCODERS - {"wavtokenizer-dec"}
ENCODER_DECODERS = frozenset({"t5"})
# They propose tokens to another model.
DRAFTERS = frozenset({"dflash", "eagle3", "gemma4-assistant"})
# Graphs that name the input of each layer (`t_layer_inp`), so that a drafter can read it. Native
# code ends the process where another one is asked.
GIVES_LAYERS = _names("""
    bailingmoe3 gemma4 gpt-oss hunyuan-dense hunyuan_vl lfm2 lfm2moe llama mimo2 minimax-01
    minimax-m2 muse-glimmer nanbeige nemotron_h nemotron_h_moe qwen3 qwen35 qwen35moe qwen3moe
    qwen3next
""")
# Those of them that give what the last layer makes, too (`t_h_nextn`).
GIVES_LAST_LAYER = _names("""
    bailingmoe3 gemma4 gpt-oss mimo2 nemotron_h nemotron_h_moe qwen35 qwen35moe qwen3next
""")

# All models of these have experts. Native code aborts on a file without experts.
EXPERTS_ONLY = _names("""
    arctic bailingmoe bailingmoe2 dbrx dots1 ernie4_5-moe exaone-moe glm4moe gpt-oss grovemoe
    hunyuan-moe lfm2moe llada-moe minimax-m2 nemotron_h_moe olmoe phimoe qwen2moe qwen35moe
    qwen3moe qwen3vlmoe smallthinker
""")
# They rotate by sections, and the file must give the sections.
SECTION_ROPE = frozenset({"paddleocr", "qwen2vl", "qwen3vl", "qwen3vlmoe"})
# llama.cpp computes their attention without flash attention, whatever is asked for.
WITHOUT_FLASH = frozenset({"grok"})
# Their layers with a sliding window need a second mask. Other architectures ignore the key.
SLIDING = _names("""
    afmoe cohere2 cohere2moe exaone-moe exaone4 gemma2 gemma3 gemma3n gemma4 gpt-oss
    granite_swa laguna lfm2 llama4 maple mellum mimo2 muse-glimmer olmo2 plamo3 smallthinker
    spark2_5 step35
""")
