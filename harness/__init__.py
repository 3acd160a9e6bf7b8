"""The machinery of the validation harness; it knows nothing of Iris."""
