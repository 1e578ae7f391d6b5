"""What the solvers are applied to: complete small applications built on the public doors."""
