"""Rows that are seen to go back in time are named, and no others."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

from sklearn_restrans import ResidualTransformerRegressor
from sklearn_restrans.forecasting import ConformalIntervals, make_supervised
from sklearn_restrans.forecasting.order import warn_of_order

TIMES = pd.date_range("2024-01-01", periods=60, freq="h")
RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.standard_normal((60, 2)), index=TIMES)
Y = pd.Series(RNG.standard_normal(60), index=TIMES)
SHUFFLED = RNG.permutation(60)
BACK = "the rows of X and y go back in time, .* sorted by time, not on a random part"


def views(group=None):
    """Windows over one series or over two stations, and their targets as an array."""
    frame = pd.DataFrame({"T": RNG.standard_normal(60), "station": ["a"] * 30 + ["b"] * 30})
    if group is None:
        frame = frame[["T"]].set_index(TIMES)
    else:
        frame.index = TIMES[np.tile(np.arange(30), 2)]
    return make_supervised(frame, "T", horizon=1, window=4, group=group)


@pytest.mark.parametrize(
    ("data", "targets"),
    [
        (X.iloc[SHUFFLED], Y.iloc[SHUFFLED]),
        (X.to_numpy()[SHUFFLED], Y.iloc[SHUFFLED]),
        (X.iloc[SHUFFLED], Y.to_numpy()[SHUFFLED]),
        (X[::-1], Y[::-1].set_axis(Y.index[::-1].to_period("h"))),
    ],
)
def test_stamps_that_go_back_are_named(data, targets):
    with pytest.warns(UserWarning, match=BACK):
        warn_of_order(data, targets)


def test_ends_of_windows_that_go_back_are_named():
    view, y = views()
    rows = RNG.permutation(len(y))
    with pytest.warns(UserWarning, match=BACK):
        warn_of_order(view[rows], y.to_numpy()[rows])
    stations, y = views("station")
    with pytest.warns(UserWarning, match=BACK):  # one station follows the other
        warn_of_order(stations, y)


def test_rows_in_order_or_of_unknown_order_pass():
    view, y = views()
    stations, of_stations = views("station")
    by_time = np.argsort(of_stations.index, kind="stable")
    numbered = Y.reset_index(drop=True).iloc[SHUFFLED]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_order(X, Y)
        warn_of_order(view, y)
        warn_of_order(view, y.to_numpy())
        # Rows of two stations share a time stamp, and their ends go back.
        warn_of_order(stations[by_time], of_stations.iloc[by_time])
        # A table without time stamps may hold no series at all.
        warn_of_order(X.to_numpy()[SHUFFLED], numbered)
        warn_of_order([[0.0], [1.0]], [1.0, 0.0])


def test_intervals_say_it_where_users_call_them():
    found = ConformalIntervals(Ridge().fit(X[:20], Y[:20]))
    for call in (found.fit, found.calibrate, found.update):
        with pytest.warns(UserWarning, match=BACK) as caught:
            call(X.iloc[SHUFFLED], Y.iloc[SHUFFLED])
        assert [one.filename for one in caught] == [__file__]
    view, y = views()
    model = ResidualTransformerRegressor(d_model=4, max_iter=1, random_state=0).fit(view, y)
    with pytest.warns(UserWarning, match=BACK):
        ConformalIntervals(model).calibrate(view[::-1], y.to_numpy()[::-1])
