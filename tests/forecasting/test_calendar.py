"""Calendar features are those of the clock, without a jump."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from weatherframes import weather

from sklearn_restrans.forecasting import (
    CalendarFeatures,
    make_supervised,
)


def phase(frame, name):
    """Angle of a sine and cosine pair as a part of the circle, in [0, 1)."""
    return np.arctan2(frame[f"{name}_sin"], frame[f"{name}_cos"]) / (2 * np.pi) % 1


def test_calendar_phases_are_those_of_the_clock():
    times = ["2024-01-01 00:00:00", "2024-01-03 06:00:00", "2023-07-02 12:00:00"]
    X = pd.DataFrame({"T": 1.0}, index=pd.to_datetime([*times, "2024-12-31 18:30:36"]))
    out = CalendarFeatures().fit_transform(X)
    # 1e-12: rounding of sine, cosine and arctan
    assert phase(out, "hour").tolist() == pytest.approx([0, 1 / 4, 1 / 2, 18.51 / 24], abs=1e-12)
    weekday = [0, 2.25 / 7, 6.5 / 7, (1 + 18.51 / 24) / 7]
    assert phase(out, "weekday").tolist() == pytest.approx(weekday, abs=1e-12)
    year = [0, 2.25 / 366, 182.5 / 365, (365 + 18.51 / 24) / 366]
    assert phase(out, "day_of_year").tolist() == pytest.approx(year, abs=1e-12)
    squares = out.drop(columns="T") ** 2
    assert squares.T.groupby(lambda name: name[:-4]).sum().to_numpy() == pytest.approx(1)


def test_the_calendar_does_not_jump_over_eight_years():
    index = pd.date_range("2012-01-01", "2020-01-01", freq="20min")  # two leap years
    out = CalendarFeatures(keep=False).fit_transform(pd.DataFrame({"T": 1.0}, index=index))
    longest = {"hour": 1 / 72, "weekday": 1 / 504, "day_of_year": 1 / (72 * 365)}
    for name, part in longest.items():
        steps = np.diff(phase(out, name)) % 1
        # 1e-9: the smallest step is 4e-5, rounding of the phase 1e-15
        assert np.all(steps > part * 365 / 366 - 1e-9)
        assert np.all(steps < part + 1e-9)


def test_the_calendar_keeps_what_it_is_told_to():
    X = weather(5).assign(when=lambda frame: frame.index + pd.Timedelta("6h"))
    hours = ["hour_sin", "hour_cos"]
    only = CalendarFeatures(weekday=False, day_of_year=False)
    kept = clone(only).fit_transform(X[["T", "p"]])
    assert list(kept) == ["T", "p", *hours]
    pd.testing.assert_frame_equal(kept[["T", "p"]], X[["T", "p"]], check_freq=False)
    assert list(clone(only).set_params(keep=False).fit_transform(X)) == hours
    by_column = clone(only).set_params(column="when").fit_transform(X.reset_index(drop=True))
    assert list(by_column) == ["T", "p", *hours]
    assert phase(by_column, "hour").to_numpy() == pytest.approx(phase(kept, "hour") + 6 / 24)
    year = CalendarFeatures(False, weekday=False, keep=False).fit_transform(X)
    assert list(year) == ["day_of_year_sin", "day_of_year_cos"]
    numbered = CalendarFeatures(False, weekday=False).fit_transform(X[["T"]].set_axis([7], axis=1))
    assert list(numbered) == ["7", "day_of_year_sin", "day_of_year_cos"]
    week = CalendarFeatures(False, day_of_year=False, keep=False).fit_transform(X)
    assert list(week) == ["weekday_sin", "weekday_cos"]


def test_the_calendar_reads_local_time():
    utc = weather(30, start="2024-06-01").tz_localize("UTC")
    berlin = CalendarFeatures().fit_transform(utc.tz_convert("Europe/Berlin"))
    expected = CalendarFeatures().fit_transform(utc.tz_localize(None).shift(freq="2h"))
    assert np.array_equal(berlin, expected)


def test_periods_and_the_time_level_of_a_multiindex_are_time_stamps():
    frame = weather(30, start="2024-06-01")
    expected = CalendarFeatures().fit_transform(frame).to_numpy()
    stations = pd.concat({"a": frame, "b": frame}, names=["station", "time"])
    periods = frame.set_axis(frame.index.to_period("h"))
    by_column = frame.assign(when=periods.index).reset_index(drop=True)
    for X, calendar in [
        (periods, CalendarFeatures()),
        (stations.loc[["a"]], CalendarFeatures()),
        (stations.swaplevel().iloc[:30], CalendarFeatures()),
        (by_column, CalendarFeatures(column="when")),
    ]:
        out = calendar.fit_transform(X)
        np.testing.assert_array_equal(out, expected)
        assert out.index.equals(X.index)


@pytest.mark.parametrize("container", ["default", "pandas", "polars"])
def test_the_calendar_works_in_pipelines_and_with_set_output(container):
    X, y = make_supervised(weather(60), "T", 1)
    calendar = CalendarFeatures(weekday=False).set_output(transform=container)
    out = calendar.fit_transform(X)
    assert isinstance(out, pl.DataFrame if container == "polars" else pd.DataFrame)
    assert list(out.columns) == list(calendar.get_feature_names_out())
    pipe = make_pipeline(calendar, StandardScaler(), Ridge()).fit(X, y)
    assert list(pipe[:-1].get_feature_names_out()) == list(out.columns)
    plain = make_pipeline(StandardScaler(), Ridge()).fit(
        CalendarFeatures(weekday=False).fit_transform(X), y
    )
    # 1e-9: ridge solutions of the same data in another container
    assert pipe[-1].coef_ == pytest.approx(plain[-1].coef_, rel=1e-9)


BAD = weather(6)


@pytest.mark.parametrize(
    ("X", "parameters", "error", "sentence"),
    [
        (np.ones((3, 2)), {}, TypeError, "finds no time stamps in X (ndarray): pass a DataFrame"),
        (BAD.reset_index(drop=True), {}, TypeError, "with a DatetimeIndex or a datetime column"),
        (BAD.set_index(BAD.index.astype(str)), {}, TypeError, "(pd.to_datetime)"),
        (BAD, {"column": "T"}, TypeError, "CalendarFeatures(column='T') finds no time stamps"),
        (BAD, {"column": "when"}, TypeError, "CalendarFeatures(column='when') finds no"),
        (np.ones((3, 2)), {"column": "T"}, TypeError, "finds no time stamps in X (ndarray)"),
        (BAD.set_index([[*BAD.index[:5], pd.NaT]]), {}, ValueError, "X has missing time stamps"),
        (
            BAD.rename(columns={"p": "hour_sin"}),
            {},
            ValueError,
            "of the calendar in ['T', 'hou",
        ),
        (BAD[["T", "T"]], {}, ValueError, "X has columns of one name: rename ['T']"),
        (BAD, {"column": ["T"]}, TypeError, "CalendarFeatures(column=['T']) finds no time"),
        (BAD, {"column": {}}, TypeError, "CalendarFeatures(column={}) finds no time"),
        (BAD.set_index(BAD.index - BAD.index[0]), {}, TypeError, "finds no time stamps in X"),
        (BAD, {"hour": "yes"}, ValueError, "The 'hour' parameter of CalendarFeatures must be"),
    ],
)
def test_bad_input_to_the_calendar_gets_a_sentence(X, parameters, error, sentence):
    with pytest.raises(error, match=re.escape(sentence)):
        CalendarFeatures(**parameters).fit(X)


def test_the_calendar_refuses_other_columns_than_in_fit():
    calendar = CalendarFeatures().fit(BAD)
    with pytest.raises(ValueError, match="feature names should match"):
        calendar.transform(BAD[["p", "T"]])
