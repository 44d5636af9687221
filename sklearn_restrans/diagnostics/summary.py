"""What the numbers of a record mean, in words: a condition number, a softmax, a whole record."""

from __future__ import annotations

from typing import Any

import numpy as np

# One e-fold of the loss in the weakest direction takes kappa^2 / 2 steps of gradient descent. Up to
# 30 that is less than the thousand steps of a usual training. Beyond 4e3 = eps^(-1/2) of float32
# (eps = 2^-24) the weakest direction is rounding in X^T X, so no method sees it in float32
# gradients; in between plain gradient descent does not get there, a preconditioned one may.
GOOD_CONDITION, FAIR_CONDITION = 30.0, 4e3

# Tokens that differ from their mean by less than this share of their norm have collapsed. Where
# that share r is small, softmax rows are equal up to r^2 of the scores, so that W_Q and W_K have
# no gradient to speak of (Noci et al. 2022), and each further layer without residual takes r to
# about its cube (Dong, Cordonnier & Loukas 2021). In 160 fits of 1 to 8 layers (digits by rows, and
# autoregressive sequences) none of the 41 that began below 1e-3 ended above it, and none of the 100
# that began above 1e-2 fell below (tests/estimators/test_on_collapse.py fits a part of them). All
# tokens of such a layer say the same. That need not cost accuracy: a target that depends on little
# more than their mean (the autoregressive one here) was fitted by collapsed models too.
COLLAPSED_BELOW = 1e-3

# Flat: tokens of Attn(X) then differ by about 1.2 times the spread of the scores, 12 % of their
# norm, whatever X is. Saturated: a row has exp(H) = T^(1/4) keys or fewer, 2.2 of 24.
FLAT_BELOW, SATURATED_BELOW = 0.1, 0.25

_IN_WORDS = {
    "sigma_min": "sigma_min",
    "condition_number": "condition number",
    "effective_rank": "effective rank",
    "rank_collapse": "rank-collapse residual",
}
_LABELS = {"X": "X:", "attention": "Attn:", "Z": "Z:"}


def step_grade(condition_number: float) -> str:
    """ "good", "fair" or "bad": what a condition number of Z means for gradient descent.

    The loss falls by 1 - mu alpha a step with mu <= 1 / L (arXiv:2506.05249). Of the read-out
    alone alpha / L is 1 / kappa^2 of its input, so that the weakest direction takes about kappa^2
    steps. "good": up to 30, as many steps as a training has. "fair": up to 4e3, within reach of
    solvers that rescale directions. "bad": float32 gradients do not contain that direction.

    Examples
    --------
    >>> [step_grade(kappa) for kappa in (5.0, 500.0, float("inf"))]
    ['good', 'fair', 'bad']
    """
    if condition_number <= GOOD_CONDITION:
        return "good"
    return "fair" if condition_number <= FAIR_CONDITION else "bad"


def attention_state(score_std: Any, entropy_share: Any) -> Any:
    """ "flat", "saturated", "selective", or "" where nothing was recorded; arrays of one shape.

    The two ways in which softmax loses rank differ in sign: flat rows weigh every key alike, so
    that each token becomes the mean (score_std < 0.1); saturated ones pick one key each, and the
    rank is the number of keys picked (entropy below a quarter of log T). In between rows are
    selective. Flat goes by the scores, because the entropy is within 1 % of log T long before rows
    are alike; saturated by the entropy, because scores that pick a key may have any spread.

    Examples
    --------
    >>> attention_state([0.01, 1.0, 20.0], [1.0, 0.8, 0.1]).tolist()
    ['flat', 'selective', 'saturated']
    """
    score_std, entropy_share = np.asarray(score_std), np.asarray(entropy_share)
    choices = [
        np.isnan(score_std) | np.isnan(entropy_share),  # or sequences of one token
        score_std < FLAT_BELOW,
        entropy_share < SATURATED_BELOW,
    ]
    return np.select(choices, ["", "flat", "saturated"], "selective")


def describe(record: Any) -> str:
    """The text of a Conditioning: its last layer, from the first record to the last."""
    when = " -> ".join(
        "before training" if epoch == 0 else f"after epoch {epoch}"
        for epoch in dict.fromkeys((int(record.epochs[0]), int(record.epochs[-1])))
    )
    L, probe = record.n_layers, f"{record.n_sequences} sequences, {record.n_rows} rows"
    lines = [f"Conditioning of layer {L - 1}, the last of {L}, {when} ({probe})"]
    # All matrices with the same quantities, so that the effect of the residual is seen.
    shown = {of: label for of, label in _LABELS.items() if of in record.matrices}
    for of, label in shown.items():
        parts = [f"{text} {_change(record, name, of)}" for name, text in _IN_WORDS.items()]
        lines.append(f"  {label:5} {', '.join(parts)}")
    lines.append(f"  {_ranks(record)}")
    if "X" in shown:
        of_Z, of_attention = (_change(record, "sigma_min_ratio", of) for of in ("Z", "attention"))
        lines.append(f"  sigma_min over that of X: Z {of_Z}, Attn alone {of_attention}")
    grade = step_grade(record.get("condition_number"))
    lines.append(
        f"  condition number kappa of Z: {grade}. A read-out of Z alone takes gradient descent "
        "about kappa^2 steps (1 - mu alpha, arXiv:2506.05249);"
    )
    lines.append(
        f"  our grades: good to {GOOD_CONDITION:g}, a usual training; fair to {FAIR_CONDITION:g}, "
        "for solvers that rescale; bad beyond, not resolved in float32"
    )
    collapse = record.get("rank_collapse")
    of_input = record.get("rank_collapse", "X", layer=0) if "X" in shown else 0.0
    if collapse < COLLAPSED_BELOW <= of_input:
        lines.append(
            f"  the tokens of Z have collapsed: they differ from their mean by {collapse:.1e} of "
            "their norm, whatever its stacked condition number is"
        )
    state = record.attention_state[-1, -1]
    if state:
        lines.append(
            f"  attention is {state}: score std {_change(record, 'score_std', 'Z')}, entropy "
            f"{_change(record, 'attention_entropy_share', 'Z')} of log T"
        )
    return "\n".join(lines)


def _ranks(record: Any) -> str:
    """At which rank the numbers are taken, and which matrices have less."""
    r, d = int(record.input_rank[-1, -1]), record.d_model
    text = f"sigma_min is sigma_{r}, at the rank of the input X ({r} of {d})"
    for view, name in ((record.attention, "Attn"), (record.Z, "Z")):
        rank = int(view.numerical_rank[-1, -1])
        if rank < r:
            text += f"; {name} has rank {rank}, its sigma_{r} is not resolved"
        elif r < d and rank < d:
            # W_V turns Attn(X) out of the row space of X, so Z may have twice the rank of X.
            text += f"; {name} has rank {rank}, its sigma_{d} is rounding"
    return text


def _change(record: Any, name: str, of: str) -> str:
    values = [f"{record.get(name, of, stage=stage):.3g}" for stage in ("initial", "final")]
    return " -> ".join(values if len(record.epochs) > 1 else values[:1])
