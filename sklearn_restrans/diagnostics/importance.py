"""Which channels of a sequence a fitted model uses."""

from __future__ import annotations

from numbers import Real

import numpy as np
from sklearn.utils import Bunch, check_random_state
from sklearn.utils.validation import check_consistent_length

from .._validation import check_integer, check_scorer

__all__ = ["channel_importance"]


def channel_importance(
    estimator, X, y, *, scoring=None, n_repeats=5, max_samples=2_000, random_state=None
):
    """Permutation importance of the channels of sequences.

    The importance of channel c is the mean drop of the score when every sequence gets the channel,
    over all its tokens, of another sequence: score(X) - score(X with channel c permuted). That is
    :func:`sklearn.inspection.permutation_importance` for inputs (n, T, f), which that function,
    made for tables, does not take; for a 2-D X, with or without ``window``, use that function.

    Parameters
    ----------
    estimator : estimator
        Fitted on sequences or a SequenceView.
    X : array-like of shape (n_samples, n_tokens, n_features) or SequenceView
        Sequences to score.
    y : array-like
        Their targets.
    scoring : str or callable, default=None
        Score; None is ``estimator.score``.
    n_repeats : int, default=5
        Permutations per channel.
    max_samples : int, default=2_000
        At most so many sequences, but 2 at least, drawn without replacement; they are held as one
        array.
    random_state : int, RandomState instance or None, default=None
        Seed of the sequences drawn and of the permutations.

    Returns
    -------
    result : Bunch
        ``importances`` (n_features, n_repeats), ``importances_mean`` and ``importances_std``
        (n_features,), ``baseline_score``, and ``columns``, the channel names of a SequenceView of a
        DataFrame, else None.

    Raises
    ------
    TypeError, ValueError
        If X is not 3-D or holds one sequence only, n_repeats or max_samples is no number of them,
        or scoring is no score.

    References
    ----------
    L. Breiman, "Random Forests", Machine Learning 45 (2001) 5-32, section 10.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_restrans import ResidualTransformerRegressor, channel_importance
    >>> X = np.random.default_rng(0).standard_normal((200, 4, 3))
    >>> y = X[:, -1, 1]
    >>> model = ResidualTransformerRegressor(d_model=8, random_state=0).fit(X, y)
    >>> int(channel_importance(model, X, y, random_state=0).importances_mean.argmax())
    1
    """
    if len(getattr(X, "shape", np.shape(X))) != 3:
        raise ValueError(
            "X must be 3-D (n_samples, n_tokens, n_features) or a SequenceView; for a table use "
            "sklearn.inspection.permutation_importance."
        )
    for name, value, least in (("n_repeats", n_repeats, 1), ("max_samples", max_samples, 2)):
        check_integer(name, value, least)
    check_consistent_length(X, y)
    if len(y) == 1:
        raise ValueError("X holds one sequence: a channel is permuted among 2 or more; pass more.")
    rng, scorer = check_random_state(random_state), check_scorer(estimator, scoring)
    columns = getattr(X, "columns", None)
    if len(y) > max_samples:
        rows = np.sort(rng.permutation(len(y))[:max_samples])
        X = (X if hasattr(X, "shape") else np.asarray(X))[rows]
        y = np.asarray(y)[rows]
    X = np.array(X)  # a view has no place for one changed channel
    baseline = scorer(estimator, X, y)
    if not isinstance(baseline, Real):
        raise TypeError(f"scoring must return one number, got {baseline!r}.")
    importances = np.empty((X.shape[2], n_repeats))
    for channel in range(X.shape[2]):
        original = X[:, :, channel].copy()
        for repeat in range(n_repeats):
            X[:, :, channel] = original[rng.permutation(len(X))]
            importances[channel, repeat] = baseline - scorer(estimator, X, y)
        X[:, :, channel] = original
    return Bunch(
        importances=importances,
        importances_mean=importances.mean(axis=1),
        importances_std=importances.std(axis=1),
        baseline_score=baseline,
        columns=columns,
    )
