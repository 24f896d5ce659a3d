"""Who takes part in a benchmark: a module for each side, a function for each kind of work it can do.

Every function is called as f(work, turns) in a process of its own: `work` is what the parent wrote down once for all
sides, `turns` hands out the turns and holds the clock (see worker.py).
"""
