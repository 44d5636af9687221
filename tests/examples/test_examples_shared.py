"""What the examples share does what they rely on: options, weather without holes, last lines."""

import importlib
from pathlib import Path

import datafiles
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def shared(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module("_shared")


@pytest.fixture
def jena_folder(tmp_path, monkeypatch):
    """A folder with 40 days of made-up hourly readings under the name of Jena's record."""
    monkeypatch.setenv("SKLEARN_RESTRANS_DATA", str(tmp_path))
    hours = datafiles.ten_minutes(40 * 24 * 6)[::6]
    datafiles.write(tmp_path, datafiles.jena_text(hours), "jena_2009_2016_hourly.csv")
    return tmp_path


def frame_with_holes(*_):
    """Ten days by the hour: two missing readings, five missing readings, and a sparse column."""
    hours = pd.date_range("2013-01-01", periods=240, freq="h")
    frame = pd.DataFrame({"T (degC)": np.arange(240.0), "gust": np.nan}, index=hours)
    frame.iloc[10:12, 0] = np.nan
    frame.iloc[50:55, 0] = np.nan
    return frame.assign(station="JFK")


def test_every_example_has_the_options_quick_and_output(shared):
    args = shared.command_line("Try.", quick="less", weather=False).parse_args([])
    assert not args.quick and args.output == Path("output") and not hasattr(args, "data")
    args = shared.command_line("Try.", quick="less").parse_args(
        ["--quick", "--data", "nyc", "--output", "here"]
    )
    assert args.quick and args.data == "nyc" and args.output == Path("here")


def test_an_example_may_have_options_of_its_own_but_no_unknown_ones(shared, capsys):
    parser = shared.command_line("Try.", quick="less", weather=False)
    parser.add_argument("--full", action="store_true")
    assert parser.parse_args(["--full"]).full
    with pytest.raises(SystemExit):
        parser.parse_args(["--data", "jena"])
    assert "--data" in capsys.readouterr().err


def test_auto_takes_jena_where_the_folder_is_named_and_new_york_otherwise(
    shared, jena_folder, monkeypatch
):
    assert shared.hourly_weather("auto")[1:] == ("jena", "Jena weather")
    monkeypatch.setattr(shared, "load_nyc_weather", frame_with_holes)
    assert shared.hourly_weather("nyc")[1:] == ("nyc", "New York weather")
    monkeypatch.delenv("SKLEARN_RESTRANS_DATA")
    assert shared.hourly_weather("auto").key == "nyc"


def test_short_holes_are_filled_and_long_ones_and_sparse_columns_left_out(shared, monkeypatch):
    monkeypatch.setattr(shared, "load_nyc_weather", frame_with_holes)
    frame = shared.hourly_weather("nyc").frame
    assert list(frame.columns) == ["T (degC)"]
    before = frame_with_holes().index
    # Of the five missing readings the first three are filled forward.
    assert list(before.difference(frame.index)) == list(before[53:55])
    assert frame["T (degC)"].loc[before[8:14]].tolist() == [8.0, 9.0, 9.0, 9.0, 12.0, 13.0]
    assert frame["T (degC)"].loc[before[49:53]].tolist() == [49.0] * 4


def test_the_small_problems_are_spread_windows_with_their_later_temperature(shared, jena_folder):
    problems, key = shared.small_problems("auto", n_rows=8, window=24)
    frame = shared.hourly_weather("jena").frame
    assert key == "jena" and list(problems) == ["Jena weather", "Gaussian tokens"]
    X, y = problems["Jena weather"]
    assert X.shape == (8, 24, frame.shape[1]) and not X.partial.any()
    assert (np.diff(X.ends) >= 24).all(), "two windows share a reading"
    # The last token of a window is its present, the target lies HORIZON rows later.
    later = frame[shared.TARGET].to_numpy()[X.ends + shared.HORIZON]
    np.testing.assert_array_equal(y, later)
    noise, target = problems["Gaussian tokens"]
    assert noise.shape == X.shape and target.shape == (8,)
    again = shared.small_problems("auto", n_rows=8, window=24)[0]["Gaussian tokens"]
    np.testing.assert_array_equal(noise, again[0])


def test_the_last_lines_name_the_picture_the_time_and_what_was_found(shared, tmp_path, capsys):
    args = shared.command_line("Try.", quick="less").parse_args(["--output", str(tmp_path / "new")])
    picture = shared.save(plt.figure(), args, "one")
    assert picture == tmp_path / "new" / "one.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    args.started -= 7
    shared.finish(args, picture, "The number is 3.")
    *_, said, last = capsys.readouterr().out.splitlines()
    assert said == f"Picture: {picture}. The example took 7 s."
    assert last == "The number is 3."
    plt.close("all")


def test_each_beta_has_a_colour_and_a_marker_of_its_own(shared):
    styles = shared.beta_styles()
    assert list(styles) == shared.BETAS
    assert len({style["marker"] for style in styles.values()}) == len(styles)
    lightness = [np.dot(style["color"][:3], [0.2126, 0.7152, 0.0722]) for style in styles.values()]
    assert (np.diff(lightness) > 0).all(), "grey print tells the betas apart by lightness"
