"""How a model is trained: skorch's loop over whole batches, gradient descent, many at once."""
