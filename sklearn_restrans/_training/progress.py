"""A bar that grows while an epoch is trained."""

from __future__ import annotations

from .skorch_names import Callback


class ProgressBar(Callback):
    """One bar an epoch, of the samples trained on; silent where nobody watches.

    The `tqdm` library draws it in terminals and notebooks, and nothing into files and pipes.
    """

    bar_ = None

    def on_epoch_begin(self, net, dataset_train=None, **_):
        from tqdm.auto import tqdm

        title = f"epoch {len(net.history)}"
        self.bar_ = tqdm(total=len(dataset_train), desc=title, leave=False, disable=None)

    def on_batch_end(self, net, batch=None, **_):
        if self.bar_ is not None:
            self.bar_.update(len(batch))

    def on_epoch_end(self, net, **_):
        if self.bar_ is not None:
            self.bar_.close()
            self.bar_ = None
