"""A forecaster that chooses its model and its windows by a backtest, and says what it gained."""

from __future__ import annotations

import warnings
from numbers import Integral
from time import perf_counter

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.model_selection import TimeSeriesSplit
from sklearn.utils.validation import check_is_fitted

from .._validation import check_integer, check_splits
from ..forecasting import PersistenceRegressor, RidgeForecaster, backtest, make_supervised
from ..forecasting.future import Calendar, newest_window, times_of
from ..forecasting.supervised import as_labels, check_horizons
from .forecast_candidates import PERSISTENCE, check_candidates, default_candidates, seeded

__all__ = ["AutoForecaster"]


class AutoForecaster(BaseEstimator):
    """Choose among forecasts by their backtest, refit the best one, and forecast from a frame.

    Every candidate is an estimator and a form of windows (`make_supervised`). All of them, with
    persistence always among them, are fitted on the same training rows and forecast the same
    validation rows that follow. The best one is fitted again on all rows. If none is better than
    persistence, persistence is what is fitted, with a warning.

    Parameters
    ----------
    target : label or list of labels, default=None
        Column(s) to forecast; None is every column of the frame.
    horizon : int, or list or range of int, default=1
        Steps ahead, as for `make_supervised`: 3 is the third row ahead alone, ``range(1, 4)`` the
        next three.
    window : int, default=24
        Rows of history that a window holds.
    candidates : dict, default=None
        ``{name: (estimator, options)}``, the options being those of `make_supervised` that make X:
        ``relative``, ``patch``, ``dilation``, ..., and ``window``, where it is another one (None
        for rows of a table instead of windows). None tries persistence; the last day, week or year
        again, as far as the frequency tells their length and the training rows hold two of them;
        RidgeForecaster on plain windows and on windows relative to their last value; ``estimator``
        on plain windows, and on relative ones in patches as long as the largest divisor of the
        window whose square is at most the window; and the mean of that one and a ridge. Of several
        targets the relative ones are also tried with ``channel_independent=True``.
    estimator : regressor, default=None
        The one of the default candidates that reads windows; None is ResidualTransformerRegressor
        with its defaults.
    cv : int, splitter or iterable of (train, test) rows, default=None
        None validates on the last fifth of the rows that have targets, an int on the folds of
        ``TimeSeriesSplit(cv, gap=horizon - 1)``. Training ends in time for its targets to be known
        before the first validation row.
    scoring : {"MAE", "RMSE"}, default="MAE"
        Error by which candidates are compared: its ratio to that of persistence, for every output
        (target and horizon) and fold, and then the mean of these ratios, so that units do not
        matter. Outputs that persistence forecasts without error do not count, unless there are no
        others.
    random_state : int, RandomState instance or None, default=None
        Given to the candidates where their own is None.

    Attributes
    ----------
    best_candidate_ : str
        Name of the candidate that was chosen.
    skill_ : float
        1 - the mean ratio of its error to that of persistence on the validation part; 0 is no
        better than persistence, 1 is without error. As the best of several it flatters a little,
        the more the more candidates were tried: measure on later rows what to expect.
    estimator_ : regressor
        The best candidate, fitted on all rows that have targets.
    scores_ : DataFrame
        A row per candidate, the best one first: MAE and RMSE (means over outputs and folds, in the
        units of the targets), skill, with several folds ``split0_skill`` and so on, seconds, and
        the error of a candidate that failed.
    backtests_ : dict of DataFrame
        What `backtest` returned for each candidate: a row per fold and output.
    report_ : str
        The table and the choice in words; ``print(forecaster)`` shows it.
    columns_ : Index
        Columns of the frame.

    See Also
    --------
    sklearn_restrans.forecasting.backtest : The evaluation behind it.
    sklearn_restrans.forecasting.make_supervised : The windows.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from sklearn_restrans import AutoForecaster
    >>> from sklearn_restrans.forecasting import SeasonalNaiveRegressor
    >>> hours = pd.date_range("2024-01-01", periods=240, freq="h")
    >>> frame = pd.DataFrame({"load": np.sin(np.arange(240) * np.pi / 12)}, index=hours)
    >>> daily = SeasonalNaiveRegressor(period=24, horizon=3)
    >>> forecaster = AutoForecaster("load", horizon=3, candidates={"last day": (daily, {})})
    >>> forecaster.fit(frame).best_candidate_
    'last day'
    >>> forecaster.predict(frame).round(3)
                          load
    2024-01-11 02:00:00  0.5
    """

    def __init__(
        self,
        target=None,
        *,
        horizon=1,
        window=24,
        candidates=None,
        estimator=None,
        cv=None,
        scoring="MAE",
        random_state=None,
    ):
        self.target = target
        self.horizon = horizon
        self.window = window
        self.candidates = candidates
        self.estimator = estimator
        self.cv = cv
        self.scoring = scoring
        self.random_state = random_state

    def fit(self, frame, y=None):
        """Score every candidate on the validation part and fit the best one on all rows.

        Parameters
        ----------
        frame : DataFrame of shape (n_rows, n_features)
            One series, as for `make_supervised`; every column is read by the models.
        y : None, default=None
            Ignored; targets are columns of the frame.

        Returns
        -------
        self : object
            The fitted forecaster.

        Raises
        ------
        TypeError, ValueError
            If the frame, a parameter or the form of a candidate cannot be used, or every candidate
            but persistence failed.

        Warns
        -----
        UserWarning
            If no candidate is better than persistence on the validation part.
        """
        self._check_parameters(frame)
        targets = list(frame.columns)
        if self.target is not None:
            targets = as_labels("target", self.target, targets)
        horizons = check_horizons(self.horizon)
        forms = _Forms(frame, targets, horizons, self.window)
        X, y = forms.samples(PERSISTENCE, {})
        folds = _folds(self.cv, X, y, max(horizons))
        candidates = self._candidates(forms, y.attrs["freq"], min(len(train) for train, _ in folds))
        for name, (_, options) in candidates.items():
            forms.samples(name, options)  # A form that cannot be made is refused before any fit.
        tables, seconds, errors = _backtests(candidates, forms, folds)
        scores = _scores(tables, seconds, errors, self.scoring)
        best, skill = scores.index[0], float(scores["skill"].iloc[0])
        estimator, options = candidates[best]
        trained = estimator.fit(*forms.samples(best, options))
        report = _report(scores, tables[best], self.scoring, trained)
        calendar = Calendar(frame.index, y.attrs["freq"])
        # All attributes are set at once, here: a fit that ends before leaves an earlier one.
        self.best_candidate_, self.skill_, self.estimator_ = best, skill, trained
        self.scores_, self.backtests_, self.report_ = scores, tables, report
        self.columns_, self._target, self._horizons = frame.columns, forms.target, horizons
        self._calendar, self._form = calendar, {"window": self.window} | options
        _warn_of_persistence(scores)
        return self

    def predict(self, frame):
        """Forecast the rows that come after the last row of a frame.

        Parameters
        ----------
        frame : DataFrame of shape (n_rows, n_features)
            The columns of fit, in any order and with others beside them, with at least as many rows
            as the best candidate reads: the frame of fit, one with newer rows, or another series of
            the same frequency.

        Returns
        -------
        forecast : DataFrame of shape (n_horizons, n_targets)
            Indexed by the time stamps (or row numbers) that are forecast, in the units of frame.

        Raises
        ------
        TypeError, ValueError
            If the frame lacks columns, has another frequency than in fit, or too few rows.
        """
        check_is_fitted(self)
        _check_type(frame)
        missing = [label for label in self.columns_ if label not in set(frame.columns)]
        if missing:
            raise ValueError(f"frame lacks the columns {missing}, which were there in fit.")
        frame = frame[list(self.columns_)]
        self._calendar.times(frame.index)  # refuses another frequency
        self._check_length(frame)
        if self._form["window"] is None:
            X = frame  # Rows of a table may be read with those before them.
        else:
            with warnings.catch_warnings():
                # What gaps cost was said in fit.
                warnings.filterwarnings("ignore", message=".*history", category=UserWarning)
                X = newest_window(frame, self._target, self._horizons, self._calendar, self._form)
        outputs = np.asarray(self.estimator_.predict(X)).reshape(len(X), -1)[-1]
        # Outputs are ordered as those of make_supervised, horizons running fastest.
        outputs = outputs.reshape(-1, len(self._horizons)).T
        targets = as_labels("target", self._target, self.columns_)
        return pd.DataFrame(
            outputs,
            index=self._calendar.ahead(frame.index, self._horizons),
            columns=self.columns_.take([list(self.columns_).index(label) for label in targets]),
        )

    def __str__(self):
        return getattr(self, "report_", None) or repr(self)

    def _check_parameters(self, frame):
        _check_type(frame)
        times_of(frame.index)  # refuses several series
        check_integer("window", self.window)
        numbers = frame.select_dtypes("number")
        infinite = list(
            numbers.columns[np.isinf(numbers.to_numpy(float, na_value=np.nan)).any(axis=0)]
        )
        if infinite:
            raise ValueError(
                f"frame has infinite values in the columns {infinite}: replace them by NaN, which "
                "stands for a missing reading, or correct them."
            )
        if self.estimator is not None and not hasattr(self.estimator, "fit"):
            raise ValueError(f"estimator must be a regressor or None, got {self.estimator!r:.80}.")
        if self.scoring not in ("MAE", "RMSE"):
            raise ValueError(f"scoring must be 'MAE' or 'RMSE', got {self.scoring!r:.80}.")
        if self.candidates is not None and self.estimator is not None:
            raise ValueError(
                "estimator is a part of the default candidates: set candidates=None, or put it "
                "among the candidates."
            )

    def _candidates(self, forms, freq, n_train):
        """Clones of the candidates with their seed, persistence first."""
        places = forms.places
        if self.candidates is None:
            found = default_candidates(
                places,
                forms.horizons,
                self.window,
                freq=freq,
                n_train=n_train,
                estimator=self.estimator,
            )
        else:
            found = check_candidates(self.candidates)
        found = {PERSISTENCE: (PersistenceRegressor(places), {})} | found
        seed = self.random_state
        return {name: (seeded(model, seed), dict(form)) for name, (model, form) in found.items()}

    def _check_length(self, frame):
        form, model = self._form, self.estimator_
        window = form["window"] or getattr(model, "window", None) or 1
        dilation = form.get("dilation", 1) if form["window"] else getattr(model, "dilation", 1)
        needed = (window - 1) * dilation + 1
        if len(frame) < needed:
            raise ValueError(
                f"frame has {len(frame)} rows, but {self.best_candidate_!r} reads the last "
                f"{needed}: pass at least that many."
            )


class _Forms:
    """The samples of one frame in the forms that candidates ask for, each made once."""

    def __init__(self, frame, targets, horizons, window):
        self.frame, self.horizons, self.window = frame, horizons, window
        # One output is a Series, which every regressor takes.
        single = len(targets) == 1 and len(horizons) == 1
        self.target = targets[0] if single else targets
        self.horizon = horizons[0] if single else horizons
        self.targets, self._made = targets, []

    @property
    def places(self):
        """Places of the targets in the frame."""
        columns = list(self.frame.columns)
        return [columns.index(label) for label in self.targets]

    def samples(self, name, options):
        """X and y of one candidate, whose y must be that of all others."""
        for asked, X, y in self._made:
            if asked == options:
                return X, y
        try:
            X, y = make_supervised(
                self.frame, self.target, self.horizon, **{"window": self.window} | options
            )
        except (TypeError, ValueError) as error:
            if not options:
                raise
            raise type(error)(f"candidates[{name!r}] with {options}: {error}") from error
        if self._made and not y.equals(self._made[0][2]):
            raise ValueError(
                f"candidates[{name!r}] with {options} has other rows or targets than persistence "
                "has: leave out options that change y."
            )
        self._made.append((options, X, y))
        return X, y


def _check_type(frame):
    if not isinstance(frame, pd.DataFrame):
        raise TypeError(
            f"frame must be a pandas DataFrame in time order, got {type(frame).__name__}: convert "
            "it (pd.DataFrame(...), .to_pandas()) and set its time stamps as the index."
        )


def _folds(cv, X, y, reach):
    """Pairs (train, test) of row numbers; training targets are known before the test rows."""
    single = cv is None
    if not single and (isinstance(cv, bool) or not isinstance(cv, Integral)):
        return check_splits(cv, X, y)
    n, n_folds = len(y), 1 if single else check_integer("cv", cv, least=2)
    size = n // 5 if single else n // (n_folds + 1)
    if size < reach:
        raise ValueError(
            f"horizon={reach} is longer than the validation part of {size} rows ({n} rows of frame "
            "have their targets): pass a longer frame, a shorter horizon or a smaller cv."
        )
    first = n - n_folds * size - (reach - 1)
    if first < 1:
        raise ValueError(
            f"frame has {n} rows with targets, which leaves none to train on before the "
            f"validation part with horizon={reach}: pass a longer frame or a shorter horizon."
        )
    if single:
        return [(np.arange(first), np.arange(n - size, n))]
    return check_splits(TimeSeriesSplit(n_folds, gap=reach - 1), X, y)


def _backtests(candidates, forms, folds):
    """Of every candidate what `backtest` says, or the error that ended it, and its seconds."""
    tables, seconds, errors = {}, {}, {}
    for name, (estimator, options) in candidates.items():
        X, y = forms.samples(name, options)
        start, baseline = perf_counter(), tables.get(PERSISTENCE)
        try:
            table = backtest(estimator, X, y, folds, baseline=baseline)
            if not np.isfinite(table[["MAE", "RMSE"]].to_numpy()).all():
                raise ValueError("its forecasts are not finite.")
            tables[name] = table
        except Exception as error:
            # Persistence can only fail on folds or a frame that no candidate can use.
            if name == PERSISTENCE:
                raise
            errors[name] = f"{type(error).__name__}: {error}"
        seconds[name] = perf_counter() - start
    others = [name for name in candidates if name != PERSISTENCE]
    if others and not set(others) & set(tables):
        raise ValueError(
            f"every candidate but persistence failed, {others[0]!r} first: {errors[others[0]]}"
        )
    return tables, seconds, errors


def _scores(tables, seconds, errors, scoring):
    """A row per candidate, the best one first; among equals persistence, then the given order."""
    reference = tables[PERSISTENCE]
    rows = {}
    for name in seconds:
        row = {"MAE": np.nan, "RMSE": np.nan, "skill": np.nan}
        if name in tables:
            row = dict(tables[name][["MAE", "RMSE"]].mean())
            ratio = _ratios(tables[name][scoring], reference[scoring])
            row["skill"] = 1 - ratio.mean()
            per_fold = 1 - ratio.groupby(reference["fold"]).mean()
            if len(per_fold) > 1:
                row |= {f"split{fold}_skill": value for fold, value in per_fold.items()}
        rows[name] = row | {"seconds": seconds[name], "error": errors.get(name, "")}
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("candidate")
    last = ["seconds", "error"]
    table = table[[name for name in table if name not in last] + last]
    return table.sort_values("skill", ascending=False, kind="stable", na_position="last")


def _ratios(errors, reference):
    """Errors over those of persistence, without the outputs that it forecasts without error."""
    if (reference > 0).any():
        return errors / reference.where(reference > 0)
    return errors.where(errors == 0, np.inf).where(errors > 0, 1.0)


def _report(scores, table, scoring, estimator):
    """The scores as a table, and the choice in words."""
    shown = scores.drop(columns="error").round({"seconds": 1})
    text = [shown.to_string(float_format=lambda value: f"{value:.4g}"), ""]
    best, skill = scores.index[0], scores["skill"].iloc[0]
    n_rows, parts = int(table.groupby("fold")["n_test"].first().sum()), table["fold"].nunique()
    part = "the validation part" if parts == 1 else f"{parts} validation parts"
    start, end = table["test_start"].iloc[0], table["test_end"].iloc[-1]
    where = f"{part} ({n_rows} rows, {start} to {end})"
    several = len(table) > 1
    gain = f"its {scoring} is {skill:.1%} below that of persistence"
    if several:
        gain += f" (mean over outputs and folds of 1 - {scoring} / {scoring} of persistence)"
    beaten = [name for name in scores.index if scores.loc[name, "skill"] > 0]
    if best == PERSISTENCE:
        text.append(
            f"No candidate of {len(scores)} is better than persistence on {where}, so persistence "
            "was chosen."
        )
    else:
        text.append(
            f"Best of {len(scores)} candidates is {best!r}: on {where} {gain}. Next comes "
            f"{scores.index[1]!r} with {scores['skill'].iloc[1]:.1%}. Persistence was beaten by "
            f"{len(beaten)}: {'; '.join(beaten)}."
        )
    if isinstance(estimator, RidgeForecaster):
        text.append("The winner is a linear model: nothing else that was tried is better here.")
    text += [f"{name!r} failed: {error:.200}" for name, error in scores["error"].items() if error]
    return "\n".join(text)


def _warn_of_persistence(scores):
    if scores.index[0] != PERSISTENCE:
        return
    others = scores["skill"].drop(PERSISTENCE).dropna()
    near = f" ({others.index[0]!r} comes next, skill {others.iloc[0]:.3g})" if len(others) else ""
    warnings.warn(
        f"no candidate is better than persistence on the validation part{near}, so persistence was "
        "chosen and fitted: the forecast is the last known value.",
        UserWarning,
        stacklevel=3,
    )
