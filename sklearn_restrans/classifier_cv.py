"""The classifier that chooses its residual coefficient: signature and documentation."""

from __future__ import annotations

from ._beta_search import BetaSearch
from ._parameters import OF_CLASSIFIERS, OF_SEARCHES, SearchParameters, declared
from .classifier import ResidualTransformerClassifier, _ResidualClassifier

__all__ = ["ResidualTransformerClassifierCV"]


@declared
class ResidualTransformerClassifierCV(BetaSearch, _ResidualClassifier, SearchParameters):
    """ResidualTransformerClassifier that chooses its residual coefficient by cross-validation.

    As LassoCV does for alpha: candidates are trained together where that is faster
    (:func:`residual_beta_path`), and the best one is fitted again on all data.

    {parameters}

    {attributes}

    See Also
    --------
    ResidualTransformerClassifier : The same with one given beta.
    residual_beta_path : The function behind it.

    References
    ----------
    Z. Qin, J. Zhou, J. Jiang, Z. Zhu, "On the Convergence of Gradient Descent on Learning
    Transformers with Residual Connections", arXiv:2506.05249.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_restrans import ResidualTransformerClassifierCV
    >>> X, y = load_iris(return_X_y=True)
    >>> model = ResidualTransformerClassifierCV([0, 1], cv=3, d_model=8, max_iter=3, random_state=0)
    >>> model.fit(X, y).residual_beta_ in (0.0, 1.0)
    True
    """

    _plain = ResidualTransformerClassifier
    _attributes = OF_CLASSIFIERS | OF_SEARCHES
