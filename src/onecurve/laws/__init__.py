"""Laws fitted to runs, one module each."""
