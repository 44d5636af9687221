"""Candidates of a choice between forecasts: estimators, and the form of the windows they read."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from numbers import Integral

from sklearn.base import clone
from sklearn.utils import check_random_state

from .._estimators.regressor import ResidualTransformerRegressor
from ..forecasting import (
    MeanForecaster,
    PersistenceRegressor,
    RidgeForecaster,
    SeasonalNaiveRegressor,
    make_supervised,
)
from ..forecasting.future import seasons_of

PERSISTENCE = "persistence"
# What all candidates have in common, so that they forecast the same rows from the same columns.
_COMMON = ("frame", "target", "horizon", "freq")
_OF_SERIES = ("known", "group")
_OPTIONS = [
    name
    for name in inspect.signature(make_supervised).parameters
    if name not in (*_COMMON, *_OF_SERIES)
]


def default_candidates(places, horizons, window, *, freq=None, n_train=None, estimator=None):
    """The candidates of an AutoForecaster: {name: (estimator, options of make_supervised)}.

    Persistence; the last day, week or year again, as far as the frequency tells their length and
    the training rows hold two of them; a ridge on plain windows, which knows the level, and on
    windows relative to their last value, which does not rely on it; the Transformer on plain
    windows, and on relative windows in patches; and the mean of that one and a ridge. Of several
    targets the relative ones come with ``channel_independent`` too.

    Parameters
    ----------
    places : list of int
        Places of the target columns in the frame.
    horizons : list of int
        Steps ahead.
    window : int
        Rows of a window.
    freq : str, int, Timedelta or DateOffset, default=None
        Step of the frame, as `make_supervised` notes it.
    n_train : int, default=None
        Rows of the shortest training part; None lets every season in.
    estimator : regressor, default=None
        The Transformer; None is ResidualTransformerRegressor().

    Returns
    -------
    candidates : dict
    """
    model = ResidualTransformerRegressor() if estimator is None else estimator
    candidates = {PERSISTENCE: (PersistenceRegressor(places), {})}
    for season, period in seasons_of(freq).items():
        if n_train is None or 2 * period <= n_train:
            naive = SeasonalNaiveRegressor(places, period=period, horizon=horizons)
            # A table is read by its time stamps; in windows a season ends at every gap.
            candidates[f"seasonal naive ({season})"] = naive, {"window": None}
    ridge, relative, patch = RidgeForecaster(), {"relative": "last"}, patch_of(window)
    candidates["ridge"] = ridge, {}
    candidates["ridge (relative)"] = ridge, relative
    candidates["Transformer"] = model, {}
    kind, form = "relative", relative
    if patch > 1:
        kind, form = "patches, relative", relative | {"patch": patch}
    mean = MeanForecaster([("ridge", ridge), ("transformer", model)])
    candidates[f"Transformer ({kind})"] = model, form
    candidates[f"mean of both ({kind})"] = mean, form
    if len(places) > 1:
        apart = {"channel_independent": True}
        candidates["ridge (relative, channels apart)"] = ridge, relative | apart
        candidates[f"Transformer ({kind}, channels apart)"] = model, form | apart
        candidates[f"mean of both ({kind}, channels apart)"] = mean, form | apart
    return candidates


def patch_of(window):
    """The largest divisor of a window whose square is at most the window: 6 of 48, 16 of 336."""
    return max(p for p in range(1, window + 1) if p * p <= window and window % p == 0)


def check_candidates(candidates):
    """Candidates as users give them, with persistence in the first place.

    Raises
    ------
    ValueError
        If they are not a dict of pairs, an option is unknown or belongs to all candidates, or
        another forecast is called persistence.
    """
    if not isinstance(candidates, Mapping) or not candidates:
        raise ValueError(
            "candidates must be a dict {name: (estimator, options of make_supervised)}, e.g. "
            "{'ridge': (RidgeForecaster(), {'relative': 'last'})}, or None for the default ones; "
            f"got {candidates!r:.80}."
        )
    for name, candidate in candidates.items():
        _check_candidate(name, candidate)
    own = candidates.get(PERSISTENCE, (PersistenceRegressor(), {}))[0]
    if not isinstance(own, PersistenceRegressor):
        raise ValueError(
            f"candidates[{PERSISTENCE!r}] is {type(own).__name__}: the name belongs to "
            "PersistenceRegressor, against which all others are measured; choose another one."
        )
    return {name: given for name, given in candidates.items() if name != PERSISTENCE}


def _check_candidate(name, candidate):
    if not isinstance(name, str):
        raise ValueError(f"candidates has the name {name!r:.80}, which is no text: name it by one.")
    where = f"candidates[{name!r}]"
    pair = candidate if isinstance(candidate, tuple | list) and len(candidate) == 2 else (None, 0)
    estimator, options = pair
    if not isinstance(options, Mapping) or isinstance(estimator, type) or estimator is None:
        raise ValueError(
            f"{where} must be a pair (estimator, options of make_supervised), e.g. "
            f"(Ridge(), {{'window': None}}), got {candidate!r:.80}."
        )
    if not all(hasattr(estimator, method) for method in ("fit", "predict", "get_params")):
        raise ValueError(
            f"{where} must begin with a regressor that has fit, predict and get_params, got "
            f"{estimator!r:.80}."
        )
    series = [option for option in options if option in _OF_SERIES]
    if series:
        raise ValueError(
            f"{where} has the options {series}: an AutoForecaster forecasts one series from its "
            "own past. For columns known in advance, or several series, call make_supervised and "
            "backtest."
        )
    common = [option for option in options if option in _COMMON]
    if common:
        raise ValueError(
            f"{where} has the options {common}, which are the same for all candidates: set target "
            "and horizon of the AutoForecaster, and the frequency of its frame."
        )
    unknown = [option for option in options if option not in _OPTIONS]
    if unknown:
        raise ValueError(
            f"{where} has the options {unknown}, which make_supervised does not take: choose from "
            f"{_OPTIONS}."
        )


def seeded(estimator, random_state):
    """A clone in which every ``random_state`` that is None, nested ones too, is this one."""
    estimator = clone(estimator)
    if random_state is None:
        return estimator
    seed = random_state
    if not isinstance(seed, Integral):
        seed = int(check_random_state(seed).randint(2**31 - 1))
    free = {
        name: seed
        for name, value in estimator.get_params(deep=True).items()
        if name.rpartition("__")[2] == "random_state" and value is None
    }
    return estimator.set_params(**free)
