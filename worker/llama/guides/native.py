"""llguidance's C functions, as its header `llguidance.h` declares them.

They are part of the library that the Python package brings. The package's own classes hold
Python's lock while they build a tokenizer, for a second with 262,144 tokens, and nobody is served
meanwhile. Its version is pinned, and the limits are read back before anything is built.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_bool,
    c_char,
    c_char_p,
    c_int32,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any

from worker.errors import BackendError

# (nothing, text, bytes, room for tokens, how many) -> how many there are; any thread calls it
TokenizeFunction = CFUNCTYPE(
    c_size_t, c_void_p, POINTER(c_char), c_size_t, POINTER(c_uint32), c_size_t
)


class Limits(Structure):
    """What grammars may cost. Fuel is spent at 50 a microsecond on compiling, at 14 on a mask."""

    _fields_ = [
        ("max_items_in_row", c_size_t),
        ("initial_lexer_fuel", c_uint64),
        ("step_lexer_fuel", c_uint64),
        ("step_max_items", c_size_t),
        ("max_lexer_states", c_size_t),
        ("max_grammar_size", c_size_t),
        ("precompute_large_lexemes", c_bool),
        ("verbose_errors", c_bool),
    ]


class MatcherInit(Structure):
    """How a matcher is made; room behind it for fields that the library might add."""

    _fields_ = [
        ("tokenizer", c_void_p),
        ("log_buffer_level", c_uint32),
        ("log_stderr_level", c_uint32),
        ("ff_tokens_ok", c_bool),
        ("backtrack_ok", c_bool),
        ("limits", Limits),
        ("rest", ctypes.c_byte * 256),
    ]


class TokenizerInit(Structure):
    """The vocabulary; `token_bytes` holds all tokens, one behind the other."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("vocab_size", c_uint32),
        ("tok_eos", c_uint32),
        ("token_lens", c_void_p),
        ("token_bytes", c_char_p),
        ("tokenizer_json", c_char_p),
        ("tokenize_assumes_string", c_bool),
        ("tokenize_fn", TokenizeFunction),
        ("use_approximate_greedy_tokenize_fn", c_bool),
        ("tokenize_user_data", c_void_p),
        ("slices", c_void_p),
        ("tok_eos_extra", c_void_p),
        ("tok_eos_extra_count", c_uint32),
    ]


# name -> (result, arguments); those that give Python's lock away, as they may take long
_SLOW: dict[str, tuple[Any, list[Any]]] = {
    "llg_new_tokenizer_v2": (c_void_p, [POINTER(TokenizerInit), c_char_p, c_size_t]),
    "llg_new_matcher": (c_void_p, [POINTER(MatcherInit), c_char_p, c_char_p]),
    "llg_clone_matcher": (c_void_p, [c_void_p]),
    "llg_free_matcher": (None, [c_void_p]),
    "llg_free_tokenizer": (None, [c_void_p]),
    "llg_matcher_compute_mask_into": (c_int32, [c_void_p, c_void_p, c_size_t]),
}
# those of a few microseconds
_QUICK: dict[str, tuple[Any, list[Any]]] = {
    "llg_constraint_init_set_defaults": (None, [POINTER(MatcherInit), c_void_p]),
    "llg_matcher_get_error": (c_char_p, [c_void_p]),
    "llg_matcher_consume_token": (c_int32, [c_void_p, c_uint32]),
    "llg_matcher_validate_tokens": (c_int32, [c_void_p, c_void_p, c_size_t]),
    "llg_matcher_compute_ff_tokens": (c_int32, [c_void_p, c_void_p, c_size_t]),
    "llg_matcher_is_stopped": (c_bool, [c_void_p]),
    "llg_matcher_is_accepting": (c_bool, [c_void_p]),
    "llg_tokenize_bytes": (c_size_t, [c_void_p, c_char_p, c_size_t, c_void_p, c_size_t]),
}
_DEFAULTS = (2000, 1_000_000, 200_000, 50_000, 250_000, 500_000, True, True)


class Functions:
    """The functions by their names. Raises BackendError where the library is another one."""

    def __init__(self) -> None:
        """Raises BackendError."""
        import llguidance._lib as library

        for names, loader in ((_SLOW, ctypes.CDLL), (_QUICK, ctypes.PyDLL)):
            loaded = loader(library.__file__)
            for name, (result, arguments) in names.items():
                function = loaded[name]
                function.restype, function.argtypes = result, arguments
                setattr(self, name.removeprefix("llg_"), function)
        limits = self.new_init(None).limits
        if tuple(getattr(limits, field[0]) for field in Limits._fields_) != _DEFAULTS:
            raise BackendError("llguidance is another version than the one that is pinned.")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)  # what is there was set above

    def new_init(self, tokenizer: int | None) -> MatcherInit:
        """A matcher's description with the library's own limits, which prints nothing."""
        init = MatcherInit()
        self.constraint_init_set_defaults(init, tokenizer)
        init.log_stderr_level = 0
        return init


@functools.cache
def functions() -> Functions:
    """Loaded once, at the first use."""
    return Functions()
