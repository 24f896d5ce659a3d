"""The zoo: one file (or folder) for each paper that was reproduced. The methods that people use are in `methods`."""
