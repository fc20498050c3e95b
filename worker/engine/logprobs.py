"""Logits to log-probabilities."""

from __future__ import annotations

import numpy as np

from worker.engine.sequence import TokenLogprob


def token_logprob(logits: np.ndarray, token: int, top: int) -> TokenLogprob:
    """ln softmax(logits)[token] and the `top` likeliest; logits float32 [vocab_size].

    ln p_i = l_i - m - ln sum_j exp(l_j - m) with m = max l, summed in float64. All values come
    from one array, so that a token that is the likeliest equals the best of `top` bit for bit.
    """
    wide = logits.astype(np.float64)
    wide -= wide.max()
    wide -= np.log(np.exp(wide).sum())
    if top <= 0:
        return TokenLogprob(token, float(wide[token]), ())
    best = np.argpartition(wide, -top)[-top:] if top < len(wide) else np.arange(len(wide))
    best = best[np.lexsort((best, -wide[best]))]
    return TokenLogprob(token, float(wide[token]), tuple((int(i), float(wide[i])) for i in best))
