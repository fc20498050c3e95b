"""What the makers recommend for sampling: each request is sampled so, unless it says otherwise."""

from __future__ import annotations

from worker.gguf.fields import Fields

_INT32_MAX = 2**31 - 1
# Key -> lowest and highest, as `engine/sampling.py` has them for requests.
RANGES: dict[str, tuple[float, float]] = {
    "temp": (0, 100),
    "top_k": (-1, _INT32_MAX),
    "top_p": (0, 1),
    "min_p": (0, 1),
    "xtc_probability": (0, 1),
    "xtc_threshold": (0, 1),
    "penalty_last_n": (-1, _INT32_MAX),
    "penalty_repeat": (1e-3, 100),
    "mirostat": (0, 2),
    "mirostat_tau": (0, 100),
    "mirostat_eta": (0, 1),
}


def check_sampling_defaults(fields: Fields) -> None:
    """Raise BAD_VALUE for a recommendation out of range: requests without it would all fail."""
    for name, (low, high) in RANGES.items():
        key = f"general.sampling.{name}"
        value = fields.number(key)
        if value is not None and not low <= value <= high:  # NaN is in no range
            fields.bad(key, value, f"{low:g} to {high:g}")
