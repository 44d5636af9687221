"""Training the met rows of a table alone equals training it whole, but for weight decay."""

import numpy as np
import pytest
import torch

from sklearn_restrans import ResidualTransformerClassifier
from sklearn_restrans._estimators import fitting
from sklearn_restrans._training import vocabulary
from sklearn_restrans._training.vocabulary import met_ids_only

N_IDS = 400


def texts(n=60, seed=0):
    """Rows of ids, few of those below N_IDS, and labels that one of the ids decides."""
    rng = np.random.default_rng(seed)
    X = rng.choice([2, 3, 5, 8, 13, 21, 34], (n, 6))
    X[:, 4:] *= rng.integers(0, 2, (n, 1))
    y = (X == 5).any(axis=1)
    X[0, 0] = N_IDS  # the table has rows up to here
    return X, y


def model(**settings):
    given = {"embedding": "token", "d_model": 8, "max_iter": 3, "random_state": 0}
    return ResidualTransformerClassifier(**given | {"device": "cpu"} | settings)


def whole(monkeypatch):
    monkeypatch.setattr(fitting.Run, "only_met_ids", lambda self: fitting.nullcontext())


def weights_of(fitted):
    return {name: value.numpy() for name, value in fitted.net_.module_.state_dict().items()}


@pytest.mark.parametrize("solver", ["adamw", "adam", "sgd", "gd"])
@pytest.mark.parametrize("validated", [False, True])
def test_the_weights_are_those_of_the_whole_table(solver, validated, monkeypatch):
    X, y = texts()
    settings = {"solver": solver, "early_stopping": validated}
    if solver in ("sgd", "gd"):
        settings["learning_rate_init"] = 0.1
    few = model(**settings).fit(X, y)
    whole(monkeypatch)
    all_rows = model(**settings).fit(X, y)
    assert few.loss_curve_ == all_rows.loss_curve_
    for name, value in weights_of(all_rows).items():
        np.testing.assert_array_equal(weights_of(few)[name], value, err_msg=name)


def test_no_row_decays(monkeypatch):
    X, y = texts()
    table = np.random.default_rng(1).standard_normal((N_IDS + 1, 8))
    settings = {"embedding": table, "weight_decay": 0.5, "learning_rate_init": 1e-2}
    few = weights_of(model(**settings).fit(X, y))
    whole(monkeypatch)
    all_rows = weights_of(model(**settings).fit(X, y))
    met = np.unique(np.append(X, 0))
    others = np.setdiff1d(np.arange(len(table)), met)
    np.testing.assert_array_equal(few["W_in"][others], table.astype(few["W_in"].dtype)[others])
    for name in few:
        np.testing.assert_array_equal(few[name], all_rows[name], err_msg=name)
    undecayed = weights_of(model(**settings | {"weight_decay": 0.0}).fit(X, y))
    assert np.linalg.norm(few["W_U"]) < np.linalg.norm(undecayed["W_U"])


@pytest.mark.parametrize("n_epochs", [1, 2])
def test_a_warm_start_goes_on_as_with_the_whole_table(n_epochs, monkeypatch):
    X, y = texts()

    def twice():
        first = model(warm_start=True, max_iter=n_epochs, learning_rate="constant").fit(X, y)
        others = np.where(X == 5, 2, X)  # the moments of 5 still move its row
        return weights_of(first.fit(others[::2], y[::2]))

    few = twice()
    whole(monkeypatch)
    for name, value in twice().items():
        np.testing.assert_array_equal(few[name], value, err_msg=name)


def narrowed(monkeypatch):
    """How many rows each training saw."""
    seen, real = [], vocabulary.met_ids_only

    def watched(net, ids):
        seen.append(len(ids))
        return real(net, ids)

    monkeypatch.setattr(fitting, "met_ids_only", watched)
    return seen


def test_only_a_table_that_nobody_looks_at_and_is_mostly_unmet_is_narrowed(monkeypatch):
    from skorch.callbacks import Callback

    seen, (X, y) = narrowed(monkeypatch), texts()
    model().fit(X, y)
    assert seen == [len(np.unique(np.append(X, 0)))]
    for settings in ({"callbacks": [Callback()]}, {"conditioning_interval": 1}):
        model(**settings).fit(X, y)
    X[0, 0] = 2
    model().fit(X, y)  # ids up to 34, of which eight are met
    assert len(seen) == 2 and seen[1] == 8
    model(embedding="auto").fit(X, y)
    assert len(seen) == 2


def test_a_training_that_fails_leaves_the_table_whole():
    X, y = texts()
    fitted = model().fit(X, y)
    net, before = fitted.net_, fitted.net_.module_.W_in
    kept = before.detach().clone()
    with pytest.raises(KeyboardInterrupt), met_ids_only(net, [0, 2, 5]):
        assert net.module_.W_in.shape == (3, 8)
        ids = torch.tensor([[5, 2]])
        torch.testing.assert_close(net.module_.look_up(ids)[0], kept[[5, 2]])
        with torch.no_grad():
            net.module_.W_in += 1
        raise KeyboardInterrupt
    assert net.module_.W_in is before and net.module_.number_of_id is None
    expected = kept.clone()
    expected[[0, 2, 5]] += 1
    torch.testing.assert_close(before.detach(), expected)
    assert any(
        weight is before for group in net.optimizer_.param_groups for weight in group["params"]
    )
