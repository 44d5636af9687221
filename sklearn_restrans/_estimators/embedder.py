"""Vectors of texts from a frozen encoder."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from .._compat import _fit_context
from .._data.sources import make_source
from .._model.architecture import Architecture
from .._model.transformer import ResidualTransformer
from .._pretrained.checkpoint import read_checkpoint, read_weights
from .._pretrained.texts import learn_texts
from .._training.device import available_device, own_threads, resolve_device, resolve_dtype
from .._training.prediction import features
from .._training.state import module_state, restore_module
from .declaration import again, declared
from .encoder_parameters import EncoderParameters, FineTuningParameters
from .parameters import RunParameters, beta_matrix

__all__ = ["TextEmbedder"]


@declared
class TextEmbedder(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, EncoderParameters
):
    """Vectors of texts from a frozen pretrained encoder, by default the mean over their tokens.

    A linear model on them is the shortest way to a good text classifier:
    ``make_pipeline(TextEmbedder(folder), LogisticRegression())``. Nothing is learnt in ``fit``,
    which reads the folder; pickles hold a copy of the encoder and need the folder no more.

    {parameters}

    {attributes}

    See Also
    --------
    PretrainedTextClassifier : Trains the encoder too, or the read-out alone.

    References
    ----------
    N. Reimers, I. Gurevych, "Sentence-BERT", EMNLP 2019, arXiv:1908.10084.

    Examples
    --------
    >>> from sklearn_restrans import TextEmbedder
    >>> TextEmbedder("folder/of/a/checkpoint").fit(["a fine film"])
    Traceback (most recent call last):
    FileNotFoundError: model='folder/of/a/checkpoint': there is no such folder.
    """

    device: str = again(RunParameters, "device")
    dtype: str = again(FineTuningParameters, "dtype")
    n_threads: int | None = again(RunParameters, "n_threads")

    _attributes: ClassVar[dict[str, tuple[str, str | None]]] = {
        "encoder_": ("ResidualTransformer", "The torch model; ids are the checkpoint's plus 1."),
        "device_": ("str", "Where it lives."),
    }

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X=None, y=None):
        """Read the encoder.

        Parameters
        ----------
        X, y : object, default=None
            Ignored.

        Returns
        -------
        self : object

        Raises
        ------
        FileNotFoundError
            If the folder or one of its files is missing; the message names it.
        ValueError
            If a file cannot be read, or belongs to a model whose formulas this package lacks.
        """
        checkpoint = read_checkpoint(self.model)
        inputs = learn_texts(type(self).__name__, checkpoint, self.max_length)
        fields = checkpoint.fields(self.n_layers, self.max_length)
        arch = Architecture(n_outputs=1, readout=self.readout, n_trained=0, **fields)
        beta = torch.as_tensor(beta_matrix(self.residual_beta, arch.n_layers))
        device = resolve_device(self.device)
        dtype = resolve_dtype(self.dtype, None, 0, device)
        with own_threads(self.n_threads):
            encoder = ResidualTransformer(arch).to(dtype)
            for name, value in read_weights(checkpoint, arch).items():
                encoder.get_parameter(name).data.copy_(value)
            encoder = encoder.to(device).eval()
            encoder.beta.copy_(beta)
        self._inputs, self._autocast = inputs, self.dtype == "bfloat16"
        self.encoder_, self.device_, self._n_features_out = encoder, str(device), arch.d_model
        return self

    def transform(self, X):
        """Vectors of some texts.

        Parameters
        ----------
        X : list, Series, array or one-column frame of str of shape (n_samples,)
            Texts.

        Returns
        -------
        vectors : ndarray of shape (n_samples, d_model)
            In float32, or float64 for ``dtype="float64"``.

        Raises
        ------
        ValueError
            If X holds anything but texts; the message says where.
        """
        check_is_fitted(self)
        ids, like = self._inputs.check(X), self.encoder_.W_in
        with own_threads(self.n_threads, limit_blas=False):
            source = make_source(ids, None, like.dtype, like.device)
            found = features(self.encoder_, source, self._autocast)
        if not np.isfinite(found).all():
            row = np.flatnonzero(~np.isfinite(found).all(axis=1))[0]
            raise ValueError(
                f"the vector of text {row} of X is not finite: lower residual_beta, which takes "
                "the tokens out of the range of their number type."
            )
        return found if like.dtype == torch.float64 else found.astype(np.float32)

    def __sklearn_is_fitted__(self):
        return hasattr(self, "encoder_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.transformer_tags.preserves_dtype = []
        return tags

    def __getstate__(self):
        state = dict(super().__getstate__())
        if "encoder_" in state:
            encoder = state.pop("encoder_")
            state["_encoder_state"] = module_state(encoder)
        return state

    def __setstate__(self, state):
        state = dict(state)
        saved = state.pop("_encoder_state", None)
        super().__setstate__(state)
        if saved is not None:
            device = available_device(self.device_)
            with own_threads(1):
                self.encoder_, self.device_ = restore_module(saved).to(device), str(device)
