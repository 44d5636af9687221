"""Small fits that the displays are drawn from."""

import matplotlib.pyplot as plt
import pytest
from sklearn.datasets import make_regression

from sklearn_restrans import ResidualTransformerRegressor


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="session")
def data():
    return make_regression(60, 4, noise=1.0, random_state=0)


@pytest.fixture(scope="session")
def models(data):
    return {
        f"beta = {beta}": ResidualTransformerRegressor(
            beta, d_model=8, max_iter=4, random_state=0
        ).fit(*data)
        for beta in (0.0, 1.0)
    }
