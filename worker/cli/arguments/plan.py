"""Arguments of `worker plan`."""

from __future__ import annotations

import argparse

from worker.cli.options import add_options

DESCRIPTION = (
    "Weights, KV cells, compute buffers and the total against what this machine "
    "has, and how much the states of ended conversations may take besides. Nothing is "
    "loaded. Exits with 4 when it does not fit."
)
EXAMPLE = """Example:
  worker plan tinyllama.Q4_K_M.gguf -c 8192 -np 4
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [FILE] [-c N] [-np N] [--json] [options]"
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="the same as --model (default: the embedded demo model)",
    )
    own = (
        "model catalog ctx_size parallel batch_size ubatch_size backend n_gpu_layers cpu_moe "
        "override_tensor device rpc tensor_split split_mode main_gpu cache_type_k cache_type_v "
        "cache_ram flash_attn mmap draft_model draft lora lora_dir lora_memory mmproj mmproj_auto "
        "mmproj_offload pooling override_kv rope_scaling rope_scale rope_freq_base yarn_orig_ctx"
    )
    add_options(parser, *own.split())
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    parser.add_argument(
        "--request",
        action="store_true",
        help="plan for the machines that a JSON object on standard input describes, for programs",
    )
