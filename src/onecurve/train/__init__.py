"""The trainer: task, model, parameterisation, optimiser, loop, ladder."""
