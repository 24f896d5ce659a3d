"""Other baselines and advantages, without a critic."""
