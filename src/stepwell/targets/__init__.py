"""Where a solver runs: one small interface, one implementation per target."""
