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

    The importance of channel c is the mean drop of the score when each sequence takes channel c,
    at all its tokens, from another sequence: score(X) - score(X with channel c permuted). It is
    :func:`sklearn.inspection.permutation_importance` for inputs of shape (n, T, f), which that
    function does not accept. For a 2-D X, with or without ``window``, use that function.

    Parameters
    ----------
    estimator : estimator
        Estimator fitted on sequences or a SequenceView.
    X : array-like of shape (n_samples, n_tokens, n_features) or SequenceView
        Sequences to score.
    y : array-like
        Their targets.
    scoring : str or callable, default=None
        Score; None means ``estimator.score``.
    n_repeats : int, default=5
        Permutations per channel.
    max_samples : int, default=2_000
        Largest number of sequences to use, at least 2. If there are more, this many are drawn
        without replacement. They are held in memory as one array.
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
        If X is not 3-D or has only one sequence, if n_repeats or max_samples is not an integer in
        its range, or if scoring is not a score.

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
    # The shape of a view is known without making its windows.
    if len(getattr(X, "shape", np.shape(X))) != 3:
        raise ValueError(
            "X must be 3-D (n_samples, n_tokens, n_features) or a SequenceView; for a table use "
            "sklearn.inspection.permutation_importance."
        )
    for name, value, least in (("n_repeats", n_repeats, 1), ("max_samples", max_samples, 2)):
        check_integer(name, value, least)
    check_consistent_length(X, y)
    if len(y) == 1:
        raise ValueError("X holds one sequence, but permuting a channel needs at least 2.")
    rng, scorer = check_random_state(random_state), check_scorer(estimator, scoring)
    columns = getattr(X, "columns", None)
    if len(y) > max_samples:
        # Sorted, so that a view reads its series in order.
        rows = np.sort(rng.permutation(len(y))[:max_samples])
        X = (X if hasattr(X, "shape") else np.asarray(X))[rows]
        y = np.asarray(y)[rows]
    # A token of a patch is the channels of several rows, one after the other.
    n_channels = X.series.shape[1] if hasattr(X, "series") else np.shape(X)[2]
    X = np.array(X)  # a copy: windows of a view share their rows, and X must not change
    baseline = scorer(estimator, X, y)
    if not isinstance(baseline, Real):
        raise TypeError(f"scoring must return one number, got {baseline!r}.")
    importances = np.empty((n_channels, n_repeats))
    for channel in range(n_channels):
        # One channel at a time is overwritten, over all tokens, and put back afterwards.
        places = slice(channel, None, n_channels)
        original = X[:, :, places].copy()
        for repeat in range(n_repeats):
            X[:, :, places] = original[rng.permutation(len(X))]
            importances[channel, repeat] = baseline - scorer(estimator, X, y)
        X[:, :, places] = original
    return Bunch(
        importances=importances,
        importances_mean=importances.mean(axis=1),
        importances_std=importances.std(axis=1),
        baseline_score=baseline,
        columns=columns,
    )
