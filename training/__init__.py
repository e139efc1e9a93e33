"""Jobs and experiments: traces, training, closed loops, comparisons and their reports."""
