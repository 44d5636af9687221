"""Readings by time: what is cleaned, counted and reported, and how rows are thinned."""

import json
from datetime import timedelta

import numpy as np
import pandas as pd
import pytest
from datafiles import SHORT, jena_text, ten_minutes, write

from sklearn_restrans.datasets import fetch_jena_climate


def test_sentinels_impossible_values_and_empty_cells_become_missing_and_are_counted(tmp_path):
    text = (
        f"{SHORT}\n"
        "01.01.2009 00:10:00,990.0,1.0,-9999.00,5.0\n"
        "01.01.2009 00:20:00,990.0,-9999,-0.5,-9999\n"
        "01.01.2009 00:30:00,2.0,1.0,-9999.00,-3.0\n"
        "01.01.2009 00:40:00,NaN,,2.0,1.0\n"
    )
    with pytest.warns(UserWarning) as caught:
        frame = fetch_jena_climate(write(tmp_path, text))
    assert [str(warning.message) for warning in caught] == [
        "weather.csv: -9999 became missing (NaN): 1 in 'T (degC)', 2 in 'wv (m/s)', "
        "1 in 'SWDR (W/m²)'; impossible values became missing (NaN): 1 in 'p (mbar)', "
        "1 in 'wv (m/s)'."
    ]
    assert caught[0].filename == __file__
    # A small negative radiation is the zero offset of the instrument, and stays.
    expected = [
        [990, 1, np.nan, 5],
        [990, np.nan, np.nan, np.nan],
        [np.nan, 1, np.nan, -3],
        [np.nan, np.nan, 2, 1],
    ]
    np.testing.assert_array_equal(frame, expected)
    assert frame.attrs["n_missing"] == 8


def test_duplicates_are_dropped_and_disorder_is_sorted_and_both_are_counted(tmp_path):
    times = list(ten_minutes(6))
    order = [0, 1, 4, 2, 3, 2, 5, 5]
    text = jena_text([times[i] for i in order])
    with pytest.warns(UserWarning, match="2 rows with a repeated.*; 2 rows out of order") as caught:
        frame = fetch_jena_climate(write(tmp_path, text))
    assert len(caught) == 1
    assert list(frame.index) == times
    # The first row of a time stamp is the one kept: position of each in the file.
    assert (frame["SWDR (W/m²)"]).tolist() == [0, 1, 3, 4, 2, 6]
    assert frame.attrs["n_duplicates"] == 2 and frame.attrs["n_unsorted"] == 2


def test_gaps_are_kept_and_reported_and_attrs_survive_pandas(tmp_path):
    times = ten_minutes(30)
    frame = fetch_jena_climate(write(tmp_path, jena_text(times.delete([3, 4, 20]))))
    assert len(frame) == 27
    assert frame.attrs["gaps"] == [
        {
            "start": "2009-01-01 00:30:00",
            "end": "2009-01-01 01:00:00",
            "length": "0 days 00:30:00",
        },
        {
            "start": "2009-01-01 03:20:00",
            "end": "2009-01-01 03:40:00",
            "length": "0 days 00:20:00",
        },
    ]
    assert json.loads(json.dumps(frame.attrs)) == frame.attrs
    assert pd.concat([frame.iloc[:5], frame.iloc[5:]]).attrs == frame.attrs


@pytest.mark.parametrize("frequency", ["1h", "h", "60min", pd.Timedelta("1h"), timedelta(hours=1)])
def test_frequency_keeps_every_kth_reading_counted_from_the_first(tmp_path, frequency):
    times = ten_minutes(40).delete([7])
    file = write(tmp_path, jena_text(times))
    whole, hourly = fetch_jena_climate(file), fetch_jena_climate(file, frequency)
    pd.testing.assert_frame_equal(hourly, whole.iloc[::6])
    assert hourly.attrs["frequency"] == "1h"
    assert [gap["length"] for gap in hourly.attrs["gaps"]] == ["0 days 01:10:00"]


def test_frequency_of_an_hourly_file(tmp_path):
    file = write(tmp_path, jena_text(pd.date_range("2009-01-01", periods=50, freq="h")))
    whole = fetch_jena_climate(file)
    assert whole.attrs["frequency"] == "1h"
    pd.testing.assert_frame_equal(fetch_jena_climate(file, "1h"), whole)
    daily = fetch_jena_climate(file, "1D")
    pd.testing.assert_frame_equal(daily, whole.iloc[::24])
    assert pd.Timedelta(daily.attrs["frequency"]) == pd.Timedelta("1D")
    with pytest.raises(ValueError, match=r"'10min' is finer than the step of weather\.csv"):
        fetch_jena_climate(file, "10min")
    with pytest.raises(ValueError, match=r"'90min' is not a multiple of the step of weather\.csv"):
        fetch_jena_climate(file, "90min")


@pytest.mark.parametrize("frequency", ["hourly", "ME", "", "-1h", "0h", 60, pd.NaT, ["1h"]])
def test_what_is_not_a_frequency_is_refused(tmp_path, frequency):
    with pytest.raises(ValueError, match="frequency must be None or a positive duration"):
        fetch_jena_climate(write(tmp_path, jena_text(ten_minutes(9))), frequency)


def test_one_row_has_no_frequency(tmp_path):
    file = write(tmp_path, jena_text(ten_minutes(1)))
    assert fetch_jena_climate(file).attrs["frequency"] is None
    with pytest.raises(ValueError, match=r"frequency must be None for .*, which has only one row"):
        fetch_jena_climate(file, "1h")
