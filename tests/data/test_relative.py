"""Relative windows equal the plain formula on materialised windows, which no source makes."""

import warnings

import numpy as np
import pytest
import torch
from serieswindows import SEGMENTS, in_patches, make_series, windows_of

from sklearn_restrans import SequenceView
from sklearn_restrans._data.relative import learn_relative
from sklearn_restrans._data.scaling import Scaler
from sklearn_restrans._data.sources import make_source, rows_of

CPU = torch.device("cpu")
KINDS = ["last", "standard"]


def formula(readings, kind, mean, spread):
    """Location and deviation of every column of one window (w, f), reading by reading."""
    location, deviation = mean.astype(float), spread.astype(float)
    for column, values in enumerate(readings.T):
        values = values[~np.isnan(values)]
        if len(values) and kind == "last":
            location[column] = values[-1]
        elif len(values):
            location[column] = values.mean()
            if len(values) > 1:
                deviation[column] = max(values.std(), 0.1 * spread[column])
    return location, deviation


def series_of(seed, n=60):
    """Three columns far from 0, of which the second misses readings and the third rests at times.

    Row 20 of it is missing at the end of a window, and rows 30 to 35 in whole windows.
    """
    series = 5.0 + 3.0 * make_series(n, 3, seed)
    series[[20, 30, 31, 32, 33, 34, 35], 1] = np.nan
    series[40:50, 2] = 4.0
    return series


def coding_of(view, scaler, rows=None, weight=None, **options):
    rows = np.arange(len(view)) if rows is None else rows
    options = {"classes": False} | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of the column that rests
        return learn_relative(view, rows, weight, scaler, view.form, view.columns, **options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("segmented", [False, True])
@pytest.mark.parametrize("dilation", [1, 2])
def test_statistics_are_those_of_the_readings_of_each_window(kind, segmented, dilation, seed):
    """Equal up to the rounding of sums, 1e-12."""
    series = series_of(seed)
    labels = np.repeat(SEGMENTS, 5) if segmented else None
    view = SequenceView(
        series, np.arange(60), 6, dilation=dilation, segments=labels, relative=kind, patch=2
    )
    coding = coding_of(view, Scaler.fit(series))
    found = coding.statistics(view)
    windows, _ = windows_of(series, view.ends, 6, dilation, labels)
    expected = [formula(w, kind, coding.mean, coding.spread) for w in windows]
    for k in range(2):
        np.testing.assert_allclose(found[k], [e[k] for e in expected], rtol=1e-12)
    if dilation == 1:
        assert (found[0][35, 1] == coding.mean[1]).all(), "a window without readings of a column"
    # The same of arrays, of which overlapping patches repeat rows.
    for patch, stride in [(1, 1), (2, 2), (4, 1)]:
        form = {"patch": patch, "patch_stride": stride, "relative": kind}
        other = SequenceView(series, view.ends, 6, dilation=dilation, segments=labels, **form)
        coding = coding_of(other, Scaler.fit(series))
        for one, two in zip(coding.statistics(np.asarray(other)), found, strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("patch", "stride"), [(1, 1), (3, 3), (4, 2)])
@pytest.mark.parametrize("columns", [None, [0, 2], [1]], ids=str)
def test_a_batch_is_the_plain_formula_on_materialised_windows(kind, patch, stride, columns, seed):
    """In float64, up to the rounding of scaling before or after the subtraction, 1e-10."""
    series = series_of(seed)
    form = {"patch": patch, "patch_stride": stride, "relative": kind, "relative_columns": columns}
    view = SequenceView(series, np.arange(60), 6, **form)
    scaler = Scaler.fit(series)
    coding = coding_of(view, scaler)
    chosen = list(coding.form.columns)
    source = make_source(view, scaler.unbounded(chosen), torch.float64, CPU, relative=coding)
    windows, real = windows_of(series, view.ends, 6)
    expected = (windows - scaler.mean) / scaler.scale
    for k, readings in enumerate(windows):
        location, deviation = formula(readings[:, chosen], kind, coding.mean, coding.spread)
        deviation = coding.scale if kind == "last" else deviation
        expected[k][:, chosen] = (readings[:, chosen] - location) / deviation * coding.gain
        expected[k][:, chosen] = np.clip(expected[k][:, chosen], -coding.bound, coding.bound)
    expected = np.concatenate([np.nan_to_num(expected), np.isnan(windows[..., 1:2])], axis=2)
    expected = in_patches(expected, patch, stride)
    of_token = in_patches(real[..., None].astype(float), patch, stride).any(axis=2)
    rng = np.random.default_rng(seed)
    for rows in (np.arange(60), rng.integers(0, 60, 7), np.array([59]), np.array([0])):
        x, mask = source.take(rows)
        wanted = np.where(of_token[rows][..., None], expected[rows], 0.0)
        np.testing.assert_allclose(x.numpy(), wanted, rtol=1e-10, atol=1e-10)
        assert mask is None or (mask.numpy() == of_token[rows]).all()
    np.testing.assert_array_equal(source.partial, view.partial)
    assert len(source) == 60
    # Windows as arrays: those whose tokens all exist are the same.
    whole = np.flatnonzero(of_token.all(axis=1))
    dense = make_source(
        np.asarray(view)[whole], scaler.unbounded(chosen), torch.float64, CPU, relative=coding
    )
    x, _ = dense.take(np.arange(len(whole)))
    np.testing.assert_allclose(x.numpy(), expected[whole], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_relative_inputs_have_mean_square_one_in_training(kind, seed):
    """Of all windows, as long as there are at most 4,096; their weights count."""
    series = series_of(seed)[:30]
    view = SequenceView(series, np.arange(5, 30), 6, relative=kind)
    scaler = Scaler.fit(series)
    coding = coding_of(view, scaler)
    source = make_source(view, scaler.unbounded(range(3)), torch.float64, CPU, relative=coding)
    x = source.take(np.arange(len(view)))[0].numpy()[..., :3]
    real = ~np.isnan(np.asarray(view))
    np.testing.assert_allclose((x**2).sum(axis=(0, 1)) / real.sum(axis=(0, 1)), 1.0, rtol=1e-10)
    np.testing.assert_allclose(coding.bound, 3 * np.abs(x).max(axis=(0, 1)), rtol=1e-10)
    twice = coding_of(view, scaler, np.r_[np.arange(25), 3, 3])
    weight = np.ones(25)
    weight[3] = 3.0
    weighted = coding_of(view, scaler, None, weight)
    np.testing.assert_allclose(weighted.gain, twice.gain, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_targets_are_taken_relative_to_their_own_column_and_back(kind, seed):
    series = series_of(seed)
    rng = np.random.default_rng(seed)
    options = {"relative": kind, "relative_columns": [2, 0], "target_columns": [0, None, 2, 0]}
    view = SequenceView(series, np.arange(5, 60), 6, **options)
    coding, y = coding_of(view, Scaler.fit(series)), rng.normal(size=(55, 4))
    relative = coding.encode(y, view)
    for k, readings in enumerate(np.asarray(view)):
        location, deviation = formula(readings[:, [0, 2]], kind, coding.mean, coding.spread)
        places = [0, 1, 0]
        expected = (y[k, [0, 2, 3]] - location[places]) / deviation[places]
        np.testing.assert_allclose(relative[k, [0, 2, 3]], expected, rtol=1e-10)
    np.testing.assert_array_equal(relative[:, 1], y[:, 1])
    np.testing.assert_allclose(coding.decode(relative, view), y, rtol=1e-12, atol=1e-12)
    rows = np.array([3, 50, 3])
    np.testing.assert_allclose(coding.decode(relative[rows], view[rows]), y[rows], rtol=1e-12)
    with pytest.raises(ValueError, match=r"y has 2 column\(s\), but .* given 4 target_columns"):
        coding.encode(y[:, :2], view)


def test_labels_and_targets_of_which_nothing_is_said_stay_as_they_are():
    series, y = series_of(0), np.arange(55.0)
    view = SequenceView(series, np.arange(5, 60), 6, relative="last", target_columns=0)
    labels = coding_of(view, Scaler.fit(series), classes=True)
    silent = SequenceView(series, np.arange(5, 60), 6, relative="last")
    for coding in (labels, coding_of(silent, Scaler.fit(series))):
        assert coding.encode(y, view) is y and coding.decode(y, view) is y


def test_constant_windows_are_divided_by_the_floor_and_named():
    """Column 1 rests in a third of the windows; a dead column is no cause for a word."""
    series = np.column_stack([make_series(90, 2), np.ones(90)])
    series[30:65, 1] = 2.0
    view = SequenceView(series, np.arange(5, 90), 6, relative="standard")
    scaler, names = Scaler.fit(series), np.array(["T", "p", "dead"], dtype=object)
    rows = np.arange(85)
    with pytest.warns(UserWarning, match=r"3\d% of the training .* in column 'p', or vary by less"):
        coding = learn_relative(view, rows, None, scaler, view.form, names, classes=True)
    location, deviation = coding.statistics(view[[40 - 5, 64 - 5]])
    stds = np.asarray(view).std(axis=1)[:, 1]
    spread = np.sqrt(np.mean(stds**2))
    np.testing.assert_allclose(coding.spread[1], spread, rtol=1e-12)
    np.testing.assert_allclose(deviation[:, 1], 0.1 * spread, rtol=1e-12)
    np.testing.assert_array_equal(location[:, 1], 2.0)
    few = SequenceView(series, np.arange(5, 35), 6, relative="standard")
    learn_relative(few, np.arange(30), None, scaler, few.form, names, classes=True)
    x, _ = make_source(view, scaler, torch.float32, CPU, relative=coding).take(rows)
    assert torch.isfinite(x).all() and not x[..., 2].any()


def test_a_series_of_relative_windows_is_not_copied():
    series = make_series(5_000, 3)
    view = SequenceView(series, np.arange(143, 5_000), 144, patch=12, relative="last")
    scaler = Scaler.fit(rows_of(view, 3))
    source = make_source(view, scaler, torch.float64, CPU, relative=coding_of(view, scaler))
    assert source.source.windows.untyped_storage().nbytes() == series.nbytes
    assert source.taken.shape == (len(view), 3) and source.factor is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", [{}, {"patch": 4}, {"patch": 4, "patch_stride": 2}], ids=str)
def test_windows_that_need_no_cutting_are_spared_it_and_keep_their_bits(kind, form, dtype, seed):
    """Alone, among their like, and beside windows that are partial, miss readings or are cut."""
    for s in range(seed, seed + 3):
        series = 20.0 + make_series(400, 2, s).cumsum(axis=0)
        trained = SequenceView(series[:200], np.arange(7, 200), 8, relative=kind, **form)
        scaler = Scaler.fit(series[:200])
        coding = coding_of(trained, scaler)
        series[300, 1], series[350, 0] = np.nan, series[350, 0] + 1e4
        view = SequenceView(series, np.arange(400), 8, relative=kind, **form)
        source = make_source(view, scaler.unbounded([0, 1]), dtype, CPU, relative=coding)
        reached = {300 + k for k in range(8)} | {350 + k for k in range(8)}
        if kind == "standard":  # no reading is far from the mean in deviations of its own window
            reached = {300 + k for k in range(8)}
        touched = np.array(sorted(reached | set(range(7))))
        assert not source.inside[touched].any()
        assert source.inside[7:200].all(), "training windows lie within a third of the bound"
        everything, _ = source.take(np.arange(400))
        assert everything.isfinite().all() and (everything.abs() <= source.bound.max()).all()
        plain = np.flatnonzero(source.inside)
        together, _ = source.take(plain)
        assert torch.equal(everything[plain], together)
        for k in (7, 150, 299, 303, 352):
            assert torch.equal(source.take(np.array([k]))[0][0], everything[k])
        if kind == "last":
            bound = coding.bound[0]
            assert everything[354].view(-1, 2)[:, 0].max() == torch.tensor(bound).to(dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_a_window_at_rest_is_exactly_zero_at_any_level(kind):
    """In float32: what is taken off is rounded as the readings are."""
    series = np.concatenate([1e4 + make_series(100, 1), np.full((30, 1), 12345.678)])
    view = SequenceView(series, np.arange(7, 130), 8, relative=kind)
    scaler = Scaler.fit(series)
    source = make_source(view, scaler, torch.float32, CPU, relative=coding_of(view, scaler))
    x, _ = source.take(np.arange(100, 123))
    assert not x.any()


# ---- targets in other units ----------------------------------------------------------------------


def later_values(series, ahead=3, kind="last"):
    """Windows over a series of one column, their later values, and what fit learns of both."""
    ends = np.arange(5, len(series) - ahead)
    view = SequenceView(series, ends, 6, relative=kind, relative_columns=[0], target_columns=[0])
    return view, series[ends + ahead, 0], coding_of(view, Scaler.fit(series))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "change",
    [
        lambda y: (y - y.mean()) / y.std(),
        lambda y: np.log(y),
        lambda y: 1.8 * y + 32,
        lambda y: y + 273.15,
    ],
    ids=["standardised", "logarithm", "Fahrenheit", "Kelvin"],
)
def test_targets_in_other_units_are_refused(kind, change, seed):
    series = 40 + 6 * make_series(200, 1, seed)
    view, y, coding = later_values(series, kind=kind)
    for found in (y, y.astype(np.float32)):
        coding.check_targets(found, view, None)
    with pytest.raises(ValueError, match=r"y is not in the units of column 0 of .* leave y as it"):
        coding.check_targets(change(y), view, None)
    with pytest.raises(ValueError, match="column 'T' of the SequenceView"):
        coding.check_targets(change(y), view, ["T"])


@pytest.mark.parametrize("kind", KINDS)
def test_later_values_pass_however_the_series_moves(kind, seed):
    """Alternating, drifting, jumping, resting; and means of the rows ahead, no values of it."""
    rng, n = np.random.default_rng(seed), 120
    moves = {
        "white": rng.standard_normal(n),
        "alternates": np.tile([-1.0, 1.0], n // 2),
        "drifts": np.arange(n) * 1.0,
        "explodes": np.exp(np.arange(n) / 5.0),
        "jumps": np.where(np.arange(n) < n - 4, 0.0, 1e6) + rng.standard_normal(n),
        "rests": np.zeros(n),
    }
    for name, values in moves.items():
        for ahead in (1, 100):
            view, y, coding = later_values(values[:, None], ahead, kind)
            coding.check_targets(y, view, None)
        if name in ("white", "drifts"):
            view, _, coding = later_values(values[:, None], 3, kind)
            ahead = np.lib.stride_tricks.sliding_window_view(values, 3).mean(axis=1)
            coding.check_targets(ahead[view.ends + 1], view, None)


def test_targets_without_a_column_are_not_judged():
    series = 40 + make_series(60, 2, 0)
    view = SequenceView(series, np.arange(5, 50), 6, relative="last", target_columns=[None, 1])
    coding = coding_of(view, Scaler.fit(series))
    y = np.c_[np.zeros(45), series[8:53, 1]]
    y[::2, 0] = 1.0
    coding.check_targets(y, view, None)
    with pytest.raises(ValueError, match="units of column 1"):
        coding.check_targets(y[:, ::-1], view, None)


@pytest.mark.parametrize("kind", KINDS)
def test_columns_of_which_nothing_is_left_are_named(kind):
    """Each window stands still, at a level of its own."""
    series = np.c_[np.repeat(np.arange(10.0), 6), np.random.default_rng(0).standard_normal(60)]
    ends, segments = np.arange(5, 60, 6), np.repeat(np.arange(10), 6)
    view = SequenceView(series, ends, 6, segments=segments, relative=kind)
    scaler = Scaler.fit(series)
    with pytest.warns(UserWarning, match=r"leaves nothing of the columns \[0\]: they stand still"):
        learn_relative(view, np.arange(10), None, scaler, view.form, None, classes=False)
