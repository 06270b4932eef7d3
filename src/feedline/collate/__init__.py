"""Items to batches, and the pool of batch memory."""
