"""Many rows, many processes, long runs: wrappers that a plain fit never enters."""
