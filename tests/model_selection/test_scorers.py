"""Scorers carry what fit recorded through every scikit-learn composition."""

import pickle

import numpy as np
import pytest
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import make_regression
from sklearn.experimental import enable_halving_search_cv  # noqa: F401 - it enables the import below
from sklearn.linear_model import Ridge
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    RandomizedSearchCV,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_restrans import (
    ResidualTransformerRegressor,
    SeedEnsembleRegressor,
    make_conditioning_scorer,
    make_convergence_scorer,
    make_crps_scorer,
)
from sklearn_restrans.forecasting import ConformalIntervals

BETAS = [0.0, 1.0]
SCORERS = {
    "r2": "r2",
    "sigma_min": make_conditioning_scorer("sigma_min"),
    "sigma_min_attn": make_conditioning_scorer("sigma_min", of="attention", stage="initial"),
    "neg_condition_number": make_conditioning_scorer("neg_condition_number"),
    "rate": make_convergence_scorer("rate"),
    "neg_epochs_to": make_convergence_scorer("neg_epochs_to", loss=2.0),
}


@pytest.fixture(scope="module")
def data():
    return make_regression(80, 4, noise=1.0, random_state=0)


def small(**kwargs):
    return ResidualTransformerRegressor(d_model=8, max_iter=3, random_state=0, **kwargs)


def test_a_scorer_returns_what_fit_recorded(data):
    model = small(n_layers=2).fit(*data)
    conditioning, convergence = model.conditioning_, model.convergence_
    views = {"Z": conditioning.Z, "attention": conditioning.attention, "X": conditioning.X}
    for of, view in views.items():
        for stage, record in (("initial", 0), ("final", -1)):
            for layer in (0, 1, -1):
                scorer = make_conditioning_scorer("sigma_min", of=of, layer=layer, stage=stage)
                assert scorer(model) == view.sigma_min[record, layer]
    negative = make_conditioning_scorer("neg_condition_number")
    assert negative(model) == -conditioning.condition_number[-1, -1]
    assert make_convergence_scorer("rate")(model) == convergence.rate
    assert make_convergence_scorer("contraction")(model) == np.exp(-convergence.rate)
    reached = make_convergence_scorer("neg_epochs_to", loss=convergence.loss[1])
    assert reached(model) == -2.0


def test_faster_convergence_has_the_greater_rate(data):
    slow, fast = small(solver="sgd", learning_rate_init=1e-4), small(solver="sgd")
    rate = make_convergence_scorer("rate")
    assert rate(fast.fit(*data)) > rate(slow.fit(*data))


def test_a_scorer_ignores_X_and_y(data):
    model = small().fit(*data)
    scorer = make_conditioning_scorer("sigma_min")
    assert scorer(model) == scorer(model, None, None) == scorer(model, data[0][:1], "no targets")


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_grid_search_shows_how_beta_affects_conditioning(data, n_jobs):
    pipe = make_pipeline(StandardScaler(), small())
    name = "residualtransformerregressor__residual_beta"
    search = GridSearchCV(pipe, {name: BETAS}, cv=2, scoring=SCORERS, refit="r2", n_jobs=n_jobs)
    results = search.fit(*data).cv_results_
    for scorer in SCORERS:
        assert np.isfinite(results[f"mean_test_{scorer}"]).all(), scorer
    # Z = Attn(X) + beta X has the singular values of X where Attn(X) has none (theory.md, C3).
    assert results["mean_test_sigma_min"][1] > 10 * results["mean_test_sigma_min"][0]
    best = search.best_estimator_[-1].conditioning_
    assert SCORERS["sigma_min"](search) == best.sigma_min[-1, -1]


@pytest.mark.parametrize("kind", ["halving", "randomised"])
def test_other_searches_take_them_as_scoring(data, kind):
    if kind == "halving":
        search = HalvingGridSearchCV(
            small(), {"residual_beta": BETAS}, cv=2, scoring=SCORERS["sigma_min"], random_state=0
        )
    else:
        search = RandomizedSearchCV(
            small(), {"residual_beta": BETAS}, n_iter=2, cv=2, scoring=SCORERS["sigma_min"]
        )
    assert search.fit(*data).best_params_ == {"residual_beta": 1.0}


def test_the_target_transformer_is_reached_through(data):
    model = TransformedTargetRegressor(make_pipeline(StandardScaler(), small())).fit(*data)
    inner = model.regressor_[-1]
    assert SCORERS["sigma_min"](model) == inner.conditioning_.sigma_min[-1, -1]
    assert SCORERS["rate"](model) == inner.convergence_.rate
    scores = cross_validate(model, *data, cv=2, scoring=SCORERS)
    assert np.isfinite(scores["test_rate"]).all()


def test_of_a_seed_ensemble_it_is_the_mean_over_the_members(data):
    ensemble = SeedEnsembleRegressor(small(), n_estimators=3, random_state=0).fit(*data)
    members = ensemble.estimators_
    smallest = [member.conditioning_.sigma_min[-1, -1] for member in members]
    assert len(set(smallest)) == 3
    assert SCORERS["sigma_min"](ensemble) == np.mean(smallest)
    rates = [member.convergence_.rate for member in members]
    assert SCORERS["rate"](make_pipeline(ensemble)) == np.mean(rates)
    negative = [-member.conditioning_.condition_number[-1, -1] for member in members]
    assert SCORERS["neg_condition_number"](ensemble) == pytest.approx(np.mean(negative), rel=1e-12)
    with pytest.raises(
        ValueError, match="has no convergence_: SeedEnsembleRegressor is not fitted"
    ):
        SCORERS["rate"](SeedEnsembleRegressor(small()))


OURS = {name: scorer for name, scorer in SCORERS.items() if not isinstance(scorer, str)}


@pytest.mark.parametrize("scorer", OURS.values(), ids=OURS)
def test_scorers_are_pickled(data, scorer):
    model = small().fit(*data)
    copy = pickle.loads(pickle.dumps(scorer))
    assert copy(model) == scorer(model)
    assert repr(copy) == repr(scorer)


def test_another_estimator_is_refused_by_name(data):
    with pytest.raises(ValueError, match="has no conditioning_: Ridge is not fitted"):
        SCORERS["sigma_min"](Ridge().fit(*data))
    with pytest.raises(
        ValueError, match="has no convergence_: ResidualTransformerRegressor is not fitted"
    ):
        SCORERS["rate"](small())
    with pytest.raises(ValueError, match="has no convergence_: Pipeline is not fitted"):
        SCORERS["rate"](make_pipeline(StandardScaler(), Ridge()).fit(*data))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_conditioning_scorer("sigma"), "quantity must be one of .*; got 'sigma'"),
        (lambda: make_conditioning_scorer("sigma_min", of="A"), "of must be one of .*; got 'A'"),
        (lambda: make_conditioning_scorer("sigma_min", stage="end"), "stage must be one of"),
        (lambda: make_conditioning_scorer("sigma_min", layer=0.5), "layer must be an integer"),
        (lambda: make_convergence_scorer("speed"), "quantity must be one of .* got 'speed'"),
        (lambda: make_convergence_scorer("epochs_to"), "needs the loss to reach"),
        (lambda: make_convergence_scorer("rate", loss=1.0), "the others take none"),
        (lambda: make_convergence_scorer("epochs_to", loss="a"), "loss must be a finite number"),
        (lambda: make_convergence_scorer("epochs_to", loss=np.nan), "finite number.*got nan"),
        (lambda: make_convergence_scorer(3), "quantity must be a name such as .* got 3"),
        (lambda: make_conditioning_scorer(None), "quantity must be a name such as .* got None"),
    ],
)
def test_unknown_names_are_refused_when_the_scorer_is_made(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# ---- quantiles -----------------------------------------------------------------------------------


def of_quantiles(**kwargs):
    return small(loss="quantile", quantiles=(0.05, 0.5, 0.8), **kwargs)


def crps_by_hand(y, quantiles, levels):
    """Twice the pinball loss, level by level: tau (y - q) above q, (1 - tau) (q - y) below."""
    losses = []
    for k, tau in enumerate(levels):
        above = y - quantiles[..., k]
        losses.append(np.where(above > 0, tau * above, -(1 - tau) * above))
    return 2 * np.mean(losses)


@pytest.mark.parametrize("columns", [0, 2])
def test_the_crps_scorer_is_minus_twice_the_pinball_loss(data, columns):
    X, y = data
    y = np.stack([y, -3 * y], axis=1) if columns else y
    scaled = StandardScaler().fit(X)
    alone = of_quantiles().fit(scaled.transform(X), y)
    q = alone.predict_quantiles(scaled.transform(X))
    expected = -crps_by_hand(y, q, (0.05, 0.5, 0.8))
    scorer = pickle.loads(pickle.dumps(make_crps_scorer()))
    assert repr(scorer) == "make_crps_scorer()"
    assert scorer(alone, scaled.transform(X), y) == pytest.approx(expected, rel=1e-12)
    pipe = make_pipeline("passthrough", StandardScaler(), of_quantiles()).fit(X, y)
    assert scorer(pipe, X, y) == pytest.approx(expected, rel=1e-12)
    ensemble = SeedEnsembleRegressor(of_quantiles(), n_estimators=2, random_state=0).fit(X, y)
    q = np.mean([member.predict_quantiles(X) for member in ensemble.estimators_], axis=0)
    by_hand = -crps_by_hand(y, q, (0.05, 0.5, 0.8))
    assert scorer(ensemble, X, y) == pytest.approx(by_hand, rel=1e-12)


def test_searches_choose_by_the_crps(data):
    """Of each fold what a fit on its training rows scores on its test rows; the best is kept."""
    X, y = data
    halves = [(np.arange(40), np.arange(40, 80)), (np.arange(40, 80), np.arange(40))]
    pipe = make_pipeline(StandardScaler(), of_quantiles())
    grid = {"residualtransformerregressor__residual_beta": BETAS}
    search = GridSearchCV(pipe, grid, scoring=make_crps_scorer(), cv=halves).fit(X, y)
    for k, beta in enumerate(BETAS):
        for fold, (train, test) in enumerate(halves):
            pipe.set_params(residualtransformerregressor__residual_beta=beta)
            q = pipe.fit(X[train], y[train])[-1].predict_quantiles(pipe[0].transform(X[test]))
            found = search.cv_results_[f"split{fold}_test_score"][k]
            # A search may train its candidates as one stack, in float32.
            assert found == pytest.approx(-crps_by_hand(y[test], q, (0.05, 0.5, 0.8)), rel=1e-4)
    assert search.best_index_ == search.cv_results_["mean_test_score"].argmax()
    assert search.score(X, y) == make_crps_scorer()(search, X, y) < 0
    found = cross_validate(
        of_quantiles(), X, y, scoring={"crps": make_crps_scorer(), "r2": "r2"}, cv=2
    )
    assert (found["test_crps"] < 0).all() and found["test_r2"].shape == (2,)


def test_the_crps_of_a_model_of_one_number_is_refused(data):
    X, y = data
    around = TransformedTargetRegressor(of_quantiles(), transformer=StandardScaler()).fit(X, y)
    intervals = ConformalIntervals(of_quantiles()).fit(X, y)
    for model in (Ridge().fit(X, y), small().fit(X, y), around, intervals):
        with pytest.raises(ValueError, match="predicts one number: set loss='quantile', or score"):
            make_crps_scorer()(model, X, y)
