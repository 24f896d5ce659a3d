"""Datasets: from files, the hub or Python objects to tasks."""

from burnish.tasks.data.dataset import Dataset as Dataset
