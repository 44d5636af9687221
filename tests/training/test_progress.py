"""The bar of an epoch counts the samples, is gone after it, and is silent where nobody watches."""

import io

import numpy as np
import pytest
import tqdm.auto
from skorch.callbacks import PrintLog

from sklearn_restrans import ResidualTransformerRegressor


def data(n=50):
    X = np.random.default_rng(0).standard_normal((n, 3))
    return X, X[:, 0]


@pytest.fixture
def bars(monkeypatch):
    """Every bar that is made, in a terminal of its own."""
    made, real = [], tqdm.auto.tqdm

    def make(**options):
        terminal = io.StringIO()
        terminal.isatty = lambda: True
        made.append(real(**options, file=terminal))
        return made[-1]

    monkeypatch.setattr(tqdm.auto, "tqdm", make)
    return made


@pytest.mark.parametrize("n_epochs", [1, 3])
def test_every_epoch_has_a_bar_of_its_samples(bars, n_epochs, capsys):
    model = ResidualTransformerRegressor(max_iter=n_epochs, verbose=2, random_state=0)
    model.fit(*data())
    assert [bar.total for bar in bars] == [50] * n_epochs
    assert [bar.n for bar in bars] == [50] * n_epochs
    assert all(bar.disable for bar in bars)  # closed
    assert "epoch 1" in bars[0].fp.getvalue()
    names = [name for name, _ in model.net_.callbacks_]
    assert "progress" not in names  # it belongs to the training alone
    assert "train_loss" in capsys.readouterr().out


@pytest.mark.parametrize("settings", [{"verbose": 1}, {"verbose": 2, "solver": "gd"}])
def test_otherwise_there_is_none(bars, settings):
    ResidualTransformerRegressor(max_iter=2, random_state=0, **settings).fit(*data())
    assert bars == []


def test_a_pipe_sees_no_bar(capfd):
    model = ResidualTransformerRegressor(max_iter=2, verbose=2, random_state=0).fit(*data())
    assert capfd.readouterr().err == ""
    assert len(model.net_.callbacks_) == 2  # the timer and the printed lines, as for verbose=1


def test_a_bar_is_gone_before_its_epoch_is_printed(bars, monkeypatch):
    closed_at_print = []

    def record(self, net, **_):
        closed_at_print.append(bars[-1].disable)

    monkeypatch.setattr(PrintLog, "on_epoch_end", record)
    ResidualTransformerRegressor(max_iter=2, verbose=2, random_state=0).fit(*data())
    assert closed_at_print == [True, True]
