"""Prediction intervals around any regressor, from its errors on rows that it was not fitted on."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from numbers import Real
from typing import NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone, is_classifier
from sklearn.utils import get_tags, indexable
from sklearn.utils.validation import check_is_fitted

from .._compat import _num_samples, _safe_indexing
from .._data.quantiles import at_level
from .._validation import check_integer
from .errors import as_columns
from .order import warn_of_order
from .predictions import levels_of, predictions


class _Followed(NamedTuple):
    """Where the recursion of one target has come to; see `ConformalIntervals.update`."""

    alpha: float
    known: list[float]  # the newest m scores, sorted
    issued: list[float]  # margins of the next gap + 1 rows, the last one the newest


# Of a rank, a count of rows: (19 + 1) * 0.95 is 19 but for rounding, which is 1e-10 of a row at a
# million rows.
_ROUNDING = 1e-9
# Of adaptation_rate="auto": the rate of Gibbs and Candes.
_FASTEST = 0.005


class ConformalIntervals(MetaEstimatorMixin, RegressorMixin, BaseEstimator):
    """Prediction intervals that hold the coverage asked for, around any regressor.

    With m calibration rows, which the regressor was not fitted on, their scores

        s_i = max(low(x_i) - y_i, y_i - high(x_i))

    and s_(k) the k-th smallest of them, ``k = ceil((m + 1) coverage)``, the interval is
    ``[low(x) - s_(k), high(x) + s_(k)]``, for every target column (every horizon) by itself. For a
    regressor that predicts one number, low = high is that number and s_i the absolute residual
    (split-conformal). A model with ``loss="quantile"`` has low and high from its quantiles at
    ``(1 -+ coverage) / 2`` (conformalised quantile regression): linear between its levels, and the
    outermost ones beyond them.

    If calibration rows and new rows are exchangeable, the interval holds the target with a
    probability of at least ``coverage``, and of at most ``coverage + 1 / (m + 1)`` where no two
    scores are equal, averaged over calibration sets, whatever the regressor is. A series is
    exchangeable at best nearly: calibrate on the rows just before those that are forecast, in time
    order, and :meth:`update` while time goes on. Residuals of neighbours of the training rows are
    too small, and so are the intervals of shuffled rows: a warning says so where time stamps, or
    the ends of a SequenceView, show it.

    Parameters
    ----------
    estimator : regressor
        What predicts: of this package or any other, in a Pipeline or search too. :meth:`calibrate`
        takes it fitted and leaves it as it is, :meth:`fit` fits a clone.
    calibration_fraction : float, default=0.2
        Part of the rows, the last ones, that :meth:`fit` calibrates on, in (0, 1).
    gap : int, default=0
        Rows whose targets are not known yet when a row is predicted: ``horizon - 1``. :meth:`fit`
        leaves out so many between the rows it fits and those it calibrates on, and :meth:`update`
        takes every row to have been predicted before the targets of so many rows were known.
    adaptation_rate : float or "auto", default="auto"
        Rate gamma of :meth:`update`, >= 0. Larger values answer a drift sooner and make the width
        vary more. Before a miss is noticed alpha may move by ``(gap + 1) gamma``, and where it
        falls below 0 intervals are infinite. "auto" is the smaller of 0.005 and a quarter of
        ``(1 - coverage) / (gap + 1)``.

    Attributes
    ----------
    estimator_ : regressor
        The fitted regressor.
    n_calibration_ : int
        Calibration rows m.
    n_updates_ : int
        Rows that :meth:`update` has seen.
    n_features_in_ : int
        As that of the regressor, where it has one.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Likewise.

    See Also
    --------
    sklearn_restrans.ResidualTransformerRegressor : Predicts quantiles with ``loss="quantile"``.

    Notes
    -----
    Of a regressor with ``window=``, pass a SequenceView, whose calibration rows have their true
    history: of a plain table each call knows the rows in it only.

    A target is transformed inside: ``ConformalIntervals(TransformedTargetRegressor(...))`` has
    intervals in the units of y, around numbers, since a TransformedTargetRegressor hides quantiles.
    One around ConformalIntervals has no ``predict_interval``, and that of its ``regressor_`` is in
    the transformed units.

    References
    ----------
    V. Vovk, A. Gammerman, G. Shafer, "Algorithmic Learning in a Random World", Springer 2005.

    Y. Romano, E. Patterson, E. Candes, "Conformalized Quantile Regression", NeurIPS 2019,
    arXiv:1905.03222.

    I. Gibbs, E. Candes, "Adaptive Conformal Inference Under Distribution Shift", NeurIPS 2021,
    arXiv:2106.00170.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn_restrans.forecasting import ConformalIntervals
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((3000, 2))
    >>> y = X[:, 0] + rng.standard_normal(3000)
    >>> intervals = ConformalIntervals(Ridge().fit(X[:1000], y[:1000]))
    >>> found = intervals.calibrate(X[1000:2000], y[1000:2000]).predict_interval(X[2000:], 0.9)
    >>> inside = (found[:, 0] <= y[2000:]) & (y[2000:] <= found[:, 1])
    >>> found.shape, round(float(inside.mean()), 2)
    ((1000, 2), 0.91)
    """

    def __init__(self, estimator, *, calibration_fraction=0.2, gap=0, adaptation_rate="auto"):
        self.estimator = estimator
        self.calibration_fraction = calibration_fraction
        self.gap = gap
        self.adaptation_rate = adaptation_rate

    def fit(self, X, y):
        """Fit a clone of the estimator on the first rows and calibrate on the last ones.

        Parameters
        ----------
        X : array-like or SequenceView of n_samples rows
            In time order.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.

        Returns
        -------
        self : ConformalIntervals

        Raises
        ------
        ValueError
            If no row is left to fit on.
        """
        _check_regressor(self.estimator)
        self._check_rate()
        gap, fraction = check_integer("gap", self.gap, least=0), self.calibration_fraction
        if not _is_number(fraction) or not 0 < fraction < 1:
            raise ValueError(
                f"calibration_fraction must be a number between 0 and 1, got {fraction!r:.80}."
            )
        if y is None:
            raise ValueError(
                "ConformalIntervals requires y to be passed, but the target y is None."
            )
        X, y = indexable(X, y)
        warn_of_order(X, y)
        n = _num_samples(X)
        first = n - math.ceil(fraction * n)
        if first - gap < 1:
            raise ValueError(
                f"no row is left to fit on: of n_samples={n}, calibration_fraction={fraction} "
                f"takes {n - first} and gap={gap} leaves out others: pass more rows or lower them."
            )
        train, tail = np.arange(first - gap), np.arange(first, n)
        model = clone(self.estimator).fit(_safe_indexing(X, train), _safe_indexing(y, train))
        return self._calibrate(model, _safe_indexing(X, tail), _safe_indexing(y, tail), own=True)

    def calibrate(self, X, y):
        """Calibrate a fitted estimator on rows that it has not seen; earlier rows are forgotten.

        Parameters
        ----------
        X : array-like or SequenceView of n_samples rows
            Later than the training rows, best those just before the rows that are forecast.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Their targets.

        Returns
        -------
        self : ConformalIntervals
            Of the estimator as it was passed; after :meth:`fit`, of the clone that it made.

        Raises
        ------
        NotFittedError
            If neither is fitted.
        """
        self._check_rate()
        own = getattr(self, "_fitted_here", False)
        if not own:
            _check_regressor(self.estimator)
            check_is_fitted(self.estimator)
        warn_of_order(X, y)
        return self._calibrate(self.estimator_ if own else self.estimator, X, y, own)

    def _calibrate(self, model, X, y, own):
        gap = check_integer("gap", self.gap, least=0)
        levels = levels_of(model)
        predicted, _ = predictions(model, X, levels)
        truth = _truth(y, predicted)
        for name in ("n_features_in_", "feature_names_in_"):
            vars(self).pop(name, None)
            if hasattr(model, name):
                setattr(self, name, getattr(model, name))
        self.estimator_, self._fitted_here = model, own
        self._levels, self._gap = levels, gap
        self._truth, self._predicted, self._followed = truth, predicted, {}
        self.n_calibration_, self.n_updates_ = len(truth), 0
        return self

    def predict(self, X):
        """What the regressor predicts.

        Parameters
        ----------
        X : array-like or SequenceView
            As for the regressor.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        """
        check_is_fitted(self)
        return self.estimator_.predict(X)

    def predict_interval(self, X, coverage=0.9):
        """Intervals that hold the target with the probability asked for.

        Parameters
        ----------
        X : array-like or SequenceView
            As for the regressor.
        coverage : float, default=0.9
            Share of the targets that are to lie inside, in (0, 1).

        Returns
        -------
        intervals : ndarray of shape (n_samples, 2) or (n_samples, n_outputs, 2)
            Lower and upper end, for each target by itself. After :meth:`update` a run of misses may
            ask for a coverage that no calibration row reaches: the ends are infinite then.

        Raises
        ------
        ValueError
            If there are too few calibration rows for this coverage; the message says how many it
            needs.
        """
        check_is_fitted(self)
        margin = self._margins(_check_coverage(coverage))
        predicted, columns = predictions(self.estimator_, X, self._levels)
        low, high = _band(predicted, self._levels, coverage)
        ends = np.stack([low - margin, high + margin], axis=-1)
        # Quantiles that lie too far apart are moved together, at most until they meet.
        meet = ends[..., 0] > ends[..., 1]
        ends[meet] = (low / 2 + high / 2)[meet][:, None]
        return ends if columns else ends[:, 0]

    def update(self, X, y):
        """Adapt the intervals to rows whose targets have become known, in time order.

        Intervals have the coverage 1 - alpha_t, with alpha_1 = 1 - coverage. Whether the target of
        row t lay outside the interval that was issued for it (err_t = 1) or inside (err_t = 0)
        moves alpha,

            alpha_{t+1} = alpha_t + gamma (1 - coverage - err_t),

        and its score takes the place of the oldest one. Over T rows the share of misses differs
        from 1 - coverage by at most (max(coverage, 1 - coverage) + (gap + 1) gamma) / (gamma T),
        whatever the series does, if every row is predicted once the ``gap + 1``-th row before it
        has been told, and no sooner or later. Nothing is fitted again, and
        :meth:`predict_interval` may ask for any coverage.

        Parameters
        ----------
        X : array-like or SequenceView of n_samples rows
            The next rows, in time order.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Their targets. A target h steps ahead is known h steps later: update no sooner.

        Returns
        -------
        self : ConformalIntervals
        """
        check_is_fitted(self)
        self._check_rate()
        warn_of_order(X, y)
        predicted, _ = predictions(self.estimator_, X, self._levels)
        truth = _truth(y, predicted)
        if truth.shape[1] != self._truth.shape[1]:
            raise ValueError(
                f"y has {truth.shape[1]} target columns, but {self._truth.shape[1]} are expected."
            )
        self._predicted = np.concatenate([self._predicted, predicted])
        self._truth = np.concatenate([self._truth, truth])
        self.n_updates_ += len(truth)
        return self

    def _margins(self, coverage):
        """What is added at both ends, (c,)."""
        m = self.n_calibration_
        if _rank(m, coverage) > m:
            needed = math.ceil(coverage / (1.0 - coverage) - _ROUNDING)
            raise ValueError(
                f"coverage={coverage} needs at least {needed} calibration rows, got {m}: calibrate "
                f"on more rows, or ask for a coverage of at most {m / (m + 1):.3g}."
            )
        # Where the recursion has come to so far, so that a row costs no more at the end of a long
        # series than at its beginning. What is stored is never written into.
        key = coverage, self.adaptation_rate
        seen, followed = self._followed.get(key, (0, None))
        if followed is None:
            columns = self._scores(slice(m), coverage)
            followed = [self._begin(column, coverage) for column in columns]
        if seen < self.n_updates_:
            oldest = self._scores(slice(seen, self.n_updates_), coverage)
            newest = self._scores(slice(m + seen, None), coverage)
            followed = [
                self._follow(*one, coverage) for one in zip(followed, oldest, newest, strict=True)
            ]
        self._followed[key] = self.n_updates_, followed
        return np.array([one.issued[-1] for one in followed])

    def _scores(self, rows, coverage):
        """Scores of the rows told, those of the calibration first, in a list for each target."""
        low, high = _band(self._predicted[rows], self._levels, coverage)
        return np.maximum(low - self._truth[rows], self._truth[rows] - high).T.tolist()

    def _begin(self, scores, coverage):
        """The state of one target before any update."""
        known = sorted(scores)
        return _Followed(1.0 - coverage, known, [_at_rank(known, coverage)] * (self._gap + 1))

    def _follow(self, state, oldest_scores, scores, coverage):
        """The state after new scores, each of which takes the place of an oldest one."""
        alpha, known, issued = state.alpha, state.known.copy(), list(state.issued)
        rate = self.adaptation_rate
        if isinstance(rate, str):
            rate = min(_FASTEST, (1.0 - coverage) / (4 * (self._gap + 1)))
        for oldest, score in zip(oldest_scores, scores, strict=True):
            missed = score > issued.pop(0)
            alpha += rate * (1.0 - coverage - missed)
            del known[bisect_left(known, oldest)]
            insort(known, score)
            issued.append(_at_rank(known, 1.0 - alpha))
        return _Followed(alpha, known, issued)

    def _check_rate(self):
        rate = self.adaptation_rate
        if isinstance(rate, str) and rate == "auto":
            return
        if not _is_number(rate) or not 0 <= rate < np.inf:
            raise ValueError(
                f"adaptation_rate must be a finite number >= 0, or 'auto', got {rate!r:.80}."
            )

    def __sklearn_is_fitted__(self):
        return hasattr(self, "n_calibration_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        if hasattr(self.estimator, "__sklearn_tags__"):
            of_inner = get_tags(self.estimator)
            tags.input_tags, tags.target_tags = of_inner.input_tags, of_inner.target_tags
        return tags


def _rank(m, coverage):
    """ceil((m + 1) coverage), the place among m sorted scores, from 1."""
    return math.ceil((m + 1) * coverage - _ROUNDING)


def _at_rank(scores, coverage):
    """The score at a rank; infinite beyond the last one, minus infinity before the first."""
    rank = _rank(len(scores), coverage)
    if rank > len(scores):
        return math.inf
    return scores[rank - 1] if rank >= 1 else -math.inf


def _band(predicted, levels, coverage):
    """Lower and upper prediction (n, c) before calibration; one number is both."""
    ends = (1.0 - coverage) / 2.0, (1.0 + coverage) / 2.0
    return [at_level(predicted, levels, level) for level in ends]


def _truth(y, predicted):
    """Targets (n, c) of the shape that is predicted."""
    truth = as_columns(y, "y")
    if truth.shape != predicted.shape[:2]:
        raise ValueError(
            f"y has {truth.shape[0]} rows and {truth.shape[1]} target columns, but the regressor "
            f"predicts {predicted.shape[0]} and {predicted.shape[1]}: pass the targets of X, in "
            "the columns that it was fitted on."
        )
    if not np.isfinite(truth).all():
        raise ValueError("y has missing or infinite values: leave these rows out.")
    return truth


def _check_regressor(estimator):
    if isinstance(estimator, type) or not hasattr(estimator, "predict"):
        name = estimator.__name__ if isinstance(estimator, type) else repr(estimator)
        raise TypeError(f"estimator must be a regressor, an object with predict, got {name:.80}.")
    if is_classifier(estimator):
        raise TypeError(
            f"estimator must be a regressor, got {type(estimator).__name__}, a classifier, whose "
            "labels have no intervals: use its predict_proba."
        )


def _check_coverage(coverage):
    if not _is_number(coverage) or not 0 < coverage < 1:
        percent = _is_number(coverage) and 1 < coverage < 100
        hint = f": pass {coverage / 100:g} for {coverage:g} %" if percent else ""
        raise ValueError(f"coverage must be a number between 0 and 1, got {coverage!r:.80}{hint}.")
    return float(coverage)


def _is_number(value):
    return isinstance(value, Real) and not isinstance(value, bool)
