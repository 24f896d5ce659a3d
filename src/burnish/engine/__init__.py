"""Sampling: requests, scheduler, KV cache, running batch, model runner; subprocess/ holds engines in
other processes.
"""
