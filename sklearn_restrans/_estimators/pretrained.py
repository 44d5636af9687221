"""Fine-tune a pretrained encoder, cut to L layers and with its residuals scaled, on texts."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from sklearn.utils.metaestimators import available_if

from .._compat import _fit_context, fit_task, metadata_of
from .._model.architecture import Architecture
from .._pretrained.checkpoint import read_checkpoint, read_weights
from .._pretrained.texts import learn_texts
from .base import TransformerBase
from .candidates import keep, train_estimator
from .classifier import Classifying
from .declaration import declared
from .encoder_parameters import (
    STEP_OF_HEAD,
    STEP_OF_LAYERS,
    EncoderParameters,
    FineTuningParameters,
    TunedParameters,
)
from .parameters import OF_CLASSIFIERS
from .preparation import EpochRule, known_epochs
from .regressor import Regressing, predicts_quantiles

__all__ = ["PretrainedTextClassifier", "PretrainedTextRegressor"]


# On sentences held out of SST-2's training part (benchmarks/README.md): 300 phrases, all layers,
# .717 after 30 steps and .749 after 100; the head alone, of 300, .734 and .744.
EPOCHS_OF_FINE_TUNING = EpochRule(steps=150, fewest=3, most=40)


@declared
class PretrainedBase(FineTuningParameters, TransformerBase, TunedParameters, EncoderParameters):
    """Body of the pretrained estimators: their model, and fit."""

    _start = "given"
    _batch_bounds = (4, 32)
    # Texts have no columns.
    _attributes: ClassVar[dict[str, tuple[str, str | None]]] = {
        "n_features_in_": ("int", None),
        "feature_names_in_": ("ndarray", None),
    }

    def _learn_inputs(self, X, segments):
        inputs = learn_texts(type(self).__name__, read_checkpoint(self.model), self.max_length)
        return inputs, inputs.check(X, segments)

    def _inputs_asked(self, inputs):
        longest = inputs.checkpoint.n_positions if self.max_length is None else self.max_length
        return {"model": str(self.model), "max_length": longest}

    def _architecture(self, preprocessing):
        fields = preprocessing.inputs.checkpoint.fields(self.n_layers, self.max_length)
        n_layers = fields["n_layers"]
        named = {"all": None, "head": 0}
        if isinstance(self.fine_tune, bool):
            raise ValueError(f"fine_tune must be 'all', 'head' or a number, got {self.fine_tune}.")
        n_trained = named[self.fine_tune] if self.fine_tune in named else int(self.fine_tune)
        if n_trained is not None and n_trained > n_layers:
            raise ValueError(
                f"fine_tune={self.fine_tune} asks for more layers than the {n_layers} that are "
                "kept; lower it, raise n_layers, or set fine_tune='all'."
            )
        return Architecture(
            n_outputs=preprocessing.targets.n_outputs,
            dropout=float(self.dropout),
            readout=self.readout,
            n_trained=n_trained,
            **fields,
        )

    def _given_weights(self, inputs, arch):
        return read_weights(inputs.checkpoint, arch)

    def _epoch_rule(self):
        return EPOCHS_OF_FINE_TUNING

    def _step(self, arch):
        if self.learning_rate_init is not None:
            return float(self.learning_rate_init)
        return STEP_OF_HEAD if arch.n_trained == 0 else STEP_OF_LAYERS

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y, sample_weight=None, *, X_val=None, y_val=None):
        """Fine-tune the encoder on texts.

        Parameters
        ----------
        X : list, Series, array or one-column frame of str of shape (n_samples,)
            Texts. An empty one is read as its special tokens.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Labels or numbers.
        sample_weight : array-like of shape (n_samples,), default=None
            Non-negative weights.
        X_val, y_val : default=None
            Validation texts and targets. If given, the weights of the epoch with the lowest
            validation loss are kept.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        FileNotFoundError
            If the folder or one of its files is missing; the message names it.
        ValueError
            If a file cannot be read, or an argument does not fit the others.
        DivergenceError
            If a loss, a weight or an output is not finite: training diverged.
        """
        shown = {"X": X, "y": y, "metadata": metadata_of(sample_weight)}
        with fit_task(self, known_epochs(self), **shown) as task:
            data = (X, y, sample_weight, X_val, y_val)
            keep(self, *train_estimator(self, self.residual_beta, *data, task=task))
        return self

    def predict(self, X):
        """Predict the target of every text.

        Parameters
        ----------
        X : list, Series, array or one-column frame of str of shape (n_samples,)
            Texts.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Labels, or numbers as y had them in ``fit``.
        """
        outputs = self._outputs(X)
        return self._preprocessing.targets.decode(outputs)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags


@declared
class PretrainedTextClassifier(Classifying, PretrainedBase):
    """Classification of texts with a pretrained encoder, cut to L layers: Z = Attn(X) + beta X.

    The encoder is a BERT- or GPT-2-style checkpoint. Every residual connection is multiplied
    by ``residual_beta``, without a change to the checkpoint: at 1 and with all layers its hidden
    states are those of the original. A linear read-out, which starts at zero, gives the classes.
    Pickles hold a copy of all weights and of the tokenizer, and need the folder no more.

    {parameters}

    {attributes}

    See Also
    --------
    TextEmbedder : Vectors of texts from a frozen encoder.

    References
    ----------
    Z. Qin, J. Zhou, J. Jiang, Z. Zhu, "On the Convergence of Gradient Descent on Learning
    Transformers with Residual Connections", arXiv:2506.05249, the experiment on SST-2.

    Examples
    --------
    >>> from sklearn_restrans import PretrainedTextClassifier
    >>> model = PretrainedTextClassifier("folder/of/a/checkpoint", n_layers=2, residual_beta=0.5)
    >>> model.fit(["a fine film", "a dull film"], ["good", "bad"])
    Traceback (most recent call last):
    FileNotFoundError: model='folder/of/a/checkpoint': there is no such folder.
    """

    _attributes = OF_CLASSIFIERS

    def predict_proba(self, X):
        """Probabilities of the classes.

        Parameters
        ----------
        X : list, Series, array or one-column frame of str of shape (n_samples,)
            Texts.

        Returns
        -------
        p : ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``; rows sum to one.
        """
        return self._probabilities(self._outputs(X))

    def predict_log_proba(self, X):
        """Logarithm of :meth:`predict_proba`.

        Parameters
        ----------
        X : list, Series, array or one-column frame of str of shape (n_samples,)
            Texts.

        Returns
        -------
        log_p : ndarray of shape (n_samples, n_classes)
        """
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))


@declared
class PretrainedTextRegressor(Regressing, PretrainedBase):
    """Regression on texts with a pretrained encoder, cut to L layers: Z = Attn(X) + beta X.

    As :class:`PretrainedTextClassifier`, for numbers: targets are standardised inside ``fit``.

    {parameters}

    {attributes}

    See Also
    --------
    PretrainedTextClassifier : The same model for classes.

    References
    ----------
    Z. Qin, J. Zhou, J. Jiang, Z. Zhu, "On the Convergence of Gradient Descent on Learning
    Transformers with Residual Connections", arXiv:2506.05249, the experiment on SST-2.

    Examples
    --------
    >>> from sklearn_restrans import PretrainedTextRegressor
    >>> model = PretrainedTextRegressor("folder/of/a/checkpoint", fine_tune="head")
    >>> model.fit(["a fine film", "a dull film"], [4.5, 1.0])
    Traceback (most recent call last):
    FileNotFoundError: model='folder/of/a/checkpoint': there is no such folder.
    """

    @available_if(predicts_quantiles)
    def predict_quantiles(self, X):
        """Predict the quantiles of the targets; of a model with ``loss="quantile"``.

        Parameters
        ----------
        X : list, Series, array or one-column frame of str of shape (n_samples,)
            Texts.

        Returns
        -------
        q : ndarray of shape (n_samples, n_quantiles) or (n_samples, n_outputs, n_quantiles)
            In the order of ``quantiles_``, and never falling along it.
        """
        outputs = self._outputs(X)
        return self._preprocessing.targets.decode_quantiles(outputs)
