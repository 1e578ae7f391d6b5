"""
Hyperparameters of a model in JAX
=================================

A classifier is fitted with penalties on its coefficients, one for each group of features. Which penalties are good is
what a validation set can tell. The fitted coefficients are a function of them: ``stepwell.argmin`` is that function,
with its derivative, and within bounds if the model has any. So penalties can be found by L-BFGS-B too, six at once,
where a grid of five values each would be 15 625 fits.
"""

# %%
# JAX is optional; without it the example ends here.
import sys

try:
    import jax
except ImportError:
    print("this example needs JAX: pip install jax")
    sys.exit(0)

import matplotlib.pyplot as plt
import numpy as np

import stepwell

jax.config.update("jax_enable_x64", True)
jnp = jax.numpy
rng = np.random.default_rng(3)

# %%
# Six groups of ten features. One group matters, two a little, three are noise that a fit takes seriously.
groups, each, rows = 6, 10, 120
strength = np.repeat([1.5, 0.6, 0.3, 0, 0, 0], each) / np.sqrt(each)
truth = rng.normal(size=groups * each) * strength


def draw(count):
    """Return features and labels of ±1."""
    X = rng.normal(size=(count, groups * each))
    return jnp.asarray(X), jnp.asarray(np.where(rng.random(count) < 1 / (1 + np.exp(-3 * X @ truth)), 1.0, -1.0))


(X, y), (X_valid, y_valid), (X_test, y_test) = draw(rows), draw(rows), draw(4000)


# %%
# The inner problem: logistic loss and a penalty a group. The outer one: the loss of the validation set at its solution.
def loss(w, X, y):
    """Mean logistic loss."""
    return jnp.logaddexp(0.0, -y * (X @ w)).mean()


@jax.jit
def penalised(w, log_penalties):
    """What is minimised in w."""
    return loss(w, X, y) + (jnp.repeat(jnp.exp(log_penalties), each) * w**2).sum()


def fitted(log_penalties):
    """Return the coefficients as a function of the penalties, between −3 and 3."""
    return stepwell.argmin(penalised, jnp.zeros(groups * each), log_penalties, bounds=(-3.0, 3.0))


validation = jax.value_and_grad(lambda log_penalties: loss(fitted(log_penalties), X_valid, y_valid))

# %%
# The derivative is that of the solution, so a difference of two fits agrees with it.
start = jnp.full(groups, np.log(1e-2))
change = jnp.asarray(rng.normal(size=groups))
slope = float(validation(start)[1] @ change)
difference = float((validation(start + 1e-4 * change)[0] - validation(start - 1e-4 * change)[0]) / 2e-4)
print(f"slope {slope:.6f}, by differences {difference:.6f}")

# %%
# L-BFGS-B over the logarithms of the penalties, from one value for all.
curve = []


def told(log_penalties):
    """Value and gradient for the solver, which has NumPy's arrays."""
    value, gradient = validation(jnp.asarray(log_penalties))
    curve.append(float(value))
    return float(value), np.asarray(gradient)


outer = stepwell.minimize(told, np.asarray(start), jac=True, bounds=(-9.0, 2.0), options={"maxiter": 10, "gtol": 1e-4})
one = np.linspace(-7, 1, 7)
grid = [float(loss(fitted(jnp.full(groups, value)), X_valid, y_valid)) for value in one]
best_of_one = jnp.full(groups, one[int(np.argmin(grid))])
for name, log_penalties in (("one penalty for all", best_of_one), ("one for each group", jnp.asarray(outer.x))):
    w = fitted(log_penalties)
    wrong = float((jnp.sign(X_test @ w) != y_test).mean())
    print(f"{name}: validation {float(loss(w, X_valid, y_valid)):.3f}, wrong in the test {100 * wrong:.1f} %")

# %%
# The noise is switched off, what matters is left alone.
figure, axes = plt.subplots(1, 3, figsize=(12, 3.4), layout="constrained")
axes[0].plot(np.minimum.accumulate(curve), label="one for each group")
axes[0].axhline(min(grid), color="0.6", label="best single penalty")
axes[0].set(title="validation loss", xlabel="fit and gradient")
axes[0].legend(fontsize=8)
axes[1].bar(np.arange(groups), np.exp(outer.x), color=["C0" if s else "C3" for s in strength[::each]])
axes[1].set(title="penalty of each group (red: noise)", xlabel="group", yscale="log")
axes[2].plot(truth, "k.", ms=3, label="truth, scaled")
axes[2].plot(np.asarray(fitted(best_of_one)) / 3, color="0.7", lw=1, label="one penalty")
axes[2].plot(np.asarray(fitted(jnp.asarray(outer.x))) / 3, lw=1, label="one a group")
axes[2].set(title="coefficients", xlabel="feature")
axes[2].legend(fontsize=8)
plt.show()
