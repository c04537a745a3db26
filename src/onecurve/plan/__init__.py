"""What to train: shapes, their parameter counts, the parameterisation, and the recipe that puts them together."""
